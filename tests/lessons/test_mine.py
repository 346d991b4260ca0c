"""Lessons with --mine: a student's functions are judged, then measured next to the project's."""

import importlib
import json
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import kit
from kit import axes, mine, mine_shown, rejected
from kit.record import plain
from kit.run import Run
from lab.two_ranks import yours as two_ranks
from lab.two_ranks.training import samples
from refgf.machine import threads

ROOT = Path(__file__).resolve().parents[2]
LESSONS, ANSWERS = ROOT / "lessons", ROOT / "lessons" / "teaching" / "answers"
MISTAKES = {  # a planted mistake: (what is replaced, by what, the function that it makes wrong)
    "00": ("return [w - rate * total", "return [w - rate * total / 2", "step_on_ranks"),
    "01": ("for first in (rank, rank + 1)", "for first in (rank, rank + 2)", "allreduce"),
    "02": ("now_s += weight_s[layer] + input_s[layer]", "now_s += weight_s[layer]", "ready_order"),
    "03": ("4 * (stop - start) > theta", "4 * (stop - start) >= theta", "lazy_calls"),
    "04": ("delay_s += duration", "delay_s = duration", "calls_without_overlap"),
    "05": ("return max(1.0, scale / 2), 0", "return max(1.0, scale / 4), 0", "next_scale"),
    "06": ("values.append(norm / (stop - start))", "values.append(norm)", "importance"),
    "07": ("waiting += size * (2 if half else 4)", "waiting += size * 4", "call_bytes"),
    "08": ("batches = p if weak else 1", "batches = 1", "speedup_and_efficiency"),
    "09": ("return min(step_end", "return max(step_end", "best_end"),
    "10": ("total = sum(reduced[node[0]] for node in nodes)", "total = reduced[0]", "three_phases"),
    "11": ("return w - v, v", "return w + v, v", "lars_step"),
    "12": ("mine[chosen] = 0", "pass", "topk_step"),
    "13": (".mean(axis=1)", ".sum(axis=1)", "node_means"),
    "14": ("return share if share <= 1 else None", "return share", "share_needed"),
    "15": ("2 * (p - 1) * (alpha + 4", "(p - 1) * (alpha + 4", "step"),
    "16": ("v = momentum * velocity + total", "v = total", "sharded_step"),
    "17": ("p = orthogonal(sum(m @ q for m in ms))", "p = sum(m @ q for m in ms)", "low_rank_sum"),
}
TIMING = {"median_s": 0.1, "low_s": 0.1, "high_s": 0.1}
BARS = "+ ring", "+ mixed precision", "+ overlap", "+ lazy allreduce", "+ CSC"
FOUND = {  # what `yours.py` reads of the lesson's own result
    "02": {
        "layers": {"rows": [{"name": f"fc{i}", "parameters": 1, "seconds": [1, i]} for i in (6, 7)]}
    },
    "07": {
        "places": {
            "here": {
                "alone": TIMING,
                "rows": [{"name": name, "calls": 1, "step": TIMING} for name in BARS],
            }
        }
    },
    "09": {
        "networks": {
            "resnet50": {
                "title": "ResNet-50",
                "gradients": [(0.01 * i, 1000.0 * (i % 5 + 1)) for i in range(26)],
                "fit": {"a_s": 1e-3, "b_s_per_byte": 1e-6},
            }
        }
    },
    "14": {
        "nodes": [[0], [1]],
        "samples": 100,
        "costs": {"store": {"memory": 1e-5, "store": 5e-3}},
        "sweep": [{"share": share, "store": {"seconds": [0.1, 0.2]}} for share in (0.0, 1.0)],
    },
}

PLACE = {"ranks": 2, "place": "threads"}


def script(number):
    return next(LESSONS.glob(f"{number}_*.py"))


def planted(number, folder):
    """The answers with a mistake, as a file."""
    old, new, _ = MISTAKES[number]
    text = (ANSWERS / f"{number}.py").read_text()
    assert text.count(old) == 1
    path = folder / f"wrong_{number}.py"
    path.write_text(text.replace(old, new))
    return path


def yours(number):
    """What a lesson says that it does with a student's functions."""
    labs = (path for path in (LESSONS / "lab").iterdir() if path.is_dir())
    (lab,) = [path.name for path in labs if f"lab.{path.name}.claims" in script(number).read_text()]
    return importlib.import_module(f"lab.{lab}.claims").REVEAL.yours


def differ(series):
    return "not as ours" in mine_shown.said(series)


def require_wrong(number, result):
    """The wrong function is called WRONG wherever it is used, and nothing else is."""
    wrong = MISTAKES[number][2]
    assert result["wrong"] == [wrong]
    measured = {name for each in result["series"] for name in each["functions"].split(", ")}
    assert measured == set(yours(number).functions)
    assert any(wrong in each["functions"] and differ(each) for each in result["series"])
    for each in result["series"]:
        assert len(each["x"]) == len(each["ours"]) == len(each["yours"])
        uses = wrong in each["functions"].split(", ")
        assert each["label"] == ("yours, WRONG" if uses else "yours")
        assert uses or not differ(each)


@pytest.mark.long
@pytest.mark.parametrize("number", [number for number in MISTAKES if number != "01"])
def test_right_and_wrong_functions_are_measured(number, tmp_path, monkeypatch):
    result = measured_alone(number, planted(number, tmp_path), monkeypatch, "--quick")
    require_wrong(number, result)
    figures = {name: axes.frame(name, 1, 2)[0] for name in ("", "rounding", "roofline")}
    given = {"lesson": script(number).stem, "mine": result} | PLACE
    drawn = mine_shown.draw(given, figures)
    assert drawn["yours"].axes and drawn["yours"].get_suptitle().startswith("WRONG")


@pytest.mark.long
@pytest.mark.parametrize("number", ["03", "07"])
def test_the_loss_of_a_quick_training_falls(number, monkeypatch, tmp_path):
    """A loss that rises would let a mistake train better than the right function."""
    file = tmp_path / "right.py"
    file.write_text((ANSWERS / f"{number}.py").read_text())
    found = measured_alone(number, file, monkeypatch, "--quick")["series"]
    (loss,) = [each["ours"] for each in found if each["title"].startswith("Loss")]
    assert max(loss) == loss[0] and sum(loss[-3:]) / 3 < 0.8 * loss[0], loss


def test_a_mean_of_means_shows_in_the_training_of_lesson_00():
    """Exercise 3's mistake: right for ranks with as many samples each, which hid it."""
    every = [samples(rank, 100) for rank in range(8)]
    answer = runpy.run_path(str(ANSWERS / "00.py"))

    def mean_of_means(w, xs, ys, rate):
        means = [answer["gradient"](w, x, y) for x, y in zip(xs, ys)]
        return [w - rate * sum(means) / len(means) for _ in xs]

    both = answer["step_on_ranks"], mean_of_means
    right, wrong = (two_ranks.distances(every, step) for step in both)
    assert right == pytest.approx(wrong, rel=1e-9)
    right, wrong = (two_ranks.distances(two_ranks.unequal(every), step) for step in both)
    assert sum(wrong[-30:]) > 1.2 * sum(right[-30:])


@pytest.mark.long
def test_what_waits_in_the_residual_lowers_the_loss(tmp_path, monkeypatch):
    """And the screen names `csc_step`, which drops it, but not the three functions around it.

    With momentum the residual would gain nothing in so few steps.
    """
    old, file = "return packed, waiting\n", tmp_path / "drops.py"
    text = (ANSWERS / "06.py").read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, "return packed, [0 * mine for mine in waiting]\n"))
    result = measured_alone("06", file, monkeypatch)
    loss, *_ = result["series"]
    kept, dropped = (sum(loss[key][-10:]) for key in ("ours", "yours"))
    assert loss["title"].startswith("Loss") and kept < 0.95 * dropped, (kept, dropped)
    assert mine_shown.said(loss).startswith("WRONG: your csc_step (loss")


def main_of(number, monkeypatch):
    """(lesson, measure), which its script would run."""
    made = []
    monkeypatch.setattr(kit.Lesson, "main", lambda lesson, *both: made.append((lesson, both[0])))
    runpy.run_path(str(script(number)), run_name="__main__")
    return made[0]


def measured_alone(number, file, monkeypatch, *given):
    """What --mine says of a file on 2 ranks that are threads, without the rest of the lesson."""
    lesson, _ = main_of(number, monkeypatch)
    given = ["--threads", "2", "--wrong-anyway", "--output", str(file.parent), *given]
    monkeypatch.setattr(sys, "argv", [lesson.name, "--mine", str(file), *given])
    options = lesson._parse()
    if getattr(options, "network", "") is None:  # lesson 03 chooses it when it begins
        options.network = "alexnet"

    def measured(comm):
        run = Run(comm, options)
        run.mine = mine.of(run, lesson.reveal.yours)
        found = lesson.reveal.yours.measure(run, FOUND.get(number, {}))
        return run.mine.record() | {"series": found}

    return json.loads(json.dumps(plain(threads.run(2, measured)[0])))


def run(number, folder, file, *arguments):
    """A lesson on 2 ranks that are threads. -> (exit status, what it says)"""
    command = [sys.executable, script(number), "--threads", "2", "--quick", "--mine", file]
    ended = subprocess.run(
        [*command, "--output", str(folder), *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
    )
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.long
def test_a_lesson_says_wrong_on_the_screen_in_the_figure_and_in_the_json(tmp_path):
    status, said = run("01", tmp_path, planted("01", tmp_path), "--wrong-anyway")
    assert status == 0, said
    assert "WRONG: your allreduce" in said and "your ring_cost" in said
    path = tmp_path / f"{script('01').stem}.json"
    require_wrong("01", json.loads(path.read_text())["mine"])
    assert path.with_name(f"{path.stem}_yours.png").exists()


@pytest.mark.long
def test_a_wrong_function_ends_the_lesson(tmp_path):
    status, said = run("01", tmp_path, planted("01", tmp_path))
    assert status == 2 and "--wrong-anyway" in said and "lost" in said
    assert not (tmp_path / f"{script('01').stem}.json").exists()


def test_a_lesson_uses_functions_that_students_write():
    for number in MISTAKES:
        written = mine.names_in(LESSONS / "student" / f"{number}.py")
        used = yours(number).functions
        assert set(used) <= set(written) and MISTAKES[number][2] in used


def test_a_skeleton_is_not_written():
    found = mine.names_in(LESSONS / "student" / "01.py")
    assert found["slices"] and not found["allreduce"] and not found["ring_cost"]


@pytest.mark.parametrize(
    "text, named",
    [
        ("def f(x):\n    ...\n", False),
        ('def f(x):\n    """What."""\n    raise NotImplementedError("later")\n', False),
        ("def f(x):\n    pass\n", False),
        ("def f(x):\n    return x\n", True),
        ("def g(x):\n    return x\nf = g\n", True),
        ("from math import sqrt as f\n", True),
    ],
)
def test_what_is_written(text, named, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(text)
    assert mine.names_in(path)["f"] == named


@pytest.mark.parametrize("content", [None, b"def f(:\n", b"\xff\xfe\x00", b"x = 1\n", b""])
def test_a_file_that_cannot_be_used_is_refused(content, tmp_path):
    path = tmp_path / "mine.py"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match="--mine: got .*wanted .*; next: "):
        mine.require(path, "01_ring_allreduce", yours("01"))


def test_a_file_that_answers_a_variant_is_no_wrong_one(tmp_path):
    """Mending it would break a right answer; --wrong-anyway measures it all the same."""
    text = (LESSONS / "teaching" / "answers" / "03.py").read_text()
    file = tmp_path / "right.py"
    file.write_text(text.replace("student/03.py", "03v7.py") + "\ndef lazy_calls(*a): return []\n")
    said: list[str] = []
    options = SimpleNamespace(lesson="03_lazy_allreduce", wrong_anyway=False)
    run = SimpleNamespace(options=options, tell=said.append)
    with pytest.raises(ValueError, match="which answers variant 7 of lesson 03; wanted .* 03v7"):
        mine.judged(run, file, yours("03"))
    options.wrong_anyway = True
    assert mine.judged(run, file, yours("03"))["lazy_calls"] == mine.WRONG


def series(ours, yours, **more):
    given = {"functions": "f", "title": "Seconds", "xlabel": "p", "x": ["a", "b"], "unit": ""}
    return given | {"label": "yours", "ours": ours, "yours": yours} | more


def test_the_sentence_on_a_series():
    assert mine_shown.said(series([1, 2], [1, 2])) == "your f (seconds): as ours (a: 1, b: 2)"
    said = mine_shown.said(series([1, 2], [1, 3], unit="s", label="yours, WRONG"))
    assert said == (
        "WRONG: your f (seconds): not as ours at 1 of 2 points, first at p b: 3 s, ours 2 s"
    )
    three = series([0, 0, 0], [1, 2, 3], x=[5, 6, 7])
    assert mine_shown.said(three).endswith("first at p 5: 1, ours 0; last at 7: 3, ours 0")
    assert mine_shown.said(series([0, 0], [0, 0])) == "your f (seconds): 0, as ours"
    assert mine_shown.said(series([3.4421], [3.44214])).endswith("a: 3.44214, ours 3.4421")
    assert mine_shown.said(series([*"012345"], [*"012345"], x="abcdef")).endswith("all 6 points")
    timing = {"median_s": 2.0, "low_s": 1.9, "high_s": 2.1}
    slower = {"median_s": 3.0, "low_s": 2.9, "high_s": 3.1}
    note = "14 messages, as predicted"
    said = mine_shown.said(series([timing] * 2, [timing, slower], note=note))
    assert said == f"your f (seconds): 1.5 times ours at b, {note}"
    assert "(within noise)" in mine_shown.said(series([timing] * 2, [timing, timing]))
    busy = mine_shown.said(series([timing] * 2, [timing, slower], note=note), busy=True)
    assert busy == f"your f (seconds): not compared, a busy machine, {note}"


def test_a_rounding_of_what_was_added_is_no_difference():
    """0 against -1e-19: of the other value, or of the numbers that a difference is made of."""
    assert not mine_shown.different(series([0.04, -1e-19], [0.04, 0.0]))
    assert not mine_shown.different(series([-1e-19], [0.0], x=["a"], added=0.1))
    assert mine_shown.different(series([-1e-19], [0.0], x=["a"]))
    hidden = mine_shown.said(series([0.04, -1e-19], [0.04, -1e-19], unit="s", added=0.1))
    assert hidden.endswith("as ours (a: 40 ms, b: 0 us)")
    (found,) = mine_shown.different(series([0.04, 1e-12], [0.04, 0.0]))
    assert found == ("b", 1e-12, 0.0)


def test_a_mistake_that_these_values_do_not_show():
    said = mine_shown.said(series([1, 2], [1, 2], label="yours, WRONG"))
    assert said.startswith("WRONG: your f") and said.endswith(mine_shown.NOT_SHOWN)
    assert mine_shown.NOT_SHOWN not in mine_shown.said(series([1, 2], [1, 3], label="WRONG"))


def test_a_panel_of_the_lesson_shows_the_student_s_values():
    """In a colour of their own and with a name in the legend; WRONG stands in that title alone."""
    timing = {"median_s": 2.0, "low_s": 1.9, "high_s": 2.1}
    found = [
        series([1, 1], [2, 2], on=mine.on(1, [3], [timing]), label="yours, WRONG"),
        series([1, 1], [2, 2], on=mine.on(0, [3], [7.0], "other", across=True)),
    ]
    figures = {name: axes.frame("A title", 1, 2)[0] for name in ("", "other")}
    drawn = mine_shown.draw({"lesson": "01", "mine": {"series": found}} | PLACE, figures)
    starts = {name: figure.get_suptitle().split(",")[0] for name, figure in drawn.items()}
    assert starts == {"": "WRONG", "other": "A title", "yours": "WRONG"}
    (point,) = drawn["other"].axes[0].lines
    assert (point.get_xdata(), point.get_ydata()) == ([7.0], [3])
    legend = drawn[""].axes[1].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["your f, WRONG"]


def test_a_sentence_keeps_the_case_of_a_name():
    found = [mine_shown.lowered(text) for text in ("Loss", "LARS's ratio", "fc6")]
    assert found == ["loss", "LARS's ratio", "fc6"]


def test_what_does_not_return_ends_the_job(monkeypatch):
    ended = []
    monkeypatch.setattr(mine.launch.abort, "end", lambda text, status: ended.append(text))
    limit = mine.Limit(0.1)
    limit.around("f", mine.time.sleep)(1.2)
    assert ended and "your f did not return within 0.1 s" in ended[0]
    assert limit.around("f", abs)(-1) == 1 and limit.running is None


def test_what_an_oracle_rejects_ends_the_lesson_or_is_noted():
    with pytest.raises(AssertionError, match="one"):
        rejected.reject("one")
    rejected.begin(anyway=True)
    try:
        for text in ("one", "two", "three", "four", "one"):
            rejected.reject(text)
        assert rejected.of_all(OneRank) == ["one", "two", "three", "and 1 more of this kind"]
    finally:
        rejected.begin(anyway=False)


class OracleEnded(Exception):
    """The section after the oracle begins."""


GO_ON = [n for n in (f"{i:02d}" for i in range(18)) if n not in ("02", "14", "15")]  # others end


@pytest.mark.parametrize("number", GO_ON)
def test_an_oracle_that_rejected_something_does_not_say_that_all_is_as_defined(
    number, tmp_path, monkeypatch
):
    """One of two ranks rejects."""
    lesson, measure = main_of(number, monkeypatch)
    given = ["--quick", "--threads", "2", "--wrong-anyway", "--output", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", [lesson.name, *given])
    options, said = lesson._parse(), []

    def measured(comm):
        run, began = Run(comm, options), []

        def section(title):
            if began:
                raise OracleEnded
            if title.startswith("The oracle"):
                began.append(title)
                if run.rank == 1:
                    rejected.reject("planted")

        run.section, run.tell = section, lambda text="": None
        run.say = lambda text="": said.append(text) if began else None
        for _ in measure(run):
            pass

    rejected.begin(anyway=True)
    try:
        with pytest.raises(OracleEnded):
            threads.run(2, measured)
    finally:
        rejected.begin(anyway=False)
    about_data = {text for text in said if text.startswith("scikit-learn")}
    assert set(said) - about_data == {"not as defined: see WRONG below"}


class OneRank:
    @staticmethod
    def allgather(value):
        return [value]


def test_short_times_are_drawn_in_milliseconds():
    for values, unit, first in (([0.02, 0.03], "ms", 20.0), ([0.02, 3.0], "seconds", 0.02)):
        _, (axis,) = axes.frame("A title", 1, 1)
        mine_shown.draw_series(axis, series(values, values, unit="s"))
        assert axis.get_ylabel() == unit and axis.lines[-1].get_ydata()[0] == first
