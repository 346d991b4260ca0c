"""Looks at this machine and says what to mend.

    python -m refgf.doctor                    this machine; starts two ranks for a trial
    mpiexec -n 8 python -m refgf.doctor       this job: rank 0 prints, and says which ranks differ
    python -m refgf.doctor --gpu              also hands MPI a device pointer, in a job of its own: a failure is a crash

Each line is ok, look or broken (`checks.py`), with the command that mends what is not ok. Exit status: 0 if
nothing is broken, else 1. MPI is never started in this process before launcher and library are known to fit, because
the wrong pair ends a process without a word.
"""

import argparse
import contextlib
import json
import re
import sys
import time

import refgf.launch as launch
from refgf import device
from refgf.doctor import checks, checks_mpi
from refgf.doctor.facts import collect, output

CHECKS = (
    checks_mpi.library,
    checks_mpi.launcher,
    checks_mpi.size,
    checks_mpi.root,
    checks_mpi.slots,
    checks_mpi.start,
    checks_mpi.thread_level,
    checks.cores,
    checks.sessions,
    checks.binding,
    checks.blas_threads,
    checks.blas_kernels,
    checks.shared_memory,
    checks.host_name,
    checks.gpu,
    checks.cuda_aware,
)
# ---- trials in jobs of their own ----


def try_to_start(facts: dict) -> dict:
    """Start two ranks of `--report`; their exit code, sizes, seconds and what they and the launcher said."""
    command = [facts["mpiexec"], "-n", "2", sys.executable, "-m", "refgf.doctor", "--report"]
    start = time.monotonic()
    code, text = output(command)
    reports = [json.loads(found) for found in re.findall(r"\{.*?\}", text) if '"mpi_size"' in found]
    sizes = [report["mpi_size"] for report in reports]
    told = {"code": code, "sizes": sizes, "seconds": time.monotonic() - start, "text": text}
    return told | {"command": " ".join(command), "reports": reports}


def running_mpi() -> dict:
    """What only a running MPI knows; starts it."""
    from mpi4py import MPI

    levels = {getattr(MPI, f"THREAD_{name.upper()}"): name for name in ("single", "funneled", "serialized", "multiple")}
    aware = None
    with contextlib.suppress(ValueError):  # REFGF_CUDA_AWARE is nonsense: the check says so
        aware = device.cuda_aware()
    return {"mpi_size": MPI.COMM_WORLD.size, "thread_level": levels[MPI.Query_thread()], "cuda_aware": aware}


def try_device(facts: dict) -> str:
    """'right', 'gave wrong numbers' or 'crashed', from two ranks that hand each other device pointers."""
    _, said = output([facts["mpiexec"], "-n", "2", sys.executable, "-m", "refgf.doctor", "--device-trial"])
    if said.count("device trial right") == 2:
        return "right"
    return "gave wrong numbers" if "device trial wrong" in said else "crashed"


def exchange_on_device() -> None:
    """Rank 0 and 1 swap an array that MPI gets as a device pointer, whatever REFGF_CUDA_AWARE says."""
    from mpi4py import MPI

    comm, xp = MPI.COMM_WORLD, device.module("gpu")
    device.select(launch.job.local_rank)
    sent = xp.arange(100_003, dtype=xp.float32) + comm.rank
    received = xp.empty_like(sent)
    device.synchronize(sent)
    comm.Sendrecv(sent, 1 - comm.rank, recvbuf=received, source=1 - comm.rank)
    print("device trial", "right" if (received == sent - comm.rank + 1 - comm.rank).all() else "wrong", flush=True)


# ---- the report ----


def examine(all_facts: list[dict]) -> list[tuple[checks.Check, list[int]]]:
    """Every check for every rank; [(check, ranks that have it)], equal ones of several ranks together."""
    found = []
    together = checks_mpi.agreement(all_facts)
    if together:
        found.append((together, list(range(len(all_facts)))))
    for function in CHECKS:
        ranks_of = {}
        for rank, facts in enumerate(all_facts):
            check = function(facts)
            if check:
                ranks_of.setdefault(check, []).append(rank)
        found += ranks_of.items()
    return found


def show(all_facts: list[dict], settings=()) -> str:
    """The report as text. A check that not all ranks share says whose it is."""
    facts = all_facts[0]
    hosts = sorted({f["host"] for f in all_facts})
    ranks = f"{facts['size']} ranks" if facts["launcher"] else "alone"
    lines = [f"refgf doctor, {ranks} on {', '.join(hosts)}; Python {facts['version']}, {facts['python']}"]
    for check, those in examine(all_facts):
        whose = f" (ranks {ranges(those)})" if len(those) < len(all_facts) else ""
        lines.append(f"{check.status:<7} {check.topic:<14} {check.finding}{whose}")
        if check.mend:
            lines.append(f"{'':<22} -> {check.mend}")
    lines += ["set before MPI started:"] if settings else []
    for setting in settings:
        by = {"launch": "by refgf.launch", "user": "by you", "late": "too late: import refgf.launch first"}[setting.by]
        lines.append(f"        {setting.name}={setting.value}  ({by}; {setting.reason})")
    return "\n".join(lines)


def ranges(numbers: list[int]) -> str:
    """[0, 1, 2, 5] -> '0-2, 5'."""
    runs = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{first}-{last}" if first < last else f"{first}" for first, last in runs)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("python -m refgf.doctor", description="Look at this machine; say what to mend.")
    parser.add_argument("--gpu", action="store_true", help="hand MPI a device pointer, in a job of two ranks")
    parser.add_argument("--report", action="store_true", help=argparse.SUPPRESS)  # the two trials' ranks
    parser.add_argument("--device-trial", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.report:
        print(json.dumps(running_mpi()), flush=True)
        return 0
    if options.device_trial:
        exchange_on_device()
        return 0
    if options.gpu and launch.job.launcher:
        sys.exit("doctor --gpu starts a job of its own, which a rank cannot; next: python -m refgf.doctor --gpu")
    facts = collect()
    fits = checks_mpi.launcher(facts)
    if facts["launcher"] and facts["mpi"] and (fits is None or fits.status != "broken"):
        return _in_a_job(facts)
    if not facts["launcher"] and facts["mpi"] and facts["mpiexec"]:
        _try(facts, options.gpu)
    return _print([facts]) if launch.job.rank == 0 else 0  # an error status of another rank would cut the report short


def _try(facts: dict, gpu: bool) -> None:
    """The trials, and what their ranks say of a running MPI, into `facts`."""
    facts["started"] = try_to_start(facts)
    for report in facts["started"]["reports"][:1]:
        facts.update(thread_level=report["thread_level"], cuda_aware=report["cuda_aware"])
    if gpu and facts["gpus"] and facts["cupy"]:
        facts["device_trial"] = try_device(facts)


def _in_a_job(facts: dict) -> int:
    facts |= running_mpi()
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    all_facts = comm.gather(facts)
    speaks = comm.rank == 0 and (comm.size > 1 or launch.job.rank == 0)  # not each of several that are all rank 0 of 1
    return comm.bcast(_print(all_facts) if speaks else 0)


def _print(all_facts: list[dict]) -> int:
    print(show(all_facts, launch.settings), flush=True)
    return int(any(check.status == "broken" for check, _ in examine(all_facts)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
