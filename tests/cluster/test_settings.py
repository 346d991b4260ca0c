"""Settings of a cluster: refusals before anything starts, and the numbers given to tc."""

import re
import subprocess
import sys

import pytest

from refgf.cluster import launcher, network
from refgf.cluster.settings import LATE_S, Settings, make_settings


def make(nodes=4, ranks_per_node=2, rates=("1gbit",), latency="0s", mtu=1500, cpus_per_node=None):
    return make_settings(nodes, ranks_per_node, list(rates), latency, mtu, cpus_per_node)


def test_settings_contain_the_arguments():
    settings = make(rates=["1gbit", "node3=200mbit"], latency="50us", mtu=9000)
    assert [settings.rate_of(i) * 8 for i in range(4)] == [1e9, 1e9, 1e9, 2e8]
    assert settings.ranks == 8
    assert str(settings) == "4 nodes x 2 ranks, link 1gbit, node3 200mbit, latency 50us, MTU 9000"
    assert Settings.from_json(settings.to_json()) == settings


def test_the_order_of_rates_does_not_matter():
    assert make(rates=["node1=10mbit", "2gbit"]) == make(rates=["2gbit", "node1=10mbit"])


def test_ranks_get_their_node_and_every_rate():
    got = make(rates=["1gbit", "node3=200mbit"]).for_ranks(3, "mpich")
    assert (got["node"], got["nodes"]) == (3, 4)
    assert (got["rate"], got["slow"]) == ("1gbit", {"node3": "200mbit"})
    assert got["rates_bytes_per_s"] == [125e6, 125e6, 125e6, 25e6]


REFUSED = {
    "no nodes": ({"nodes": 0}, "--nodes: got 0; wanted 1 to 250"),
    "too many nodes": ({"nodes": 251}, "--nodes: got 251; wanted 1 to 250 nodes; next: "),
    "no ranks": ({"ranks_per_node": 0}, "--ranks-per-node: got 0"),
    "rate in words": ({"rates": ["fast"]}, "rate: got 'fast'; wanted .* next: try 1gbit"),
    "rate zero": ({"rates": ["0gbit"]}, "rate: got '0gbit'"),
    "unknown node": (
        {"rates": ["node4=1gbit"]},
        "--rate: got node 'node4' .* wanted one of node0 to node3",
    ),
    "latency in words": ({"latency": "soon"}, "time: got 'soon'; wanted .* next: try 50us"),
    "tiny mtu": ({"mtu": 100}, "--mtu: got 100; wanted 576 to 16000"),
    "no cores": ({"cpus_per_node": 0}, "--cpus-per-node: got 0; wanted .* whole cores"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    arguments, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        make(**arguments)


@pytest.mark.parametrize(
    "rate", ["100kbit", "10mbit", "100mbit", "1gbit", "2.5gbit", "5gbit", "40gbit"]
)
@pytest.mark.parametrize("mtu", [576, 1500, 9000, 16000])
def test_both_buckets_hold_the_largest_packet_with_its_headers(rate, mtu):
    """With less, tbf would cut every packet (slow) or drop it (no traffic at all)."""
    settings = make(rates=[rate], mtu=mtu)
    (command,) = network.shaping_commands(settings, 0, "eth0")
    found = re.findall(r"(rate|burst|limit|peakrate|mtu) (\d+)", command)
    numbers = {key: int(value) for key, value in found}
    packet = settings.packet_bytes(0)
    segments = -(-packet // (mtu - 52))
    on_the_wire = packet + segments * 66
    assert packet >= mtu
    assert numbers["mtu"] >= on_the_wire and numbers["burst"] >= on_the_wire
    assert numbers["limit"] > numbers["burst"]
    assert numbers["rate"] == round(settings.rate * 8)
    assert numbers["peakrate"] == round(settings.peak_of(0) * 8)
    assert numbers["peakrate"] // 8 > numbers["rate"] // 8  # in whole bytes, or tbf refuses it


@pytest.mark.parametrize("rate", ["10mbit", "100mbit", "1gbit", "2.5gbit", "5gbit"])
def test_the_packet_after_a_late_one_catches_up(rate):
    """Lateness and a packet at the peak rate take no longer than a packet at the rate."""
    settings = make(rates=[rate])
    packet = settings.packet_bytes(0)
    assert packet / settings.peak_of(0) + LATE_S <= packet / settings.rate * (1 + 1e-9)
    # a higher peak rate would speed up the first messages of an idle link
    assert settings.peak_of(0) < 1.5 * settings.rate


def test_latency_is_added_once_on_the_way_to_the_receiver():
    settings = make(latency="50us")
    assert not any("netem" in line for line in network.shaping_commands(settings, 0, "eth0"))
    delay, tbf = network.shaping_commands(settings, 0, "cable0")
    assert "root handle 1: netem delay 50.000us" in delay
    assert "parent 1:1 tbf" in tbf


def test_every_cable_goes_to_its_own_holder():
    commands = network.bridge_commands(make(nodes=3), [11, 22, 33])
    cables = re.findall(r"cable(\d+) .* type veth .* netns (\d+)$", commands, re.MULTILINE)
    assert cables == [("0", "11"), ("1", "22"), ("2", "33")]


COMMANDS = {
    "rate": (["run", "--rate", "fast", "--", "true"], 2, "got 'fast'"),
    "too slow a rate": (["run", "--rate", "node0=1bit", "--", "true"], 2, "wanted 1kbit to 1tbit"),
    "too fast a rate": (["probe", "--rate", "99999gbit"], 2, "wanted 1kbit to 1tbit"),
    "nodes": (["probe", "--nodes", "0"], 2, "got 0"),
    "not a task": (["_inside"], 2, "choose from"),
    "no command": (["run"], 2, "got no command; wanted one after --"),
    "missing command": (
        ["run", "--", "no-such-command"],
        127,
        "'no-such-command', which does not exist",
    ),
    "not executable": (
        ["run", "--", "README.md"],
        126,
        "'README.md', which cannot be executed; wanted a program",
    ),
    "no agent": (["run", "--mpiexec", "true", "--", "true"], 2, "wanted MPICH's Hydra or"),
    "check: no agent": (["check", "--mpiexec", "true"], 2, "wanted MPICH's Hydra or"),
    "missing mpiexec": (
        ["run", "--mpiexec", "/nowhere/mpiexec", "--", "true"],
        2,
        "got /nowhere/mpiexec, which does not exist",
    ),
    "too many cores": (
        ["run", "--cpus-per-node", "4096", "--", "true"],
        2,
        "cores of this machine",
    ),
}


@pytest.mark.skipif(sys.platform != "linux", reason="on other systems another message comes first")
@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_line_refuses_with_one_message_and_its_code(name):
    arguments, code, message = COMMANDS[name]
    command = [sys.executable, "-m", "refgf.cluster", *arguments]
    done = subprocess.run(command, cwd=launcher.ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr and "Traceback" not in done.stderr


def test_both_ends_limit_the_rate_of_their_credit():
    """Without a peak rate an idle link would spend its credit at once: 1.3 ms, nine packets."""
    settings = make()
    assert settings.burst_bytes(0) > 5 * settings.packet_bytes(0)
    for device in ("eth0", "cable0"):
        assert "peakrate" in network.shaping_commands(settings, 0, device)[-1]
