"""The steps of one rank of an MSCCL++ plan (mscclpp.py says what its JSON means)."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from refgf.oracle.judge.untrusted import BadFile
from refgf.oracle.schedules.form import LARGEST_COUNT, LARGEST_RANKS, Finding, PlanStep, Port, Span
from refgf.oracle.schedules.mscclpp_threads import Threads
from refgf.oracle.schedules.mscclpp_waits import PACKET_SUMS, Waits

PAIRS = ("put", "pws", "pwsf", "get", "copy", "ppkt", "cpkt", "rppkt", "upkt")
PAIRS += ("glres", "gstore", "gstorepkt")
PUTS = ("put", "pws", "pwsf")
SUMS = ("re", "res", "rre", "rres")
SIGNALS = {"signal": True, "wait": True, "rlxsignal": False, "rlxwait": False}
ORDERING = ("nop", "flush", "barrier")
SEMAPHORES = {"sem_release": "releases", "sem_acquire": "acquires"}
SIZES = ("input_chunks", "output_chunks", "scratch_chunks")
LARGEST_PARTS = 1 << 12


def item(path: str, value: Any, kind: type, what: str) -> Any:
    if not isinstance(value, kind):
        got = type(value).__name__
        raise BadFile(f"{path}: got {got} as {what}; wanted {kind.__name__}")
    return value


def listed(path: str, holder: dict, key: str) -> list:
    return item(path, holder.get(key, []), list, key)


def count(path: str, holder: dict, key: str, default: int | None = None) -> int:
    """A whole number from 0 on."""
    return whole(path, holder.get(key, default), key)


def whole(path: str, value: Any, what: str) -> int:
    if type(value) is not int or not 0 <= value < LARGEST_COUNT:
        raise BadFile(f"{path}: got {str(value)[:20]} as {what}; wanted a whole number from 0 on")
    return value


def part_of(path: str, op: dict) -> tuple[int, int]:
    """(part, number of parts) of an op that a group of thread blocks shares; else (0, 1)."""
    info = item(path, op.get("tbg_info") or {"tb_id": 0, "tbg_size": 1}, dict, "tbg_info")
    part, parts = (count(path, info, key) for key in ("tb_id", "tbg_size"))
    if part >= parts:
        raise BadFile(f"{path}: got part {part} of {parts} in tbg_info; wanted a smaller tb_id")
    return part, parts


def parts_of_a_chunk(path: str, gpus: list[dict]) -> int:
    """The least number of which every tbg_size of the plan is a divisor."""
    found, waiting = 1, list(gpus)
    while waiting:
        holder = waiting.pop()
        for key in ("threadblocks", "ops"):
            inner = listed(path, holder, key)
            waiting += [item(path, each, dict, key) for each in inner]
        found = math.lcm(found, part_of(path, holder)[1])
        if found > LARGEST_PARTS:
            raise BadFile(
                f"{path}: got groups of thread blocks that divide a chunk into {found} parts or "
                f"more; wanted at most {LARGEST_PARTS}; next: judge a smaller plan"
            )
    return found


class Reader:
    """The steps of one rank."""

    def __init__(self, path: str, rank: int, gpu: dict, parts: int) -> None:
        self.path, self.rank, self.parts, self.steps, self.found = path, rank, parts, [], []
        self.peers = {kind: self._by_type(gpu, kind) for kind in ("memory", "port")}
        self.remote = [item(path, b, dict, "a buffer") for b in listed(path, gpu, "remote_buffers")]
        self.switches = self._switches(gpu)
        self.waits = Waits(rank, self.steps, self.found)
        semaphores = listed(path, gpu, "semaphores")
        self.free = [count(path, item(path, s, dict, "one"), "init_value", 0) for s in semaphores]
        for place, block in enumerate(listed(path, gpu, "threadblocks")):
            self._block(place, item(path, block, dict, "a thread block"))
        self.waits.join(self.free)

    def _switches(self, gpu: dict) -> list[tuple[Any, list[int]]]:
        """[(buffer, ranks)] of the switch channels."""
        found = []
        for channel in listed(self.path, gpu, "channels"):
            for group in listed(self.path, channel, "rank_groups"):
                ranks = listed(self.path, item(self.path, group, dict, "a group"), "ranks")
                ranks = [whole(self.path, rank, "rank_groups") for rank in ranks]
                if not 0 < len(ranks) <= LARGEST_RANKS:
                    got = f"a switch channel of {len(ranks)} ranks on gpu {self.rank}"
                    raise BadFile(f"{self.path}: got {got}; wanted 1 to {LARGEST_RANKS}")
                buffer = channel.get("buffer_type", channel.get("buff"))  # the older name
                found.append((buffer, ranks))
        return found

    def _by_type(self, gpu: dict, kind: str) -> list[int]:
        found = []
        for channel in listed(self.path, gpu, "channels"):
            if item(self.path, channel, dict, "a channel").get("channel_type") == kind:
                peers = listed(self.path, channel, "connected_to")
                found += [whole(self.path, peer, "connected_to") for peer in peers]
        return found

    def _block(self, place: int, block: dict) -> None:
        lane, met = count(self.path, block, "id"), defaultdict(int)
        if lane != place:
            got = f"thread block {lane} at place {place} on gpu {self.rank}"
            wanted = (
                "0, 1, ... in order: MSCCL++ runs the ops of a place with the channels of an id"
            )
            raise BadFile(f"{self.path}: got {got}; wanted {wanted}")
        last, threads = None, Threads(self.rank)
        for number, op in enumerate(self._in_turn(block)):
            for step in self._op(lane, number, op, block):
                last = len(self.steps)
                self.steps.append(threads.add(last, step, self._port_channels(op, block, step)))
            if op.get("name") == "barrier":
                barrier = count(self.path, op, "barrier_id")
                blocks = count(self.path, op, "num_threadblocks", 0)
                met[barrier] += self.waits.arrive(barrier, met[barrier], last, blocks)
            if op.get("name") in SEMAPHORES:
                for semaphore in listed(self.path, op, "semaphore_ids"):
                    self._at(self.free, semaphore, "semaphore_ids")
                    getattr(self.waits, SEMAPHORES[op["name"]])[semaphore].append(last)

    def _port_channels(self, op: dict, block: dict, step: PlanStep) -> tuple[Port, ...]:
        """Those that a step uses; of a put those to the rank that it writes."""
        if op.get("channel_type") != "port":
            return ()
        ports = self._ports(op, block, True)
        ranks = {span.rank for span in step.writes} or {port.peer for port in ports}
        return tuple(port for port in ports if port.peer in ranks)

    def _in_turn(self, holder: dict, inner: bool = False) -> Iterator[dict]:
        """The ops of a thread block, those of a pipeline in its place."""
        for op in listed(self.path, holder, "ops"):
            op = item(self.path, op, dict, "an op")
            if op.get("name") != "pipeline":
                yield op
            elif inner:
                raise self._refused("a pipeline in a pipeline")
            else:
                yield from self._in_turn(op, inner=True)

    def _op(self, lane: int, number: int, op: dict, block: dict) -> list[PlanStep]:
        name = str(op.get("name"))
        place = lane, number, name
        if name in (*ORDERING, *SEMAPHORES):
            return [PlanStep(*place)]
        if name in SIGNALS:
            ports = self._ports(op, block, SIGNALS[name])
            return [PlanStep(*place, **{"sends" if "signal" in name else "receives": ports})]
        if name not in (*PAIRS, *SUMS, *PACKET_SUMS):
            raise self._refused(f"the operation {str(name)[:20]!r}")
        sources, dests = (self._spans(op, block, key) for key in ("src_buff", "dst_buff"))
        if not sources or not dests:
            raise BadFile(
                f"{self.path}: got {name} without a source or dest; wanted src_buff, dst_buff"
            )
        if op.get("reduce_op", "sum") != "sum":
            raise self._refused(f"the reduce_op {str(op['reduce_op'])[:20]!r} of {name}")
        if name in (*SUMS, *PACKET_SUMS):
            self._require_equal(name, [*sources, *dests])
            first = int(name in PACKET_SUMS)
            reads = (span for spans in (*sources[first:], *sources[:first]) for span in spans)
            return [PlanStep(*place, tuple(reads), tuple(span for each in dests for span in each))]
        if len(sources) == 1:
            sources = sources * len(dests)
        if len(sources) != len(dests):
            raise BadFile(f"{self.path}: got {len(sources)} sources for {len(dests)} of {name}")
        for pair in zip(sources, dests):
            self._require_equal(name, pair)
        if name in PUTS and (op.get("channel_type") == "port" or op.get("channel_ids")):
            self._require_channels(name, self._ports(op, block, True), dests)
        steps = [PlanStep(*place, reads, writes) for reads, writes in zip(sources, dests)]
        signals = name in ("pws", "pwsf")
        if signals and op.get("channel_type") != "port":
            text = (
                "sends no signal on a memory channel in MSCCL++'s executor; wanted a port channel; "
                "next: put, nop and signal in its place"
            )
            place = f"tb {lane}, step {number} ({name})"
            self.found.append(Finding("unmatched", self.rank, place, text))
        elif signals:
            steps.append(PlanStep(*place, sends=self._ports(op, block, True)))
        if name == "pwsf":
            steps.append(PlanStep(lane, number, "flush"))
        return steps

    def _require_equal(self, name: str, spans: Iterable[tuple[Span, ...]]) -> None:
        sizes = sorted({span.count for each in spans for span in each})
        if len(sizes) > 1:
            got = f"sizes {sizes[0]} and {sizes[-1]} in one {name} on gpu {self.rank}"
            raise BadFile(f"{self.path}: got {got}; wanted equal sizes of src_buff and dst_buff")

    def _require_channels(self, name: str, ports: tuple[Port, ...], dests: list) -> None:
        """A put goes through a channel to the rank that holds its destination.

        On a memory channel it may name none: it writes through the buffer's address.
        """
        peers = sorted({port.peer for port in ports})
        ranks = sorted({span.rank for each in dests for span in each})
        if peers != ranks:
            got = f"channel_ids to ranks {peers[:8]} for a {name} on gpu {self.rank}"
            wanted = f"a channel to each of ranks {ranks[:8]}, whose memory it writes"
            raise BadFile(f"{self.path}: got {got}; wanted {wanted}")

    def _refused(self, what: str) -> BadFile:
        return BadFile(
            f"{self.path}: got {what} on gpu {self.rank}, which is not read; wanted puts, gets, "
            "copies, packets, sums (reduce_op sum), signals, semaphores "
            "and barriers; next: judge a plan without it"
        )

    def _ports(self, op: dict, block: dict, ordered: bool) -> tuple[Port, ...]:
        kind = op.get("channel_type")
        if kind not in ("memory", "port"):
            raise self._refused(f"a channel of type {str(kind)[:20]!r}")
        ids = self._own(block, "channels", "channel_type", "channel_ids", kind)
        ports = []
        for local in listed(self.path, op, "channel_ids"):
            index = self._at(ids, local, "channel_ids")
            peers = self.peers[kind]
            peer = self._at(peers, index, "channels")
            number = peers[:index].count(peer)
            ports.append(Port(peer, 2 * number + (kind == "port"), ordered))
        return tuple(ports)

    def _own(self, block: dict, key: str, type_key: str, ids_key: str, kind: str) -> list:
        """The ids that a thread block's own numbers stand for."""
        found = []
        for entry in listed(self.path, block, key):
            if item(self.path, entry, dict, key).get(type_key) == kind:
                found += listed(self.path, entry, ids_key)
        return found

    def _at(self, values: list, index: Any, what: str) -> Any:
        if whole(self.path, index, what) >= len(values):
            got = f"{what} {index} on gpu {self.rank}"
            raise BadFile(f"{self.path}: got {got}; wanted a number below {len(values)}")
        return values[index]

    def _spans(self, op: dict, block: dict, key: str) -> list[tuple[Span, ...]]:
        """One span for each entry; of a switch channel one for each of its ranks."""
        spans, (part, of) = [], part_of(self.path, op)
        for entry in listed(self.path, op, key):
            entry = item(self.path, entry, dict, key)
            size = self.parts * count(self.path, entry, "size") // of
            start = self.parts * count(self.path, entry, "index") + part * size
            ranks, buffer = [self.rank], entry.get("type")
            if "switch_channel_id" in entry:
                ids = self._own(block, "channels", "channel_type", "channel_ids", "switch")
                index = self._at(ids, entry["switch_channel_id"], "switch_channel_id")
                buffer, ranks = self._at(self.switches, index, "channels")
            if "buffer_id" in entry:
                kind = op.get("channel_type")
                keys = "remote_buffer_refs", "access_channel_type", "remote_buffer_ids"
                ids = self._own(block, *keys, kind)
                index = self._at(ids, entry["buffer_id"], "buffer_id")
                remote = self._at(self.remote, index, "remote_buffers")
                access = listed(self.path, remote, "access_channel_types")
                if access and kind not in access:
                    got = f"a {kind} channel in {op['name']} on gpu {self.rank}"
                    wanted = f"one of its buffer's access_channel_types, {str(access)[:40]}"
                    raise BadFile(f"{self.path}: got {got}; wanted {wanted}")
                ranks, buffer = [count(self.path, remote, "rank")], remote.get("type")
            if buffer not in ("i", "o", "s"):
                got = f"buffer {str(buffer)[:20]!r} in {key} of {op['name']} on gpu {self.rank}"
                raise BadFile(f"{self.path}: got {got}; wanted i, o or s")
            spans.append(tuple(Span(rank, buffer, start, size) for rank in ranks))
        return spans
