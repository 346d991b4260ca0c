"""Networks: a name, a machine file, nccl-tests' text, OSU's text; and what is wrong with others."""

from dataclasses import replace
from math import inf
from random import Random

import pytest
from benchmark_texts import nccl, osu

from refgf.papers.scaling.machine import Machine, save
from refgf.papers.scaling.published import TEN_GIGABIT
from refgf.plan import fabric, measurements, report
from refgf.plan.question import Question, ranges
from refgf.plan.step_times import StepTimes
from refgf.predict.cost import Line, Link, ring_line

LINK, FAST = Link(20e-6, 1e-9), Link(5e-6, 4e-11)


def published(ranks):
    return TEN_GIGABIT.lines[ranks]


def test_a_name_of_the_emulated_clusters():
    found = fabric.load("v100-10gbe")
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


@pytest.mark.parametrize("listed", [True, False], ids=["ranks listed", "from busbw / algbw"])
def test_nccl_tests(tmp_path, listed):
    path = tmp_path / "nccl.txt"
    path.write_text(nccl(16, ring_line(16, FAST), listed))
    found = fabric.load(str(path))
    hop = found.ring_hop or found.between
    assert (hop.alpha_s, hop.beta_s_per_byte) == pytest.approx((5e-6, 4e-11), rel=1e-2)
    assert list(found.lines) == [16]


@pytest.mark.parametrize("tag", ["[1,0]<stdout>:", "0: ", " 12: "])
def test_a_text_whose_lines_the_launcher_has_tagged(tmp_path, tag):
    """Other lines of a launcher may begin with a bracket, too."""
    path = tmp_path / "nccl.txt"
    text = "[node0:41] 15 more processes have sent help message\n" + nccl(16, ring_line(16, LINK))
    path.write_text("".join(f"{tag}{line}\n" for line in text.splitlines()))
    tagged = fabric.load(str(path))
    path.write_text(text)
    assert tagged == fabric.load(str(path)) and list(tagged.lines) == [16]


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
    assert found.ranges["alpha"][0] < 0.4 and found.ranges["beta"][1] > 1.6
    step = StepTimes("small", "this test", ((1.0, 1000),))
    assert "WARNING" in report.text(report.answer(Question(step, found, 16)))


def test_large_messages_alone_do_not_say_what_a_call_takes(tmp_path):
    """From 64 MiB on, 2 % of noise is more than a latency: a warning, and no size is advised."""
    path, line = tmp_path / "nccl.txt", ring_line(4, LINK)
    noise, large = Random(0), [1 << bit for bit in range(26, 34)]
    path.write_text(nccl(4, lambda n: line(n) * noise.uniform(0.98, 1.02), a_host=1, sizes=large))
    found = fabric.load(str(path))
    assert not found.alpha_known and "WARNING: alpha is not known" in found.notes[0]
    assert "-b 1K -e 64M" in found.notes[0]
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
    assert report.network_notes(measured) == []
    assert "Measured on 4 ranks, predicted for 64" in report.network_notes(more)[0]
    said = report.text(report.answer(more))
    assert all(f"\n{name}, s " in said for name in ("alpha", "beta", "pace"))


def test_osu_latency_and_osu_allreduce(tmp_path):
    path = tmp_path / "osu.txt"
    path.write_text(osu("X", Line(2e-6, 1e-10)).replace("MPI X", "MPI-CUDA Latency Test"))
    assert fabric.load(str(path)).between.alpha_s == pytest.approx(2e-6, rel=1e-2)
    path.write_text(osu("Latency Test", Line(2e-6, 1e-10)))
    found = fabric.load(str(path)).between
    assert (found.alpha_s, found.beta_s_per_byte) == pytest.approx((2e-6, 1e-10), rel=1e-2)
    found = fabric.load(str(path))  # a ping-pong: the interval reaches as far up as a chosen one
    assert "ping-pong" in found.notes[0]
    assert all(found.ranges[name][1] >= fabric.CHOSEN[name][1] for name in fabric.CHOSEN)
    path.write_text(osu("Allreduce Latency Test", ring_line(8, LINK), "Avg Latency(us)"))
    found = fabric.load(str(path), 8)
    assert found.between.alpha_s == pytest.approx(20e-6, rel=1e-2)


@pytest.mark.parametrize(
    "text",
    [
        osu("Allreduce Latency Test", ring_line(8, LINK), "Avg Latency(us)"),
        nccl(8, ring_line(8, LINK), ranks_listed=False),
    ],
    ids=["osu_allreduce", "nccl-tests"],
)
def test_an_allreduce_without_its_hosts_is_taken_as_one_rank_on_each(tmp_path, text):
    """Its ring is the same on nodes of 4, but as measured it is not."""
    path = tmp_path / "text.txt"
    path.write_text(text)
    found, step = fabric.load(str(path), 8), StepTimes("small", "this test", ((1e-3, 1000),))
    assert "lists no hosts: taken as one" in found.notes[0]
    apart, together = (Question(step, found, 8, k) for k in (1, 4))
    assert apart.measured and not together.measured
    assert together.flat(1e6) == pytest.approx(apart.flat(1e6))
    said = "measured with 1 a node and is predicted with 4"
    assert said in report.network_notes(together)[-1]
    assert ranges(together)["alpha"][1] >= fabric.CHOSEN["alpha"][1]


@pytest.mark.parametrize(
    "text, said",
    [
        (osu("Allreduce Latency Test", Line(1e-5, 1e-9)), "next: --measured-ranks P"),
        (osu("Bandwidth Test", Line(1e-5, 1e-9), "Bandwidth (MB/s)"), "next: run osu_latency"),
        (
            osu("All-to-All Personalized Exchange Latency Test", Line(1e-5, 1e-9)),
            "wanted osu_latency",
        ),
        (osu("Multi Latency Test", Line(1e-5, 1e-9)), "wanted osu_latency between two nodes"),
        (osu("Non-blocking Allreduce Latency Test", LINK.message_s), "wanted osu_latency between"),
        (
            osu("X", Line(1e-5, 1e-9)).replace("MPI X", "MPI_Put Latency Test"),
            "got 'OSU MPI_Put Latency Test v7.4'; wanted osu_latency between two nodes",
        ),
        (nccl(8, Line(1e-5, 1e-9), unit="(ms)"), "times in ms"),
        (nccl(8, Line(1e-5, 1e-9), factor=1.0), "next: run all_reduce_perf"),
        (nccl(8, Line(1e-5, 1e-9)).replace("      0\n", "      7\n", 1), "got #wrong = 7 at 8"),
        (nccl(8, Line(1e-5, 1e-9)).replace("     0 ", "     7 ", 1), "got #wrong = 7 at 8 bytes"),
        (
            nccl(8, Line(1e-5, 1e-9)).replace("values : 0 OK", "values : 5 FAILED"),
            "got 'Out of bounds values : 5 FAILED', an allreduce with wrong sums; wanted 0",
        ),
        (nccl(8, Line(1e-5, 1e-9)).replace(" sum ", " none "), "next: run all_reduce_perf"),
        (osu("Latency Test", Line(1e-5, 1e-9))[:300], "1 KiB to at least 1 MiB"),
        (nccl(2, LINK.message_s) + "\n" + nccl(4, LINK.message_s), "2 runs of nccl-tests in one"),
        ("hello", "wanted a machine file, or what all_reduce_perf or osu_latency printed"),
    ],
)
def test_texts_that_do_not_help(text, said):
    with pytest.raises(ValueError) as error:
        measurements.read(text, "some.txt")
    assert said in str(error.value) and "; next: " in str(error.value)


def test_one_rank_is_no_allreduce():
    with pytest.raises(ValueError, match="got .*, --measured-ranks 1; wanted 2 or more"):
        measurements.read(osu("Allreduce Latency Test", Line(1e-5, 1e-9)), "some.txt", 1)


@pytest.mark.parametrize(
    "text, said",
    [
        (nccl(4, ring_line(4, LINK)), "got --measured-ranks 8, and a list of 4 ranks"),
        (osu("Latency Test", LINK.message_s), "got --measured-ranks 8, of two ranks' latency"),
    ],
)
def test_a_number_of_ranks_that_the_text_contradicts(text, said):
    with pytest.raises(ValueError, match="next: leave") as error:
        measurements.read(text, "some.txt", 8)
    assert said in str(error.value)


def test_wrong_machines(tmp_path):
    with pytest.raises(
        ValueError, match="wanted v100-10gbe, .*or a file that exists; next: mpiexec"
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
