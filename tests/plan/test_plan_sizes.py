"""A list of gradients: its units. What is said of each list is approved in tests/approval."""

import gzip

import pytest

from refgf.plan.inputs import read_file
from tests.support.list_cases import LISTS

READY = {  # of the lists that are right: ((ready_s, elements), ...) and what is said
    "usual.csv": (((0.01, 1000), (0.02, 30)), ""),
    "spreadsheet.csv": (((0.01, 1000),), ""),
    "bytes.csv": (((7e-6, 100),), "very short"),  # of float32
    "optimiser.json": (((1.5, 5),), ""),
    "half_a_minute.csv": (((31.2, 5),), "long"),  # with accumulation a step can take it
    "40_seconds.csv": (((30.0, 5), (40.0, 5)), "a step of 40 s is long. Is the unit, ready_ms"),
    "half_a_ms.csv": (((5e-4, 5),), "a step of 0.5 ms is very short. Is the unit, ready_us"),
    "twice.csv": (((1e-3, 1), (2e-3, 2)), "names that stand more than once: 1, such as a."),
    "zero_elements.csv": (((1e-3, 0), (2e-3, 5)), "1 of 2 gradients have 0 elements"),
    "bfloat16.json": (((12.5e-3, 200),), "gradients of bfloat16. All rows but half"),
    "float64.json": (((12.5e-3, 50),), "gradients of float64"),
    "bf16.json": (((12.5e-3, 400),), "gradients of bf16"),
    "fp32.json": (((12.5e-3, 100),), ""),
}


@pytest.mark.parametrize("name", LISTS)
def test_each_list_is_read_right_or_refused(tmp_path, name):
    path = tmp_path / name
    path.write_text(LISTS[name])
    if name not in READY:
        with pytest.raises(ValueError, match="plan --model .*: got .*; wanted .*; next: "):
            read_file(str(path), None)
        return
    step, (ready, said) = read_file(str(path), None), READY[name]
    assert [n for _, n in step.ready] == [n for _, n in ready]
    assert [t for t, _ in step.ready] == pytest.approx([t for t, _ in ready])
    assert [said in note for note in step.notes] == [True] * bool(said)


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
