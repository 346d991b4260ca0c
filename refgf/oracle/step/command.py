"""python -m refgf.oracle step FILE"""

import argparse
from typing import Any

LIMIT = "seconds for the training (default: 60), and for the start, at least 60"
BATCH_NORM = "refuse", "whole"
NORM = "whole: judge with statistics of all ranks' samples, as SyncBatchNorm's (default: refuse)"
EPILOG = """\
FILE holds model(), batch(seed), loss(model, batch) and train(model, batches, rank, size):

    def train(model, batches, rank, size):
        wrapped = DistributedDataParallel(model) if size > 1 else model
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        for features, labels in batches:
            optimizer.zero_grad()
            loss(wrapped, (features[rank::size], labels[rank::size])).backward()
            optimizer.step()

batch(seed) is the batch of one optimizer step: train splits it to accumulate over micro-batches.
A step that clips or decays with code of its own calls refgf.oracle.step.communicated() before that.
A whole example: python -c 'import refgf.oracle.step; print(refgf.oracle.step.__doc__)'
"""


def step(options: argparse.Namespace) -> int:
    """Judge a training step of PyTorch on several ranks."""
    from refgf.oracle.step.judging import judge

    verdict = judge(
        options.file,
        options.ranks,
        options.steps,
        options.seed,
        options.timeout,
        options.batch_norm,
    )
    print(verdict)
    return 0 if verdict.right else 1


def add_step(commands: Any) -> None:
    about = "is a training step of PyTorch on several ranks right, but for rounding?"
    sub = commands.add_parser(
        "step", help=about, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sub.set_defaults(run=step)
    sub.add_argument("file", help="with model, batch, loss and train; FILE.py:NAME: an object")
    sub.add_argument("--ranks", type=int, default=2)
    sub.add_argument("--steps", type=int, default=3, help="optimizer steps (default: 3)")
    sub.add_argument("--seed", type=int, default=0, help="of the first batch")
    sub.add_argument("--batch-norm", choices=BATCH_NORM, default=BATCH_NORM[0], help=NORM)
    sub.add_argument("--timeout", type=float, default=60.0, help=LIMIT)
