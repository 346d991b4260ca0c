"""Networks: a name, a machine file, nccl-tests' text, OSU's text; and what is wrong with others."""

from dataclasses import replace
from math import inf
from random import Random

import pytest

from refgf.papers.scaling.machine import Machine, save
from refgf.papers.scaling.published import TEN_GIGABIT
from refgf.plan import fabric, report
from refgf.plan.question import Question, ranges
from refgf.plan.step_times import StepTimes
from refgf.predict.cost import Line, Link, ring_line
from tests.support.benchmark_texts import nccl

pytestmark = pytest.mark.usefixtures("short_table")

BITS = [1 << bit for bit in range(10, 28)]
LINK, FAST = Link(20e-6, 1e-9), Link(5e-6, 4e-11)


def published(ranks):
    return TEN_GIGABIT.lines[ranks]


def test_a_name_of_the_emulated_clusters():
    found = fabric.load("mgwfbp-10gbe")
    inside = ring_line(4, found.inside)
    assert (inside.a_s, inside.b_s_per_byte) == pytest.approx(
        (published(4).a_s, published(4).b_s_per_byte), rel=1e-2
    )
    assert found.inside_source == "rate computed, latency computed"
    assert vars(found.between) == pytest.approx(vars(Link(30e-6, 8e-10)))
    assert found.steps["resnet50"] == (64, 930.0)
    assert found.ranges == fabric.CHOSEN


def test_a_machine_file(tmp_path):
    path = tmp_path / "mine.json"
    given = Machine(
        "lab", "a test", "measured", {"between": LINK}, errors={"between": (4e-6, 1e-12)}
    )
    save(given, path)
    found = fabric.load(str(path))
    assert found.between == LINK and found.inside is None
    assert found.ranges["alpha"] == pytest.approx((0.6, 1.4))  # two standard errors
    assert found.ranges["beta"] == pytest.approx((0.95, 1.05))  # never less than that


def test_a_machine_file_with_allreduces_only(tmp_path):
    path = tmp_path / "mine.json"
    save(Machine("lab", "a test", "measured", lines={16: ring_line(16, LINK)}), path)
    found = fabric.load(str(path)).between
    assert (found.alpha_s, found.beta_s_per_byte) == pytest.approx((20e-6, 1e-9))


def test_a_machine_file_of_one_host_is_warned_of(tmp_path):
    path, links = tmp_path / "mine.json", {"between": LINK, "inside": LINK}
    save(Machine("lab", "a test", "measured", links), path)
    found = fabric.load(str(path))
    assert "as measured on one host: shared memory" in found.notes[0]
    step = StepTimes("small", "this test", ((1.0, 1000),))
    assert "WARNING: its link between" in report.text(report.answer(Question(step, found, 16)))
    save(Machine("lab", "a test", "measured", links | {"inside": FAST}), path)
    assert fabric.load(str(path)).notes == ()


def test_a_machine_file_of_a_noisy_measurement_is_warned_of(tmp_path):
    """As `measure` warned when it wrote the file; one link that stands for both is named once."""
    path, links = tmp_path / "mine.json", {"between": LINK, "inside": FAST}
    errors = {"between": (LINK.alpha_s / 2, 0.0), "inside": (0.0, FAST.beta_s_per_byte)}
    save(Machine("lab", "a test", "measured", links, errors=errors), path)
    found = fabric.load(str(path))
    assert sorted(note.partition(";")[0] for note in found.notes) == [
        "WARNING: between, latency: its error is 50 % of it",
        "WARNING: inside, rate: its error is 100 % of it",
    ]
    step = StepTimes("small", "this test", ((1.0, 1000),))
    assert found.notes[0] in " ".join(report.text(report.answer(Question(step, found, 16))).split())
    both = {name: (LINK.alpha_s / 2, 0.0) for name in links}
    save(Machine("lab", "a test", "measured", dict.fromkeys(links, LINK), errors=both), path)
    assert ["WARNING: between" in note for note in fabric.load(str(path)).notes] == [False, True]
    free = {"between": replace(LINK, alpha_s=0.0)}
    save(Machine("lab", "a test", "measured", free, errors={"between": (1e-6, 0.0)}), path)
    assert fabric.load(str(path)).notes == ()


def test_a_noisy_text_is_warned_of_and_widens_the_intervals(tmp_path):
    """One size takes 3 times as long as the line says."""
    path, line = tmp_path / "nccl.txt", ring_line(16, FAST)
    path.write_text(nccl(16, lambda n: line(n) * (3 if n == 1 << 20 else 1), a_host=1))
    found = fabric.load(str(path))
    assert "WARNING: 1 of 18 times are more than 20 % from the line" in found.notes[-1]
    assert "1,048,576 bytes by 6" in found.notes[-1]
    assert found.ranges["alpha"][1] > 2.5 and found.ranges["beta"][1] > 2.5  # 3 / the line's
    assert found.line_ranges["alpha"][1] * found.lines[16](1 << 20) >= 3 * line(1 << 20)
    step = StepTimes("small", "this test", ((1.0, 1000),))
    assert "WARNING" in report.text(report.answer(Question(step, found, 16)))


@pytest.mark.parametrize("size", [8, 7])
@pytest.mark.parametrize("factor", [1.0, 0.5, 1.7])
def test_another_protocol_for_longer_messages_is_no_noise(tmp_path, size, factor):
    """Of a fast start and of a fast rate NCCL takes the faster one; one size may be noise."""
    path = tmp_path / "nccl.txt"
    start, rate = Line(3e-5, 1e-9), Line(3e-4, 1e-10)
    noise = {1 << 20: factor}
    path.write_text(nccl(size, lambda n: min(start(n), rate(n)) * noise.get(n, 1.0), a_host=1))
    (said,) = (n for n in fabric.load(str(path)).notes if "% from the line" in n)
    assert said.startswith("WARNING: ") == ("Measure again" in said) == (factor != 1)


def test_times_that_no_line_comes_near_are_planned_with_themselves(tmp_path):
    """Small, middle and large messages take three protocols, as NCCL's do."""
    path, line = tmp_path / "nccl.txt", ring_line(16, FAST)
    given = {
        n: line(n) + (3e-4 if n > 1 << 16 else 0.0) + 1e-10 * max(0, n - (1 << 22)) for n in BITS
    }
    path.write_text(nccl(16, given.get, a_host=1, sizes=BITS))
    found = fabric.load(str(path))
    step = StepTimes("one call", "this test", ((1e-3, 1 << 18), (2e-3, 1000)))
    for nbytes in BITS[::3]:
        call = Question(step, found, 16).flat(nbytes)
        assert call == pytest.approx(given[nbytes], rel=1e-2)
        assert found.scaled(beta=2.0).lines[16](nbytes) >= call
        assert found.scaled(alpha=1.5).lines[16](nbytes) == pytest.approx(
            call + given[1024] / 2, rel=1e-3
        )
    other = Question(step, found, 32).flat  # the line of other ranks
    assert max(abs(other(n) / given[n] - 1) for n in BITS) > 0.2
    assert "the times are used" in found.notes[0]
    assert report.answer(Question(step, found, 16))["systems"]["merged"]["step_s"] > 2e-3


def test_large_messages_alone_do_not_say_what_a_call_takes(tmp_path):
    """From 64 MiB on, 2 % of noise is more than a latency: a warning, and no size is advised."""
    path, line = tmp_path / "nccl.txt", ring_line(4, LINK)
    noise, large = Random(0), [1 << bit for bit in range(26, 34)]
    path.write_text(nccl(4, lambda n: line(n) * noise.uniform(0.98, 1.02), a_host=1, sizes=large))
    found = fabric.load(str(path))
    assert not found.alpha_known and "WARNING: alpha is not known" in found.notes[0]
    assert "-b 4 -e 1G" in found.notes[0]
    step = StepTimes("small", "this test", ((0.5, 10_000_000), (1.0, 1000)))
    answer = report.answer(Question(step, found, 4))
    assert answer["refgf"] is answer["pytorch"] is answer["horovod"] is None
    assert answer["systems"]["theta"]["theta_bytes"] is None
    assert "No theta and no bucket is advised" in report.text(answer)
    path.write_text(nccl(4, line, a_host=1))
    assert fabric.load(str(path)).alpha_known
    given = Machine("lab", "a test", "measured", {"between": LINK}, errors={"between": (5e-5, 0)})
    assert not fabric.of_machine(given).alpha_known


def test_an_interval_reaches_as_far_as_two_standard_errors():
    assert fabric.ranges_of(LINK, (40e-6, 0.0))["alpha"] == pytest.approx((0.1, 5.0))
    assert fabric.ranges_of(LINK, (inf, 0.0))["alpha"] == pytest.approx((0.1, fabric.MOST))


def test_more_ranks_than_measured_have_at_least_the_chosen_intervals(tmp_path):
    path = tmp_path / "nccl.txt"
    path.write_text(nccl(4, ring_line(4, LINK), a_host=1))
    found, step = fabric.load(str(path)), StepTimes("small", "this test", ((1e-3, 1000),))
    measured, more = (Question(step, found, size) for size in (4, 64))
    assert ranges(measured)["alpha"] == pytest.approx((0.95, 1.05))
    for name, (low, high) in fabric.CHOSEN.items():
        assert ranges(more)[name] == (min(low, 0.95), max(high, 1.05))
    (said,) = report.network_notes(measured)
    assert said == "A call of a measured size takes the text's time and scatter, of one run."
    assert "Measured on 4 ranks, predicted for 64" in report.network_notes(more)[0]
    said = report.text(report.answer(more))
    assert all(f"\n{name}, s " in said for name in ("alpha", "beta", "pace"))


def test_wrong_machines(tmp_path):
    with pytest.raises(
        ValueError, match="wanted mgwfbp-10gbe, .*or a file that exists; next: mpiexec"
    ):
        fabric.load("dgx")
    path = tmp_path / "mine.json"
    path.write_text('{"refgf_machine": 1, "name": "x", "source": "y"}')
    with pytest.raises(ValueError, match=r"no \['label', 'units'\]"):
        fabric.load(str(path))
    save(Machine("lab", "a test", "measured", {"inside": LINK}), path)
    with pytest.raises(
        ValueError, match="alpha_s in seconds and beta_s_per_byte in seconds per byte"
    ):
        fabric.load(str(path))
