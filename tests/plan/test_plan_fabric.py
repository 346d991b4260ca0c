"""Networks: a name, a machine file, nccl-tests' text, OSU's text; and what is wrong with others."""

import pytest

from refgf.papers.scaling.machine import Machine, save
from refgf.plan import fabric, measurements
from refgf.predict.cost import Line, Link, ring_line

LINK, FAST = Link(20e-6, 1e-9), Link(5e-6, 4e-11)
SIZES = [1 << bit for bit in range(3, 28)]


def nccl(size, line, ranks_listed=True, unit="(us)", factor=None):
    """What all_reduce_perf prints: two decimals, out of place and in place."""
    head = ["# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor)", "#"]
    if ranks_listed:
        head += [
            f"#  Rank {r:2} Group  0 Pid 77 on node{r // 4} device {r % 4} [0x00] V100"
            for r in range(size)
        ]
    head += [
        "#       size         count      type   redop    root     time   algbw   busbw #wrong",
        f"#        (B)    (elements)                               {unit}  (GB/s)  (GB/s)       ",
    ]
    rows = []
    for nbytes in SIZES:
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


def test_a_name_of_the_emulated_clusters():
    found = fabric.load("v100-10gbe")
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
    assert (found.between.alpha_s, found.between.beta_s_per_byte) == pytest.approx(
        (5e-6, 4e-11), rel=1e-2
    )
    assert list(found.lines) == [16]


def test_osu_latency_and_osu_allreduce(tmp_path):
    path = tmp_path / "osu.txt"
    path.write_text(osu("Latency Test", Line(2e-6, 1e-10)))
    found = fabric.load(str(path)).between
    assert (found.alpha_s, found.beta_s_per_byte) == pytest.approx((2e-6, 1e-10), rel=1e-2)
    path.write_text(osu("Allreduce Latency Test", ring_line(8, LINK), "Avg Latency(us)"))
    found = fabric.load(str(path), 8).between
    assert found.alpha_s == pytest.approx(20e-6, rel=1e-2)


@pytest.mark.parametrize(
    "text, said",
    [
        (osu("Allreduce Latency Test", Line(1e-5, 1e-9)), "wanted --measured-ranks P"),
        (osu("Bandwidth Test", Line(1e-5, 1e-9), "Bandwidth (MB/s)"), "next: run osu_latency"),
        (
            osu("All-to-All Personalized Exchange Latency Test", Line(1e-5, 1e-9)),
            "wanted osu_latency",
        ),
        (nccl(8, Line(1e-5, 1e-9), unit="(ms)"), "times in ms"),
        (nccl(8, Line(1e-5, 1e-9), factor=1.0), "next: run all_reduce_perf"),
        (nccl(8, Line(1e-5, 1e-9)).replace(" sum ", " none "), "next: run all_reduce_perf"),
        (osu("Latency Test", Line(1e-5, 1e-9))[:300], "1 KiB to at least 1 MiB"),
        ("hello", "wanted a machine file, or what all_reduce_perf or osu_latency printed"),
    ],
)
def test_texts_that_do_not_help(text, said):
    with pytest.raises(ValueError) as error:
        measurements.read(text, "some.txt")
    assert said in str(error.value) and "; next: " in str(error.value)


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
