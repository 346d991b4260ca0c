"""Measures the links: raw TCP goodput, and MPI's alpha and beta, between every two nodes.

Runs as an MPI program on the cluster (`python -m refgf.cluster probe`), or inside a lesson. One
rank a node takes part, and one pair of nodes at a time. The other ranks sleep, because a rank that
waits in MPI would occupy a core.

    raw TCP       one connection, one direction, sendall and recv_into; timed by the receiver
    MPI alpha     half a round trip of one byte, median
    MPI 1/beta    messages of 1 MiB in succession, one direction; timed by the receiver

Volumes are VOLUME_S times the rate after WARM_UP_S. That is at least 20 times the shaper's credit
(settings.burst_bytes), so the credit hardly matters. Every figure is the median of REPEATS.

"on the link" is raw goodput with the headers that the shaper counts: compare it with the rate asked
for. "idle" is the fraction of this machine's processor time that was unused. If it is small, the
processors may have limited the link.
"""

import itertools
import json
import os
import socket
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

VOLUME_S, WARM_UP_S, VOLUME_BYTES, WARM_UP_BYTES = 0.15, 0.01, 1_000_000, 200_000
REPEATS, PINGS, MESSAGE_BYTES = 3, 200, 1 << 20
ETHERNET_BYTES, TCP_IP_BYTES = 14, 52  # headers of a frame; of IP and TCP with time stamps


def link_share(mtu: int) -> float:
    """Payload / bytes that the shaper counts, for full frames: 1448 / 1514 for an MTU of 1500."""
    return (mtu - TCP_IP_BYTES) / (mtu + ETHERNET_BYTES)


def measure(comm: Any, pairs: list[tuple[int, int]] | None = None) -> list[dict[str, Any]]:
    """Measure the links on an emulated cluster; all ranks get the results, a dict per pair.

    Collective over an mpi4py communicator. pairs: of nodes, default all. Keys: nodes, asked, raw,
    link, idle, alpha_s, beta_s_per_byte; rates in bytes per second.
    """
    description = os.environ.get("REFGF_CLUSTER")
    if not description:
        raise ValueError(
            f"probe on rank {comm.Get_rank()}: got no REFGF_CLUSTER; wanted ranks of an emulated "
            "cluster; next: python -m refgf.cluster probe"
        )
    cluster = json.loads(description)
    nodes = comm.allgather(cluster["node"])
    count = cluster["nodes"]
    results = []
    for a, b in pairs or itertools.combinations(range(count), 2):
        asked = min(_rate(cluster, a), _rate(cluster, b))
        ends = nodes.index(a), nodes.index(b)
        result = _pair(comm, *ends, asked, cluster) if comm.Get_rank() in ends else None
        _sleep_until_all_arrive(comm)
        results.append(comm.bcast(result, root=ends[1]) | {"nodes": [a, b], "asked": asked})
    return results


def _rate(cluster: dict, node: int) -> float:
    return cluster["rates_bytes_per_s"][node]


def _pair(comm: Any, sender: int, receiver: int, asked: float, cluster: dict) -> dict:
    """Measure one link. Both ends measure; the receiver's figures are used."""
    idle_s, all_s = processor_seconds()
    raw = statistics.median(raw_goodput(comm, sender, receiver, asked) for _ in range(REPEATS))
    idle_s, all_s = (after - before for after, before in zip(processor_seconds(), (idle_s, all_s)))
    alpha_s = half_round_trip(comm, sender, receiver)
    beta = statistics.median(one_way(comm, sender, receiver, asked) for _ in range(REPEATS))
    link, idle = raw / link_share(cluster["mtu"]), idle_s / max(all_s, 1)
    return {"raw": raw, "link": link, "idle": idle, "alpha_s": alpha_s, "beta_s_per_byte": beta}


def processor_seconds() -> tuple[int, int]:
    """(idle, total) time of this machine's processors since boot, in the kernel's ticks."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)  # idle, waiting for a disk


def raw_goodput(comm: Any, sender: int, receiver: int, asked: float) -> float:
    """Bytes per second over a new socket. The receiver measures; the sender returns `asked`."""
    volume = round(max(asked * VOLUME_S, VOLUME_BYTES))
    warm_up = round(asked * WARM_UP_S + WARM_UP_BYTES)
    if comm.Get_rank() == receiver:
        with socket.create_server((socket.gethostbyname(socket.gethostname()), 0)) as server:
            comm.send(server.getsockname(), sender)
            with server.accept()[0] as connection:
                _drain(connection, warm_up)
                start_s = time.perf_counter()
                _drain(connection, volume)
                return volume / (time.perf_counter() - start_s)
    with socket.create_connection(comm.recv(source=receiver)) as connection:
        connection.sendall(bytes(warm_up + volume))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)  # until the receiver has closed its end
    return asked


def _drain(connection: socket.socket, nbytes: int) -> None:
    block = memoryview(bytearray(1 << 18))
    while nbytes:
        got = connection.recv_into(block[: min(nbytes, len(block))])
        if not got:
            raise ConnectionError(
                f"probe: got a closed connection; wanted {nbytes} bytes more; "
                "next: look for an error of the sender"
            )
        nbytes -= got


def half_round_trip(comm: Any, a: int, b: int) -> float:
    """Median over PINGS of half the time of one byte there and back."""
    byte, times_s = np.zeros(1, np.uint8), []
    for _ in range(PINGS + 20):
        start_s = time.perf_counter()
        if comm.Get_rank() == a:
            comm.Send(byte, b)
            comm.Recv(byte, b)
        else:
            comm.Recv(byte, a)
            comm.Send(byte, a)
        times_s.append((time.perf_counter() - start_s) / 2)
    return statistics.median(times_s[20:])


def one_way(comm: Any, sender: int, receiver: int, asked: float) -> float:
    """Seconds per byte of messages sent without a pause, after one for warming up."""
    count = max(3, round(asked * VOLUME_S / MESSAGE_BYTES))
    message = np.zeros(MESSAGE_BYTES, np.uint8)
    move, peer = (comm.Send, receiver) if comm.Get_rank() == sender else (comm.Recv, sender)
    move(message, peer)
    start_s = time.perf_counter()
    for _ in range(count):
        move(message, peer)
    return (time.perf_counter() - start_s) / (count * MESSAGE_BYTES)


def _sleep_until_all_arrive(comm: Any) -> None:
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(1e-3)


def format_table(results: list[dict[str, Any]]) -> str:
    """The results as text: rates in Mbit/s; each ratio refers to the column named in its head."""
    lines = [
        "nodes        asked   raw TCP   on the link   of asked   idle   MPI alpha"
        "    MPI 1/beta   of raw TCP"
    ]
    for r in results:
        rates = r["asked"], r["raw"], r["link"], 1 / r["beta_s_per_byte"]
        asked, raw, link, mpi = (rate * 8e-6 for rate in rates)
        pair = "{}-{}".format(*r["nodes"])
        lines.append(
            f"{pair:8} {asked:9.1f} {raw:9.1f} {link:13.1f} {link / asked:10.3f} {r['idle']:6.2f} "
            f"{r['alpha_s'] * 1e6:8.1f} us {mpi:13.1f} {mpi / raw:12.3f}"
        )
    lines.append(
        "rates in Mbit/s; on the link: raw TCP with its headers, as the shaper counts them"
    )
    return "\n".join(lines)


def main(comm: Any) -> None:
    """Measure all links; rank 0 prints the table."""
    results = measure(comm)
    if comm.Get_rank() == 0:
        print(format_table(results), flush=True)
