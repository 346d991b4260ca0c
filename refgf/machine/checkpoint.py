"""Checkpoints: a run that is killed and resumed gives the same bits as one that was not.

    checkpoints = Checkpoints(folder, flow)
    position = checkpoints.resume() or {"epoch": 0, "step": 0}     what the loop passed to `save`
    ...
    checkpoints.save({"epoch": epoch, "step": step})               collective, like resume

    folder/refgf.lock        locked by rank 0 while it lives: a second job in the folder is refused
    folder/step-00000120/
        refgf-checkpoint.txt    written first: only a folder that has it is ever deleted
        shared.npz              the same on all ranks: master weights, velocity, loss scale, chosen
                                chunks
        rank0.npz ...           each rank's own: residual of CSC, running statistics, random state
        manifest.json           sizes and SHA-256 of the arrays, written last: the checkpoint counts
                                once it is there

The last two are kept. Whatever happens while one is being written (a kill, a full disk), the one
before is whole. `folder` must be the same place for all ranks. The working copy of the weights is
not saved: it is the rounded master.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from refgf.device import array_module
from refgf.machine.checkpoint_files import (
    MANIFEST,
    code_hash,
    damage,
    hold,
    is_named,
    is_ours,
    prepare,
    read_arrays,
    read_text,
    remove,
    write_arrays,
    write_manifest,
)
from refgf.training.gradientflow import GradientFlow

KEEP = 2
MUST_AGREE = (
    "form",
    "chunk",
    "csc",
    "compressor",
)  # with other values of these the saved state does not fit


class CheckpointNotWritten(OSError):
    """The same on every rank; the checkpoints before are untouched."""


class Checkpoints:
    """Saves and restores a `GradientFlow` with its model. say: prints a message, on rank 0."""

    def __init__(self, folder, flow: GradientFlow, say: Callable[[str], None] = print) -> None:
        self.folder, self.flow, self.comm = Path(folder), flow, flow.comm
        self.rank = self.comm.Get_rank()
        self._say = say if self.rank == 0 else lambda text: None
        self._resumed = self._warned = False

    # ---- writing ----

    def save(self, position: dict) -> Path:
        """Write a checkpoint that resumes at `position` (anything that JSON has). Collective.

        Errors, the same on every rank: CheckpointNotWritten if a rank could not write its part or
        if other files are where the checkpoint should be; ValueError if another running job uses
        the folder, or if it has later checkpoints of another run.
        """
        self.flow.require_same_parameters()
        target = self.folder / f"step-{self.flow.steps:08d}"
        self._take_folder()
        self._require_newest(target)
        try:
            self._write(target, position)
        except CheckpointNotWritten:
            if self.rank == 0:
                remove(target)
            raise
        if self.rank == 0:
            ours = [path for path in self._folders() if is_ours(path)]
            for old in ours[KEEP:] + self._incomplete():
                remove(old)
        return target

    def _take_folder(self) -> None:
        """Lock the folder for this job; ValueError on every rank if another job has it."""
        held = self._together(self.folder, lambda: hold(self.folder) if self.rank == 0 else None)
        holder, reason = held[0]
        if holder:
            raise ValueError(
                f"checkpoints on rank {self.rank}: got {self.folder}, which another running job "
                f"uses ({holder}); wanted a folder of this job's own; next: wait for that job, "
                "end it, or choose another folder"
            )
        if reason and not self._warned:
            self._warned = True
            self._say(
                f"warning: {self.folder} cannot be locked ({reason}); "
                "do not let another job use it at the same time"
            )

    def _write(self, target: Path, position: dict) -> None:
        self._together(target, lambda: prepare(target) if self.rank == 0 else None)
        written = self._together(target, lambda: self._write_parts(target))
        files = {name: entry for part in written for name, entry in part.items()}
        about = {
            "ranks": self.comm.Get_size(),
            "layout": self.flow.model.layout(),
            "code": code_hash(),
            "settings": self._settings(),
            "position": position,
            "files": files,
        }
        self._together(target, lambda: write_manifest(target, about) if self.rank == 0 else None)

    def _require_newest(self, target: Path) -> None:
        newest = self.comm.bcast(
            max((path.name for path in self._folders()), default="") if self.rank == 0 else None
        )
        if newest >= target.name and not self._resumed:
            raise ValueError(
                f"checkpoint on rank {self.rank}: got {target.name} for {self.folder}, "
                f"which has {newest} of an earlier run; wanted a folder of this run's own; "
                "next: resume that run, or choose another folder"
            )

    def _write_parts(self, target: Path) -> dict:
        """This rank's files; {name: {"bytes", "sha256"}}."""
        arrays, facts = self._own()
        written = {
            f"rank{self.rank}.npz": write_arrays(target / f"rank{self.rank}.npz", arrays, facts)
        }
        if self.rank == 0:
            arrays, facts = self._shared()
            written["shared.npz"] = write_arrays(target / "shared.npz", arrays, facts)
        return written

    def _together(self, target: Path, write: Callable) -> list:
        """Every rank's write(); if one fails, CheckpointNotWritten on all of them."""
        try:
            result = None, write()
        except (OSError, ValueError) as error:  # ValueError: zipfile's, for some errors of the disk
            result = str(error), None
        everybody = self.comm.allgather(result)
        failed = {rank: told for rank, (told, _) in enumerate(everybody) if told}
        if failed:
            told = "; ".join(f"rank {rank}: {text}" for rank, text in failed.items())
            raise CheckpointNotWritten(
                f"checkpoint {target.name}: not written: {told}; "
                "earlier checkpoints are untouched; "
                f"next: make room in {self.folder}, move other files away, or choose another folder"
            )
        return [value for _, value in everybody]

    # ---- reading ----

    def resume(self) -> dict | None:
        """Restore the newest whole checkpoint; its position, or None without one. Collective.

        Errors, the same on every rank: ValueError if another running job uses the folder, if a
        checkpoint is of another number of ranks, another network or other settings of CSC, and if
        there are checkpoints but all of them are damaged.
        """
        try:
            self._take_folder()
        except CheckpointNotWritten as error:  # it can be read, but not written
            self._say(f"warning: {error}")
        found = self.comm.bcast([path.name for path in self._folders()] if self.rank == 0 else None)
        self._resumed = True
        for name in found:
            about, told = self._verified(self.folder / name)
            if about:
                self._restore(self.folder / name, about)
                self._say(f"resumed from {self.folder / name}")
                return about["position"]
            self._say(f"checkpoint {name} is damaged ({told}); trying the one before")
        if found:
            raise ValueError(
                f"resume: got {len(found)} checkpoints in {self.folder}, all of them damaged; "
                "wanted one that is whole; next: start again, in another folder"
            )
        return None

    def _verified(self, source: Path) -> tuple[dict | None, str]:
        """The manifest if all ranks find all they need whole, else what is wrong."""
        text = self.comm.bcast(read_text(source / MANIFEST) if self.rank == 0 else None)
        try:
            about = json.loads(text)
            self._require_fitting(source, about)
            files, told = about["files"], None
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            files, told = {}, f"{MANIFEST}: {error}"
        mine = told or next(
            filter(None, (damage(source / n, files.get(n)) for n in self._needed())), None
        )
        everybody = self.comm.allgather(mine)
        told = "; ".join(f"rank {rank}: {text}" for rank, text in enumerate(everybody) if text)
        return (None, told) if told else (about, "")

    def _needed(self) -> list[str]:
        return ["shared.npz", f"rank{self.rank}.npz"]

    def _require_fitting(self, source: Path, about: dict) -> None:
        here = {"ranks": self.comm.Get_size(), "network": self.flow.model.layout()}
        there = {"ranks": about["ranks"], "network": about["layout"]}
        settings, saved = self._settings(), about["settings"]
        here |= {name: settings[name] for name in MUST_AGREE}
        there |= {name: saved[name] for name in MUST_AGREE}
        for name in here:
            if here[name] != there[name]:
                raise ValueError(
                    f"resume on rank {self.rank}: {source} is of another run: got {name} = "
                    f"{_short(there[name])}, wanted {_short(here[name])}; next: resume with the "
                    "settings of that run, or choose another folder"
                )
        others = [name for name in settings if settings[name] != saved.get(name)]
        if others:
            told = ", ".join(
                f"{name} was {saved.get(name)}, is {settings[name]}" for name in others
            )
            self._say(f"warning: other settings than when {source.name} was saved: {told}")
        if about["code"] != code_hash():
            self._say(
                f"warning: {source.name} was saved by another version of refgf: "
                "the bits to come may differ"
            )

    def _restore(self, source: Path, about: dict) -> None:
        shared, own = (read_arrays(source / name) for name in self._needed())
        for (arrays, _), (saved, _) in zip((self._shared(), self._own()), (shared, own)):
            for name, array in arrays.items():
                array[...] = array_module(array).asarray(saved[name])
        self._restore_facts(shared[1], own[1])
        if self.flow.model.working:
            self.flow.model.working.refresh()

    # ---- what a run consists of ----

    def _settings(self) -> dict:
        return {"compressor": None} | self.flow.settings

    def _shared(self) -> tuple[dict, dict]:
        """(arrays, facts) that are the same on all ranks."""
        model, csc = self.flow.model, self.flow.csc
        arrays = {"parameters": model.parameters.flat} | model.optimizer.state
        facts = {"steps": self.flow.steps, "loss_scale": model.loss_scale.state()}
        if csc:
            arrays["gap"] = csc.gap
            facts["chosen"] = csc.chosen
        return arrays, facts

    def _own(self) -> tuple[dict, dict]:
        """(arrays, facts) of this rank alone."""
        network, flow = self.flow.model.network, self.flow
        arrays = {f"running{i}": array for i, array in enumerate(network.running)}
        if flow.csc:
            residual = flow.csc.residual.settled()
            arrays |= {f"residual_{name}": array for name, array in residual.items()}
        if flow.compressed:
            state = flow.compressed.compressor.state
            arrays |= {f"compressor_{name}": array for name, array in state.items()}
        return arrays, {"dropout_rng": network.dropout_rng.bit_generator.state}

    def _restore_facts(self, shared: dict, own: dict) -> None:
        flow = self.flow
        flow.steps = shared["steps"]
        flow.model.loss_scale.restore(shared["loss_scale"])
        if flow.csc:
            flow.csc.steps, flow.csc.chosen = shared["steps"], shared["chosen"]
        flow.model.network.dropout_rng.bit_generator.state = own["dropout_rng"]

    def _folders(self) -> list[Path]:
        """Checkpoints that count, newest first."""
        found = (manifest.parent for manifest in self.folder.glob(f"step-*/{MANIFEST}"))
        return sorted(filter(is_named, found), reverse=True)

    def _incomplete(self) -> list[Path]:
        found = filter(is_ours, self.folder.glob("step-*"))
        return [path for path in found if not (path / MANIFEST).exists()]


def _short(value) -> str:
    """A layout is long: its beginning and its hash say enough."""
    text = str(value)
    return (
        text
        if len(text) < 60
        else f"{text[:50]}... ({hashlib.sha256(text.encode()).hexdigest()[:8]})"
    )
