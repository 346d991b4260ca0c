"""python -m refgf.oracle step FILE"""

import argparse
from typing import Any


def step(options: argparse.Namespace) -> int:
    """Judge a training step of PyTorch on several ranks."""
    from refgf.oracle.step.judging import judge

    verdict = judge(options.file, options.ranks, options.steps, options.seed, options.timeout)
    print(verdict)
    return 0 if verdict.right else 1


def add_step(commands: Any) -> None:
    about = "is a training step of PyTorch on several ranks right, but for rounding?"
    sub = commands.add_parser("step", help=about)
    sub.set_defaults(run=step)
    sub.add_argument("file", help="with model, batch, loss and train; FILE.py:NAME: an object")
    sub.add_argument("--ranks", type=int, default=2)
    sub.add_argument("--steps", type=int, default=3, help="optimizer steps (default: 3)")
    sub.add_argument("--seed", type=int, default=0, help="of the first batch")
    sub.add_argument("--timeout", type=float, default=60.0, help="seconds for the training")
