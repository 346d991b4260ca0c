"""Memory of a lesson's ranks: recorded when its figure is measured, checked before a run.

Without the check, 64 ranks on a laptop would run for minutes until the system ends one of them.
"""

import json
import sys
from pathlib import Path

import refgf.launch as launch
from kit.record import ROOT

GIB = 2**30


def peak_bytes() -> int:
    """The largest resident memory of this process so far; 0 where the system does not say."""
    try:
        import resource
    except ImportError:
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def available_bytes(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """What this machine can still give; None where it does not say."""
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        return 1024 * int(lines["MemAvailable"].split()[0])
    except (OSError, ValueError, KeyError):
        return None


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


def require(name: str, available: int | None, needed: int, ranks: int | None = None) -> None:
    """Raise ValueError if the ranks on this machine need more than there is."""
    ranks = launch.job.on_machine if ranks is None else ranks
    if not needed or available is None or ranks * needed <= available:
        return
    fits = max(1, available // needed)
    raise ValueError(
        f"{name}: got {ranks} ranks on this machine, of about {needed / GIB:.2g} GiB each; wanted "
        f"at most {fits}, because {available / GIB:.3g} GiB are free; next: mpiexec -n {fits}"
    )
