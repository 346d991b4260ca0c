"""Bridge, cables, shaping and byte counters: what `ip` and `tc` are told.

Every node hangs on the bridge by one cable (a veth pair): `eth0` in the node, `cable<i>` on the bridge. Both ends carry
a token bucket filter (tbf), so both directions have the stated rate, counted in Ethernet frames: of 1500 bytes of IP
1448 are payload and 1514 are counted, so TCP delivers 0.956 of the rate (0.993 with jumbo frames).

A plain bucket would let a link that was idle send its first 100 kB at once, or, if it were smaller, lose its rate
whenever the kernel wakes it late. So there are two: a large one for lateness, and one of a packet (peakrate), so that the
large one is not spent at once. Its rate is 1.3 times the link's at 1 Gbit/s (`settings.peak_of`); less would not do, as
every packet needs a timer, which a virtual machine's idle core answers some 30 us late, and the next packet, 0.13 ms
later, has to make up for it. So a link that was idle may send its first 0.7 MB 1.3 times as fast, at 1 Gbit/s: it gains at
most 1.3 ms, once. A pause that is shorter than that is made up for entirely.
"""

import json
import subprocess

from refgf.cluster.settings import QUEUE_S, Settings

HEAD = "10.77.255.254"

# Runs as the first process of a node, in namespaces of its own; then sleeps, and so holds them. $1 is the node's name.
# A private folder of the head's memory disk becomes /dev/shm; in it, `refgf` is the same folder on all nodes.
HOLDER = """
set -e
hostname "$1"
mkdir -p "/dev/shm/nodes/$1/refgf" && chmod 1777 "/dev/shm/nodes/$1"
mount --bind /dev/shm/refgf "/dev/shm/nodes/$1/refgf"
mount --rbind "/dev/shm/nodes/$1" /dev/shm
cd /proc/sys/net
echo reno > ipv4/tcp_congestion_control        # the one that every kernel allows everyone; without loss all are alike
echo 0 > ipv4/tcp_slow_start_after_idle        # a training step computes, then sends: idle is normal here
if [ -d ipv6 ]; then echo 1 > ipv6/conf/all/disable_ipv6; echo 1 > ipv6/conf/default/disable_ipv6; fi
cd /
echo isolated
read -r cable_is_there
ip link set lo up
ip addr add "$2/16" dev eth0
ip link set eth0 up
eval "$3"
echo up
exec sleep infinity <&- >/dev/null 2>&1
"""


def bridge(settings: Settings, holders: list[int]) -> str:
    """Commands for `ip -batch` in the head's network: the bridge, and a cable to each holder's namespace."""
    lines = ["link set lo up", f"link add bridge0 mtu {settings.mtu} type bridge"]
    for node, pid in enumerate(holders):
        size = f"mtu {settings.mtu} gso_max_size {settings.packet_bytes(node)}"
        lines.append(f"link add cable{node} {size} type veth peer name eth0 {size} netns {pid}")
        lines.append(f"link set cable{node} master bridge0 up")
    return "\n".join([*lines, f"addr add {HEAD}/16 dev bridge0", "link set bridge0 up"]) + "\n"


def shape(settings: Settings, node: int, device: str) -> list[str]:
    """The `tc` commands for one end of a node's cable; the latency is added once, on the way to the receiver."""
    rate, burst = settings.rate_of(node), settings.burst_bytes(node)
    limit = burst + max(round(rate * QUEUE_S), 100 * settings.mtu)
    packet = settings.packet_bytes(node)
    at_once = packet + (packet // (settings.mtu - 52) + 1) * 66 + settings.mtu  # with the headers of its segments
    peak = f"peakrate {round(settings.peak_of(node) * 8)}bit mtu {at_once}b"
    tbf = f"tbf rate {round(rate * 8)}bit burst {burst}b limit {limit}b {peak}"
    if not settings.latency_s or device == "eth0":
        return [f"tc qdisc add dev {device} root {tbf}"]
    delay_us = settings.latency_s * 1e6
    return [
        f"tc qdisc add dev {device} root handle 1: netem delay {delay_us:.3f}us limit 100000",
        f"tc qdisc add dev {device} parent 1:1 {tbf}",
    ]


def counters(nodes: int) -> list[tuple[int, int]]:
    """Per node: bytes it has sent, bytes it has received, as its cable's end on the bridge counted them."""
    told = subprocess.run(["ip", "-j", "-s", "link", "show"], capture_output=True, text=True, check=True).stdout
    stats = {link["ifname"]: link["stats64"] for link in json.loads(told)}
    return [(stats[f"cable{i}"]["rx"]["bytes"], stats[f"cable{i}"]["tx"]["bytes"]) for i in range(nodes)]
