"""MSCCL++ execution plans (JSON): one-sided puts, and signals that say that they are complete.

    {"name", "collective", "inplace", "gpus": [{"id", "input_chunks", "output_chunks",
      "scratch_chunks", "channels": [{"channel_type", "connected_to": [rank, ...]}],
      "remote_buffers": [{"rank", "type"}],
      "threadblocks": [{"id", "channels": [{"channel_type", "channel_ids"}],
        "remote_buffer_refs": [{"access_channel_type", "remote_buffer_ids"}],
        "ops": [{"name", "src_buff", "dst_buff", "channel_ids", "channel_type"}]}]}]}

    put pws pwsf get copy     dst = src, for each pair; pws and pwsf signal afterwards
    re res rre rres           the sum of all src, from left to right, into every dst
    signal wait               order memory accesses; rlxsignal and rlxwait only order the steps
    ppkt cpkt rppkt upkt      copies of packets, which carry flags: a reader of a packet waits for
                              the step that writes it
    repkt recpkt respkt recspkt       the sum of the packets src[1:], then src[0], into every dst
    barrier                   thread blocks of one rank wait for each other
    nop flush                 order nothing between steps

The i-th channel from rank a to rank b is the i-th from b to a. Not read, and refused: switch
channels, pipelines, semaphores, groups of thread blocks. Source: MSCCL++'s documentation and its
public executor (read, not copied).
"""

import json
from collections import defaultdict
from dataclasses import replace
from typing import Any

from refgf.oracle.judge.untrusted import BadFile, parse_json
from refgf.oracle.schedules.form import LARGEST_COUNT, Plan, PlanStep, Port, Span

PAIRS = ("put", "pws", "pwsf", "get", "copy", "ppkt", "cpkt", "rppkt", "upkt")
SUMS = ("re", "res", "rre", "rres")
PACKET_SUMS = ("repkt", "recpkt", "respkt", "recspkt")
PACKET_READERS = ("rppkt", "upkt", *PACKET_SUMS)
PACKET_WRITERS = ("ppkt", "cpkt", "rppkt", *PACKET_SUMS)
SIGNALS = {"signal": True, "wait": True, "rlxsignal": False, "rlxwait": False}
ORDERING = ("nop", "flush", "barrier")
SIZES = ("input_chunks", "output_chunks", "scratch_chunks")


def parse(path: str, data: bytes) -> Plan:
    """The plan of a file's bytes. Raises BadFile."""
    top = item(path, parse_json(path, data), dict, "the file")
    gpus = [item(path, gpu, dict, "a gpu") for gpu in listed(path, top, "gpus")]
    ids = [count(path, gpu, "id") for gpu in gpus]
    if sorted(ids) != list(range(len(gpus))):
        raise BadFile(f"{path}: got gpus {ids[:8]}; wanted every id from 0 on once")
    gpus.sort(key=lambda gpu: gpu["id"])
    sizes = tuple(tuple(count(path, gpu, key, 0) for key in SIZES) for gpu in gpus)
    readers = [Reader(path, rank, gpu) for rank, gpu in enumerate(gpus)]
    name, collective = (str(top.get(key, ""))[:200] for key in ("name", "collective"))
    ranks = packets_in_order(path, [reader.steps for reader in readers])
    inplace = top.get("inplace") is True
    return Plan("mscclpp-json", name, collective, inplace, sizes, tuple(map(tuple, ranks)))


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


class Reader:
    """The steps of one rank."""

    def __init__(self, path: str, rank: int, gpu: dict) -> None:
        self.path, self.rank, self.steps = path, rank, []
        self.peers = {kind: self._by_type(gpu, kind) for kind in ("memory", "port")}
        self.remote = [item(path, b, dict, "a buffer") for b in listed(path, gpu, "remote_buffers")]
        self.barriers = defaultdict(list)  # (barrier, how often before) -> steps that meet there
        for block in listed(path, gpu, "threadblocks"):
            self._block(item(path, block, dict, "a thread block"))
        self._join_barriers()

    def _by_type(self, gpu: dict, kind: str) -> list[int]:
        found = []
        for channel in listed(self.path, gpu, "channels"):
            if item(self.path, channel, dict, "a channel").get("channel_type") == kind:
                peers = listed(self.path, channel, "connected_to")
                found += [whole(self.path, peer, "connected_to") for peer in peers]
        return found

    def _block(self, block: dict) -> None:
        lane, met = count(self.path, block, "id"), defaultdict(int)
        if any(step.lane == lane for step in self.steps[-1:]):
            raise BadFile(f"{self.path}: got thread block {lane} twice on gpu {self.rank}")
        last = None
        for number, op in enumerate(listed(self.path, block, "ops")):
            op = item(self.path, op, dict, "an op")
            for step in self._op(lane, number, op, block):
                after = () if last is None else ((self.rank, last),)
                last = len(self.steps)
                self.steps.append(replace(step, after=after))
            if op.get("name") == "barrier":
                barrier = count(self.path, op, "barrier_id")
                self.barriers[barrier, met[barrier]].append(last)
                met[barrier] += 1

    def _op(self, lane: int, number: int, op: dict, block: dict) -> list[PlanStep]:
        name = str(op.get("name"))
        place = lane, number, name
        if op.get("tbg_info"):
            raise self._refused("a group of thread blocks")
        if name in ORDERING:
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
        if name in SUMS:
            return [PlanStep(*place, tuple(sources), tuple(dests))]
        if name in PACKET_SUMS:
            return [PlanStep(*place, (*sources[1:], sources[0]), tuple(dests))]
        if len(sources) == 1:
            sources = sources * len(dests)
        if len(sources) != len(dests):
            raise BadFile(f"{self.path}: got {len(sources)} sources for {len(dests)} of {name}")
        steps = [PlanStep(*place, (a,), (b,)) for a, b in zip(sources, dests)]
        if name in ("pws", "pwsf"):
            steps.append(PlanStep(*place, sends=self._ports(op, block, True)))
        return steps

    def _refused(self, what: str) -> BadFile:
        return BadFile(
            f"{self.path}: got {what} on gpu {self.rank}, which is not read; wanted puts, gets, "
            "copies, sums, packets, signals and barriers; next: judge a plan without it"
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

    def _spans(self, op: dict, block: dict, key: str) -> list[Span]:
        spans = []
        for entry in listed(self.path, op, key):
            entry = item(self.path, entry, dict, key)
            start, size = count(self.path, entry, "index"), count(self.path, entry, "size")
            if "switch_channel_id" in entry:
                raise self._refused("a switch channel")
            rank, buffer = self.rank, entry.get("type")
            if "buffer_id" in entry:
                kind = op.get("channel_type")
                keys = "remote_buffer_refs", "access_channel_type", "remote_buffer_ids"
                ids = self._own(block, *keys, kind)
                index = self._at(ids, entry["buffer_id"], "buffer_id")
                remote = self._at(self.remote, index, "remote_buffers")
                rank, buffer = count(self.path, remote, "rank"), remote.get("type")
            if buffer not in ("i", "o", "s"):
                raise BadFile(f"{self.path}: got buffer {str(buffer)[:20]!r}; wanted i, o or s")
            spans.append(Span(rank, buffer, start, size))
        return spans

    def _join_barriers(self) -> None:
        """The step after a barrier waits for all steps of that barrier."""
        for steps in self.barriers.values():
            meeting = tuple((self.rank, index) for index in steps)
            for index in steps:
                following = index + 1
                same = following < len(self.steps)
                if same and self.steps[following].lane == self.steps[index].lane:
                    step = self.steps[following]
                    after = tuple(dict.fromkeys((*step.after, *meeting)))
                    self.steps[following] = replace(step, after=after)


def packets_in_order(path: str, ranks: list[list[PlanStep]]) -> list[list[PlanStep]]:
    """Readers of packets wait for the step that writes these packets, on whatever rank it is."""
    writers = {}
    for rank, steps in enumerate(ranks):
        for index, step in enumerate(steps):
            for cell in packet_cells(step.writes if step.op in PACKET_WRITERS else ()):
                if cell in writers:
                    raise BadFile(
                        f"{path}: got packets that are written twice, in scratch chunk {cell[1]} "
                        f"of rank {cell[0]}; wanted each packet written by one step"
                    )
                writers[cell] = rank, index
    result = []
    for steps in ranks:
        result.append([])
        for step in steps:
            read = step.reads if step.op in PACKET_READERS else ()
            senders = [writers[cell] for cell in packet_cells(read) if cell in writers]
            after = tuple(dict.fromkeys((*step.after, *senders)))
            result[-1].append(replace(step, after=after) if senders else step)
    return result


def packet_cells(spans: tuple[Span, ...]) -> list[tuple[int, int]]:
    """Chunks of scratch memory; a claimed count beyond what is judged is left to `beyond`."""
    return [
        (span.rank, chunk)
        for span in spans
        if span.buffer == "s"
        for chunk in range(span.start, span.start + min(span.count, 1 << 12))
    ]


def dump(plan: Plan) -> bytes:
    """The JSON of a plan of `own.py`: put, signal, wait, re, copy and nop."""
    gpus = []
    for rank, steps in enumerate(plan.ranks):
        peers = sorted({port.peer for step in steps for port in (*step.sends, *step.receives)})
        gpu = {"id": rank, **dict(zip(SIZES, plan.sizes[rank]))}
        blocks = []
        for lane in dict.fromkeys(step.lane for step in steps):
            ops = [op_fields(rank, step, peers) for step in steps if step.lane == lane]
            ids = list(range(len(peers)))
            channels = [{"channel_type": "memory", "channel_ids": ids}]
            refs = [{"access_channel_type": "memory", "remote_buffer_ids": ids}]
            named = {"channels": channels, "remote_buffer_refs": refs}
            blocks.append({"id": lane, "ops": ops, **named})
        gpu["threadblocks"] = blocks
        gpu["channels"] = [{"channel_type": "memory", "connected_to": peers}]
        access = ["memory"]
        gpu["remote_buffers"] = [
            {"rank": peer, "type": "s", "access_channel_types": access} for peer in peers
        ]
        gpu["semaphores"] = []
        gpus.append(gpu)
    top = {"name": plan.name, "collective": plan.collective, "protocol": "Simple"}
    top |= {"inplace": plan.inplace, "reuse_resources": False, "gpus": gpus}
    top |= {"num_threads_per_block": 1024, "use_double_scratch_buffer": False}
    top |= {"buffer_alignment": 16, "min_message_size": 0, "max_message_size": 2**64 - 1}
    return (json.dumps(top, indent=1) + "\n").encode()


def op_fields(rank: int, step: PlanStep, peers: list[int]) -> dict[str, Any]:
    """One step as an op."""
    op = {"name": step.op}
    for key, spans in (("src_buff", step.reads), ("dst_buff", step.writes)):
        entries = []
        for span in spans:
            own = {"type": span.buffer} if span.rank == rank else {}
            remote = {} if span.rank == rank else {"buffer_id": peers.index(span.rank)}
            entries.append({**own, **remote, "index": span.start, "size": span.count})
        if entries:
            op[key] = entries
    ports = (*step.sends, *step.receives)
    if ports or step.op == "put":
        op["channel_ids"] = [peers.index(p.peer) for p in ports]
        op["channel_type"] = "memory"
    if step.op == "put":
        op["channel_ids"] = [peers.index(span.rank) for span in step.writes]
    return op | ({"reduce_op": "sum"} if step.op == "re" else {})
