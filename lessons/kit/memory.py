"""Memory of a lesson's ranks: recorded when its figure is measured, checked before a run.

Without the check, 64 ranks on a laptop would run for minutes until the system ends one of them.
"""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import refgf.launch as launch
from kit.record import ROOT
from kit.words import number_of_ranks

GIB = 2**30
PROCESS_BYTES = 64 * 2**20  # Python, NumPy and MPI
GROUPS = {  # control groups, version 2 and 1: below their root, the limit, what is in use
    "": ("", "memory.max", "anon"),
    "memory": ("memory", "memory.limit_in_bytes", "total_rss"),
}


def peak_bytes() -> int:
    """The largest resident memory of this process so far; 0 where the system does not say."""
    try:
        import resource
    except ImportError:
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def available_bytes(
    meminfo: Path = Path("/proc/meminfo"),
    own: Path = Path("/proc/self/cgroup"),
    groups: Path = Path("/sys/fs/cgroup"),
) -> int | None:
    """What this machine, or a control group's limit, can still give; None where none says."""
    found = [*_below_limits(own, groups)]
    with contextlib.suppress(OSError, ValueError, KeyError):
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        found.append(1024 * int(lines["MemAvailable"].split()[0]))
    return min(found, default=None)


def _below_limits(own: Path, groups: Path) -> Iterator[int]:
    """What each limit of this process's control group and of those around it leaves."""
    with contextlib.suppress(OSError, ValueError):  # not Linux
        for line in own.read_text().splitlines():
            _, kind, path = line.split(":", 2)
            if kind not in GROUPS:
                continue
            folder, limit, used = GROUPS[kind]
            inner = groups / folder / path.lstrip("/")
            for group in (inner, *inner.parents):
                with contextlib.suppress(OSError, ValueError, KeyError):  # none, or "max"
                    statistics = (group / "memory.stat").read_text().splitlines()
                    taken = dict(line.split() for line in statistics)[used]
                    yield int((group / limit).read_text()) - int(taken)


def needed_bytes(name: str, options, figures: Path = ROOT / "figures") -> int:
    """What a rank needed when the figure was measured; 0 if it measured something else."""
    try:
        record = json.loads((figures / f"{name}.json").read_text())
    except (OSError, ValueError):
        return 0
    for key in ("network", "full", "like"):
        asked, then = getattr(options, key, None), record["options"].get(key)
        if asked and asked != then:
            return 0
    return record.get("peak_bytes", 0)


def process_bytes(options, batch: int | None = None) -> int:
    """What a rank needs before it makes a network; a thread shares its process with the others."""
    return 0 if options.threads else PROCESS_BYTES


def require(
    name: str, options, estimate: Callable = process_bytes, available: int | None = None
) -> None:
    """Raise ValueError if the ranks on this machine need more memory than there is.

    estimate: (options, batch or None for that of the options) -> bytes of a rank. available: in
    bytes; None asks the machine.
    """
    available = available_bytes() if available is None else available
    ranks, needed = options.threads or launch.job.on_machine, estimate(options)
    if not (options.quick or options.threads):
        needed = max(needed, needed_bytes(name, options))
    if available is None or ranks * needed <= available:
        return
    tries, fits = [], available // needed
    if fits:
        tries.append(f"--threads {fits}" if options.threads else f"mpiexec -n {fits}")
    fixed = estimate(options, 0)
    an_image = estimate(options, 1) - fixed
    if an_image and (batch := (available // ranks - fixed) // an_image) > 0:
        tries.append(f"--batch {batch}")
    raise ValueError(
        f"{name}: got {number_of_ranks(ranks)} on this machine, of about {needed / GIB:,.1f} GiB "
        f"each; wanted at most {available / GIB:,.1f} GiB in all, which are free; "
        f"next: {' or '.join(tries) or 'a smaller network, --width or --image-size'}"
    )
