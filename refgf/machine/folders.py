"""An ImageNet-style tree of image files as two data sets; what is wrong with it is said before training starts.

    path/train/<class>/<image>      path/val/<class>/<image>

Every file in a class folder must be a JPEG or PNG, told by its content and not by its name. Names that start with a
dot, and files beside the class folders, are not looked at.

**All ranks leave out the same files**, because bad ones are found at the start and the list is agreed: each rank lists
the tree, the lists are compared, rank r checks files r, r + p, r + 2p, ..., and an allgather tells everyone what
everyone found. Whatever is wrong on one rank is raised on all of them alike, so none waits for another.

How thorough? If the decoded samples fit into memory_limit_bytes, every file is decoded once at the start, and kept by
the rank that did it: nothing is done twice. If they do not fit, only header and end of each file are read, which finds
text files, empty files and truncated ones; damage in the middle of a file then ends training when the file is reached,
with its name. full_check=True decodes everything at the start whatever the size: the price of one epoch's decoding.
"""

import hashlib
import os
from dataclasses import dataclass

import numpy as np

from refgf.machine.images import ImageFiles, check_ends
from refgf.machine.digits import hold_out
from refgf.training.data import Dataset

HOLD_OUT_EVERY = 10  # without val/, every tenth image of each class of train/ is held out
NORMALISATION = {  # the usual constants of ImageNet's training set (R, G, B) and their means for grey
    3: ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    1: ((0.449,), (0.226,)),
}
SHOWN = 5  # bad files named in an error


@dataclass
class Tree:
    """What a listing found. paths, labels and in_val have one entry a file; faults are "place: reason"."""

    class_names: tuple[str, ...]
    paths: list[str]
    labels: np.ndarray
    in_val: np.ndarray
    has_val: bool
    faults: list[str]


def image_folder(
    path: str,
    image_size: int,
    channels: int = 3,
    skip_bad_images: bool = False,
    memory_limit_bytes: int = 256 * 2**20,
    full_check: bool | None = None,
    comm=None,
) -> tuple[Dataset, Dataset]:
    """The tree under `path` as (train, held_out), images made square by refgf/machine/images.py.

    held_out is val/, whose class folders must be those of train/, or else every tenth image of each class of train/;
    then a class with fewer than ten images has none held out, and held_out.size can be 0. `.note` says which.
    skip_bad_images goes on without bad files and with empty class folders; `.skipped` lists them for the whole tree.
    memory_limit_bytes is each rank's own. comm (rank, size, allgather) shares the check; without it one rank does all.

    Cost: two allgathers of a few bytes and of the bad files' names. ValueError on all ranks where the tree is not fit.
    """
    if image_size < 1 or channels not in NORMALISATION:
        raise ValueError(
            f"image_folder: got image_size={image_size}, channels={channels}; "
            "wanted image_size >= 1 and channels 1 (grey) or 3 (RGB)"
        )
    tree = _agreed_tree(str(path), comm)
    files = ImageFiles(tree.paths, image_size, channels, memory_limit_bytes)
    decode_all = files.fits if full_check is None else full_check
    bad = _bad_files(
        files.sample if decode_all else lambda i: check_ends(tree.paths[i]), len(tree.paths), comm
    )
    skipped = tuple(tree.faults + list(bad.values()))
    if skipped and not skip_bad_images:
        raise ValueError(_bad_tree(path, skipped))
    good = np.ones(len(tree.paths), bool)
    good[list(bad)] = False
    return _parts(path, tree, files, good, skipped)


def _parts(
    path, tree: Tree, files: ImageFiles, good: np.ndarray, skipped: tuple[str, ...]
) -> tuple[Dataset, Dataset]:
    train, val = np.flatnonzero(good & ~tree.in_val), np.flatnonzero(good & tree.in_val)
    if not tree.has_val:
        out = hold_out(tree.labels[train], HOLD_OUT_EVERY - 1, HOLD_OUT_EVERY)
        train, val = train[~out], train[out]
    if len(np.unique(tree.labels[train])) < 2:
        raise ValueError(
            f"image_folder: got images of {len(np.unique(tree.labels[train]))} class(es) under {path}/train "
            f"({len(skipped)} bad files or folders left out); wanted two classes at least, each a folder with images"
        )
    note = (
        f"{path}: {len(train)} images of {len(tree.class_names)} classes to train on, {len(val)} held out ("
        + (
            "val/)"
            if tree.has_val
            else f"no val/: every {HOLD_OUT_EVERY}th image of each class of train/)"
        )
    )
    mean, std = NORMALISATION[files.shape[2]]
    return tuple(
        Dataset(
            fetch=_Members(files, members),
            labels=tree.labels[members],
            class_names=tree.class_names,
            image_size=files.shape[0],
            channels=files.shape[2],
            mean=mean,
            std=std,
            note=note,
            skipped=skipped,
        )
        for members in (train, val)
    )


@dataclass
class _Members:
    """fetch of some of the files; says what to do where a file that passed the quick check does not decode."""

    files: ImageFiles
    members: np.ndarray

    @property
    def paths(self) -> list[str]:
        """The file of each sample, for a cache that reads them itself."""
        return [self.files.paths[i] for i in self.members]

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        try:
            return self.files(self.members[indices])
        except ValueError as error:
            raise ValueError(
                f"image_folder: {error} (found while training); wanted a whole JPEG or PNG; next: full_check=True "
                "finds such files at the start, with skip_bad_images=True it goes on without them"
            ) from error


def _agreed_tree(path: str, comm) -> Tree:
    """The listing, the same on all ranks; any rank's error, or a difference, is a ValueError on all of them."""
    tree, error, fingerprint = None, "", ""
    try:
        tree = list_tree(path)
        fingerprint = _fingerprint(path, tree)
    except (ValueError, OSError) as caught:
        error = str(caught)
    answers = [(error, fingerprint)] if comm is None else comm.allgather((error, fingerprint))
    for rank, (error, _) in enumerate(answers):
        if error:
            raise ValueError(error if comm is None else f"{error} (rank {rank})")
    if len(set(answers)) > 1:
        other = next(rank for rank, answer in enumerate(answers) if answer != answers[0])
        raise ValueError(
            f"image_folder: rank 0 and rank {other} found different files under {path}; wanted the same tree on every "
            "node; next: compare the nodes' copies, or use a folder that they share"
        )
    return tree


def _fingerprint(path: str, tree: Tree) -> str:
    digest = hashlib.sha256()
    for file in tree.paths:
        digest.update(os.fsencode(os.path.relpath(file, path)) + b"\0")
    return digest.hexdigest()


def _bad_files(check, n: int, comm) -> dict[int, str]:
    """{file's number: "path: reason"} of the files that check(number) refuses, in order, the same on all ranks."""
    rank, size = (0, 1) if comm is None else (comm.rank, comm.size)
    found = {}
    for index in range(rank, n, size):
        try:
            check(index)
        except ValueError as error:
            found[index] = str(error)
    everyones = [found] if comm is None else comm.allgather(found)
    return dict(sorted(item for one in everyones for item in one.items()))


def _bad_tree(path, skipped: tuple[str, ...]) -> str:
    more = f" and {len(skipped) - SHOWN} more" if len(skipped) > SHOWN else ""
    return (
        f"image_folder: got {len(skipped)} bad files or folders under {path}: {'; '.join(skipped[:SHOWN])}{more}. "
        "Wanted whole JPEG or PNG files in every class folder; "
        "next: remove or replace them, or go on without them (skip_bad_images=True, --skip-bad-images)"
    )


def list_tree(path: str) -> Tree:
    """Names only, no file is opened; sorted, so the same everywhere. ValueError where this is no such tree."""
    if not os.path.isdir(path):
        raise ValueError(
            f"image_folder: {path} {'is a file' if os.path.exists(path) else 'is not there'}; {_WANTED}"
        )
    splits = _entries(path, folders=True)
    if "train" not in splits:
        raise ValueError(
            f"image_folder: {path} has no folder train, only {splits[:SHOWN]}; {_WANTED}"
        )
    class_names = _entries(os.path.join(path, "train"), folders=True)
    has_val = "val" in splits
    if has_val:
        _require_same_classes(path, class_names, _entries(os.path.join(path, "val"), folders=True))
    tree = Tree(tuple(class_names), [], np.zeros(0, np.int64), np.zeros(0, bool), has_val, [])
    labels, in_val = [], []
    for split in ("train", "val") if has_val else ("train",):
        for label, name in enumerate(class_names):
            found = _images(os.path.join(path, split, name), tree.faults)
            tree.paths += found
            labels += [label] * len(found)
            in_val += [split == "val"] * len(found)
    tree.labels, tree.in_val = np.array(labels, np.int64), np.array(in_val, bool)
    if len(class_names) < 2 or not tree.paths:
        raise ValueError(
            f"image_folder: {path}/train has {len(class_names)} class folder(s) with {len(tree.paths)} files; "
            f"wanted two classes at least; {_WANTED}"
        )
    return tree


_WANTED = (
    "wanted path/train/<class>/<image>, and val/<class>/<image> if there are images to test on"
)


def _entries(path: str, folders: bool) -> list[str]:
    with os.scandir(path) as entries:
        return sorted(
            entry.name
            for entry in entries
            if not entry.name.startswith(".") and entry.is_dir() == folders
        )


def _images(folder: str, faults: list[str]) -> list[str]:
    """Paths of the files in a class folder; adds to faults what does not belong there, and if there are none."""
    faults += [
        f"{os.path.join(folder, name)}: a folder among the images"
        for name in _entries(folder, folders=True)
    ]
    names = _entries(folder, folders=False)
    if not names:
        faults.append(f"{folder}: a class folder without images")
    return [os.path.join(folder, name) for name in names]


def _require_same_classes(path: str, train: list[str], val: list[str]) -> None:
    if train != val:
        only_train, only_val = sorted(set(train) - set(val)), sorted(set(val) - set(train))
        raise ValueError(
            f"image_folder: {path}/train and {path}/val have different class folders: only in train "
            f"{only_train[:SHOWN]}, only in val {only_val[:SHOWN]}; wanted the same; next: mend or remove val"
        )
