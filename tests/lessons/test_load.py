"""A busy machine is recognised, and decides nothing: recorded loads, and the committed figures."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from docs.tools import gains
from kit import claims
from kit.claims import HOLDS, NOT_JUDGED, Claim
from refgf.doctor import load
from refgf.doctor.load import Load, Look, between, look, measured, wanting

ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted((ROOT / "lessons").glob("[0-9][0-9]_*.py"))


def looks(seconds, cores, own_s, used_s, stolen_s=0.0, kernel="a", process=1):
    """A rank's looks at the start and the end: what all programs used is spread over the cores."""
    each = {core: (used_s / cores, stolen_s / cores) for core in range(cores)}
    begun = dict.fromkeys(range(cores), (0.0, 0.0))
    start = Look(100.0, begun, 5.0, kernel, process)
    return [start, Look(100.0 + seconds, each, 5.0 + own_s, kernel, process)]


def job(ranks, seconds, cores, own_s, used_s, stolen_s=0.0):
    """The looks of ranks that share own_s seconds of one machine."""
    return [
        looks(seconds, cores, own_s / ranks, used_s, stolen_s, process=rank)
        for rank in range(ranks)
    ]


@pytest.mark.parametrize(
    "recorded, busy",
    [
        (job(8, 200, 2, own_s=390, used_s=394), False),  # 8 ranks want 2 cores by design: no load
        (job(8, 200, 2, own_s=30, used_s=34), False),  # computing is slept
        (job(8, 200, 2, own_s=150, used_s=398), True),  # next to two busy loops
        (job(8, 200, 2, own_s=20, used_s=210), True),  # slept, next to one busy loop
        (job(4, 60, 16, own_s=230, used_s=350), False),  # a browser on cores that nobody wants
        (job(16, 60, 16, own_s=800, used_s=930), True),  # the same browser, and no core left
        (job(2, 60, 2, own_s=90, used_s=92, stolen_s=25), True),  # a hypervisor
        (job(1, 60, 1, own_s=55, used_s=54), False),  # the clocks' ticks differ
    ],
)
def test_recorded_loads(recorded, busy):
    assert measured(recorded).busy == busy, measured(recorded)


def test_ranks_of_one_process_count_its_time_once():
    """Ranks that are threads all report their process."""
    threads = [looks(100, 2, own_s=150, used_s=155, process=7)] * 4
    assert measured(threads).others == pytest.approx(0.05)


def test_the_busiest_machine_counts():
    quiet = [looks(100, 2, 95, used_s=192, process=rank) for rank in range(2)]
    busy = [looks(100, 2, 50, used_s=195, kernel="b", process=rank) for rank in range(2)]
    assert not measured(quiet).busy and measured(quiet + busy).busy


def test_a_disturbed_part_counts_by_itself():
    """A compiler that ran for 20 of 200 s, in one section."""
    ranks, moved = job(2, 180, 2, own_s=350, used_s=352), dict.fromkeys((0, 1), (196.0, 0.0))
    ends = [Look(300.0, moved, 5.0 + 175 + 10, "a", rank) for rank in range(2)]
    assert measured([[*mine, end] for mine, end in zip(ranks, ends)]).busy
    assert not measured([[mine[0], end] for mine, end in zip(ranks, ends)]).busy
    ends = [Look(281.0, moved, 5.0 + 175 + 10, "a", rank) for rank in range(2)]
    assert not measured([[*mine, end] for mine, end in zip(ranks, ends)]).busy  # a second


def test_nobody_looked(tmp_path):
    assert look(tmp_path) is None
    assert measured([looks(1, 2, 1, 1), [None, None]]) is None
    (tmp_path / "stat").write_text("cpu0 0 0 0 0 0 0 0 0\n")  # a sandbox
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text("x\n")
    assert look(tmp_path) is None
    assert claims.caveat({"load": {"busy": False, "said": load.NOT_LOOKED}}, ()) == ""


@pytest.mark.skipif(look() is None, reason="no /proc/stat")
def test_this_machine():
    before = look()
    while look().own_s < before.own_s + 0.3:
        sum(range(1000))
    found = between([(before, look())])
    assert found.cores >= 1 and found.seconds >= 0.29 and 0 <= found.others <= found.cores + 0.2
    assert wanting(2, 0.001) >= 0


def test_the_sentence():
    said = str(Load(60, 2, 8, others=1.31, stolen=0.0, wanting=24))
    assert said == "24 processes want 2 cores: others took 1.3 of them, so times are not to be " + (
        "believed"
    )
    said = str(Load(60, 2, 8, others=0.2, stolen=0.4))
    assert said.startswith("others took 0.2 of 2 cores, the hypervisor 0.4, so ")


BUSY = {"busy": True, "said": "24 processes want 2 cores"}


def test_a_busy_machine_decides_no_claim_on_times():
    timed, counted = Claim("t", (2, ">", 1), ""), Claim("c", (2, ">", 1), "", timed=False)
    found = claims.verdicts((timed, counted), {"load": BUSY})
    assert [verdict.verdict for verdict in found] == [NOT_JUDGED, HOLDS]
    found = claims.verdicts((timed, counted), {"load": BUSY, "options": {"quick": True}})
    assert [verdict.verdict for verdict in found] == [NOT_JUDGED] * 2
    said = claims.caveat({"load": BUSY}, (timed, counted))
    assert said.startswith("BUSY MACHINE. 24 processes")
    assert claims.caveat({"load": BUSY}, (counted,)) == ""  # nothing is timed


def shaken(value, rng, key=""):
    """The result with every measured time multiplied by a factor of its own."""
    if isinstance(value, dict):
        if "median_s" in value:  # a Timing has repeats, other spreads have not
            factor = rng.uniform(0.2, 5) if "repeats" in value else 1
            return {k: factor * v if k.endswith("_s") else v for k, v in value.items()}
        computed = "closed_s" in value  # SimGrid's seconds next to the formula's
        return {
            k: v if computed else shaken(v, rng, key if k.isdigit() else k)
            for k, v in value.items()
        }
    if isinstance(value, list):
        return [shaken(item, rng, key) for item in value]
    times = isinstance(value, float) and key.endswith(("_s", "seconds"))
    return value * rng.uniform(0.2, 5) if times else value


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda file: file.stem)
def test_claims_that_a_busy_machine_leaves_do_not_depend_on_times(lesson):
    result = json.loads((ROOT / "figures" / f"{lesson.stem}.json").read_text())
    for claim in gains.reveal_of(lesson).claims:
        if not claim.timed:
            moved = shaken(result, random.Random(claim.text))
            assert claims.decide(claim, moved) == claims.decide(claim, result), claim.text


@pytest.mark.long
def test_a_figure_that_is_computed_is_not_doubted(tmp_path):
    """Of lesson 03's figures one is only computed; BUSY stands across the others."""
    drawn, script = [], str(ROOT / "lessons" / "03_lazy_allreduce.py")
    for more in ({}, BUSY):
        result = json.loads((ROOT / "figures" / "03_lazy_allreduce.json").read_text())
        folder = tmp_path / str(len(drawn))
        folder.mkdir()
        text = json.dumps(result | {"load": result.get("load", {"busy": False, "said": ""}) | more})
        (folder / "03_lazy_allreduce.json").write_text(text)
        subprocess.run([sys.executable, script, "--plot", "--output", str(folder)], check=True)
        drawn.append({file.stem: file.read_bytes() for file in folder.glob("*.png")})
    changed = {name for name in drawn[0] if drawn[0][name] != drawn[1][name]}
    assert "03_lazy_allreduce_region" in drawn[0] and changed == set(drawn[0]) - {
        "03_lazy_allreduce_region"
    }
