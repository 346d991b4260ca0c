"""Networks: a name, a machine file, nccl-tests' text, OSU's text; and what is wrong with others."""

from dataclasses import replace
from math import inf
from random import Random

import pytest

from refgf.papers.scaling.machine import Machine, save
from refgf.papers.scaling.published import TEN_GIGABIT
from refgf.plan import fabric, measurements, report
from refgf.plan.question import Question, ranges
from refgf.plan.step_times import StepTimes
from refgf.plan.systems import SYSTEMS
from refgf.plan.uncertainty import planned
from refgf.predict.cost import Line, Link, ring_line

LINK, FAST = Link(20e-6, 1e-9), Link(5e-6, 4e-11)
SIZES = [1 << bit for bit in range(3, 28)]


def nccl(size, line, ranks_listed=True, unit="(us)", factor=None, a_host=4, sizes=SIZES):
    """What all_reduce_perf prints: two decimals, out of place and in place."""
    head = ["# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor)", "#"]
    if ranks_listed:
        head += [
            f"#  Rank {r:2} Group  0 Pid 77 on node{r // a_host} device {r % a_host} [0x00] V100"
            for r in range(size)
        ]
    head += [
        "#       size         count      type   redop    root     time   algbw   busbw #wrong",
        f"#        (B)    (elements)                               {unit}  (GB/s)  (GB/s)       ",
    ]
    rows = []
    for nbytes in sizes:
        seconds = line(nbytes)
        algbw = nbytes / seconds / 1e9
        busbw = algbw * (factor or 2 * (size - 1) / size)
        half = f"{1e6 * seconds:9.2f} {algbw:7.2f} {busbw:7.2f}      0"
        rows.append(f"{nbytes:12} {nbytes // 4:12}     float     sum      -1 {half} {half}")
    return "\n".join([*head, *rows, "# Out of bounds values : 0 OK", "# Avg bus bandwidth : 3.1"])


def osu(title, line, unit="Latency (us)"):
    rows = [f"{nbytes:<10} {1e6 * line(nbytes):20.2f}" for nbytes in [0, *SIZES]]
    return "\n".join(
        [f"# OSU MPI {title} v7.4", "# Datatype: MPI_CHAR.", f"# Size    {unit}", *rows]
    )


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


def test_nccl_tests_on_hosts_of_8_gpus(tmp_path):
    """Its line is used for ranks that are placed like that; what alpha is a mean of is said."""
    path = tmp_path / "nccl.txt"
    line = Line(1e-3, 1e-9)
    path.write_text(nccl(16, line, a_host=8))
    found = fabric.load(str(path))
    assert found.name == "nccl-tests, allreduce on 16 GPUs of 2 hosts" and found.lines_per_node == 8
    assert "are the mean hop of a ring with 8 GPUs a host" in found.notes[0]
    step = StepTimes("small", "this test", ((1.0, 1000),))
    placed, alone = (Question(step, found, 16, k) for k in (8, 1))
    assert placed.measured and placed.flat.a_s == pytest.approx(1e-3, rel=0.02)
    assert not alone.measured
    assert report.network_notes(placed) == list(found.notes)
    said = "measured with 8 a node and is predicted with 1, by the fitted link"
    assert said in report.network_notes(alone)[-1]
    path.write_text(nccl(16, line, a_host=1))
    assert fabric.load(str(path)).notes == ()
    path.write_text(nccl(16, ring_line(16, FAST), ranks_listed=False))
    assert "lists no hosts" in fabric.load(str(path)).notes[0]


def of_8_gpus_a_host(tmp_path):
    """4 hosts: a hop between them takes 10 us, one inside 1 us."""
    path = tmp_path / "nccl.txt"
    path.write_text(nccl(32, ring_line(32, Link((10e-6 + 7 * 1e-6) / 8, 4e-11)), a_host=8))
    return fabric.load(str(path))


def test_hops_inside_do_not_make_the_link_between_nodes_faster(tmp_path):
    """k mean = (k-1) inside + between. The measured ring stays; two levels get slower."""
    mixed = of_8_gpus_a_host(tmp_path)
    found = fabric.with_inside(mixed, "1us", "2400gbit", "--inside")
    assert mixed.ring_hop.alpha_s == pytest.approx(2.125e-6, rel=1e-2)
    assert found.between.alpha_s == pytest.approx(10e-6, rel=2e-2) and "hops" not in found.ranges
    assert "Less 7 hops inside, one between nodes takes 10" in found.notes[0]
    assert "One of blocking steps (refgf's) waits for the slowest hop" in found.notes[0]
    step = StepTimes("small", "this test", ((1e-4, 1000), (2e-4, 1000)))
    before, after = (Question(step, each, 4096, 8) for each in (mixed, found))
    assert after.flat(1e6) == pytest.approx(before.flat(1e6))
    mean = replace(mixed, between=mixed.ring_hop)  # too fast: most of its hops were inside
    assert SYSTEMS["hierarchy"](after) > 3 * SYSTEMS["hierarchy"](replace(before, fabric=mean))
    assert SYSTEMS["hierarchy"](after) < 2 * SYSTEMS["hierarchy"](before)
    alone = Question(step, found, 4096)  # one rank a node: all hops are between nodes
    assert alone.flat.a_s == pytest.approx(2 * 4095 * found.between.alpha_s)
    (hop,) = Question(step, found, 4096, 4).hops
    assert hop.alpha_s == pytest.approx((10e-6 + 3e-6) / 4, rel=2e-2)
    assert report.network_notes(alone)[0] == found.notes[0]


def test_without_inside_the_interval_holds_the_slowest_hop_between_nodes(tmp_path):
    mixed = of_8_gpus_a_host(tmp_path)
    mean_s, (low, high) = mixed.ring_hop.alpha_s, mixed.ranges["hops"]
    ends_s = [factor * mixed.between.alpha_s for factor in (low, high)]
    assert ends_s == pytest.approx([mean_s, 8 * mean_s]) and low * high == pytest.approx(1)
    assert "WARNING" in mixed.notes[0] and "takes 2.13 to 17 us" in mixed.notes[0]
    step = StepTimes("small", "this test", ((1e-4, 1000), (2e-4, 1000)))
    asked = Question(step, mixed, 4096, 8)
    slowest = SYSTEMS["hierarchy"](replace(asked, fabric=mixed.scaled(hops=high)))
    found = planned("hierarchy", asked)
    assert found.widest == "hops" and found.high_s >= slowest > 2 * found.step_s
    assert found.low_s < found.step_s / 2
    assert planned("eager", asked).widths["hops"] == 0  # that ring was measured
    said = report.text(report.answer(asked))
    assert "narrow it with --inside" in said
    assert "inside a node: not known, so the mean hop of the measured ring stands" in said


def test_an_inside_slower_than_the_mean_hop_is_doubted(tmp_path):
    found = fabric.with_inside(of_8_gpus_a_host(tmp_path), "5us", "800gbit", "--inside")
    assert found.between.alpha_s == 5e-6 and "less than the 5 us of --inside" in found.notes[0]


def test_an_inside_slower_than_the_measured_ring_is_doubted(tmp_path):
    """All bytes of a ring cross the links inside, so none of them is slower than the ring."""
    mixed = of_8_gpus_a_host(tmp_path)  # 200 Gbit/s
    found = fabric.with_inside(mixed, "1us", "40gbit", "--inside")
    (said,) = (note for note in found.notes if "--inside has 40 Gbit/s" in note)
    assert said.startswith("WARNING") and "the measured ring sent 200 Gbit/s" in said
    assert len(fabric.with_inside(mixed, "1us", "200gbit", "--inside").notes) == len(mixed.notes)


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


def test_nccl_tests_on_one_host_measures_no_link_between_nodes(tmp_path):
    path = tmp_path / "nccl.txt"
    path.write_text(nccl(8, ring_line(8, FAST), a_host=8))
    with pytest.raises(ValueError, match="8 GPUs on one host, so the link inside a node") as error:
        fabric.load(str(path))
    assert str(error.value).endswith("pass that text, and add --inside 5us 200gbit")


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
