"""An ImageNet-style tree of image files as two data sets, checked before training starts.

    path/train/<class>/<image>      path/val/<class>/<image>

Every file in a class folder must be a JPEG or PNG by its content, not by its name. Names that start
with a dot, and files next to the class folders, are ignored.

**All ranks skip the same files**, because the check comes first and its result is agreed. Each rank
lists the tree, and the lists are compared. Rank r checks files r, r + p, r + 2p, ..., and an
allgather gives every rank the list of bad files. An error on one rank is raised on all of them, so
no rank waits for another.

If the decoded samples fit into memory_limit_bytes, the check decodes every file once and stores the
samples, so no file is decoded twice. Otherwise it reads only header and end of each file. That
finds text files, empty files and truncated files. Damage in the middle of a file then ends training
with the file's name when the file is read. full_check=True decodes every file at the start in any
case, which takes as long as the decoding of one epoch.

Random crops and reflections: load larger samples and see refgf/machine/augment.py. Top-5 accuracy:
refgf/machine/accuracy.py. The next batch loaded while this one is computed with: prefetch.py.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from refgf.comm.arguments import Comm
from refgf.machine.digits import hold_out
from refgf.machine.images import ImageFiles, check_ends
from refgf.training.data import Dataset

HOLD_OUT_EVERY = 10  # without val/, every tenth image of each class of train/ is held out
NORMALISATION = {  # mean and std of ImageNet's training set (R, G, B), their averages for grey
    3: ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    1: ((0.449,), (0.226,)),
}
SHOWN = 5  # bad files named in an error


@dataclass
class Tree:
    """A listing. paths, labels and in_val have one entry a file; faults are "place: reason"."""

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
    comm: Comm = None,
) -> tuple[Dataset, Dataset]:
    """The tree under `path` as (train, held_out), images made square by refgf/machine/images.py.

    held_out is val/, whose class folders must be those of train/. Without val/ it is every tenth
    image of each class of train/: a class with fewer than ten images has none held out, and
    held_out.size can be 0. `.note` describes the split.

    skip_bad_images      skip bad files and empty class folders; `.skipped` lists all of the tree
    memory_limit_bytes   of each rank, for decoded samples
    full_check           decode every file at the start; None: if the samples fit into the limit
    comm                 shares the check (rank, size, allgather); None: this process does all of it

    Cost: two allgathers of a few bytes and of the bad files' names. ValueError on all ranks for a
    bad tree.
    """
    if image_size < 1 or channels not in NORMALISATION:
        raise ValueError(
            f"image_folder: got image_size={image_size}, channels={channels}; wanted "
            "image_size >= 1 and channels 1 (grey) or 3 (RGB); next: image_size=67, channels=3"
        )
    tree = _list_on_all_ranks(str(path), comm)
    files = ImageFiles(tree.paths, image_size, channels, memory_limit_bytes)
    decode_all = files.fits if full_check is None else full_check
    check = files.sample if decode_all else lambda i: check_ends(tree.paths[i])
    bad = _find_bad_files(check, len(tree.paths), comm)
    faults = [*tree.faults, *bad.values()]  # a name that is not UTF-8 cannot be printed as it is
    skipped = tuple(fault.encode(errors="backslashreplace").decode() for fault in faults)
    if skipped and not skip_bad_images:
        raise ValueError(_bad_tree_message(path, skipped))
    good = np.ones(len(tree.paths), bool)
    good[list(bad)] = False
    return _split(path, tree, files, good, skipped)


def _split(
    path, tree: Tree, files: ImageFiles, good: np.ndarray, skipped: tuple[str, ...]
) -> tuple[Dataset, Dataset]:
    train, val = np.flatnonzero(good & ~tree.in_val), np.flatnonzero(good & tree.in_val)
    if not tree.has_val:
        out = hold_out(tree.labels[train], HOLD_OUT_EVERY - 1, HOLD_OUT_EVERY)
        train, val = train[~out], train[out]
    classes = len(np.unique(tree.labels[train]))
    if classes < 2:
        raise ValueError(
            f"image_folder: got images of {classes} class(es) under {path}/train "
            f"({len(skipped)} bad files or folders skipped); wanted two classes or more, each a "
            "folder with images; next: add images"
        )
    images = f"{len(train)} images of {len(tree.class_names)} classes to train on"
    rule = f"no val/: every {HOLD_OUT_EVERY}th image of each class of train/"
    note = f"{path}: {images}, {len(val)} held out ({'val/' if tree.has_val else rule})"
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
    """The `fetch` of a data set: these members of the files."""

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
                f"image_folder: got {error} (found while training); wanted an intact JPEG or PNG; "
                "next: full_check=True finds such files at the start, and skip_bad_images=True "
                "skips them"
            ) from error


def _list_on_all_ranks(path: str, comm: Comm) -> Tree:
    """The listing. An error of one rank, or a difference, is a ValueError on all ranks."""
    tree, error, fingerprint = None, "", ""
    try:
        tree = list_tree(path)
        fingerprint = _fingerprint(path, tree)
    except ValueError as caught:
        error = str(caught)
    except OSError as caught:
        error = f"image_folder: got {caught.filename!r}: {caught.strerror}; {_WANTED}"
    answers = [(error, fingerprint)] if comm is None else comm.allgather((error, fingerprint))
    for rank, (error, _) in enumerate(answers):
        if error:
            raise ValueError(error if comm is None else f"{error} (rank {rank})")
    if len(set(answers)) > 1:
        other = next(rank for rank, answer in enumerate(answers) if answer != answers[0])
        raise ValueError(
            f"image_folder: got different files on rank 0 and rank {other} under {path}; "
            "wanted the same tree on every node; "
            "next: compare the nodes' copies, or use a shared folder"
        )
    return tree


def _fingerprint(path: str, tree: Tree) -> str:
    """A hash of the files' names."""
    digest = hashlib.sha256()
    for file in tree.paths:
        digest.update(os.fsencode(os.path.relpath(file, path)) + b"\0")
    return digest.hexdigest()


def _find_bad_files(check: Callable[[int], object], n: int, comm: Comm) -> dict[int, str]:
    """{index: "path: reason"} of the files for which check(index) raises; the same on all ranks."""
    rank, size = (0, 1) if comm is None else (comm.rank, comm.size)
    found = {}
    for index in range(rank, n, size):
        try:
            check(index)
        except ValueError as error:
            found[index] = str(error)
    answers = [found] if comm is None else comm.allgather(found)
    return dict(sorted(item for answer in answers for item in answer.items()))


def _bad_tree_message(path, skipped: tuple[str, ...]) -> str:
    more = f" and {len(skipped) - SHOWN} more" if len(skipped) > SHOWN else ""
    shown = "; ".join(skipped[:SHOWN])
    return (
        f"image_folder: got {len(skipped)} bad files or folders under {path}: {shown}{more}; "
        "wanted intact JPEG or PNG files in every class folder; next: remove or replace them, or "
        "skip them (skip_bad_images=True, --skip-bad-images)"
    )


def list_tree(path: str) -> Tree:
    """List the files' names, sorted, without opening a file; ValueError for another tree.

    A class folder that cannot be listed is a fault; OSError if another folder cannot be.
    """
    if not os.path.isdir(path):
        state = "is a file" if os.path.exists(path) else "does not exist"
        raise ValueError(f"image_folder: got {path!r}, which {state}; {_WANTED}")
    splits = _entries(path, folders=True)
    if "train" not in splits:
        got = f"{path}, which has no folder train, only {splits[:SHOWN]}"
        raise ValueError(f"image_folder: got {got}; {_WANTED}")
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
        got = f"{len(class_names)} class folder(s) with {len(tree.paths)} files in {path}/train"
        raise ValueError(f"image_folder: got {got}; {_WANTED}")
    return tree


_WANTED = (
    "wanted path/train/<class>/<image> of two classes or more, and optionally "
    "path/val/<class>/<image>; next: move the images into such folders"
)


def _entries(path: str, folders: bool) -> list[str]:
    with os.scandir(path) as entries:
        found = [entry.name for entry in entries if _is_folder(entry) == folders]
    return sorted(name for name in found if not name.startswith("."))


def _is_folder(entry: os.DirEntry) -> bool:
    """False too for a link that leads to itself: it is a bad file once it is opened."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _images(folder: str, faults: list[str]) -> list[str]:
    """Paths of the files in a class folder. Adds inner folders and a lack of files to faults."""
    try:
        inner = [os.path.join(folder, name) for name in _entries(folder, folders=True)]
        names = _entries(folder, folders=False)
    except OSError as error:
        faults.append(f"{folder}: cannot be listed: {error.strerror}")
        return []
    faults += [f"{path}: a folder among the images" for path in inner]
    if not names:
        faults.append(f"{folder}: a class folder without images")
    return [os.path.join(folder, name) for name in names]


def _require_same_classes(path: str, train: list[str], val: list[str]) -> None:
    if train != val:
        only_train, only_val = sorted(set(train) - set(val)), sorted(set(val) - set(train))
        raise ValueError(
            f"image_folder: got different class folders in {path}/train and {path}/val: "
            f"only in train {only_train[:SHOWN]}, only in val {only_val[:SHOWN]}; "
            "wanted the same; next: correct or remove val"
        )
