"""The table of all headlines: complete, current in README, and no number typed twice."""

import ast
import re
from pathlib import Path

import gains
import pytest

from refgf.papers.mgwfbp.merge import greedy_merge
from refgf.papers.scaling import benchmark_rows, confronted, headlines
from refgf.papers.scaling.headlines import HEADLINES, JIA_ALPHA, PAPER

SCALING = Path(headlines.__file__).parent
# what the papers' abstracts and the public tables state, and the word that a row of it has
STATED = {
    "410.2 x": "GradientFlow, AlexNet",
    "434.1 x": "GradientFlow, ResNet-50",
    "1.5 minutes": "95 epochs on 512 GPUs",
    "2.6 x": "record",
    "2.5 x": "64 GPUs",
    "3 x": "Jia et al., AlexNet",
    "11 x": "Jia et al., ResNet-50",
    "6.6 minutes": "2048 P40",
    "75.8 %": "ResNet-50: top-1",
    "4 minutes": "1024 P40",
    "58.7 %": "AlexNet: top-1",
    "15 minutes, 74.9 %": "1024 P100",
    "20 minutes, 75.4 %": "2048 KNL",
    "25 to 40 % faster": "16 x 8 V100",
    "93 %": "top-5",
    "34 % less": "DASO",
    "0.99 to 1.71 x": "16 rows",
}


@pytest.fixture(scope="module")
def entries():
    return confronted.confronted(gains.figure, greedy_merge)


def test_every_headline_has_a_row(entries):
    rows = {entry.published: entry.name for entry in entries}
    assert len(rows) == len(entries)
    for published, words in STATED.items():
        assert words in rows[published], (published, rows[published])
    assert {entry.kind for entry in entries} == set(confronted.KINDS)
    assert {h.name for h in HEADLINES} <= set(rows.values())
    screen = [f"{entry.name}: {entry.published} ({entry.kind})" for entry in entries]
    assert max(map(len, screen)) <= 100  # as lesson 08 shows them


def test_the_table_in_the_readme_is_current(entries):
    text = gains.README.read_text()
    assert all(mark in text for mark in gains.HEADLINES)
    assert gains.with_headlines(text) == text, "next: python tests/gains.py"
    assert all(f"| {entry.name} | {entry.published} |" in text for entry in entries)


def test_a_changed_figure_changes_the_table(entries):
    """Seeded mistake: a table that does not read the figures."""

    def slower(name):
        result = gains.figure(name)
        if name == "13_daso":
            rows = {row["name"]: row for row in result["times"]["rows"]}
            rows["B = 4, W = 1"]["batch"]["median_s"] *= 2
        return result

    changed = confronted.confronted(slower, greedy_merge)
    assert [a.name for a, b in zip(entries, changed) if a != b] == [confronted.DASO]
    assert "% more time" in changed[-1].found


def test_no_published_number_is_typed_twice():
    """Each stands once in the code of this folder: docstrings and comments do not count."""
    numbers, texts = [], []
    for name in ("headlines.py", "headline_steps.py", "confronted.py"):
        tree = ast.parse((SCALING / name).read_text())
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and id(node) not in docstrings:
                (texts if isinstance(node.value, str) else numbers).append(node.value)
    for headline in HEADLINES:
        written = sum(isinstance(n, float) and n == headline.published for n in numbers)
        assert written == 1, headline.name
        if "." in f"{headline.published:g}":  # 3, 4 and 11 mean other things, too
            text = re.escape(f"{headline.published:g}")
            again = [t for t in texts if re.search(rf"(?<![\d.]){text}(?![\d.])", t)]
            assert not again, (headline.name, again)
    for text in ("75.8", "58.7", "74.9", "75.4", "25 to 40", "93 %", "34 %"):
        assert sum(text in t for t in texts) == 1, text


def test_what_decides_the_eleven_fold():
    """With MG-WFBP's latency it ends below 11; with three times as much, above."""
    resnet = HEADLINES[4]
    entry = confronted.latency_decides(confronted.predicted(resnet), resnet)
    ends = [float(end) for end in re.findall(r"would end at (\d+\.\d)", entry.found)]
    assert ends[0] < resnet.published < resnet.interval()[1] and resnet.inside
    assert JIA_ALPHA in resnet.inputs


def test_the_abstract_says_gpus():
    """V100 is the press's word, so it is in a source and in no name of a stated headline."""
    stated = [h for h in HEADLINES if h.source == PAPER]
    assert stated and not any("V100" in h.name for h in stated)
    assert "The Register" in headlines.GPU and headlines.GPU in headlines.V100_RATE.source


# HKBU-HPML/ddl-benchmarks, results/2020-05-29/README.md: rows of 10GbE with TCP/IP, as they stand
TABLE = """
| ResNet-50 | 64 | BSP-A2A | 253.1 | 925.020 | 1282.280 | 2485.120 | 4920.820 |
| ResNet-50 | 64 | WFBP-A2A | 253.1 | 1015.400 | 1795.740 | 3146.780 | 5113.180 |
| ResNet-50 | 64 | MG-WFBP | 253.1 | 1003.180 | 1980.580 | 3784.980 | 6883.600 |
| BERT-Large | 8 | BSP-A2A | 49 | 53.040 | 28.960 | 54.300 | 105.100 |
| BERT-Large | 8 | WFBP-A2A | 49 | 56.040 | 29.060 | 53.420 | 101.960 |
| BERT-Large | 8 | MG-WFBP | 49 | 57.340 | 30.040 | 54.260 | 105.020 |
| BERT-Base | 64 | BSP-A2A | 212.8 | 555.520 | 518.940 | 984.880 | 1926.640 |
| BERT-Base | 64 | WFBP-A2A | 212.8 | 634.100 | 582.260 | 1069.480 | 2013.380 |
| BERT-Base | 64 | MG-WFBP | 212.8 | 659.060 | 611.440 | 1153.180 | 1925.780 |
"""


def test_the_benchmark_is_as_published():
    lines = [line.strip("| ").split(" | ") for line in TABLE.split("\n") if line]
    assert len(lines) == 9
    for name, batch, method, *samples in lines:
        network = benchmark_rows.NETWORKS[name]
        measured = network.measured[benchmark_rows.METHODS.index(method)]
        assert (network.batch, network.single, *measured) == (int(batch), *map(float, samples))
    assert benchmark_rows.bert_base().parameters == 109_482_240  # with pooler (computed)


def test_the_benchmark_s_errors():
    """The bars of what the module says: half the slope, twice too fast; a ring's slope, 10 %."""
    fitted, wire = (
        benchmark_rows.errors(lines, greedy_merge)
        for lines in (benchmark_rows.FITTED, benchmark_rows.WIRE)
    )
    assert len(fitted) == 36
    slope = benchmark_rows.FITTED[16].b_s_per_byte
    assert 0.45 < slope / benchmark_rows.WIRE[16].b_s_per_byte < 0.55
    assert max(fitted.values()) > 1  # BERT, more than twice too fast
    one_call = [e for (_, method, p), e in wire.items() if method == "BSP-A2A" and p > 4]
    assert len(one_call) == 9 and max(map(abs, one_call)) < 0.1
    resnet = benchmark_rows.NETWORKS["ResNet-50"]
    assert 161 * benchmark_rows.FITTED[32].a_s > 32 * resnet.batch / resnet.measured[1][3]
