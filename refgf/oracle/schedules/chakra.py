"""Chakra execution traces: one file NAME.R.et for each rank R, messages with their lengths.

    GlobalMetadata  1 version  2 attr
    Node            1 id  2 name  3 type  4 ctrl_deps  5 data_deps  10 attr
    AttributeProto  1 name, and a value: 7 int32  9 int64  11 uint32  13 uint64  27 bool  29 string

    type 4 COMP_NODE, 5 COMM_SEND_NODE, 6 COMM_RECV_NODE; the attributes comm_src, comm_dst,
    comm_tag and comm_size name a message. 7 COMM_COLL_NODE: a library's collective, whose messages
    no trace names, so that it only waits

A node runs after all nodes that it depends on; messages with one tag between two ranks arrive in
the order of the nodes. A trace says nothing about memory. So a trace of another tool is judged for
unmatched messages, deadlocks, traffic and time; refgf adds where the data lie, as attributes:

    metadata    collective, inplace, ranks, i_chunks, o_chunks, s_chunks, chunk_bytes
    node        reads, writes       "0:i:4:1 ...", rank:buffer:start:count

Source: Chakra's public schema and documentation. Node types other than these only wait.
"""

import re

from refgf.oracle.foreign.untrusted import BadFile
from refgf.oracle.schedules import form
from refgf.oracle.schedules.form import Finding, Plan, PlanStep, Port, Span
from refgf.oracle.schedules.protobuf import delimited, field_bytes, fields, message_bytes, varint

TYPES = {4: "COMP_NODE", 5: "COMM_SEND_NODE", 6: "COMM_RECV_NODE", 7: form.COLLECTIVE}
CODES = {name: code for code, name in TYPES.items()}
VALUES = (7, 9, 11, 13, 27, 29)
CHUNK_BYTES = 4  # what comm_size counts for a chunk, in the traces that are written here
PLACE = re.compile(r"(\d{1,6}):([ios]):(\d{1,9}):(\d{1,9})")
SIZES = ("i_chunks", "o_chunks", "s_chunks")


def parse(path: str, files: list[bytes]) -> Plan:
    """The plan of all ranks' files. Raises BadFile."""
    read = [rank_trace(f"{path}, rank {rank}", rank, data) for rank, data in enumerate(files)]
    first = read[0][0]
    if first.get("ranks", len(files)) != len(files):
        raise BadFile(
            f"{path}: got the traces of {len(files)} ranks; wanted {first['ranks']}, which the "
            "first one names; next: put NAME.0.et, NAME.1.et, ... in one folder"
        )
    sizes = tuple(tuple(size(path, metadata, key) for key in SIZES) for metadata, _, _ in read)
    if not all("i_chunks" in metadata for metadata, _, _ in read):
        sizes = ((0, 0, 0),) * len(read)
    name, collective = (str(first.get(key, ""))[:200] for key in ("plan", "collective"))
    steps = tuple(tuple(steps) for _, steps, _ in read)
    found = tuple(finding for _, _, found in read for finding in found)
    collective = collective if any(map(any, sizes)) else ""
    return Plan("chakra", name, collective, first.get("inplace") == 1, sizes, steps, found)


def size(path: str, attributes: dict, key: str, limit: int = form.LARGEST_COUNT) -> int:
    value = attributes.get(key, 0)
    if not isinstance(value, int) or not 0 <= value < limit:
        wanted = f"a whole number from 0 to {limit - 1}"
        raise BadFile(f"{path}: got {str(value)[:20]!r} as {key}; wanted {wanted}")
    return value


def rank_trace(path: str, rank: int, data: bytes) -> tuple[dict, list[PlanStep], list[Finding]]:
    """(attributes of the metadata, steps, findings) of one rank."""
    if not data:
        raise BadFile(f"{path}: got an empty file; wanted GlobalMetadata; next: write it again")
    messages = delimited(path, data)
    metadata = attributes_of(path, [v for k, v in fields(path, next(messages, b"")) if k == 2])
    chunk_bytes = size(path, metadata, "chunk_bytes") or 1
    chunk_bytes = chunk_bytes if any(metadata.get(key) for key in SIZES) else 1
    nodes = []
    for message in messages:
        nodes.append(node(path, message))
        if len(nodes) > form.LARGEST_STEPS:
            raise BadFile(f"{path}: got too many nodes; wanted at most {form.LARGEST_STEPS}")
    index = {number: i for i, (number, _, _, _) in enumerate(nodes)}
    if len(index) < len(nodes):
        raise BadFile(f"{path}: got a node id twice; wanted each id once")
    steps, found = [], []
    for number, kind, depends, attributes in nodes:
        missing = [other for other in depends if other not in index]
        if missing:
            op = TYPES.get(kind, f"type {kind}")
            text = f"waits for node {missing[0]}, which does not exist"
            found.append(Finding("out of range", rank, f"node {number} ({op})", text))
        after = tuple((rank, index[other]) for other in depends if other in index)
        steps.append(step_of(path, number, kind, after, attributes, chunk_bytes))
    return metadata, steps, found


def node(path: str, message: bytes) -> tuple[int, int, list[int], dict]:
    """(id, type, ids it waits for, attributes)."""
    number, kind, depends, attributes = 0, 0, [], []
    for field, value in fields(path, message):
        if field == 1:
            number = value
        elif field == 3:
            kind = value
        elif field in (4, 5):
            depends += packed(path, value)
        elif field == 10:
            attributes.append(value)
    if not isinstance(number, int) or not isinstance(kind, int):
        raise BadFile(f"{path}: got a node whose id or type is no number; wanted a Chakra node")
    return number, kind, list(dict.fromkeys(depends)), attributes_of(path, attributes)


def packed(path: str, value: int | bytes) -> list[int]:
    """Repeated numbers: one by one, or all of them in one field."""
    if isinstance(value, int):
        return [value]
    found, at = [], 0
    while at < len(value):
        number, at = varint(path, value, at)
        found.append(number)
    return found


def attributes_of(path: str, values: list[int | bytes]) -> dict[str, int | str]:
    """{name: value}; values of types that no message needs are left out."""
    found = {}
    for raw in values:
        if isinstance(raw, int):
            raise BadFile(f"{path}: got a number as an attribute; wanted a message")
        name, held = "", None
        for field, value in fields(path, raw):
            if field == 1 and isinstance(value, bytes):
                name = value.decode("utf-8", "replace")
            elif field in VALUES:
                held = value if isinstance(value, int) else value.decode("utf-8", "replace")
        if held is not None:
            found[name] = held
    return found


def step_of(
    path: str, number: int, kind: int, after: tuple, attributes: dict, chunk_bytes: int
) -> PlanStep:
    """A node as a step."""
    op = TYPES.get(kind, f"type {kind}"[:20])
    spans = [places(path, attributes.get(key, "")) for key in ("reads", "writes")]
    ports, chunks = {}, 0
    if kind in (5, 6):
        key = "comm_dst" if kind == 5 else "comm_src"
        peer, tag = size(path, attributes, key), size(path, attributes, "comm_tag")
        if key not in attributes:
            raise BadFile(f"{path}: got node {number} ({op}) without {key}; wanted its peer")
        chunks = max(1, -(-size(path, attributes, "comm_size", 1 << 63) // chunk_bytes))
        ports = {"sends" if kind == 5 else "receives": (Port(peer, tag),)}
    return PlanStep(number, 0, op, *spans, after=after, chunks=chunks, **ports)


def places(path: str, text: int | str) -> tuple[Span, ...]:
    """Spans of "0:i:4:1 0:s:2:1"."""
    matches = [PLACE.fullmatch(word) for word in str(text).split(" ") if word]
    if not isinstance(text, str) or None in matches:
        raise BadFile(f"{path}: got {str(text)[:30]!r} as memory; wanted rank:buffer:start:count")
    return tuple(Span(int(m[1]), m[2], int(m[3]), int(m[4])) for m in matches)


def dump(plan: Plan) -> list[bytes]:
    """One file for each rank, of a plan of `own.py`."""
    return [rank_bytes(plan, rank) for rank in range(len(plan.ranks))]


def rank_bytes(plan: Plan, rank: int) -> bytes:
    shared = {"plan": plan.name, "collective": plan.collective, "inplace": int(plan.inplace)}
    shared |= {"ranks": len(plan.ranks), "chunk_bytes": CHUNK_BYTES}
    shared |= dict(zip(SIZES, plan.sizes[rank]))
    version = field_bytes(1, "0.0.4")
    messages = [message_bytes([version, *attribute_fields(2, shared)])]
    for step in plan.ranks[rank]:
        parts = [field_bytes(1, step.lane), field_bytes(2, f"{step.op}_{step.lane}")]
        parts.append(field_bytes(3, CODES[step.op]))
        parts += [field_bytes(5, plan.ranks[r][i].lane) for r, i in step.after]
        attributes = {}
        for port in (*step.sends, *step.receives):
            source, dest = (rank, port.peer) if step.sends else (port.peer, rank)
            attributes = {"comm_src": source, "comm_dst": dest, "comm_tag": port.channel}
            attributes["comm_size"] = step.chunks * CHUNK_BYTES
        for key, spans in (("reads", step.reads), ("writes", step.writes)):
            words = [f"{s.rank}:{s.buffer}:{s.start}:{s.count}" for s in spans]
            attributes |= {key: " ".join(words)} if words else {}
        messages.append(message_bytes([*parts, *attribute_fields(10, attributes)]))
    return b"".join(messages)


def attribute_fields(number: int, attributes: dict[str, int | str]) -> list[bytes]:
    """AttributeProto messages: numbers as int64, text as string."""
    found = []
    for name, value in attributes.items():
        kind = 9 if isinstance(value, int) else 29
        found.append(field_bytes(number, field_bytes(1, name) + field_bytes(kind, value)))
    return found
