"""mypy finds what is wrong in a user's program. In refgf it finds nothing: .ci/run."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")
ROOT = Path(__file__).resolve().parent.parent
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

USERS_MISTAKES = {  # a line of a user's program: the end of mypy's sentence, or nothing
    "right([np.ones(4, np.float32)] * 3)": "",
    "text: str = ring_allreduce_s(8, 1000, 4, Link(1e-5, 1e-9))": "[assignment]",
    "Link('slow', 1e-9)": "[arg-type]",
    "GradientFlow(None, model, grouping=Theta(2**20))": "",
    "GradientFlow(None, model, grouping=Groups((range(3),)))": "",
    "GradientFlow(None, model, grouping=2**20)": "[arg-type]",
    "replica(network, partial(LARS, trust=0.01))": "",
    "replica(network, Theta)": "[arg-type]",
    "train_step(model, DenseExchange(model.gradients, how, scale), x, x, 8, 0.1)": "",
    "train_step(model, how, x, x, 8, 0.1)": "[arg-type]",
}
PROGRAM = """\
from functools import partial
import numpy as np
from refgf.comm.ring import ring_allreduce
from refgf.exchange.dense import DenseExchange, Transport
from refgf.exchange.lazy import Theta
from refgf.exchange.precision import LossScale
from refgf.oracle.definitions import ring_allreduce as right
from refgf.papers.jia.lars import LARS
from refgf.papers.mgwfbp.merged import Groups
from refgf.predict.cost import Link, ring_allreduce_s
from refgf.nn.alexnet import AlexNet
from refgf.training.gradientflow import GradientFlow
from refgf.training.step import replica, train_step
network, x = AlexNet(10), np.ones(3)
model, how, scale = replica(network), Transport(ring_allreduce(None)), LossScale()
"""


def mypy(*arguments):
    command = [sys.executable, "-m", "mypy", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_a_user_s_mistakes_are_found(tmp_path):
    (tmp_path / "users.py").write_text(PROGRAM + "\n".join(USERS_MISTAKES) + "\n")
    said = mypy("--follow-imports", "silent", str(tmp_path / "users.py")).stdout.splitlines()
    found = {line.split(":")[1]: line for line in said if "error:" in line}
    for number, wanted in enumerate(USERS_MISTAKES.values(), start=PROGRAM.count("\n") + 1):
        assert found.pop(str(number), "").endswith(wanted) if wanted else str(number) not in found
    assert not found
