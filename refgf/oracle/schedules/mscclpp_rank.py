"""The steps of one rank of an MSCCL++ plan (mscclpp.py says what its JSON means)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from refgf.oracle.foreign.untrusted import BadFile
from refgf.oracle.schedules.form import LARGEST_RANKS, Finding, PlanStep, Port, Span
from refgf.oracle.schedules.mscclpp_fields import count, item, listed, part_of, whole
from refgf.oracle.schedules.mscclpp_forms import (
    MEMORY_ONLY,
    beyond_room,
    crowded,
    letter,
    misfit,
    number_of_ops,
)
from refgf.oracle.schedules.mscclpp_threads import Threads
from refgf.oracle.schedules.mscclpp_waits import PACKET_SUMS, Waits

PAIRS = ("put", "pws", "pwsf", "get", "copy", "ppkt", "cpkt", "rppkt", "upkt")
PAIRS += ("glres", "gstore", "gstorepkt")
ONE_BUFFER = ("put", "pws", "pwsf", "ppkt")
SUMS = ("re", "res", "rre", "rres")
SIGNALS = {"signal": True, "wait": True, "rlxsignal": False, "rlxwait": False}
ORDERING = ("nop", "flush", "barrier")
SEMAPHORES = {"sem_release": "releases", "sem_acquire": "acquires"}
SIZES = ("input_chunks", "output_chunks", "scratch_chunks")
FLUSH = (
    "flush: MSCCL++'s executor counts its channels by its dst_buff, which it lacks, so it waits "
    "for nothing, and is judged so; next: pwsf waits"
)
GET = (
    "get: MSCCL++'s executor takes the place in the remote buffer from dst_buff and the place in "
    "its own from src_buff, and is judged so"
)


class Reader:
    """The steps of one rank."""

    def __init__(self, path: str, rank: int, gpu: dict, parts: int) -> None:
        self.path, self.rank, self.parts = path, rank, parts
        self.steps, self.found, self.notes, self.longest = [], [], [], (0, rank, 0)
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
            for text in beyond_room(self.path, op):
                self._beyond(f"tb {lane}, step {number} ({op['name']})", text)
        for text in crowded(self.path, block):
            self._beyond(f"tb {lane}", text)
        self.longest = max(self.longest, (number_of_ops(block.get("ops", [])), self.rank, lane))

    def _beyond(self, place: str, text: str) -> None:
        text += ", for which MSCCL++'s executor has room"
        self.found.append(Finding("out of range", self.rank, place, text))

    def _port_channels(self, op: dict, block: dict, step: PlanStep) -> tuple[Port, ...]:
        """Those that a step uses; of a put those to the rank that it writes.

        The executor counts the channels of a flush by its dst_buff.
        """
        if op.get("channel_type") != "port":
            return ()
        ports = self._ports(op, block, True)
        if op.get("name") == "flush":
            self.notes += [FLUSH] if len(listed(self.path, op, "dst_buff")) < len(ports) else []
            return ports[: len(op.get("dst_buff", ()))]
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
        if name == "flush" and op.get("channel_type") != "port":
            raise self._channel("port", name, op, "which is what it flushes")
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
        self._require_form(name, op, sources, dests)
        self._require_channels(name, op, block, (*sources, *dests))
        if op.get("reduce_op", "sum") != "sum":
            raise self._refused(f"the reduce_op {str(op['reduce_op'])[:20]!r} of {name}")
        if name in (*SUMS, *PACKET_SUMS):
            self._require_equal(name, [*sources, *dests])
            first = int(name in PACKET_SUMS)
            reads = (span for spans in (*sources[first:], *sources[:first]) for span in spans)
            return [PlanStep(*place, tuple(reads), tuple(span for each in dests for span in each))]
        if name == "rppkt":
            sources = sources * len(dests)
        if len(sources) != len(dests):
            raise BadFile(f"{self.path}: got {len(sources)} sources for {len(dests)} of {name}")
        for pair in zip(sources, dests):
            self._require_equal(name, pair)
        if name in ONE_BUFFER and op.get("channel_type") == "memory":
            self._require_one_buffer(name, sources)
        if name == "get":
            sources, dests = self._exchanged(sources, dests)
        steps = [
            PlanStep(*place, reads, tuple(span for span in writes if span not in reads))
            if name == "gstorepkt"  # it writes its own packets again, as they are
            else PlanStep(*place, reads, writes)
            for reads, writes in zip(sources, dests)
        ]
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

    def _require_form(self, name: str, op: dict, sources: list, dests: list) -> None:
        ends = (op["src_buff"], sources), (op["dst_buff"], dests)
        letters = tuple(
            "".join(letter(entry, spans[0].buffer) for entry, spans in zip(entries, each))
            for entries, each in ends
        )
        wrong = misfit(name, op.get("channel_type") == "port", letters)
        if wrong:
            got, wanted = wrong
            raise BadFile(f"{self.path}: got {got} on gpu {self.rank}; wanted {wanted}")

    def _require_channels(self, name: str, op: dict, block: dict, ends: tuple) -> None:
        """An op goes through channels to the ranks whose memory it reads or writes.

        On a memory channel it may name none: it uses the address of the remote buffer. On a port
        channel its channels stand in the order of its dst_buff.
        """
        entries, kind = (*op["src_buff"], *op["dst_buff"]), op.get("channel_type")
        pairs = zip(entries, ends)
        ranks = [spans[0].rank for entry, spans in pairs if "buffer_id" in entry]
        if ranks and kind == "port" and name in MEMORY_ONLY:
            raise self._channel("memory", name, op, "through which it reads and writes")
        if not ranks or (kind == "memory" and not op.get("channel_ids")):
            return
        peers = [port.peer for port in self._ports(op, block, True)]
        if kind == "memory":
            peers, ranks = sorted(set(peers)), sorted(set(ranks))
        if peers != ranks:
            got = f"channel_ids to ranks {peers[:8]} for a {name} on gpu {self.rank}"
            wanted = f"a channel to each of ranks {ranks[:8]}, whose memory it reads or writes"
            raise BadFile(f"{self.path}: got {got}; wanted {wanted}")

    def _channel(self, wanted: str, name: str, op: dict, reason: str) -> BadFile:
        got = f"a {str(op.get('channel_type'))[:20]} channel in {name} on gpu {self.rank}"
        return BadFile(f"{self.path}: got {got}; wanted a {wanted} channel, {reason}")

    def _require_one_buffer(self, name: str, sources: list) -> None:
        buffers = sorted({span.buffer for spans in sources for span in spans})
        if len(buffers) > 1:
            got = f"sources in buffers {', '.join(buffers)} of {name} on gpu {self.rank}"
            wanted = "one buffer, because MSCCL++'s executor reads all from that of the first"
            raise BadFile(f"{self.path}: got {got}; wanted {wanted}")

    def _exchanged(self, sources: list, dests: list) -> tuple[list, list]:
        """The executor takes the places of a get the other way round."""
        pairs = [(spans[0], other[0]) for spans, other in zip(sources, dests)]
        if any(source.start != dest.start for source, dest in pairs):
            self.notes.append(GET)
        reads = [(replace(source, start=dest.start),) for source, dest in pairs]
        return reads, [(replace(dest, start=source.start),) for source, dest in pairs]

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
