"""MSCCL XML: a program for each thread block of each GPU.

    <algo name proto nchannels nchunksperloop ngpus coll inplace outofplace minBytes maxBytes>
      <gpu id i_chunks o_chunks s_chunks>
        <tb id send recv chan>           one peer to send to, one to receive from; -1: none
          <step s type srcbuf srcoff dstbuf dstoff cnt depid deps hasdep/>

    s     send src                        r     receive into dst
    rcs   receive into dst, send it       rrc   receive, add src, into dst
    rrs   receive, add src, send          rrcs  receive, add src, into dst, send
    cpy   dst = src                       re    dst = src + dst
    nop   only waits; the next step of its thread block must wait for one, too

A step runs after the one before it in its thread block, and after step `deps` of thread block
`depid`. Only steps with hasdep="1" say that they have ended: a step waits for the first of these
from step `deps` on, and for ever if there is none. Messages are first in, first out for each
(source, destination, channel). A plan with inplace="1" and outofplace="1" is used both ways and
judged both ways; with inplace="0" it is judged out of place. The interpreter divides the vector
into nchunksperloop chunks and connects the channels below nchannels.

REQUIRED: the attributes without which every public parser refuses a file, and so does this one.
What only some of them refuse, the answer names (executors.py). Semantics: MSCCL's documentation,
the programs of its public collection, its parsers and RCCL's interpreter (read, not copied).
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from xml.parsers import expat

from refgf.oracle.foreign.untrusted import BadFile
from refgf.oracle.schedules import executors
from refgf.oracle.schedules.form import (
    BUFFERS,
    LARGEST_COUNT,
    LARGEST_STEPS,
    Finding,
    Plan,
    PlanStep,
    Port,
    Span,
)
from refgf.oracle.schedules.layout import layout

NUMBER = re.compile(r"-?[0-9]{1,10}")
PROTOCOLS = ("Simple", "LL", "LL128")
REQUIRED = {
    "algo": ("proto", "nchannels", "nchunksperloop", "ngpus", "coll", "inplace"),
    "gpu": ("id", "i_chunks", "o_chunks", "s_chunks"),
    "tb": ("id", "send", "recv", "chan"),
    "step": ("s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep"),
}
LARGEST_BYTES = 1 << 40  # maxBytes of what `dump` writes
NESTING = ("algo", "gpu", "tb", "step")
# type: (receives, reads src, reads dst, writes dst, sends)
TYPES = {
    "s": (False, True, False, False, True),
    "r": (True, False, False, True, False),
    "rcs": (True, False, False, True, True),
    "rrs": (True, True, False, False, True),
    "rrc": (True, True, False, True, False),
    "rrcs": (True, True, False, True, True),
    "cpy": (False, True, False, True, False),
    "re": (False, True, True, True, False),
    "nop": (False, False, False, False, False),
}


def parse(path: str, data: bytes) -> Plan:
    """The plan of a file's bytes. Raises BadFile."""
    algo, gpus = elements(path, data)
    size = number(path, "algo", algo, "ngpus")
    if len(gpus) != size or sorted(gpus) != list(range(size)):
        raise BadFile(
            f"{path}: got gpus {list(gpus)[:8]} where ngpus is {size}; wanted every id from 0 to "
            "ngpus - 1 once; next: look for a gpu that is missing or there twice"
        )
    if algo["proto"] not in PROTOCOLS:
        got = f"{algo['proto'][:20]!r} as proto of <algo>"
        raise BadFile(f"{path}: got {got}; wanted one of {', '.join(PROTOCOLS)}")
    read = [gpu_steps(path, rank, *gpus[rank]) for rank in range(size)]
    found = tuple(finding for _, _, findings in read for finding in findings)
    found += tuple(no_channel(path, algo, gpus))
    sizes, steps = tuple(r[0] for r in read), tuple(tuple(r[1]) for r in read)
    name, collective = (str(algo.get(key, ""))[:200] for key in ("name", "coll"))
    ways = (number(path, "algo", algo, key, 0) != 0 for key in ("inplace", "outofplace"))
    plan = Plan("msccl-xml", name, collective, next(ways), sizes, steps, found, next(ways))
    notes, shared = executors.refusals(algo, gpus, plan), executors.shared_ends(gpus)
    plan = replace(plan, notes=notes, shared=shared)
    return replace(plan, found=(*found, *other_loop(path, algo, plan)))


def no_channel(path: str, algo: dict, gpus: dict) -> Iterator[Finding]:
    """The interpreter connects only the channels below nchannels."""
    channels = number(path, "algo", algo, "nchannels")
    for rank in sorted(gpus):
        for block, (attributes, _) in gpus[rank][1].items():
            peers = [number(path, "tb", attributes, key) for key in ("send", "recv")]
            channel = number(path, "tb", attributes, "chan")
            if max(peers) >= 0 and not 0 <= channel < channels:
                text = f"got chan {channel}; wanted one below nchannels, which is {channels}"
                yield Finding("out of range", rank, f"tb {block}", text)


def other_loop(path: str, algo: dict, plan: Plan) -> list[Finding]:
    """nchunksperloop, by which the interpreter divides the vector, is not its chunks."""
    where = layout(plan)[0] if plan.ranks else None
    if not where or not where.collective:
        return []
    loop = number(path, "algo", algo, "nchunksperloop")
    text = f"got {loop}; wanted {where.total}, the chunks of the vector: a chunk's size is the "
    text += "vector's, divided by nchunksperloop"
    return [Finding("out of range", 0, "nchunksperloop", text)] * (loop != where.total)


def elements(path: str, data: bytes) -> tuple[dict, dict]:
    """(attributes of algo, {gpu: (its attributes, {tb: (its attributes, its steps)})})."""
    algo, gpus, open_tags, count = {}, {}, [], 0
    parser = expat.ParserCreate()

    def refuse(*_: object) -> None:
        raise BadFile(f"{path}: got a DOCTYPE; wanted none, because entities can grow without end")

    def start(tag: str, attributes: dict) -> None:
        nonlocal count
        depth = len(open_tags)
        if depth >= len(NESTING) or tag != NESTING[depth]:
            wanted = NESTING[depth] if depth < len(NESTING) else "nothing"
            raise BadFile(f"{path}: got <{tag[:20]}> at depth {depth}; wanted {wanted} there")
        open_tags.append(tag)
        count += 1
        absent = [key for key in REQUIRED[tag] if key not in attributes]
        if absent:
            raise BadFile(
                f"{path}: got <{tag}> without {', '.join(absent)} in line "
                f"{parser.CurrentLineNumber}; wanted {', '.join(REQUIRED[tag])}, without which "
                "MSCCL refuses a file"
            )
        if count > 2 * LARGEST_STEPS:
            raise BadFile(f"{path}: got too many elements; wanted at most {LARGEST_STEPS} steps")
        if tag == "algo":
            algo.update(attributes)
        elif tag == "gpu":
            gpus[fresh(path, tag, attributes, gpus)] = attributes, {}
        elif tag == "tb":
            blocks = gpus[next(reversed(gpus))][1]
            blocks[fresh(path, tag, attributes, blocks)] = attributes, []
        else:
            blocks = gpus[next(reversed(gpus))][1]
            blocks[next(reversed(blocks))][1].append(attributes)

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: open_tags.pop()
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise BadFile(_no_xml(path, str(error))) from None
    except (ValueError, LookupError) as error:
        if isinstance(error, BadFile):
            raise
        raise BadFile(_no_xml(path, type(error).__name__)) from None
    return algo, gpus


def _no_xml(path: str, reason: str) -> str:
    got = f"{path}: got what is not well-formed XML ({reason})"
    return f"{got}; wanted a whole file of msccl-tools; next: let the tool write it again"


def fresh(path: str, tag: str, attributes: dict, others: dict) -> int:
    """The id of an element that no other one beside it has."""
    found = number(path, tag, attributes, "id")
    if found in others:
        raise BadFile(f"{path}: got {tag} {found} twice; wanted each id once")
    return found


def number(path: str, tag: str, attributes: dict, key: str, default: int | None = None) -> int:
    """An attribute that is a whole number."""
    text = attributes.get(key, str(default))
    if not NUMBER.fullmatch(text) or abs(int(text)) > LARGEST_COUNT:
        raise BadFile(
            f"{path}: got {text[:20]!r} as {key} of <{tag}>; wanted a whole number up to "
            f"{LARGEST_COUNT}"
        )
    return int(text)


def gpu_steps(
    path: str, rank: int, gpu: dict, blocks: dict
) -> tuple[tuple[int, int, int], list[PlanStep], list[Finding]]:
    """(sizes of the buffers, steps, findings) of one GPU."""
    i, o, s = (number(path, "gpu", gpu, f"{b}_chunks") for b in BUFFERS)
    if min(i, o, s) < 0:
        raise BadFile(f"{path}: got {min(i, o, s)} chunks on gpu {rank}; wanted 0 or more")
    first, start = {}, 0
    for block, (_, steps) in blocks.items():
        first[block] = start
        start += len(steps)
    ends = {block: published_ends(path, steps) for block, (_, steps) in blocks.items()}
    plan_steps, found = [], []
    for block, (attributes, steps) in blocks.items():
        peers = tuple(number(path, "tb", attributes, key) for key in ("send", "recv"))
        channel, nop = number(path, "tb", attributes, "chan"), None
        for index, raw in enumerate(steps):
            if number(path, "step", raw, "s") != index:
                raise BadFile(
                    f"{path}: got step {raw['s'][:20]} of tb {block} of gpu {rank} where step "
                    f"{index} is next; wanted them in order"
                )
            step = one_step(path, rank, (block, index), raw, peers, channel)
            after = [(rank, first[block] + index - 1)] if index else []
            other, deps = (number(path, "step", raw, key) for key in ("depid", "deps"))
            place = f"tb {block}, step {index} ({step.op})"
            text = f"waits for step {deps} of tb {other}, "
            if other >= 0 and not 0 <= deps < len(ends.get(other, ())):
                found.append(Finding("out of range", rank, place, text + "which does not exist"))
            elif other >= 0 and ends[other][deps] is None:
                text += "but neither that step nor a later one there has hasdep=1"
                found.append(Finding("deadlock", rank, place, text))
            elif other >= 0:
                after.append((rank, first[other] + ends[other][deps]))
            if nop is not None and step.op != "nop" and other < 0:
                text = f"follows step {nop} (nop), which waits, and waits for no step itself: "
                found.append(Finding("unmatched", rank, place, text + "MSCCL refuses this"))
            nop = index if step.op == "nop" and other >= 0 else nop if step.op == "nop" else None
            plan_steps.append(
                PlanStep(
                    *(step.lane, step.number, step.op, step.reads, step.writes, step.receives),
                    *(step.sends, tuple(after), step.chunks),
                )
            )
    return (i, o, s), plan_steps, found


def published_ends(path: str, steps: list[dict]) -> list[int | None]:
    """Of each step of a thread block: the first one from it on whose end is published.

    The interpreter does not run a nop as a step of its own, so it never publishes its end.
    """
    found, last = [], None
    for index in reversed(range(len(steps))):
        published = number(path, "step", steps[index], "hasdep")
        if published not in (0, 1):
            raise BadFile(f"{path}: got {published} as hasdep of <step>; wanted 0 or 1")
        if published and steps[index]["type"] != "nop":
            last = index
        found.append(last)
    return found[::-1]


def one_step(
    path: str, rank: int, place: tuple[int, int], raw: dict, peers: tuple, channel: int
) -> PlanStep:
    """A step, still without what it waits for."""
    op = raw.get("type", "")
    if op not in TYPES:
        raise BadFile(
            f"{path}: got type {op[:20]!r} in step {place[1]} of tb {place[0]} of gpu {rank}; "
            f"wanted one of {', '.join(TYPES)}"
        )
    receives, from_src, from_dst, into_dst, sends = TYPES[op]
    if op == "nop":
        return PlanStep(*place, op)
    count = number(path, "step", raw, "cnt")
    src, dst = (span(path, rank, raw, side, count) for side in ("src", "dst"))
    return PlanStep(
        *(*place, op),
        reads=(src,) * from_src + (dst,) * from_dst,
        writes=(dst,) * into_dst,
        receives=(Port(peers[1], channel),) * receives,
        sends=(Port(peers[0], channel),) * sends,
        chunks=count if receives or sends else 0,
    )


def span(path: str, rank: int, raw: dict, side: str, count: int) -> Span:
    buffer = raw.get(f"{side}buf", "")
    if buffer not in ("i", "o", "s"):
        raise BadFile(f"{path}: got {side}buf {buffer[:20]!r} on gpu {rank}; wanted i, o or s")
    return Span(rank, buffer, number(path, "step", raw, f"{side}off"), count)


def dump(plan: Plan) -> bytes:
    """The XML of a plan whose thread blocks send to one rank and receive from one."""
    total = max(max(sizes[:2]) for sizes in plan.sizes)
    channels = [p.channel for _, _, s in plan.steps() for p in (*s.sends, *s.receives)]
    lines = [
        f'<algo name="{plain(plan.name)}" proto="Simple" nchannels="{max(channels, default=0) + 1}"'
        f' nchunksperloop="{total}" ngpus="{len(plan.ranks)}" coll="{plain(plan.collective)}"'
        f' inplace="{int(plan.inplace)}" outofplace="{int(plan.outofplace or not plan.inplace)}"'
        f' minBytes="0" maxBytes="{LARGEST_BYTES}">'
    ]
    for rank, steps in enumerate(plan.ranks):
        i, o, s = plan.sizes[rank]
        lines.append(f'  <gpu id="{rank}" i_chunks="{i}" o_chunks="{o}" s_chunks="{s}">')
        waited = {i for s in steps for _, i in s.after if steps[i].lane != s.lane}
        for lane in dict.fromkeys(step.lane for step in steps):
            lines += block_lines(lane, steps, waited)
        lines.append("  </gpu>")
    return "\n".join([*lines, "</algo>", ""]).encode()


def plain(text: str) -> str:
    """Without what XML would have to escape."""
    return re.sub(r"[^A-Za-z0-9_. -]", "_", text)


def block_lines(lane: int, steps: tuple[PlanStep, ...], waited: set) -> list[str]:
    own = [(index, step) for index, step in enumerate(steps) if step.lane == lane]
    send, recv, channel = -1, -1, 0
    for _, step in own:
        send = step.sends[0].peer if step.sends else send
        recv = step.receives[0].peer if step.receives else recv
        channel = next((port.channel for port in (*step.sends, *step.receives)), channel)
    lines = [f'    <tb id="{lane}" send="{send}" recv="{recv}" chan="{channel}">']
    for index, step in own:
        other = [steps[i] for _, i in step.after if steps[i].lane != lane]
        depid, deps = (other[0].lane, other[0].number) if other else (-1, -1)
        src = step.reads[0] if step.reads else step.writes[0] if step.writes else None
        dst = step.writes[0] if step.writes else src
        buffers = [(s.buffer, s.start) if s else ("i", -1) for s in (src, dst)]
        lines.append(
            f'      <step s="{step.number}" type="{step.op}" srcbuf="{buffers[0][0]}"'
            f' srcoff="{buffers[0][1]}" dstbuf="{buffers[1][0]}" dstoff="{buffers[1][1]}"'
            f' cnt="{dst.count if dst else 0}" depid="{depid}" deps="{deps}"'
            f' hasdep="{int(index in waited)}"/>'
        )
    return [*lines, "    </tb>"]
