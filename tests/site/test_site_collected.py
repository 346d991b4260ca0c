"""Pages that answer a question: the API, baselines, how to cite."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("markdown_it", reason="pip install -e '.[site]'")
pytest.importorskip("pygments", reason="pip install -e '.[site]'")

from refgf.site import api, baselines, cite

ROOT = Path(__file__).resolve().parents[2]


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
    words = ["--only", "ring-*-float32-sensitive", "--random", "0", *options]
    file = tmp_path / "mine.py"
    file.write_text(BACKWARDS)
    command = [sys.executable, "-m", "refgf.oracle", "verify", "--python", file, *words]
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
