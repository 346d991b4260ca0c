"""Damaged checkpoints: each is named, and the one before is resumed; nothing else ever happens."""

import json
import os
import random
import shutil
from pathlib import Path

import pytest

from refgf.machine.checkpoint_files import write_manifest
from tests.support.checkpoint_cases import resumed, save_on_threads

SEED, FLIPS = 22, 400
FILES = ("manifest.json", "shared.safetensors", "rank0.safetensors", "rank1.safetensors")
KEYS = ("ranks", "layout", "code", "settings", "position", "files")
ABSENT = "absent"


@pytest.fixture
def newest(tmp_path):
    """A folder with two checkpoints; the newest one."""
    save_on_threads(tmp_path, [1, 3])
    return tmp_path / "step-00000003"


def require_the_one_before(newest):
    """The newest is reported as damaged, and the one before is resumed; returns the report."""
    position, said = resumed(newest.parent)
    assert position == {"at": 1}, said
    assert len(said) == 2 and said[0].startswith(f"checkpoint {newest.name} is damaged (rank"), said
    assert said[0].endswith("; trying the one before") and said[1].startswith("resumed from"), said
    return said[0]


def truncate(path):
    os.truncate(path, path.stat().st_size - 10)


def grow(path):
    os.truncate(path, 1 << 40)  # of zeros that take no room on the disk


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def pipe(path):
    path.unlink()
    os.mkfifo(path)


def endless(path):
    path.unlink()
    path.symlink_to("/dev/zero")


def folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("harm", [truncate, grow, flip, pipe, endless, folder, Path.unlink])
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file_gives_way_to_the_checkpoint_before(newest, file, harm):
    harm(newest / file)
    if file == "manifest.json" and harm is Path.unlink:  # without a manifest it never counted
        position, said = resumed(newest.parent)
        assert position == {"at": 1} and len(said) == 1
    else:
        reason = require_the_one_before(newest)
        assert file in reason
        assert ("not a regular file" in reason) == (harm in (pipe, endless, folder))


def test_all_damaged_is_an_error(newest):
    for path in newest.parent.glob("*/rank1.safetensors"):
        truncate(path)
    with pytest.raises(ValueError, match="got 2 checkpoints .* all of them damaged"):
        resumed(newest.parent)


MALFORMED = {
    "empty": b"",
    "null": b"null",
    "a list": b"[1]",
    "text": b'"ranks"',
    "not UTF-8": b"\xff\xfe\x00\x01",
    "nested deeply": b'{"files": ' * 100_000,
    "a list nested deeply": b"[" * 100_000 + b"]" * 100_000,
    "a number of 5,000 digits": b'{"ranks": ' + b"9" * 5000 + b"}",
}


@pytest.mark.parametrize("content", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_manifest_is_damaged(newest, content):
    (newest / "manifest.json").write_bytes(content)
    require_the_one_before(newest)


@pytest.mark.parametrize("value", [None, 7.5, [1], ABSENT])
@pytest.mark.parametrize("key", KEYS)
def test_a_manifest_with_the_right_hash_of_wrong_contents_is_damaged(newest, key, value):
    """As if another program had written it."""
    about = json.loads((newest / "manifest.json").read_bytes())
    del about["sha256"]
    about[key] = value
    if value is ABSENT:
        del about[key]
    write_manifest(newest, about)
    require_the_one_before(newest)


@pytest.mark.parametrize("entry", [None, [], 7, {}, {"bytes": "many"}, {"sha256": "0" * 64}])
def test_a_manifest_with_a_wrong_entry_of_a_file_is_damaged(newest, entry):
    about = json.loads((newest / "manifest.json").read_bytes())
    del about["sha256"]
    about["files"]["rank1.safetensors"] = entry
    write_manifest(newest, about)
    require_the_one_before(newest)


def test_every_flipped_bit_of_a_manifest_is_noticed_or_changes_nothing(tmp_path):
    """Random bits: the same position without a warning, or damaged; never another position."""
    save_on_threads(tmp_path, [1, 3], size=1)
    newest, rng, unchanged = tmp_path / "step-00000003", random.Random(SEED), 0
    path = newest / "manifest.json"
    whole = path.read_bytes()
    for bit in rng.sample(range(8 * len(whole)), FLIPS):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        position, said = resumed(tmp_path, size=1)
        if position == {"at": 3}:
            assert len(said) == 1, (SEED, bit, said)
            unchanged += 1
        else:
            assert position == {"at": 1} and len(said) == 2, (SEED, bit, position, said)
            assert f"{newest.name} is damaged (rank 0: manifest.json" in said[0], (SEED, bit, said)
    assert unchanged < FLIPS // 10


def test_a_damaged_checkpoint_is_not_compared_with_this_run(newest):
    """The manifest of another run counts only if it is whole."""
    save_on_threads(newest.parent / "other", [3], size=3)
    shutil.copy(newest.parent / "other" / newest.name / "manifest.json", newest)
    truncate(newest / "manifest.json")
    require_the_one_before(newest)
