"""How to judge your own code in five minutes: an example that is judged when the page is made."""

import functools
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from refgf.site.frame import contents, page
from refgf.site.markdown import Text, plain, python
from refgf.site.repository import Repository

ADDRESS = "judge/index.html"
TITLE = "Judge your own code in five minutes"
COMMAND = "refgf verify --python mine.py --only 'ring-*-float32-sensitive'"
QUESTIONS = (  # paragraphs of README.md that the page repeats
    "Is your implementation right?",
    "In which order does it add?",
    "Is this schedule right?",
    "Rounding or a bug?",
)
EXAMPLE = """\
def ring_allreduce(xs, wire=None):
    p, length = len(xs), len(xs[0]) // len(xs)
    sums = [x.copy() for x in xs]
    for s in range(p):
        part = slice(s * length, (s + 1) * length)
        for step in range(1, p):
            sums[s][part] += xs[(s + step) % p][part]
        for rank in range(p):
            sums[rank][part] = sums[s][part]
    return sums
"""
TEXT = """\
Without MPI, with NumPy only. In an environment of your own:

    pip install PATH-OF-A-CHECKOUT      # the folder of this project

Ask for the folder where you got this site: <a href="../setup/index.html">set-up</a>.
"""
READ = """\
`profile bits`: exactly the bits that SPEC says are wanted. Each line names a statement, and how
many of the cases that test it pass: R1 fails, because only 4 of its 16 cases pass. The first case
that fails is below. Here nobody sums the last
elements when p does not divide n, which violates R1. What that hides from the judge stays open.
Without `--only` all cases run, among them those with a wire type, which this ring ignores.

A ring that is right may add in another order. It violates R2, and the report names its order.
With `--profile sum` every order passes whose error is within the bound of rounding, S2.
"""


def judge_page(files: Repository) -> str:
    text = Text(files, ADDRESS)
    spec = text.link(files.address("refgf/oracle/SPEC.md"))
    parts = [
        text.heading("1. Install"),
        text.markdown(TEXT),
        text.heading("2. Write mine.py"),
        "<p>One array for each rank in, one out. This ring is wrong; put yours in its place.</p>",
        *(python(EXAMPLE), text.heading("3. Judge it"), plain(COMMAND)),
        *("<p>It prints, shortened:</p>", plain(shortened(printed(files.root)), "wrap")),
        text.markdown(READ),
        text.heading("4. Look it up"),
        f'<p>Every statement has an address: <a href="{spec}#R1">R1</a>, '
        f'<a href="{spec}#R2">R2</a>, <a href="{spec}#S2">S2</a>. '
        "There are its definition, golden cases and mistakes. "
        f'<a href="{spec}#using-it">All options</a>.</p>',
        text.heading("More questions"),
        *(text.markdown(paragraph(files.text("README.md"), name)) for name in QUESTIONS),
    ]
    about = "Is my allreduce right? A file, a command, a verdict on each statement, without MPI."
    body = f"<h1>{TITLE}</h1>\n{contents(text.headings)}" + "\n".join(parts)
    return page(ADDRESS, TITLE, body, about)


@functools.cache
def printed(root: Path) -> str:
    """What COMMAND prints about EXAMPLE."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "mine.py").write_text(EXAMPLE)
        words = ["verify", "--python", f"{folder}/mine.py", "--random", "0", "--only"]
        command = [sys.executable, "-m", "refgf.oracle", *words, "ring-*-float32-sensitive"]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)
    if done.returncode != 1:  # 1: judged, and wrong, as it must be
        raise ValueError(
            f"site: got exit code {done.returncode} from the judge of the example, and "
            f"{done.stdout + done.stderr!r}; wanted 1; next: {' '.join(command)}"
        )
    return done.stdout


def shortened(text: str) -> str:
    """The table of statements and the first case that fails."""
    table, first, *rest = text.strip().split("\n\n")
    return f"{table}\n\n{first}\n\n..." if rest else f"{table}\n\n{first}"


def paragraph(text: str, question: str) -> str:
    """The text from "**question**" to the next bold question or heading."""
    found = re.search(rf"^\*\*{re.escape(question)}\*\*.*?(?=^\*\*|^#|\Z)", text, re.S | re.M)
    if found is None:
        raise ValueError(
            f"site: got a README.md without the question {question!r}; wanted it for {ADDRESS}; "
            "next: correct QUESTIONS in refgf/site/judge.py"
        )
    return found[0]
