"""Where a lesson is measured: what --like, --link and the emulated cluster say, and who wins."""

import argparse
import json

import pytest

from kit import regime
from refgf.cluster import like
from refgf.cluster.settings import make_settings
from refgf.machine.link import LinkComm, parse_link


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    monkeypatch.delenv("REFGF_CLUSTER", raising=False)


def options(**given):
    return argparse.Namespace(**{"link": None, "like": None, "quick": False} | given)


def on_cluster(monkeypatch, name="v100-56gbit", netem=False):
    settings = make_settings(4, 1, ["1gbit"], "0s", 1500, None)
    if name:
        settings = like.dilated(settings, like.load(name), netem)
    monkeypatch.setenv("REFGF_CLUSTER", json.dumps(settings.for_ranks(0, "mpich")))


def test_without_anything_it_is_this_machine():
    found = regime.regime_of(options())
    assert found.like is None and found.dilation == 1 and found.link() is None
    assert found.comm("plain") == "plain" and not found.links_are_waited_for


@pytest.mark.parametrize("quick, rate", [(False, 125e6), (True, 500e6)])
def test_without_a_cluster_its_links_are_waited_for(quick, rate):
    found = regime.regime_of(options(like="v100-56gbit", quick=quick))
    assert found.links_are_waited_for and found.dilation == pytest.approx(7e9 / rate)
    link = found.link()
    assert link.beta_s_per_byte == pytest.approx(1 / rate)
    assert link.alpha_s == pytest.approx(found.dilation * 7.9e-6)
    assert found.goodput() == link  # nobody sends headers


@pytest.mark.parametrize("netem", [False, True])
def test_an_emulated_cluster_says_what_it_is(monkeypatch, netem):
    on_cluster(monkeypatch, netem=netem)
    found = regime.regime_of(options())
    assert found.like.name == "v100-56gbit" and found.dilation == pytest.approx(56)
    assert not found.links_are_waited_for and (found.waited is None) == netem
    assert found.link().alpha_s == pytest.approx(56 * 7.9e-6)  # emulated or waited: it is there
    assert found.goodput().beta_s_per_byte == pytest.approx(8e-9 * 1514 / 1448)  # TCP's headers


def test_latency_is_waited_for_between_nodes_only(monkeypatch):
    class Comm:
        def Get_rank(self):
            return 1

        def Get_size(self):
            return 3

        def allgather(self, name):
            return ["a", name, name]

    on_cluster(monkeypatch)
    comm = regime.regime_of(options()).comm(Comm())
    assert isinstance(comm, LinkComm) and comm._near == {1, 2}


def test_a_cluster_of_no_kind_is_this_machine(monkeypatch):
    on_cluster(monkeypatch, name=None)
    assert regime.regime_of(options()).like is None


def test_a_stated_link_is_waited_for():
    found = regime.regime_of(options(link="1gbit,50us"))
    assert found.like is None and found.waited == parse_link("1gbit,50us")
    assert found.waited_in_words == "1gbit,50us"


@pytest.mark.parametrize("given", [{"link": "1gbit,50us", "like": "v100-56gbit"}, {"like": "v1"}])
def test_clashes_and_unknown_names_are_refused(given):
    with pytest.raises(ValueError, match="got .*wanted .*next: "):
        regime.regime_of(options(**given))


@pytest.mark.parametrize("name", ["v100-56gbit", None])
def test_another_cluster_than_the_emulated_one_is_refused(monkeypatch, name):
    on_cluster(monkeypatch, name=name)
    with pytest.raises(ValueError, match="got .*wanted the same; next: .*--like mgwfbp-10gbe"):
        regime.regime_of(options(like="mgwfbp-10gbe"))
