"""Checkpoints: the bits of a resumed run, and checkpoints of other runs."""

import json

import numpy as np
import pytest

from refgf.machine import checkpoint, threads
from refgf.machine.checkpoint import Checkpoints
from refgf.papers.signsgd.signsgd import SignSGD
from tests.support.checkpoint_cases import (
    CSC,
    STACKS,
    advance,
    bits,
    everywhere,
    names,
    new_flow,
    resumed,
    save_on_threads,
)
from tests.support.tiny import N, Prescribed


@pytest.mark.filterwarnings("ignore:overflow")  # of float16: such a step is skipped
@pytest.mark.parametrize("stack", STACKS)
def test_resumed_is_uninterrupted(on_ranks, tmp_path, stack):
    def body(comm):
        folder = everywhere(comm, tmp_path) / f"{comm.Get_size()}"
        with new_flow(comm, **STACKS[stack]) as flow:
            wanted = bits(advance(flow, 10))
        with new_flow(comm, **STACKS[stack]) as flow:
            Checkpoints(folder, advance(flow, 6)).save({"epoch": 1, "step": 2})
        with new_flow(comm, **STACKS[stack]) as flow:
            assert Checkpoints(folder, flow).resume() == {"epoch": 1, "step": 2}
            assert bits(advance(flow, 10)) == wanted

    on_ranks(body)


def test_the_last_two_are_kept(tmp_path):
    save_on_threads(tmp_path, [1, 3, 4])
    assert names(tmp_path) == ["step-00000003", "step-00000004"]
    files = {p.name for p in (tmp_path / "step-00000004").iterdir()}
    arrays = {"shared.safetensors", "rank0.safetensors", "rank1.safetensors"}
    assert files == arrays | {"manifest.json", "refgf-checkpoint.txt"}
    assert resumed(tmp_path)[0] == {"at": 4}


def test_a_new_run_does_not_write_beside_a_later_checkpoint(tmp_path):
    """It would be taken for an old one, and removed at once."""
    save_on_threads(tmp_path, [3, 5])
    with pytest.raises(
        ValueError, match="got step-00000001 for .* which has step-00000005 of an earlier run"
    ):
        save_on_threads(tmp_path, [1])
    assert resumed(tmp_path)[0] == {"at": 5}


def test_an_empty_or_missing_folder_is_a_new_run(tmp_path):
    assert resumed(tmp_path)[0] is None
    assert resumed(tmp_path / "nowhere")[0] is None


def test_another_number_of_ranks_is_refused(tmp_path):
    save_on_threads(tmp_path, [1])
    with pytest.raises(
        ValueError, match="another run: got ranks = 2, wanted 3; next: resume with the settings"
    ):
        resumed(tmp_path, size=3)


def test_a_network_of_another_type_is_refused(tmp_path):
    save_on_threads(tmp_path, [1], parts=CSC | {"dtype": "float16"})
    with pytest.raises(ValueError, match=r"another run: got network = float16 network.*, wanted"):
        resumed(tmp_path)


def test_another_network_is_refused(tmp_path):
    save_on_threads(tmp_path, [1])

    class Other(Prescribed):
        def __init__(self):
            super().__init__()
            self.tensors = self.tensors[:-1]

    with pytest.raises(ValueError, match="another run: got network = "):
        resumed(tmp_path, network=Other)


@pytest.mark.parametrize(
    "name, change",
    [("form", {"form": "history"}), ("chunk", {"chunk": 9}), ("csc", {"density": None})],
)
def test_another_kind_of_csc_is_refused(tmp_path, name, change):
    save_on_threads(tmp_path, [1])
    with pytest.raises(ValueError, match=f"is of another run: got {name} = "):
        resumed(tmp_path, parts=CSC | change)


def test_another_compressor_is_refused(tmp_path):
    save_on_threads(tmp_path, [1], parts=STACKS["dense"])
    with pytest.raises(ValueError, match="another run: got compressor = None, wanted SignSGD"):
        resumed(tmp_path, parts=STACKS["signsgd"])


def test_an_array_of_another_shape_is_refused_on_every_rank(tmp_path, monkeypatch):
    save_on_threads(tmp_path, [1], parts=STACKS["signsgd"])
    longer = property(lambda self: {"error": np.zeros(N + 1, np.float32)})
    monkeypatch.setattr(SignSGD, "state", longer)
    got, wanted = rf"float32 \({N},\)", rf"float32 \({N + 1},\)"
    with pytest.raises(
        ValueError, match=f"rank 1: got compressor_error = {got}, wanted {wanted}; next: resume"
    ):
        resumed(tmp_path, parts=STACKS["signsgd"])


@pytest.mark.parametrize("position", [{"at": {1}}, {"at": 10**5000}, [1], None])
def test_a_position_that_is_not_json_is_refused_at_once(tmp_path, position):
    def body(comm):
        with pytest.raises(ValueError, match="rank 1: got a position that is .*; wanted a dict"):
            Checkpoints(tmp_path, advance(new_flow(comm), 1)).save(position)

    threads.run(2, body)
    assert names(tmp_path) == []


def test_another_threshold_is_a_warning(tmp_path):
    save_on_threads(tmp_path, [1])
    position, said = resumed(tmp_path, parts=CSC | {"theta_bytes": 40})
    change = "grouping was Theta(threshold_bytes=inf), is Theta(threshold_bytes=40)"
    assert position and any(change in text for text in said)


def test_another_version_of_the_code_is_a_warning(tmp_path, monkeypatch):
    save_on_threads(tmp_path, [1])
    assert not any("another version of refgf" in text for text in resumed(tmp_path)[1])
    monkeypatch.setattr(checkpoint, "code_hash", lambda: "other")
    position, said = resumed(tmp_path)
    assert position and any("another version of refgf" in text for text in said)


def test_the_manifest_is_json_that_others_can_read(tmp_path):
    save_on_threads(tmp_path, [1])

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    text = (tmp_path / "step-00000001" / "manifest.json").read_text()
    about = json.loads(text, parse_constant=refuse)
    assert about["ranks"] == 2 and set(about["files"]) == {
        "shared.safetensors",
        "rank0.safetensors",
        "rank1.safetensors",
    }
