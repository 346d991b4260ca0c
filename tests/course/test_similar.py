"""Two submissions: what a copy keeps after renaming and moving, and what two people share."""

import os
import re
import subprocess
import sys
from pathlib import Path

from refgf.course import similar
from refgf.course.__main__ import main

ROOT = Path(__file__).resolve().parents[2]
ANSWERS = (ROOT / "lessons/teaching/answers/03.py").read_text()
STARTER = (ROOT / "lessons/student/03.py").read_text()
GIVEN = similar.words("starter", STARTER, {}).runs
SOMEBODY_ELSE = """
import numpy as np
def lazy_calls(sizes, theta):
    out = []
    first = end = 0
    for k in range(len(sizes)):
        end = end + sizes[k]
        waits = (end - first) * 4
        if waits <= theta:
            continue
        out += [(first, end)]
        first = end
    if end > first:
        out += [(first, end)]
    return out
"""


def share(a, b):
    return similar.alike(*(similar.words(name, text, GIVEN) for name, text in (("a", a), ("b", b))))


def disguised(text):
    """Other names, functions in another order, comments, docstrings, another layout."""
    head, *functions = text.split("\n\n\n")
    for old in ("sizes", "theta", "start", "stop", "calls", "held", "pools", "mine"):
        functions = [re.sub(rf"\b{old}\b", f"my_{old}", each) for each in functions]
    functions = [
        re.sub(r":\n", ':  # mine\n    """My own."""\n', each, count=1) for each in functions
    ]
    return "\n\n# my work\n\n".join([head, *reversed(functions)])


def test_a_disguised_copy_is_a_copy():
    assert share(ANSWERS, disguised(ANSWERS)).share > 0.9


def test_two_people_and_the_starter():
    assert share(ANSWERS, SOMEBODY_ELSE).share < 0.2
    assert share(STARTER, ANSWERS).share == share(STARTER, STARTER).share == 0
    both = share(STARTER + SOMEBODY_ELSE, STARTER + disguised(ANSWERS))
    assert both.share < 0.3  # each has the given function whole


def test_a_copy_within_more_text():
    longer = SOMEBODY_ELSE + ANSWERS.split("\n\n\n")[2]
    assert 0.3 < share(longer, ANSWERS).share < 1
    assert share(SOMEBODY_ELSE, longer).share == 1


def test_the_report(tmp_path, capsys):
    for name, text in {"a": ANSWERS, "b": SOMEBODY_ELSE, "c": "def f(:\n  '", "d": STARTER}.items():
        (tmp_path / f"{name}.py").write_text(text)
    files = [str(tmp_path / f"{name}.py") for name in "abcd"]
    assert main(["similar", "03", *files, "--most", "2"]) == 1  # c is no Python
    printed = capsys.readouterr().out
    first = re.match(r"100%  the published answers: lines (.*)\n      (\S+): lines (.*)\n", printed)
    assert first[2] == files[0] and first[1] == first[3] and "33-35" in first[1]
    assert f"{files[2]}: not compared" in printed and "6 pairs, median " in printed
    assert (
        main(["similar", "03", files[2]]) == 2 and "wanted submissions" in capsys.readouterr().err
    )
    assert main(["similar", "77", *files]) == 2
    capsys.readouterr()
    assert main(["similar", "03", str(tmp_path)]) == 2
    assert f"; wanted files; next: {tmp_path}/*.py" in capsys.readouterr().err


def test_files_are_decoded_as_for_their_marks(tmp_path, capsys):
    """A copy is not lost in another encoding; a file that Python cannot run is named, with rc 1."""
    coding, comment = b"# -*- coding: latin-1 -*-\n", b"# M\xfcller\n"
    head, body = ANSWERS.encode().split(b"import numpy", 1)
    copies = {
        "latin": comment + ANSWERS.encode(),
        "declared": coding + comment + ANSWERS.encode(),
        "in_text": coding + ANSWERS.encode() + b"\nx = 'M\xfcller'\n",
        "late": head + b"import numpy" + body + comment,
        "bom": b"\xef\xbb\xbf" + ANSWERS.encode(),
        "lines": ANSWERS.replace("\n", "\r\n").encode(),
        "old_mac": ANSWERS.replace("\n", "\r").encode(),
    }
    for name, data in copies.items():
        compile(data, name, "exec")
        (tmp_path / f"{name}.py").write_bytes(data)
    files = [str(tmp_path / f"{name}.py") for name in copies]
    assert main(["similar", "03", *files]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{len(copies) + 1} files alike") and "not compared" not in printed
    bad = {
        "wide": ("# x\n" + ANSWERS).encode("utf-16"),
        "no_text": b"# coding: rot13\nx = 1\n",
    }
    for name, data in bad.items():
        (tmp_path / f"{name}.py").write_bytes(data)
    (tmp_path / "link.py").symlink_to("/dev/zero")
    files += [str(tmp_path / f"{name}.py") for name in (*bad, "link")]
    assert main(["similar", "03", *files]) == 1
    printed = capsys.readouterr().out
    said = "wide.py: not compared, it has null bytes, as UTF-16 has; next: save it as UTF-8"
    assert said in printed
    assert "no_text.py: not compared, it is no Python" in printed
    assert f"not compared: {files[-1]}: not a regular file" in printed


def test_a_reader_who_wants_no_more(tmp_path):
    (tmp_path / "a.py").write_text(ANSWERS)
    command = [sys.executable, "-m", "refgf.course", "similar", "03", str(tmp_path / "a.py")]
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, cwd=ROOT, timeout=60)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (2, b"")


def test_a_group_is_one_entry_and_what_is_not_shown_is_counted(tmp_path, capsys):
    texts = [ANSWERS, disguised(ANSWERS), ANSWERS + "\n", SOMEBODY_ELSE, SOMEBODY_ELSE]
    for name, text in zip("abcde", texts):
        (tmp_path / f"{name}.py").write_text(text)
    files = [str(tmp_path / f"{name}.py") for name in "abcde"]
    assert main(["similar", "03", *files]) == 0
    printed = capsys.readouterr().out
    group = "\n      ".join([*files[:3], "the published answers"])
    head = "4 files alike, each by 90% or more to another one of them:"
    two = f"{head}\n      {group}\n      the two of them that are most alike:\n"
    found = re.match(rf"{re.escape(two)}100%  (.*): lines .*\n      (.*): lines .*\n", printed)
    assert found[1] != found[2] and {found[1], found[2]} <= set(group.split("\n      "))
    other = re.match(r"      most alike below 100%:\n 9\d%  .*\n .*\n", printed[found.end() :])
    assert f"{files[1]}: lines " in other[0]  # the disguised copy
    assert printed[found.end() + other.end() :].startswith(f"100%  {files[3]}: lines ")
    assert printed.count(": lines ") == 6 and "pairs not shown" not in printed
    assert main(["similar", "03", *files, "--most", "0"]) == 0
    printed = capsys.readouterr().out
    assert printed.count(": lines ") == 4 and f"{files[2]}\n" in printed
    assert "pairs not shown: 1, the first of them 100%: --most 1\n" in printed


POOL = """
def pool_slices(sizes):
    found, start = [], 0
    for size in sizes:
        found.append((start, start + size))
        start += size
    return found
"""
OTHER_POOL = """
def pool_slices(sizes):
    result, begin = [], 0
    for n in sizes:
        result.append((begin, begin + n))
        begin = begin + n
    return result
"""


def test_a_short_file_has_little_to_compare(tmp_path, capsys):
    """Right files of one short function are alike without a copy."""
    texts = {"short": POOL, "too": OTHER_POOL, "long": ANSWERS, "starter": STARTER}
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    files = [str(tmp_path / f"{name}.py") for name in texts]
    assert main(["similar", "03", *files]) == 0
    (line,) = [x for x in capsys.readouterr().out.splitlines() if "little to compare" in x]
    named = dict(re.findall(r"(\w+)\.py \((\d+)\)", line))
    assert named.keys() == {"short", "too", "starter"} and named["starter"] == "0"
    assert share(POOL, OTHER_POOL).share > 0.3
