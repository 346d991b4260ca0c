"""Checks this machine and prints the commands that fix it.

    python -m refgf.doctor                    this machine; starts two ranks as a trial
    mpiexec -n 8 python -m refgf.doctor       this job: rank 0 prints and names ranks that differ
    python -m refgf.doctor --gpu              also passes MPI a device pointer, in a trial job
    python -m refgf.doctor --setup            what `make setup` asks: names a site's MPI as mpi4py
                                              wants it (`site.py`), prints only what is broken

Each line is ok, look or broken (`checks.py`), with the command that fixes what is not ok. The exit
status is 0 if nothing is broken, else 1. This process starts MPI only after it has compared
launcher and library, because a wrong pair ends a process without a message. The device pointer goes
to a job of its own, because a failure there is a crash.
"""

import refgf.interrupt  # noqa: F401  first

# isort: split

import argparse
import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Iterable
from typing import Any

import refgf.launch as launch
from refgf import device, program
from refgf.doctor import checks, checks_mpi, site
from refgf.doctor.facts import collect, run

CHECKS = (
    checks_mpi.library,
    checks_mpi.launcher,
    checks_mpi.size,
    checks_mpi.root,
    checks_mpi.slots,
    checks_mpi.start,
    checks_mpi.thread_level,
    checks.cores,
    checks.load,
    checks.sessions,
    checks.binding,
    checks.blas_threads,
    checks.blas_kernels,
    checks.shared_memory,
    checks.host_name,
    checks.gpu,
    checks.cuda_aware,
)
SET_BY = {
    "launch": "by refgf.launch",
    "user": "by you",
    "late": "too late: import refgf.launch first",
}

# ---- trial jobs ----


def try_to_start(facts: dict[str, Any]) -> dict[str, Any]:
    """Start two ranks of `--report`; return exit code, sizes, seconds, output and reports."""
    command = [facts["mpiexec"], "-n", "2", sys.executable, "-P", "-m", "refgf.doctor", "--report"]
    start = time.monotonic()
    code, text = run(command)
    reports = [json.loads(found) for found in re.findall(r"\{.*?\}", text) if '"mpi_size"' in found]
    sizes = [report["mpi_size"] for report in reports]
    outcome = {"code": code, "sizes": sizes, "seconds": time.monotonic() - start, "text": text}
    return outcome | {"command": " ".join(command), "reports": reports}


def query_mpi() -> dict[str, Any]:
    """Start MPI and return the facts that only a running MPI knows."""
    from mpi4py import MPI

    from refgf.engine.staging import cuda_aware

    levels = {
        MPI.THREAD_SINGLE: "single",
        MPI.THREAD_FUNNELED: "funneled",
        MPI.THREAD_SERIALIZED: "serialized",
        MPI.THREAD_MULTIPLE: "multiple",
    }
    aware = None
    with contextlib.suppress(ValueError):  # the check reports a wrong REFGF_CUDA_AWARE
        aware = cuda_aware()
    return {
        "mpi_size": MPI.COMM_WORLD.size,
        "thread_level": levels[MPI.Query_thread()],
        "cuda_aware": aware,
    }


def try_device(facts: dict[str, Any]) -> str:
    """'right', 'gave wrong numbers' or 'crashed': two ranks exchange arrays by device pointers."""
    command = [
        facts["mpiexec"],
        "-n",
        "2",
        sys.executable,
        "-P",
        "-m",
        "refgf.doctor",
        "--device-trial",
    ]
    _, text = run(command)
    if text.count("device trial right") == 2:
        return "right"
    return "gave wrong numbers" if "device trial wrong" in text else "crashed"


def exchange_on_device() -> None:
    """Ranks 0 and 1 exchange arrays by device pointers, even if REFGF_CUDA_AWARE=0."""
    from mpi4py import MPI

    comm, xp = MPI.COMM_WORLD, device.module("gpu")
    device.select(launch.job.local_rank)
    sent = xp.arange(100_003, dtype=xp.float32) + comm.rank
    received = xp.empty_like(sent)
    device.synchronize(sent)
    comm.Sendrecv(sent, 1 - comm.rank, recvbuf=received, source=1 - comm.rank)
    print(
        "device trial",
        "right" if (received == sent - comm.rank + 1 - comm.rank).all() else "wrong",
        flush=True,
    )


# ---- the report ----


def examine(all_facts: list[dict[str, Any]]) -> list[tuple[checks.Check, list[int]]]:
    """Every check on every rank's facts, as [(check, ranks with this result)]."""
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


def format_report(all_facts: list[dict[str, Any]], settings: Iterable[launch.Setting] = ()) -> str:
    """The report as text. A result that not all ranks share names its ranks."""
    facts = all_facts[0]
    hosts = sorted({f["host"] for f in all_facts})
    ranks = f"{facts['size']} ranks" if facts["launcher"] else "one process"
    lines = [
        f"refgf doctor, {ranks} on {', '.join(hosts)}; Python {facts['version']}, {facts['python']}"
    ]
    for check, ranks_of in examine(all_facts):
        suffix = f" (ranks {format_ranges(ranks_of)})" if len(ranks_of) < len(all_facts) else ""
        lines.append(f"{check.status:<7} {check.topic:<14} {check.finding}{suffix}")
        if check.fix:
            lines.append(f"{'':<22} -> {check.fix}")
    lines += ["set before MPI started:"] if settings else []
    for setting in settings:
        by = SET_BY[setting.by]
        lines.append(f"        {setting.name}={setting.value}  ({by}; {setting.reason})")
    return "\n".join(lines)


def format_ranges(numbers: list[int]) -> str:
    """[0, 1, 2, 5] -> '0-2, 5'."""
    runs = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{first}-{last}" if first < last else f"{first}" for first, last in runs)


def main(arguments: list[str]) -> int:
    """Run the command; return its exit status."""
    description = "Check this machine and print the commands that fix it."
    parser = argparse.ArgumentParser("python -m refgf.doctor", description=description)
    gpu_help = "pass MPI a device pointer, in a job of two ranks"
    parser.add_argument("--gpu", action="store_true", help=gpu_help)
    setup_help = "look for the site's MPI, and print only what is broken"
    parser.add_argument("--setup", action="store_true", help=setup_help)
    # the ranks of the two trial jobs
    parser.add_argument("--report", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--device-trial", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.report:
        print(json.dumps(query_mpi()), flush=True)
        return 0
    if options.device_trial:
        exchange_on_device()
        return 0
    if options.setup:
        return _set_up()
    if options.gpu and launch.job.launcher:
        sys.exit(
            "doctor --gpu: got a job of several ranks; wanted a single process, which starts a "
            "job of its own; next: python -m refgf.doctor --gpu"
        )
    facts = collect() | {"gpu_asked": options.gpu}
    fits = checks_mpi.launcher(facts)
    if facts["launcher"] and facts["mpi"] and (fits is None or fits.status != "broken"):
        return _report_job(facts)
    if not facts["launcher"] and facts["mpi"] and facts["mpiexec"]:
        _run_trials(facts, options.gpu)
    # an error status of another rank would cut the report short
    return _print_report([facts]) if launch.job.rank == 0 else 0


def _set_up() -> int:
    """Find the site's MPI; print what is broken. The exit status is 1 if no library loads.

    A launcher that does not start ranks is no error: a login node may refuse, and srun may start.
    """
    facts = collect()
    if said := site.link(checks.family(facts["mpiexec_version"])):
        print(said, flush=True)
        os.environ["LD_LIBRARY_PATH"] = f"{site.FOLDER}:{os.environ.get('LD_LIBRARY_PATH', '')}"
        facts = collect()
    if facts["mpi"] and facts["mpiexec"]:
        _run_trials(facts, False)
    lines = format_report([facts]).splitlines()
    broken = [i for i, line in enumerate(lines) if line.startswith("broken")]
    for i in broken:
        print(*lines[i : i + 2], sep="\n", file=sys.stderr)
    if broken:
        print(f"more: {sys.executable} -m refgf.doctor", file=sys.stderr)
    return int(not facts["mpi"])


def _run_trials(facts: dict[str, Any], gpu: bool) -> None:
    """Run the trial jobs; add their outcome and their ranks' reports to `facts`."""
    facts["started"] = try_to_start(facts)
    for report in facts["started"]["reports"][:1]:
        facts.update(thread_level=report["thread_level"], cuda_aware=report["cuda_aware"])
    if gpu and facts["gpus"] and facts["cupy"]:
        facts["device_trial"] = try_device(facts)


def _report_job(facts: dict[str, Any]) -> int:
    facts |= query_mpi()
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    all_facts = comm.gather(facts) or []
    # where launcher and library do not fit, every process is rank 0 of 1: only one of them prints
    prints = comm.rank == 0 and (comm.size > 1 or launch.job.rank == 0)
    return comm.bcast(_print_report(all_facts) if prints else 0)


def _print_report(all_facts: list[dict[str, Any]]) -> int:
    print(format_report(all_facts, launch.settings), flush=True)
    return int(any(check.status == "broken" for check, _ in examine(all_facts)))


if __name__ == "__main__":
    sys.exit(program.ended(lambda: main(sys.argv[1:]), str))
