"""Checkpoints: the bits of a resumed run, damaged ones, and those of other runs."""

import json
from pathlib import Path

import pytest
from checkpoint_cases import (
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
from tiny import Prescribed

from refgf.machine import checkpoint
from refgf.machine.checkpoint import Checkpoints


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


@pytest.mark.parametrize("forgotten", ["_own", "_shared"])
def test_forgetting_something_shows(on_ranks, tmp_path, forgotten):
    """A checkpoint without momentum, or without what CSC kept back, is not this run any more."""

    class Forgetful(Checkpoints):
        pass

    def without(self):
        arrays, facts = getattr(Checkpoints, forgotten)(self)
        return {k: v for k, v in arrays.items() if not k.startswith(("kept", "velocity"))}, facts

    setattr(Forgetful, forgotten, without)

    def body(comm):
        folder = everywhere(comm, tmp_path) / f"{comm.Get_size()}"
        parts = STACKS["dgc" if forgotten == "_own" else "dense"]
        with new_flow(comm, **parts) as flow:
            wanted = bits(advance(flow, 10))
        with new_flow(comm, **parts) as flow:
            Forgetful(folder, advance(flow, 4)).save({})
        with new_flow(comm, **parts) as flow:
            Forgetful(folder, flow).resume()
            assert bits(advance(flow, 10)) != wanted

    on_ranks(body)


def test_the_last_two_are_kept(tmp_path):
    save_on_threads(tmp_path, [1, 3, 4])
    assert names(tmp_path) == ["step-00000003", "step-00000004"]
    files = {p.name for p in (tmp_path / "step-00000004").iterdir()}
    arrays = {"shared.npz", "rank0.npz", "rank1.npz"}
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


def truncate(path):
    path.write_bytes(path.read_bytes()[:-10])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGE = [
    (file, harm)
    for file in ("shared.npz", "rank0.npz", "rank1.npz")
    for harm in (truncate, flip, Path.unlink)
]
DAMAGE += [
    ("manifest.json", harm) for harm in (truncate, Path.unlink)
]  # one bit of it may be of a text that nobody checks


@pytest.mark.parametrize("file, harm", DAMAGE)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path, file, harm):
    save_on_threads(tmp_path, [1, 3])
    harm(tmp_path / "step-00000003" / file)
    position, said = resumed(tmp_path)
    assert position == {"at": 1}
    if not (file == "manifest.json" and harm is Path.unlink):  # without a manifest it never counted
        assert any(
            "step-00000003 is damaged" in text and "trying the one before" in text for text in said
        )


def test_all_damaged_is_an_error(tmp_path):
    save_on_threads(tmp_path, [1, 3])
    for path in tmp_path.glob("*/rank1.npz"):
        truncate(path)
    with pytest.raises(ValueError, match="got 2 checkpoints .* all of them damaged"):
        resumed(tmp_path)


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


@pytest.mark.parametrize("change", [{"form": "history"}, {"chunk": 9}, {"density": None}])
def test_another_kind_of_csc_is_refused(tmp_path, change):
    save_on_threads(tmp_path, [1])
    with pytest.raises(ValueError, match="is of another run"):
        resumed(tmp_path, parts=CSC | change)


def test_another_threshold_is_a_warning(tmp_path):
    save_on_threads(tmp_path, [1])
    position, said = resumed(tmp_path, parts=CSC | {"theta_bytes": 40})
    assert position and any("theta_bytes was inf, is 40" in text for text in said)


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
    assert about["ranks"] == 2 and set(about["files"]) == {"shared.npz", "rank0.npz", "rank1.npz"}
