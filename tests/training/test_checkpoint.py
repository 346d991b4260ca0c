"""Checkpoints: the bits of a resumed run, and everything that can be wrong with a folder."""

import errno
import json
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny import N, Prescribed

from refgf.comm import threads
from refgf.exchange.chunk_choice import Density
from refgf.exchange.precision import LossScale
from refgf.training import checkpoint
from refgf.training.checkpoint import CheckpointNotWritten, Checkpoints
from refgf.training.gradientflow import GradientFlow

CSC = dict(density=Density(20, (100,), 2), chunk=8, weight_decay=0.01, wire=np.float16)
STACKS = {
    "dense": dict(weight_decay=0.01),
    "dense float16": dict(wire=np.float16, half_weights=True),
    "dgc": CSC,
    "dgc_masked": CSC | dict(form="dgc_masked", overlap=True),
    "history": CSC | dict(form="history", half_weights=True),
    "none": CSC | dict(form="none", theta_bytes=20),
}


class Noisy(Prescribed):
    """Its gradients depend on the weights and on the random state, as with dropout."""

    def backward(self, on_ready):
        kept = self.dropout_rng.random(N) > 0.5
        weights = np.concatenate([p.reshape(-1) for p in self.parameters])
        self.logits_gradient = np.where(kept, self.logits_gradient + np.float32(0.1) * weights, 0)
        super().backward(on_ready)


def new_flow(comm, **parts):
    network = Noisy(initial=np.random.default_rng(2).standard_normal(N))
    network.dropout_rng = np.random.default_rng(comm.Get_rank())
    scale = LossScale(2.0**14, dynamic=True, interval=3) if "wire" in parts else None
    return GradientFlow(comm, network, loss_scale=scale, momentum=0.9, **parts)


def advance(flow, steps):
    while flow.steps < steps:
        g = np.random.default_rng([flow.steps, flow.comm.Get_rank()]).standard_normal((2, N)).astype(np.float32)
        if flow.steps == 5:
            g[0, 3] = np.inf  # a step that is skipped, and halves the scale
        flow.step(g, None, 2 * flow.comm.Get_size(), rate=0.1)
    return flow


def bits(flow):
    """Everything that a run consists of."""
    state = [flow.model.parameters.flat, *flow.model.network.running]
    state += flow.csc.kept.values() if flow.csc else [flow.model.optimizer.velocity]
    state += [flow.model.working.working] if flow.model.working else []
    told = flow.loss_scale.state(), flow.csc and (flow.csc.chosen, flow.csc.gap.tolist())
    return b"".join(array.tobytes() for array in state) + repr(told).encode()


def everywhere(comm, path) -> Path:
    """The same folder on all ranks (pytest gives each its own)."""
    return Path(comm.bcast(str(path)))


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


def saved(comm, folder, steps, parts, said=None):
    """Save after each number of steps; the open flow."""
    flow = new_flow(comm, **parts)
    for step in steps:
        Checkpoints(folder, advance(flow, step)).save({"at": step})
    return flow


def resumed(folder, size=2, parts=CSC, network=None):
    """Resume on `size` threads: (position, messages)."""

    def body(comm):
        said = []
        flow = new_flow(comm, **parts)
        if network:
            flow = GradientFlow(comm, network(), **parts)
        return Checkpoints(folder, flow, said.append).resume(), said

    return threads.run(size, body)[0]


def save_on_threads(folder, steps, size=2, parts=CSC):
    threads.run(size, lambda comm: saved(comm, folder, steps, parts) and None)


def test_the_last_two_are_kept(tmp_path):
    save_on_threads(tmp_path, [1, 3, 4])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000003", "step-00000004"]
    files = {p.name for p in (tmp_path / "step-00000004").iterdir()}
    assert files == {"manifest.json", "shared.npz", "rank0.npz", "rank1.npz"}
    assert resumed(tmp_path)[0] == {"at": 4}


def test_an_empty_or_missing_folder_is_a_new_run(tmp_path):
    assert resumed(tmp_path)[0] is None
    assert resumed(tmp_path / "nowhere")[0] is None


def truncate(path):
    path.write_bytes(path.read_bytes()[:-10])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGE = [(file, harm) for file in ("shared.npz", "rank0.npz", "rank1.npz") for harm in (truncate, flip, Path.unlink)]
DAMAGE += [("manifest.json", harm) for harm in (truncate, Path.unlink)]  # one bit of it may be of a text that nobody checks


@pytest.mark.parametrize("file, harm", DAMAGE)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path, file, harm):
    save_on_threads(tmp_path, [1, 3])
    harm(tmp_path / "step-00000003" / file)
    position, said = resumed(tmp_path)
    assert position == {"at": 1}
    if not (file == "manifest.json" and harm is Path.unlink):  # without a manifest it never counted
        assert any("step-00000003 is damaged" in text and "trying the one before" in text for text in said)


def test_all_damaged_is_an_error(tmp_path):
    save_on_threads(tmp_path, [1, 3])
    for path in tmp_path.glob("*/rank1.npz"):
        truncate(path)
    with pytest.raises(ValueError, match="got 2 checkpoints .* all of them damaged"):
        resumed(tmp_path)


def test_another_number_of_ranks_is_refused(tmp_path):
    save_on_threads(tmp_path, [1])
    with pytest.raises(ValueError, match="another run: got ranks = 2, wanted 3; next: resume with the settings"):
        resumed(tmp_path, size=3)


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


def test_a_full_disk_on_one_rank_ends_no_run_and_loses_nothing(on_ranks, tmp_path, monkeypatch):
    """Every rank learns of it; the checkpoints before stay; training goes on and the next one is written."""

    def body(comm):
        folder = everywhere(comm, tmp_path) / f"{comm.Get_size()}"
        flow = saved(comm, folder, [1, 2], CSC)
        full = CheckpointsOnFullDisk(folder, advance(flow, 3))
        last = comm.Get_size() - 1
        with pytest.raises(CheckpointNotWritten, match=f"rank {last}: .*No space left.*earlier checkpoints are untouched"):
            full.save({"at": 3})
        comm.Barrier()
        assert sorted(p.name for p in folder.iterdir()) == ["step-00000001", "step-00000002"]
        comm.Barrier()
        Checkpoints(folder, advance(flow, 4)).save({"at": 4})
        with new_flow(comm, **CSC) as other:
            assert Checkpoints(folder, other).resume() == {"at": 4}
            assert bits(other) == bits(flow)
        flow.close()

    on_ranks(body)


class CheckpointsOnFullDisk(Checkpoints):
    """The last rank's disk is full."""

    def _write_parts(self, target):
        if self.rank == self.comm.Get_size() - 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super()._write_parts(target)


def test_a_file_that_may_not_grow_is_a_full_disk(tmp_path):
    """With a real error of the operating system in the middle of a file (EFBIG, by a limit on file sizes)."""
    save_on_threads(tmp_path, [1, 2])

    def body(comm):
        flow = advance(new_flow(comm, **CSC), 3)
        with pytest.raises(CheckpointNotWritten):
            Checkpoints(tmp_path, flow).save({"at": 3})

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (700, hard))
    try:
        threads.run(2, body)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert resumed(tmp_path)[0] == {"at": 2}


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")

    def body(comm):
        with pytest.raises(CheckpointNotWritten, match="rank 0: .*file"):
            Checkpoints(tmp_path / "file", advance(new_flow(comm, **CSC), 1)).save({})

    threads.run(2, body)


def test_what_a_kill_left_behind_does_not_count_and_is_removed(tmp_path):
    save_on_threads(tmp_path, [1, 3])
    shutil.copytree(tmp_path / "step-00000003", tmp_path / "step-00000005")
    (tmp_path / "step-00000005" / "manifest.json").unlink()
    assert resumed(tmp_path)[0] == {"at": 3}
    save_on_threads(tmp_path, [4])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000003", "step-00000004"]


def test_the_manifest_is_json_that_others_can_read(tmp_path):
    save_on_threads(tmp_path, [1])

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    text = (tmp_path / "step-00000001" / "manifest.json").read_text()
    about = json.loads(text, parse_constant=refuse)
    assert about["ranks"] == 2 and set(about["files"]) == {"shared.npz", "rank0.npz", "rank1.npz"}
