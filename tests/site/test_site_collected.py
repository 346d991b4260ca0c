"""Pages that answer a question: the first one, judge, results, API, baselines, how to cite."""

import json
import re
import shlex
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

pytest.importorskip("markdown_it", reason="pip install -e '.[site]'")
pytest.importorskip("pygments", reason="pip install -e '.[site]'")

from refgf.site import api, baselines, cite, collect, judge
from refgf.site.markdown import Text
from refgf.site.repository import Repository

ROOT = Path(__file__).resolve().parents[2]


def visible(html):
    return " ".join(unescape(re.sub(r"<[^>]*>", "", html)).split())


def test_the_first_page_answers_first(site):
    """What lazy allreduce gains and when not, how to judge a ring, a cluster on a laptop."""
    first = (site[0] / "index.html").read_text()
    box = visible(re.search(r'<ul class="start">(.*?)</ul>', first, re.S)[1])
    found = json.loads((ROOT / "figures" / "03_lazy_allreduce.json").read_text())["verdicts"]
    assert first.index('class="start"') < first.index('class="contents"')
    assert sum(verdict["text"] in box for verdict in found) == 2
    assert "When does it gain little? On 8 ranks like" in box
    assert f"{judge.COMMAND}, after pip install" in box
    assert "python -m refgf.cluster run --like" in box
    results = visible((site[0] / "results" / "index.html").read_text())
    for row in ("Jia et al., AlexNet: top-1", "MPI's own Allreduce is faster"):
        assert row not in visible(first) and row in results
    assert "The table is on" not in first and 'href="results/index.html#what-each' in first
    with pytest.raises(ValueError, match="without lesson 03.*next: correct START"):
        collect.start(Text(WithoutLesson(ROOT), "index.html"))


def test_set_up_lists_its_questions_and_says_where_the_folder_is(site):
    html = (site[0] / "setup" / "index.html").read_text()
    listed = re.search(r'<details class="contents">.*?</details>', html, re.S)[0]
    assert '"#a-cluster-on-this-machine"' in listed and '"#a-real-cluster"' in listed
    assert "make setup</code> makes" in html and "no public address" in html


class WithoutLesson(Repository):
    def text(self, path):
        return super().text(path).replace("| [03", "| [99")


def test_the_example_is_judged_when_the_page_is_made(site):
    html = visible((site[0] / "judge" / "index.html").read_text())
    assert "R1 FAIL" in html and "R2 FAIL" not in html and html.count("lost tail") == 1
    assert "4 of its 16 cases pass" in html and "FAIL 4/16" in html  # the text and what was printed
    assert all(question in html for question in judge.QUESTIONS)
    with pytest.raises(ValueError, match="without the question 'Why[?]'.*next: correct QUESTIONS"):
        judge.paragraph("**What?** That.", "Why?")


BACKWARDS = """\
import numpy

def ring_allreduce(xs, wire=None):
    p, total = len(xs), xs[0].copy()
    for s, part in enumerate(numpy.array_split(numpy.arange(total.size), p)):
        total[part] = xs[s][part]
        for step in range(1, p):
            total[part] += xs[(s - step) % p][part]
    return [total] * p
"""


@pytest.mark.parametrize("options, code", [([], 1), (["--profile", "sum"], 0)])
def test_a_right_ring_in_another_order_passes_as_the_page_says(tmp_path, options, code):
    (tmp_path / "mine.py").write_text(BACKWARDS)
    words = shlex.split(judge.COMMAND.replace("mine.py", str(tmp_path / "mine.py")))[1:]
    command = [sys.executable, "-m", "refgf.oracle", *words, "--random", "0", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == code, done.stdout + done.stderr
    assert ("R2  FAIL" in done.stdout and "ring backwards" in done.stdout) == bool(code)
    assert ("S2  pass" in done.stdout) == (not code)


def test_the_api_has_what_the_core_defines(site):
    html = (site[0] / "api" / "index.html").read_text()
    anchors = site[1][site[0] / "api" / "index.html"].anchors
    wanted = ["comm.ring.allreduce", "comm.ring.ring_allreduce", "ops", "device", "exchange.csc"]
    wanted += ["training.gradientflow.GradientFlow", "exchange.lazy.EagerAllreduce.ready"]
    assert "refgf/<wbr>comm/<wbr>ring.py" in html  # a heading fits on a phone
    assert set(wanted) <= anchors and not [name for name in anchors if "._" in name]
    assert "def allreduce(rank: int, size: int, n: int) -&gt; Schedule" in unmarked(html)
    assert "# ring_allreduce(comm, *, wire=None) -&gt; Allreduce" in unmarked(html)
    assert "threshold_bytes: float = math.inf" in unmarked(html)
    code = "class A(B):\n    x: int\n    def __init__(self, n=1): pass\n    def _f(self): pass\n"
    (node,) = api.ast.parse(code).body
    lines = ["class A(B)", "    x: int", "    def __init__(self, n=1)"]
    assert api.signature(node).splitlines() == lines


def unmarked(html):
    return re.sub(r"</?span[^>]*>", "", html)


def test_measured_ratios_are_shown(site):
    row = {"name": "nn: a <b> (1.00 to 2.50)", "ratio": 1.234, "ratio_min": 1, "ratio_max": 2.5}
    judged = row | {"wanted": ["at least", 1], "verdict": "ok"}
    assert baselines.ratio_row(row) == ["a &lt;b&gt;", "1.23", "1.00 .. 2.50", "", ""]
    assert baselines.ratio_row(judged)[3:] == ["at least 1", "ok"]
    groups = baselines.grouped([row, judged, judged | {"verdict": "MISS"}, row | {"name": "x: y"}])
    cells = re.findall("<td>(.*?)</td>", baselines.overview(groups))
    assert cells == ['<a href="#nn">nn</a>', "3", "2", "1", '<a href="#x">x</a>', "1", "0", "0"]
    about = {"ring_speed": {"date": "2026-11-24", "cpu": "a <cpu>", "cores": 2}}
    assert "2026-11-24; a &lt;cpu&gt;, 2 cores" in baselines.where(about)
    html = (site[0] / baselines.ADDRESS).read_text()
    rows = json.loads((ROOT / baselines.RATIOS).read_text())["rows"]
    assert html.count("<tr><td>") == len(rows) + len(baselines.grouped(rows))


def test_the_citation_is_that_of_the_file():
    file = (ROOT / "CITATION.cff").read_text()
    entry = cite.bibtex(file)
    assert f"version  = {{{cite.fields(file)['version']}}}" in entry and "{the refgf" in entry
    person = '  - family-names: Sun\n    given-names: "Peng"\n'
    assert "{Sun, Peng}" in cite.bibtex(file.replace('  - name: "the refgf authors"\n', person))
    with pytest.raises(ValueError, match="without version; .*next: add it"):
        cite.fields(re.sub("^version:.*", "", file, flags=re.M))
