"""Bridge, cables, shaping and byte counters: the commands for `ip` and `tc`.

One cable (a veth pair) connects a node to the bridge: `eth0` in the node, `cable<i>` on the bridge.
Both ends have a token bucket filter (tbf), so both directions have the stated rate. It counts
Ethernet frames: of 1500 bytes of IP 1448 are payload and 1514 are counted, so TCP delivers 0.956 of
the rate (0.993 with jumbo frames).

One large bucket would let an idle link send its first 100 kB at once. One small bucket would lose
its rate whenever the kernel wakes it late. So there are two: a large one for lateness, and one of a
packet (peakrate), which limits the rate at which the large one is spent. The peak rate is 1.3 times
the link's at 1 Gbit/s (`settings.peak_of`). It cannot be lower: every packet needs a timer, an idle
core of a virtual machine answers it some 30 us late, and the next packet, 0.13 ms later, has to
catch up. So an idle link of 1 Gbit/s may send its first 0.7 MB 1.3 times as fast. It gains at most
1.3 ms, once. A shorter pause is made up for entirely.
"""

import fcntl
import json
import socket
import struct
import subprocess

from refgf.cluster.settings import QUEUE_S, Settings

HEAD = "10.77.255.254"
SIOCGIFFLAGS, IFF_RUNNING = 0x8913, 0x40

# The first process of a node: it configures the node's namespaces, then sleeps to hold them.
# $1 is the node's name, $2 its address, $3 the shaping commands. A private folder of the head's
# memory disk becomes /dev/shm; in it, `refgf` is the same folder on all nodes.
HOLDER = """
set -e
hostname "$1"
mkdir -p "/dev/shm/nodes/$1/refgf" && chmod 1777 "/dev/shm/nodes/$1"
mount --rbind /dev/shm/refgf "/dev/shm/nodes/$1/refgf"
mount --rbind "/dev/shm/nodes/$1" /dev/shm
cd /proc/sys/net
echo reno > ipv4/tcp_congestion_control        # every kernel allows it; without loss all are alike
echo 0 > ipv4/tcp_slow_start_after_idle        # training steps compute, then send: idle is normal
if [ -d ipv6 ]; then
    echo 1 > ipv6/conf/all/disable_ipv6
    echo 1 > ipv6/conf/default/disable_ipv6
fi
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


def bridge_commands(settings: Settings, holders: list[int]) -> str:
    """Commands for `ip -batch` in the head's network: the bridge, and a cable to each holder."""
    lines = ["link set lo up", f"link add bridge0 mtu {settings.mtu} type bridge"]
    for node, pid in enumerate(holders):
        size = f"mtu {settings.mtu} gso_max_size {settings.packet_bytes(node)}"
        lines.append(f"link add cable{node} {size} type veth peer name eth0 {size} netns {pid}")
        lines.append(f"link set cable{node} master bridge0 up")
    return "\n".join([*lines, f"addr add {HEAD}/16 dev bridge0", "link set bridge0 up"]) + "\n"


def shaping_commands(settings: Settings, node: int, device: str) -> list[str]:
    """The `tc` commands for one end of a node's cable; the receiver's end adds the latency."""
    rate, burst = settings.rate_of(node), settings.burst_bytes(node)
    limit = burst + max(round(rate * QUEUE_S), 100 * settings.mtu)
    packet = settings.packet_bytes(node)
    segments = packet // (settings.mtu - 52) + 1
    counted = packet + segments * 66 + settings.mtu  # the largest packet with its headers
    peak = f"peakrate {round(settings.peak_of(node) * 8)}bit mtu {counted}b"
    tbf = f"tbf rate {round(rate * 8)}bit burst {burst}b limit {limit}b {peak}"
    if not settings.latency_s or device == "eth0":
        return [f"tc qdisc add dev {device} root {tbf}"]
    delay_us = settings.latency_s * 1e6
    return [
        f"tc qdisc add dev {device} root handle 1: netem delay {delay_us:.3f}us limit 100000",
        f"tc qdisc add dev {device} parent 1:1 {tbf}",
    ]


HOLDER_LOST, LINK_LOST = "the end of the process that holds it", "a link that is down or deleted"


def lost(node: int, what: str = HOLDER_LOST) -> ChildProcessError:
    """The error for a node whose holder has ended, or whose link is down."""
    return ChildProcessError(
        f"node{node}: got {what}; wanted that process, and the node's link, "
        "until the command has ended; next: start the command again"
    )


def find_lost_link(nodes: int) -> int | None:
    """The first node whose cable carries nothing: an end of it is down, or it was deleted."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for node in range(nodes):
            question = struct.pack("16sH14x", f"cable{node}".encode(), 0)
            try:
                (flags,) = struct.unpack("16xH14x", fcntl.ioctl(asking, SIOCGIFFLAGS, question))
            except OSError:
                return node
            if not flags & IFF_RUNNING:
                return node
    return None


def counters(nodes: int) -> list[tuple[int, int]]:
    """Per node: bytes sent and bytes received, counted at its cable's end on the bridge.

    ChildProcessError if a cable is missing: it goes with its node.
    """
    command = ["ip", "-j", "-s", "link", "show"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    stats = {link["ifname"]: link["stats64"] for link in json.loads(done.stdout)}
    for node in range(nodes):
        if f"cable{node}" not in stats:
            raise lost(node, LINK_LOST)
    cables = [stats[f"cable{i}"] for i in range(nodes)]
    return [(cable["rx"]["bytes"], cable["tx"]["bytes"]) for cable in cables]
