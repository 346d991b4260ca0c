"""A list of gradients: its units. What is said of each list is approved in tests/approval."""

import gzip

import pytest

from refgf.plan.inputs import read_file
from tests.support.list_cases import LISTS


def test_what_follows_backward_a_batch_and_a_compressed_file(tmp_path):
    path = tmp_path / "sizes.json.gz"
    path.write_bytes(gzip.compress(LISTS["optimiser.json"].encode()))
    step = read_file(str(path), None)
    assert (step.compute_s, step.batch) == (1.75, 8)


def test_a_file_that_is_not_there():
    with pytest.raises(ValueError, match="wanted one of alexnet.* --model resnet50"):
        read_file("nonsense", None)
    with pytest.raises(ValueError, match="no readable file"):
        read_file("missing.csv", None)
