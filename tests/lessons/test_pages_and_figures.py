"""What lessons and teacher's pages say, held against the numbers of the figures."""

import json
import re
import sys
from copy import deepcopy
from types import SimpleNamespace

import pytest

from docs.tools import gains
from kit import claims, memory
from kit.rows import SPREAD
from lab.cache import claims as cache
from lab.large_batch import picture as large_batch
from lab.low_rank import learning as low_rank
from lab.merge import curves, steps
from lab.sharding import claims as sharding_claims
from lab.sharding import picture as sharding
from lab.sharding import predicted
from lab.topk import picture as topk
from refgf.cluster.check import FORBIDS, find_forbidding_setting
from refgf.comm import ring
from refgf.doctor import checks
from refgf.launch import leftovers
from refgf.papers.jia import hierarchical
from refgf.papers.mgwfbp.merge import exact_merge
from refgf.papers.scaling.scaling import best_theta
from refgf.predict.cost import Line
from refgf.predict.timeline import predict


def page(number: str) -> str:
    text = (gains.ROOT / "lessons" / "teaching" / f"{number}.md").read_text()
    return " ".join(text.split())


def test_the_first_day_names_the_memory_that_is_enough(monkeypatch):
    """In GiB, with the ranks of the figures; one GiB less is refused."""
    assert "5 GiB for 03, 4 for 04 and 05, 10 for 06, 8 for 07" in page("first-day")
    assert "10 GiB of free memory a run" in page("06")
    options = SimpleNamespace(quick=False, threads=None)
    wanted = {"03": (8, 5), "04": (4, 4), "05": (4, 4), "06": (4, 10), "07": (4, 8)}
    for number, (ranks, gib) in wanted.items():
        (lesson,) = (gains.ROOT / "lessons").glob(f"{number}_*.py")
        assert gains.figure(lesson.stem)["ranks"] == ranks
        monkeypatch.setattr(memory.launch, "job", SimpleNamespace(on_machine=ranks))
        memory.require(lesson.stem, options, available=gib * memory.GIB)
        with pytest.raises(ValueError, match=f"got {ranks} ranks on this machine"):
            memory.require(lesson.stem, options, available=(gib - 1) * memory.GIB)


def test_the_first_day_has_the_command_that_allows_namespaces():
    assert FORBIDS["kernel/apparmor_restrict_unprivileged_userns"][1] in page("first-day")


def test_the_first_day_quotes_what_is_printed(monkeypatch, tmp_path):
    """By this project: a line whose words change is noticed."""
    said, said_by = page("first-day"), []
    facts = {"shm": (64 * checks.MIB, 64 * checks.MIB), "removed": {}, "on_machine": 1}
    said_by.append(checks.shared_memory(facts).finding.partition(", too little")[0])
    (tmp_path / "status").write_text("Seccomp:\t2")
    found = find_forbidding_setting(tmp_path, tmp_path / "status")
    said_by.append(found.partition(";")[0])
    monkeypatch.setattr(memory.launch, "job", SimpleNamespace(on_machine=8))
    with pytest.raises(ValueError) as raised:
        memory.require("03", SimpleNamespace(quick=True, threads=None), available=1)
    said_by.append(re.search("got .* of about", str(raised.value))[0])
    said_by.append(checks.RESOLVE.replace("|", r"\|"))
    space = SimpleNamespace(f_bavail=1024, f_frsize=4096)
    monkeypatch.setattr(leftovers.os, "statvfs", lambda folder: space)
    said_by.append(leftovers.shortage(8).partition(", which")[0])
    for text in said_by:
        assert f"`{text}" in said, text
    assert "refgf needs Python 3.11 or newer" in (gains.ROOT / "Makefile").read_text()


def test_the_notebook_of_the_first_day_opens_by_a_click():
    """Binder builds the file at the root, where no folder takes its place."""
    path = re.search(r"labpath=([\w/.]+)", page("first-day"))[1]
    cells = json.loads((gains.ROOT / path).read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    wanted = set(re.findall(r"^(?:import|from) (\w+)", code, re.M))
    built = (gains.ROOT / "environment.yml").read_text()
    for name in wanted - sys.stdlib_module_names - {"refgf", "IPython"}:  # Jupyter's
        assert re.search(rf"^  - {name}", built, re.M), name
    assert 'sys.path.insert(0, "..")' in code  # refgf itself is not installed
    assert not [name for name in ("binder", ".binder") if (gains.ROOT / name).exists()]


def test_the_recipe_for_slurm_names_the_lessons_with_a_second_thread():
    """By the sources of each lesson and of its folder in lab."""
    lessons, found = gains.ROOT / "lessons", []
    for lesson in sorted(lessons.glob("[0-9]*.py")):
        text = lesson.read_text()
        for room in set(re.findall(r"^from lab\.(\w+)", text, re.M)):
            text += "".join(file.read_text() for file in (lessons / "lab" / room).glob("*.py"))
        if re.search(r'CommunicationThread\(|overlap=(True|system)|"overlap": ', text):
            found.append(lesson.name[:2])
    assert f"Lessons with overlap ({', '.join(found)}) run a" in page("../cluster/README")


def test_where_the_best_merge_is_one_call():
    """Page 09: with 10 Gbit/s on 2048 GPUs and not on 1024, with 56 Gbit/s nowhere."""
    found = gains.figure("09_merged_gradients")["curves"]
    one_call = {
        cluster: [
            size
            for size, best, sync in zip(
                rows["sizes"], rows["systems"][curves.BEST], rows["systems"][curves.SYNC]
            )
            if best == sync
        ]
        for cluster, rows in found.items()
    }
    assert one_call == {curves.TEN: [2048], curves.IB: []}
    assert "With 10 Gbit/s it is one call, too, on 2048 GPUs; with 56 Gbit/s not" in page("09")


def test_a_theta_that_is_swept_anew_comes_near_the_best_merge():
    """With the latency of a ring on 128 ranks, by prediction; that of 8 ranks is far from it."""
    network = gains.figure("09_merged_gradients")["networks"]["resnet50"]
    gradients = [(ready_s, nbytes) for ready_s, nbytes in network["gradients"]]
    fit, far = network["fit"], network["far"]
    line = Line(fit["a_s"] + far["late_s"], fit["b_s_per_byte"])
    exact_s = predict(gradients, exact_merge(gradients, line), line).step_s
    assert best_theta(gradients, line)[1].step_s < 1.1 * exact_s
    theta, _, exact = far["rows"]
    assert theta["predicted_s"] > 1.05 * exact["predicted_s"]


def test_the_best_theta_and_the_best_merge_are_predicted_with_the_update():
    """As the steps of the table above it."""
    said, line = [], Line(2.0, 1.0)
    run = SimpleNamespace(say=said.append, regime=SimpleNamespace(dilation=10.0))
    found = steps.which_theta(run, [(1.0, 1), (2.0, 1), (4.0, 1)], line, 4.0)
    assert found["exact_s"] == 8.0 and found["best_s"] >= 8.0
    assert "with the best merge 1.2 s" in said[-1]


def test_what_needs_nodes_is_not_measured_where_each_rank_is_one():
    result = deepcopy(gains.figure("10_hierarchical_allreduce"))
    result |= {"free": [], "node_of_rank": list(range(result["ranks"]))}
    (lesson,) = (gains.ROOT / "lessons").glob("10_*.py")
    decided = claims.verdicts(gains.reveal_of(lesson).claims, result)
    missing = sum(each.verdict == claims.NOT_MEASURED for each in decided)
    assert missing == 6 and "six of the claims are not measured" in page("10")


def test_three_phases_on_one_node_take_twice_the_steps_of_a_ring():
    """As lesson 10 says where all ranks are taken to share a node."""
    everyone = [list(range(8))]
    schedules = ring.allreduce(0, 8, 8), hierarchical.three_phase(everyone)(0, 8, 8)
    flat, phases = (sum(step.op != "finish" for step in each) for each in schedules)
    assert phases == 2 * flat == 28


def test_after_as_many_steps_the_largest_batch_is_at_least_as_accurate():
    result = gains.figure("11_large_batch")
    rows = [row for row in result["trained"]["rows"] if row["optimizer"] == "SGD"]
    small, *_, large = large_batch.same_steps([row for row in rows if not row["warm"]], result)
    assert large["mean"] >= small["mean"] and "at least as accurate" in page("11")


@pytest.mark.parametrize("high_s, said", [(3.0, ["(fastest)", ""]), (4.0, 2 * ["a tie)"])])
def test_norms_within_noise_of_the_fastest_are_a_tie(high_s, said):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    ends = {"alone": (1.0, 2.0, high_s), "slices": (4.0, 5.0, 6.0), "layers": (7.0, 8.0, 9.0)}
    times = {
        name: dict(zip(("low_s", "median_s", "high_s"), timing)) for name, timing in ends.items()
    }
    row = {"times": times, "predicted_s": {}, "n": 1, "ranks": 8}
    figure, axis = plt.subplots()
    large_batch.draw_norms(axis, row)
    shown = [label.get_text() for label in axis.get_yticklabels()]
    plt.close(figure)
    assert [text.endswith(end) for text, end in zip(shown, said)] == [True, True]
    assert "fastest" not in shown[2] and ("fastest" in shown[1]) == (high_s == 4.0)


@pytest.mark.parametrize("times, named", [((1, 2, 3), True), ((1, 4, 9), False)])
def test_only_what_is_faster_than_noise_is_called_the_fastest(times, named):
    """Lesson 12: the messages, then messages and own work."""
    result = deepcopy(gains.figure("12_topk"))
    (csc,) = (
        row for row in result["exchange"]["rows"] if (row["name"], row["percent"]) == ("CSC", 10)
    )
    low_s = min(
        row["messages"]["low_s"]
        for row in result["exchange"]["rows"]
        if row["percent"] >= 10 and row is not csc
    )
    csc["messages"] = dict(zip(SPREAD, (low_s * s / 4 for s in (times[1], times[0], times[2]))))
    csc["own"] = {"": dict.fromkeys(SPREAD, 0.0)}
    found = topk.draw(result)
    (said,) = [text.get_text() for text in found[""].axes[0].texts if text.get_text()] or [""]
    assert said == "fastest" * named
    notes = {text.get_text() for text in found["choice"].axes[1].texts}
    assert ("fastest at 10 %" in notes) == named and "fastest at 1 %" in notes


@pytest.mark.parametrize("factor, said", [(1.0, "dark: shortest"), (2.0, "shortest: a tie")])
def test_two_shortest_steps_within_noise_are_a_tie(factor, said):
    """Lesson 16."""
    result = deepcopy(gains.figure("16_sharding"))
    shortest = min(result["steps"]["rows"], key=lambda row: row["timing"]["median_s"])
    shortest["timing"]["high_s"] *= factor
    assert said in sharding.draw(result)[""].axes[1].get_title()


def test_the_figure_and_the_slide_of_lesson_12_round_alike():
    times = {"MSTopK": {"median_s": 1.053}, "exact selection": {"median_s": 1.0}}
    assert topk.search_in_words(times) == "MSTopK takes 1.05 x as long as exact selection"


def test_later_epochs_are_judged_with_their_spread():
    """A tie in seconds is no verdict, though the medians compare."""
    epochs = [[{"seconds": s} for s in (9.0, *later)] for later in ((1.0, 5.0), (4.0, 4.2))]
    names = "half memory + disk", "half memory"
    rows = [{"store": "s", "name": n, "epochs": each} for n, each in zip(names, epochs)]
    (claim,) = [each for each in cache.CLAIMS if each.text.startswith("Later epochs with half on")]
    assert claims.decide(claim, {"rows": rows}).verdict == claims.NOISE


def test_points_are_read_as_their_intervals_say():
    """Lesson 17: no sentence where its interval does not, nothing without differences."""
    found = gains.figure("17_low_rank")["learning"]["differences"]
    read = low_rank.reading(found)
    every = low_rank.OF_CSC, low_rank.OF_POWERSGD, low_rank.OF_TOPK, low_rank.OF_SIGNS
    assert all(text in read for text in every)
    level = {"median_s": 0.0, "low_s": -1.0, "high_s": 1.0}
    tied = {key: dict.fromkeys(rows, level) for key, rows in found.items()}
    assert low_rank.reading(tied) == "How to read the points:" and low_rank.reading({}) == ""


def test_the_share_of_communication_is_that_of_the_figure():
    """Lesson 13 gives it before the run, as an upper bound; page 13 repeats it."""
    times = gains.figure("13_daso")["times"]
    whole = next(row["batch"] for row in times["rows"] if row["name"] == "synchronous")
    share = 100 * (1 - times["alone"]["median_s"] / whole["median_s"])
    (lesson,) = (gains.ROOT / "lessons").glob("13_*.py")
    for text in page("13"), " ".join(lesson.read_text().split()):
        (said,) = re.findall(r"communication is about (\d+) % of a synchronous step", text)
        assert abs(int(said) - share) < 2  # points: another run's median differs by as much


def test_what_one_rank_of_lesson_16_holds():
    """Page 16: three quarters in one layer, three times what is kept, ResNet-50 by formula."""
    result = gains.figure("16_sharding")
    training = result["training"]
    assert max(training["layers"]) / training["elements"] == pytest.approx(3 / 4, abs=0.01)
    kept = sharding_claims.held(sharding_claims.ZERO3)(result)
    assert sharding_claims.at_own_size(result) / kept == pytest.approx(3, abs=0.25)
    share = predicted.peak_share("resnet50", predicted.LAYERS, result["ranks"])
    assert f"holds {share:.0%}".replace("%", " %") in page("16")


def test_the_other_layers_of_a_step_are_predicted_twice_too_long():
    """Page 15: scaled from 5 images, so steps are judged by the layers that models predict."""
    first, *_, last = gains.figure("15_performance_model")["steps"]
    scaled_s = first["rest_s"] * last["batch"] / first["batch"]
    assert (first["batch"], last["batch"]) == (5, 20) and scaled_s > 2 * last["rest_s"]
    assert "At 20 images that is more than twice their measured time" in page("15")


def test_only_a_drift_that_is_never_ended_costs_accuracy():
    """Page 13: an interval that holds 0 shows no loss."""
    paired = gains.figure("13_daso")["accuracy"]["paired"]
    assert paired["DASO"]["low_s"] < 0 < paired["DASO"]["high_s"] and "no loss is shown" in page(
        "13"
    )
    assert paired["B = 8, W = 8 throughout"]["high_s"] < 0
