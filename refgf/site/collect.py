"""The first page, and pages made of sections of several texts: set-up and results."""

import re

from refgf.site import judge
from refgf.site.frame import contents, page
from refgf.site.markdown import Text, slug
from refgf.site.repository import Repository

GAINS, HEADLINES = (
    "What each technique gains, as last measured",
    "The papers' headlines, confronted",
)
# address: (title, what it is, [(file, heading)])
COLLECTED = {
    "setup/index.html": (
        "Set-up",
        "Set-up on each operating system, and on a cluster. All commands run in the project's "
        "folder. It has no public address yet: ask for it where you got this site.",
        [
            ("README.md", "Two commands"),
            ("lessons/README.md", "Other systems"),
            ("README.md", "Elsewhere"),
            ("README.md", "Not yet run"),
        ],
    ),
    "results/index.html": (
        "Results",
        "What each technique gains and when it does not; the papers' headlines, confronted.",
        [("README.md", GAINS), ("README.md", HEADLINES)],
    ),
}
# {place}, {gain}, {loss}: the row of lesson 03 in README.md. {cluster}: from its "Elsewhere"
START = """\
- **What does lazy allreduce gain?** It waits until more than theta bytes of gradients are ready,
  then sums them in one call; eager calls sum each gradient at once. Measured on {place}: {gain}
- **When does it gain little?** On {place}: {loss} Lesson 03 has the
  <a href="lessons/03/index.html#verdicts">numbers</a>, the
  <a href="explorer/index.html">theta explorer</a> other machines, and
  <a href="results/index.html">Results</a> the same for each technique. In italics: the verdict of
  the last measurement.
- **Is my own ring right?** `{judge}`, after
  `pip install PATH-OF-A-CHECKOUT`. <br> <a href="judge/index.html">How to judge your code in
  five minutes</a>, without MPI.
- **A cluster on this laptop?** `{cluster}`, in a checkout after `make setup` and
  `source .venv/bin/activate`. <br> <a href="setup/index.html#a-cluster-on-this-machine">Other
  shapes</a>, <a href="setup/index.html#other-systems">other systems</a>,
  <a href="setup/index.html#a-real-cluster">a real cluster</a>.
- **What does an allreduce do?** <a href="player/index.html">Watch one, message by message</a>.
"""


def collected_page(files: Repository, address: str) -> str:
    """Sections of the project's texts in one place."""
    title, about, sections = COLLECTED[address]
    parts, headings = [], []
    for path, heading in sections:
        text = Text(files, address, path)
        parts += [text.heading(heading), text.markdown(section(files.text(path), heading))]
        headings += text.headings + text.questions
    body = f"<h1>{title}</h1>\n<p>{about}</p>\n{contents(headings, 3)}" + "\n".join(parts)
    return page(address, title, body, about)


def section(text: str, heading: str) -> str:
    """The part of a Markdown text under "## heading", without the heading."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.S | re.M)
    if found is None:
        raise ValueError(
            f"site: got a text without the heading {heading!r}; wanted it for a page of several "
            "texts; next: correct COLLECTED in refgf/site/collect.py"
        )
    return found[1]


def without_tables(readme: str) -> str:
    """README.md without the sections that the page of results has; links lead there."""
    for heading in (GAINS, HEADLINES):
        readme = readme.replace(f"## {heading}\n{section(readme, heading)}", "")
        link = rf"\[([^]]*)\]\(#{slug(heading)}\)"
        readme = re.sub(link, rf'<a href="results/index.html#{slug(heading)}">\1</a>', readme)
    return readme


def start(text: Text) -> str:
    """The box of the first page, which answers what most visitors ask."""
    readme = text.files.text("README.md")
    row = re.search(r"^\| \[03\b.*?\]\(.*?\), (.*?)\|(.*?)\|(.*?)\|$", section(readme, GAINS), re.M)
    cluster = re.search(r"^\*\*A cluster on this machine\.\*\* `(.*?)`", readme, re.M)
    if row is None or cluster is None:
        raise ValueError(
            "site: got a README.md without lesson 03 among the gains, or without a command for a "
            "cluster on this machine; wanted both for the first page; next: correct START in "
            "refgf/site/collect.py"
        )
    place, gain, loss = (cell.strip() for cell in row.groups())
    said = {"place": place, "gain": gain, "loss": loss}
    box = START.format(**said, judge=judge.COMMAND, cluster=cluster[1])
    return text.markdown(box).replace("<ul>", '<ul class="start">', 1)
