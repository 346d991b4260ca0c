"""A file for `oracle step`: the model, batch and loss of cases.py and a `train`."""


def subject(folder, train, name="mine.py", head=""):
    """A file whose functions are the mistakes' but for train."""
    code = "import sys, os, time\n"
    code += "from tests.support.step.cases import *\n"
    code += "from refgf.oracle.step import communicated; batch = full_batch\n"
    path = folder / name
    path.write_text(code + head + "def train(net, batches, rank, size):\n" + train)
    return path


def filled(loop, usual, changes):
    """The text of a loop with each of the words that `usual` explains replaced."""
    for key, text in (usual | changes).items():
        loop = loop.replace(key, text)
    return loop
