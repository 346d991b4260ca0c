"""Seconds of a student's sweep: 1200 predicted steps of ResNet-50, 100 thetas x 12 cluster sizes.

    python tests/speed/sweep_speed.py

No baseline: the bar is one second. Times are the processor's for this thread; the counts of the
work behind them are tested in tests/papers/scaling/test_systems.py.
"""

import json
import sys
import time
from pathlib import Path

import benchmark
from judge import bar

from refgf.predict.cost import Link, ring_line
from refgf.papers.scaling.systems import sweep_theta
from refgf.papers.scaling.workloads import resnet50

ROUNDS = 7
THETAS, SIZES = [1000 * 1.12**i for i in range(100)], [2**k for k in range(1, 13)]


def main(arguments: list[str] | None = None) -> dict:
    """Print the times; return the numbers, and write them to the file named first, if any."""
    arguments = sys.argv[1:] if arguments is None else arguments
    ready, seconds = resnet50().gradients(0.2, 0.1, itemsize=1), []
    for _ in range(ROUNDS):
        start_s = time.thread_time()
        sweep_theta(ready, THETAS, SIZES, lambda size: ring_line(size, Link(1e-5, 1e-9)))
        seconds.append(time.thread_time() - start_s)
    what = f"seconds for {len(THETAS)} thetas x {len(SIZES)} cluster sizes x ResNet-50"
    result = {"seconds": seconds, "row": bar(what, seconds, 1.0)}
    if arguments:
        Path(arguments[0]).write_text(json.dumps(result, indent=1) + "\n")
    return result


if __name__ == "__main__":
    benchmark.begin()
    main()
