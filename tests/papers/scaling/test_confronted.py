"""The table of all headlines: complete, current in docs/results.md, and no number typed twice."""

import ast
import re
from pathlib import Path

import pytest

from docs.tools import gains
from refgf.papers.mgwfbp.merge import greedy_merge
from refgf.papers.scaling import benchmark_rows, confronted, headlines, published
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
    "1.20 and 1.22 x": "K80",
    "29 to 6884 samples/s": "10 Gbit/s",
    "53 to 7876 samples/s": "RDMA",
    "53 to 7541 samples/s": "TCP",
    "36 of 63 rows": "ByteScheduler",
}


@pytest.fixture(scope="module")
def entries():
    return confronted.confronted(gains.figure, greedy_merge)


def test_every_headline_has_a_row(entries):
    rows = {entry.published: entry.name for entry in entries}
    assert len(rows) == len(entries)
    for number, words in STATED.items():
        assert words in rows[number], (number, rows[number])
    assert {entry.kind for entry in entries} == set(confronted.KINDS)
    assert {h.name for h in HEADLINES} <= set(rows.values())
    screen = [f"{entry.name}: {entry.published} ({entry.kind})" for entry in entries]
    assert max(map(len, screen)) <= 100  # as lesson 08 shows them


@pytest.mark.parametrize(
    "low, high, said",
    [
        (1, 4, "inside, 4 times wide"),
        (1, 4.1, "inside, but 4.1 times wide (more than 4), so it says little"),
        (3, 4, "OUTSIDE by 50 %"),
        (0.5, 1, "OUTSIDE by 100 %"),
    ],
)
def test_a_wide_interval_is_no_agreement(low, high, said):
    assert confronted.verdict(2, low, high) == said


def test_only_a_narrow_interval_could_have_failed(entries):
    assert [confronted.could_fail(width) for width in (1.9, 2, 4, 4.1)] == [
        *("yes", "hardly", "hardly", "no")
    ]
    sharp = {e.published for e in entries if e.could_fail == "yes" and ": inside" in e.found}
    assert sharp == {"434.1 x"}


def test_the_table_in_the_results_is_complete(entries):
    text = gains.RESULTS.read_text()
    for e in entries:
        assert f"| {e.name} | {e.published} | *{e.kind}* | {e.could_fail} |" in text


def test_a_changed_figure_changes_the_table(entries):
    """Seeded mistake: a table that does not read the figures."""

    def slower(name):
        result = gains.figure(name)
        if name == "13_daso":
            rows = {row["name"]: row for row in result["times"]["rows"]}
            rows["B = 4, W = 1"]["batch"]["median_s"] *= 3
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
    # GPUs and epochs: 95 are two papers', 64 the filters of an AlexNet, too; "2048 KNL": another's
    for number, times in {512: 1, 64: 2, 1024: 1, 2048: 1, 90: 1, 95: 2}.items():
        written = sum(n == number and isinstance(n, int) for n in numbers)
        assert written == times, (number, written)
        again = [t for t in texts if re.search(rf"\b{number} (GPUs|P40|V100|epochs)", t)]
        assert not again, (number, again)


def last_interval(entry):
    """The ends of the interval that the row's last sentence names."""
    return [float(end) for end in re.findall(r"([\d.]+) to ([\d.]+)\.$", entry.found)[0]]


def test_what_decides_the_eleven_fold():
    """With MG-WFBP's latency it ends below 11; with three times as much, above."""
    resnet = HEADLINES[4]
    entry = confronted.latency_decides(confronted.predicted(resnet), resnet)
    assert last_interval(entry)[1] < resnet.published < resnet.interval()[1] and resnet.inside
    assert JIA_ALPHA in resnet.inputs


@pytest.mark.parametrize("number", [0, 1, 6])
def test_that_alexnet_was_sent_sparse_is_not_stated(number):
    """10 % is an example in the sources; without it the interval says little, and says so."""
    headline = HEADLINES[number]
    entry = confronted.share_decides(confronted.predicted(headline), headline)
    percent = next(given for given in headline.inputs if given.name == "percent")
    assert percent.values == (10, 100) and percent.label == "inferred"
    low, high = last_interval(entry)
    assert low <= headline.published <= high and high / low < confronted.WIDE / 1.5
    ends = headline.interval()
    said = "so it says little" in entry.found
    assert said == (ends[1] / ends[0] > confronted.WIDE)
    assert next(iter(headline.widths())) == "percent"


def test_four_minutes_are_an_upper_bound():
    """The abstract says "within": the row says "at most", and so does the record's source."""
    assert HEADLINES[8].name.endswith("at most")
    record = next(given for given in HEADLINES[6].inputs if given.name == "record_minutes")
    assert "upper bound" in record.source


def test_each_network_s_batch_is_smaller_than_where_its_rate_was_measured():
    """Both V100 rates are of larger batches than 128, so both have the same correction."""
    for number in (0, 5):
        (small,) = (given for given in HEADLINES[number].inputs if given.name == "small_batch")
        assert small.values == headlines.SMALL_BATCH.values and small.label == "inferred"


def test_the_abstract_says_gpus():
    """V100 is a newspaper's word, so it is in a source and in no name of a stated headline."""
    stated = [h for h in HEADLINES if h.source == PAPER]
    assert stated and not any("V100" in h.name for h in stated)
    assert "The Register" in headlines.GPU and headlines.GPU in headlines.V100_RATE.source


def test_the_networks_of_the_benchmark():
    """27 rows; BERT-Base with its pooler; the sentences' length is that of the script."""
    rows = [rates for each in benchmark_rows.NETWORKS.values() for rates in each.measured.values()]
    assert sum(map(len, rows)) == 27
    assert benchmark_rows.bert_base().parameters == 109_482_240  # with pooler (computed)
    # mgwfbp/horovod_mpi_cj.sh, lines 6 and 12: senlen="${senlen:-64}", passed as --sentence-len
    assert benchmark_rows.bert_64().sample == benchmark_rows.bert_base().sample
    assert "64 tokens" in benchmark_rows.bert_64().sample


def test_the_benchmark_s_lines_are_those_of_its_code():
    """Line 229 of its code: 16 GPUs have three times the latency that MG-WFBP's code has."""
    tripled = benchmark_rows.FITTED_56[16]
    assert tripled.a_s == pytest.approx(3 * 0.00023583677659915685, rel=1e-4)
    assert tripled.b_s_per_byte == published.INFINIBAND.lines[16].b_s_per_byte


def test_the_benchmark_s_errors_on_10_gigabit():
    """The bars of what the module says: half the slope, twice too fast; a ring's slope, 10 %."""
    fitted, wire = (
        benchmark_rows.errors(benchmark_rows.ETHERNET_10, lines, greedy_merge)
        for lines in (benchmark_rows.FITTED_10, benchmark_rows.WIRE)
    )
    assert len(fitted) == 36
    slope = benchmark_rows.FITTED_10[16].b_s_per_byte
    assert 0.45 < slope / benchmark_rows.WIRE[16].b_s_per_byte < 0.55
    assert max(fitted.values()) > 1  # BERT, more than twice too fast
    one_call = [e for (_, method, p), e in wire.items() if method == "BSP-A2A" and p > 4]
    assert len(one_call) == 9 and max(map(abs, one_call)) < 0.1
    resnet = benchmark_rows.NETWORKS["ResNet-50"]
    measured = resnet.measured[benchmark_rows.ETHERNET_10]
    assert 161 * benchmark_rows.FITTED_10[32].a_s > 32 * resnet.batch / measured[1][3]


def test_the_benchmark_s_errors_on_100_gigabit():
    """With RDMA ResNet-50 within 11 %, BERT worst inside a node; TCP slower than the lines."""
    rdma, tcp = (
        benchmark_rows.errors(name, benchmark_rows.LINES[name], greedy_merge)
        for name in (benchmark_rows.INFINIBAND_100, benchmark_rows.ETHERNET_100)
    )
    resnet = [error for (name, _, _), error in rdma.items() if name == "ResNet-50"]
    assert len(resnet) == 12 and max(map(abs, resnet)) < 0.11
    assert max(rdma, key=rdma.get)[2] == 4 and max(rdma.values()) < 0.7
    slower = [tcp[key] > rdma[key] for key in tcp if key[2] > 4]
    assert len(slower) == 27 and all(slower)


def test_a_connection_is_not_taken_for_another():
    """Seeded mistake: the lines of 10 Gbit/s for RDMA miss ResNet-50 by more than half."""
    wrong = benchmark_rows.errors(
        benchmark_rows.INFINIBAND_100, benchmark_rows.FITTED_10, greedy_merge
    )
    assert min(error for (name, _, _), error in wrong.items() if name == "ResNet-50") < -0.5


def test_the_k80_rows_errors():
    """The bars of what the module says: 11 of 12 within 11 %; WFBP of GoogLeNet is the worst."""
    off = benchmark_rows.k80_errors(greedy_merge)
    worst, *others = sorted(off, key=lambda key: -abs(off[key]))
    assert worst == ("GoogLeNet", "WFBP-A2A", 8) and 0.25 < off[worst] < 0.31
    assert len(others) == 11 and max(abs(off[key]) for key in others) < 0.11
    (published, ours), _ = benchmark_rows.gains_on_8_nodes(greedy_merge)
    assert published == pytest.approx(75.68 / 62.9) and ours < published
