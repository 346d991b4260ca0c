"""Named clusters: their descriptions, how far they are slowed down, and what is refused."""

import copy
import json

import pytest

from refgf.cluster import capacity, like
from refgf.cluster.settings import make_settings

NAMES = [name for name in like.names() if name != like.HERE]


def settings(rate="1gbit", nodes=4):
    return make_settings(nodes, 1, [rate], "0s", 1500, None)


def content(**changed):
    return copy.deepcopy(like.load("v100-56gbit").data) | changed


@pytest.mark.parametrize("name", NAMES)
def test_every_number_of_a_description_has_a_source(name):
    data = like.load(name).data
    numbers = [data["rate"], data["latency"]]
    numbers += [step["images_per_s"] for step in data["steps"].values()]
    assert all(number["source"] and number["known"] in like.KNOWN for number in numbers)
    assert data["name"] == name


def test_the_pace_is_the_papers():
    """38.8 ms for 128 images: 95 epochs in 90 s at a speedup of 410.2 (facts of the paper)."""
    images, seconds = like.load("v100-56gbit").step_s("alexnet")
    rate = 95 * 1_281_167 / 90 / 410.2
    assert images == 128 and seconds == pytest.approx(128 / rate, rel=1e-3)


@pytest.mark.parametrize("rate, factor", [("1gbit", 56), ("2gbit", 28), ("56gbit", 1)])
@pytest.mark.parametrize("netem", [True, False])
def test_everything_is_slowed_down_by_one_factor(rate, factor, netem):
    target = like.load("v100-56gbit")
    found = like.dilated(settings(rate), target, netem)
    assert found.dilation == pytest.approx(factor)
    latency_s = (found.latency_s, found.latency_waited_s)
    wanted = factor * target.latency_s
    assert latency_s == pytest.approx((wanted, 0.0) if netem else (0.0, wanted))
    told = found.for_ranks(0, "mpich")
    assert like.parse(told["like"], "told") == target and told["dilation"] == found.dilation


def test_faster_than_the_cluster_is_refused():
    with pytest.raises(ValueError, match="got links of 100gbit.*wanted at least 1.*56gbit.*next"):
        like.dilated(settings("100gbit"), like.load("v100-56gbit"), True)


def test_all_links_together_have_one_rate():
    target = like.load("v100-56gbit")
    assert [like.usual_rate(target, nodes) for nodes in (2, 4, 8)] == ["2gbit", "1gbit", "500mbit"]


def test_a_file_is_a_cluster_too(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(content(name="mine")))
    assert like.load(str(path)).name == "mine"
    assert like.load(like.HERE) is None


@pytest.mark.parametrize(
    "changed, wanted",
    [
        ({"refgf_cluster": 2}, '"refgf_cluster": 1'),
        ({"name": 3}, "name of type str"),
        ({"nodes": 0}, "at least 1"),
        ({"nodes": True}, "nodes of type int"),
        ({"steps": {}}, "at least 1"),
        ({"rate": {}}, "rate: bits per second"),
        ({"rate": {"value": "56", "known": "stated", "source": "x"}}, "gbit"),
        ({"rate": {"value": "56gbit", "known": "guessed", "source": "x"}}, "one of stated"),
        ({"latency": {"value": 7, "known": "stated", "source": "x"}}, "latency: time of an empty"),
        ({"latency": {"value": "7us", "known": "stated"}}, "a source"),
        ({"steps": {"alexnet": {}}}, "batch: images per accelerator"),
        ({"steps": {"alexnet": {"batch": 128}}}, "images_per_s: images per second"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, changed, wanted):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(content(**changed)))
    with pytest.raises(ValueError, match=f"got .*wanted .*{wanted}.*next"):
        like.load(str(path))


@pytest.mark.parametrize("text", ["", "{", "[1]", '"x"', "\x00"])
def test_what_is_no_description_is_refused(tmp_path, text):
    path = tmp_path / "mine.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="got .*wanted .*next"):
        like.load(str(path))


@pytest.mark.parametrize("name", ["v100", "x" * 5000, "v\0"])
def test_an_unknown_name_is_refused(name):
    with pytest.raises(ValueError, match="got '[vx].{1,80}'; wanted this-machine, .*v100-56gbit"):
        like.load(name)


def test_links_that_this_machine_cannot_carry_are_refused(monkeypatch):
    monkeypatch.setattr(capacity, "loopback_bytes_per_s", lambda: 1e9)
    capacity.require(settings("500mbit"))
    with pytest.raises(ValueError, match="got 4 links of 1gbit; wanted at most 800mbit each"):
        capacity.require(settings("1gbit"))


def test_the_loopback_is_measured():
    assert 1e7 < capacity.loopback_bytes_per_s() < 1e12


def test_an_old_name_says_todays_once(capsys):
    like.current.cache_clear()
    found = [like.load("v100-10gbe") for _ in range(2)]
    assert [each.name for each in found] == 2 * ["mgwfbp-10gbe"]
    said = capsys.readouterr().err
    assert said.count("v100-10gbe is called mgwfbp-10gbe now") == 1
    assert "v100-10gbe" not in like.names()
