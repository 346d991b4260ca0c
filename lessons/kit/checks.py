"""What a lesson refuses before it measures, because it would end later and lose the measurement."""

import math
import os
import tempfile
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path

import refgf.launch as launch
from refgf.advice import install
from refgf.machine.units import parse_rate
from refgf.machine.link import parse_link

RANGES = {  # every option that is a number: least and most
    "threads": (1, 256),  # more threads of one process only wait for each other
    "image_size": (1, 10_000),
    "width": (1e-3, 16),
    "batch": (1, 10**6),
    "rate": (0, 1000),
    "epochs": (1, 10**5),
    "theta": (0, math.inf),
    "density": (1e-6, 100),
    "warmup": (1e-6, 100),
    "chunk": (1, 2**40),
    "pairs": (0, 1000),
    "accuracy": (0, 100),
    "share": (1, 2**40),
    "ranks_per_node": (1, 2**20),
    "trust": (0, 1000),
}
LINKS = {"slow_store": parse_link, "inside": parse_rate}


def require(options: Namespace) -> None:
    """ValueError for a number out of its range, a folder that cannot be written and the like."""
    for name, (least, most) in RANGES.items():
        given = getattr(options, name, None)
        for value in given if isinstance(given, list) else [given]:
            if value is not None and not least <= value <= most:
                raise ValueError(
                    f"--{name.replace('_', '-')}: got {value}; wanted {least:g} to {most:g}; "
                    "next: leave it out for the default"
                )
    for name, parse in LINKS.items():
        if (text := getattr(options, name, None)) is not None:
            parse(text)
    if find_spec("matplotlib") is None:
        raise ValueError(f"got no matplotlib; next: {install('lessons')}")
    if launch.job.rank == 0 and not options.plot:
        require_folders(options)


def require_folders(options: Namespace) -> None:
    """Make the folders that a run writes to; ValueError if one cannot be written."""
    folders = {"--output ": options.output}
    folders |= {"--checkpoints ": getattr(options, "checkpoints", None)}
    folders |= {"REFGF_TRACE_DIR=": os.environ.get("REFGF_TRACE_DIR")}
    for name, folder in folders.items():
        if not folder:
            continue
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except (OSError, ValueError) as error:  # ValueError: a NUL in its name
            reason = getattr(error, "strerror", None) or error
            raise ValueError(
                f"{name}{str(folder)!r}: {reason}; wanted a folder that can be written; "
                f"next: {name}results/mine"
            ) from None
