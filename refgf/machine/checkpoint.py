"""Checkpoints: a run that is killed and resumed gives the same bits as one that was not.

    checkpoints = Checkpoints(folder, flow)
    position = checkpoints.resume() or {"epoch": 0, "step": 0}     what the loop passed to `save`
    ...
    checkpoints.save({"epoch": epoch, "step": step})               collective, like resume

    folder/refgf.lock           locked while the job lives (checkpoint_owner.py)
    folder/step-00000120/
        refgf-checkpoint.txt    written first: only a folder that has it is ever deleted
        shared.safetensors      what is the same on all ranks (checkpoint_state.py)
        rank0.safetensors ...   each rank's own
        manifest.json           hashes of these files and of itself (checkpoint_files.py), written
                                last: the checkpoint counts once it is there

The last two are kept. Whatever happens while one is being written (a kill, a full disk), the one
before is whole. `folder` must be the same place for all ranks.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from refgf.machine import checkpoint_state
from refgf.machine.checkpoint_files import (
    Damaged,
    code_hash,
    read_arrays,
    read_manifest,
    require_json,
    write_arrays,
    write_manifest,
)
from refgf.machine.checkpoint_owner import complete, hold, prepare, remove, remove_old
from refgf.training.gradientflow import GradientFlow

KEEP = 2
SHARED = "shared.safetensors"


class CheckpointNotWritten(OSError):
    """The same on every rank; the checkpoints before are untouched."""


class Checkpoints:
    """Saves and restores a `GradientFlow` with its model. say: prints a message, on rank 0."""

    def __init__(
        self, folder: Path | str, flow: GradientFlow, say: Callable[[str], None] = print
    ) -> None:
        self.folder, self.flow, self.comm = Path(folder), flow, flow.comm
        self.rank = self.comm.Get_rank()
        self._own_file = f"rank{self.rank}.safetensors"
        self._say = say if self.rank == 0 else lambda text: None
        self._resumed = self._warned = False

    # ---- writing ----

    def save(self, position: dict) -> Path:
        """Write a checkpoint that resumes at `position`, a dict of what JSON has. Collective.

        Errors, the same on every rank: CheckpointNotWritten if a rank could not write its files or
        if other files are where the checkpoint should be; ValueError if `position` is not JSON, if
        another running job uses the folder, or if it has later checkpoints of another run.
        """
        _, reason = self._attempt(lambda: require_json(position))
        if reason:
            raise ValueError(
                f"checkpoint: {reason}; wanted a dict of what JSON has; next: numbers, text, lists"
            )
        self.flow.require_same_parameters()
        target = self.folder / f"step-{self.flow.steps:08d}"
        self._take_folder()
        self._require_newest(target)
        try:
            self._write(target, position)
        except CheckpointNotWritten:
            self._on_rank_0(lambda: remove(target))
            raise
        self._on_rank_0(lambda: remove_old(self.folder, KEEP))
        return target

    def _take_folder(self) -> None:
        """Lock the folder for this job; ValueError on every rank if another job has it."""
        held = self._together(self.folder, lambda: self._on_rank_0(lambda: hold(self.folder)))
        holder, reason = self.comm.bcast(held)
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

    def _require_newest(self, target: Path) -> None:
        newest = max(self._names(), default="")
        if newest >= target.name and not self._resumed:
            raise ValueError(
                f"checkpoint on rank {self.rank}: got {target.name} for {self.folder}, "
                f"which has {newest} of an earlier run; wanted a folder of this run's own; "
                "next: resume that run, or choose another folder"
            )

    def _write(self, target: Path, position: dict) -> None:
        self._together(target, lambda: self._on_rank_0(lambda: prepare(target)))
        written = self.comm.allgather(self._together(target, lambda: self._write_files(target)))
        about = {
            "ranks": self.comm.Get_size(),
            "layout": self.flow.model.layout(),
            "code": code_hash(),
            "settings": checkpoint_state.settings(self.flow),
            "position": position,
            "files": {name: entry for files in written for name, entry in files.items()},
        }
        self._together(target, lambda: self._on_rank_0(lambda: write_manifest(target, about)))

    def _write_files(self, target: Path) -> dict:
        """Write this rank's files; {name: {"bytes", "sha256"}}."""
        states = {self._own_file: checkpoint_state.own(self.flow)}
        if self.rank == 0:
            states[SHARED] = checkpoint_state.shared(self.flow)
        return {name: write_arrays(target / name, *state) for name, state in states.items()}

    def _together(self, target: Path, write: Callable) -> Any:
        """This rank's write(); if it fails on any rank, CheckpointNotWritten on all of them."""
        value, reason = self._attempt(write)
        if reason:
            raise CheckpointNotWritten(
                f"checkpoint {target.name}: not written: {reason}; "
                "earlier checkpoints are untouched; "
                f"next: make room in {self.folder}, move other files away, or choose another folder"
            )
        return value

    # ---- reading ----

    def resume(self) -> dict | None:
        """Restore the newest whole checkpoint; its position, or None without one. Collective.

        Errors, the same on every rank: ValueError if another running job uses the folder, if a
        checkpoint is of another number of ranks, another network, or other settings of CSC or of a
        compressor, and if there are checkpoints but all of them are damaged.
        """
        try:
            self._take_folder()
        except CheckpointNotWritten as error:  # it can be read, but not written
            self._say(f"warning: {error}")
        found = self._names()
        self._resumed = True
        for name in found:
            source = self.folder / name
            try:
                about, saved = self._read(source)
            except Damaged as error:
                self._say(f"checkpoint {name} is damaged ({error}); trying the one before")
                continue
            checkpoint_state.restore(self.flow, *saved)
            self._say(f"resumed from {source}")
            return about["position"]
        if found:
            raise ValueError(
                f"resume: got {len(found)} checkpoints in {self.folder}, all of them damaged; "
                "wanted one that is whole; next: start again, in another folder"
            )
        return None

    def _read(self, source: Path) -> tuple[dict, list]:
        """(manifest, [(arrays, facts) shared by all ranks, (arrays, facts) of this rank]).

        Errors, the same on every rank: Damaged; ValueError for a checkpoint of another run.
        """
        about, reason = self._attempt(lambda: self._on_rank_0(lambda: read_manifest(source)))
        if reason:
            raise Damaged(reason)
        about = self.comm.bcast(about)
        self._require_same_run(source, about)
        names, files = (SHARED, self._own_file), about["files"]
        saved, reason = self._attempt(
            lambda: [read_arrays(source / name, files.get(name)) for name in names]
        )
        if reason:
            raise Damaged(reason)
        _, reason = self._attempt(lambda: checkpoint_state.require_fitting(self.flow, *saved))
        if reason:
            raise ValueError(self._of_another_run(source, reason))
        return about, saved

    def _require_same_run(self, source: Path, about: dict) -> None:
        """ValueError if the state cannot fit; a warning where only the bits to come may differ."""
        settings, saved = checkpoint_state.settings(self.flow), about["settings"]
        here = {"ranks": self.comm.Get_size(), "network": self.flow.model.layout()}
        there = {"ranks": about["ranks"], "network": about["layout"]}
        for name in checkpoint_state.MUST_AGREE:
            here[name], there[name] = settings[name], saved.get(name)
        for name in here:
            if here[name] != there[name]:
                reason = f"got {name} = {_short(there[name])}, wanted {_short(here[name])}"
                raise ValueError(self._of_another_run(source, reason))
        others = [name for name in saved | settings if settings.get(name) != saved.get(name)]
        if others:
            changes = [f"{n} was {saved.get(n)}, is {settings.get(n)}" for n in others]
            message = f"other settings than when {source.name} was saved: {', '.join(changes)}"
            self._say(f"warning: {message}")
        if about["code"] != code_hash():
            self._say(
                f"warning: {source.name} was saved by another version of refgf: "
                "the bits to come may differ"
            )

    def _of_another_run(self, source: Path, reason: str) -> str:
        return (
            f"resume on rank {self.rank}: {source} is of another run: {reason}; next: resume with "
            "the settings of that run, or choose another folder"
        )

    # ---- both ----

    def _names(self) -> list[str]:
        """The checkpoints that count, newest first, as rank 0 sees them."""
        names = self._on_rank_0(lambda: [path.name for path in complete(self.folder)])
        return self.comm.bcast(names)

    def _on_rank_0(self, work: Callable) -> Any:
        return work() if self.rank == 0 else None

    def _attempt(self, work: Callable) -> tuple[Any, str]:
        """(this rank's work(), ""), or (None, what failed on which ranks). Collective."""
        value, reason = None, ""
        try:
            value = work()
        except (OSError, ValueError) as error:
            reason = str(error)
        reasons = self.comm.allgather(reason)
        failed = [f"rank {rank}: {text}" for rank, text in enumerate(reasons) if text]
        return (None if failed else value), "; ".join(failed)


def _short(value: object) -> str:
    """A layout is long: its beginning and its hash say enough."""
    text = str(value)
    if len(text) < 60:
        return text
    return f"{text[:50]}... ({hashlib.sha256(text.encode()).hexdigest()[:8]})"
