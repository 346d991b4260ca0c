"""How many bytes per second this machine carries between nodes: the limit of a dilated link.

A byte that crosses an emulated link costs processor time: two sockets, two shapers, a bridge. The
loopback of this machine is measured for a moment, and CARRIED of it is what all links together may
carry while the ranks work too. The fastest of TRIES counts: other load must not refuse a cluster.
"""

import socket
import threading
import time

from refgf.cluster.settings import Settings
from refgf.machine.units import format_rate

BYTES, TRIES = 1 << 26, 5
CARRIED = 0.4  # of the loopback's rate; measured: see tests/cluster/test_like.py


def loopback_bytes_per_s() -> float:
    """Goodput of one TCP connection over the loopback; some 0.05 s."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = threading.Thread(target=_send, args=(server.getsockname(),), daemon=True)
        sender.start()
        with server.accept()[0] as connection:
            block, left, start_s = memoryview(bytearray(1 << 20)), BYTES, time.perf_counter()
            while left > 0 and (got := connection.recv_into(block)):
                left -= got
            return (BYTES - left) / (time.perf_counter() - start_s)


def _send(address) -> None:
    block = bytes(1 << 20)
    with socket.create_connection(address) as connection:
        for _ in range(BYTES // len(block)):
            connection.sendall(block)


def require(settings: Settings) -> None:
    """ValueError unless this machine carries these links, all in use at once."""
    wanted = sum(settings.rate_of(node) for node in range(settings.nodes))
    limit = CARRIED * max(loopback_bytes_per_s() for _ in range(TRIES))
    if wanted > limit:
        raise ValueError(
            f"--rate: got {settings.nodes} links of {format_rate(settings.rate)}; wanted at most "
            f"{format_rate(limit / settings.nodes)} each, which is what this machine carries; "
            f"next: --rate {format_rate(limit / settings.nodes)}, or fewer nodes"
        )
