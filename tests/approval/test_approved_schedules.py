"""What is said of plans by hand: the ops of MSCCL++, what orders them, and what contradicts itself.

    python -m pytest tests/approval/test_approved_schedules.py --snapshot-update

Read in MSCCL++'s public executor; none of these plans has run on a GPU here.
"""

import json

import pytest

from refgf.oracle.foreign.untrusted import BadFile
from refgf.oracle.schedules import mscclpp
from refgf.oracle.schedules.own import own_plan
from refgf.oracle.schedules.verdict import as_lines, judge
from tests.approval.test_approved import approved  # noqa: F401  a fixture
from tests.support.mscclpp_plans import NOP, at, on, op, plan, switched
from tests.support.schedule_cases import LINK

I, S, O = at("i"), at("s"), at("o")
FIRST, SECOND, INPUT = at(0), at(1), at(2)

# -- the buffers and channels of an op: rank 0 of three runs it

RIGHT = [
    op("put", [I, I], [FIRST, SECOND]),
    on("get", (0, 1), src_buff=[FIRST, SECOND], dst_buff=[I, I]),
    op("get", [FIRST], [I]),
    op("copy", [I], [S]),
    op("re", [I, S, at("i", 1)], [I]),
    op("res", [I, S], [I, FIRST, SECOND]),
    op("rre", [I, FIRST, SECOND], [I]),
    op("rres", [I, INPUT], [I, FIRST]),
    op("ppkt", [I, I], [FIRST, SECOND]),
    op("rppkt", [S], [FIRST, SECOND]),
    op("cpkt", [I], [S]),
    op("upkt", [S], [I]),
    op("repkt", [I, S], [I]),
    op("respkt", [I, S], [I, FIRST]),
    op("recpkt", [I, S], [I, at("s", 1)]),
    op("recspkt", [I, S], [I, at("s", 1), FIRST]),
]
WRONG = {
    "a put into its own memory": op("put", [I], [S]),
    "a put of another's memory": op("put", [FIRST], [SECOND]),
    "a get of its own memory": op("get", [S], [I]),
    "a get into another's memory": op("get", [FIRST], [SECOND]),
    "a copy of two": op("copy", [I, I], [S, at("s", 1)]),
    "a copy into another's memory": op("copy", [I], [FIRST]),
    "a sum into two": op("re", [I, S], [I, S]),
    "a sum that reads another rank": op("re", [I, FIRST], [I]),
    "a sum that sends, of others": op("res", [I, FIRST], [I, FIRST]),
    "packets in the input": op("upkt", [I], [I]),
    "packets into an input": op("ppkt", [I], [INPUT]),
    "packets into the output": op("cpkt", [I], [O]),
    "a sum of the input's packets": op("repkt", [I, I], [I]),
    "one source of two puts": op("put", [I], [FIRST, SECOND]),
    "sources in two buffers": op("put", [I, S], [FIRST, SECOND]),
    "another's channel for a get": on("get", (1,), src_buff=[FIRST], dst_buff=[I]),
    "another's channel for packets": on("ppkt", (1,), src_buff=[I], dst_buff=[FIRST]),
    "no such channel": on("get", (7,), src_buff=[FIRST], dst_buff=[I]),
    "a flush": on("flush"),
    "a get at another place": on("get", src_buff=[at(0, 1)], dst_buff=[at("i", 0)]),
    "a get at the same place": on("get", src_buff=[at(0, 1)], dst_buff=[at("i", 1)]),
}
BY_PORT = {
    "get": op("get", [FIRST], [I]),
    "rre": op("rre", [I, FIRST], [I]),
    "respkt": op("respkt", [I, S], [I, FIRST]),
    "no channel": on("ppkt", (), "port", src_buff=[S], dst_buff=[FIRST]),
    "in another order": on("put", (1, 0), "port", src_buff=[I, I], dst_buff=[FIRST, SECOND]),
    "packets of the input": on("ppkt", (0,), "port", src_buff=[I], dst_buff=[FIRST]),
    "a flush": on("flush", (0,), "port"),
}
BARRIER = {"name": "barrier", "num_threadblocks": 1}
ROOM = {
    "barrier 15": [BARRIER | {"barrier_id": 15}],
    "barrier 16": [BARRIER | {"barrier_id": 16}],
    "8 channels of an op": [on("signal", [0] * 8)],
    "9 channels of an op": [NOP, on("signal", [0] * 9)],
    "10 sources of an op": [op("re", [I] * 10, [I])],
    "11 sources of an op": [op("re", [I] * 11, [I])],
    "64 ops": [NOP] * 64,
    "65 ops": [NOP] * 65,
    "64 ops, 63 in a pipeline": [{"name": "pipeline", "ops": [NOP] * 63}, NOP],
}


def of_three(*ops, kind="memory"):
    given = [{"channel_type": kind, **each} if "src_buff" in each else each for each in ops]
    sizes = {"sizes": (2, 2, 2), "remote": "si"}
    return plan([given], [[]], [[]], kind=kind, collective="custom", protocol="LL", **sizes)


OPS = {f"{each['name']} as it is, {n}": of_three(each) for n, each in enumerate(RIGHT)}
OPS |= {name: of_three(each) for name, each in WRONG.items()}
OPS |= {f"{name} by a port": of_three(each, kind="port") for name, each in BY_PORT.items()}
OPS |= {name: of_three(*ops) for name, ops in ROOM.items()}

# -- what a thread block's threads, its channels and barriers order: two ranks with the same ops

ADD = op("re", [I, S], [I], reduce_op="sum")


def put(name="put", kind="memory"):
    return on(name, (0,), kind, src_buff=[I], dst_buff=[FIRST])


def alike(*ops, kind="memory", **more):
    return plan([ops], [ops], kind=kind, **more)


SIGNAL, WAIT = on("signal"), on("wait")
P_SIGNAL, P_WAIT, P_FLUSH = (on(name, (0,), "port") for name in ("signal", "wait", "flush"))
FLUSH = P_FLUSH | {"dst_buff": [S]}
BY_MEMORY = {
    "nops on both sides": (put(), NOP, SIGNAL, WAIT, NOP, ADD),
    "no nop before the signal": (put(), SIGNAL, WAIT, NOP, ADD),
    "no nop after the wait": (put(), NOP, SIGNAL, WAIT, ADD),
    "pws, which sends no signal": (put("pws"), NOP, WAIT, NOP, ADD),
    "pwsf, which sends no signal": (put("pwsf"), NOP, WAIT, NOP, ADD),
}
PLAIN = put("put", "port"), P_SIGNAL, P_WAIT
PWS, PWSF = put("pws", "port"), put("pwsf", "port")
PORTS = {
    "pws": (PWS, P_WAIT, NOP, ADD),
    "pwsf": (PWSF, P_WAIT, NOP, ADD),
    "pws and a flush": (PWS, P_WAIT, FLUSH, NOP, ADD),
    "pws and a flush without destinations": (PWS, P_WAIT, P_FLUSH, NOP, ADD),
    "pws and an answer": (PWS, P_WAIT, P_SIGNAL, P_WAIT, NOP, ADD),
    "put": (*PLAIN, NOP, ADD),
    "put and a flush": (*PLAIN, FLUSH, NOP, ADD),
    "put and a flush after the nop": (*PLAIN, NOP, FLUSH, ADD),
}
ORDERS = {f"{name} by memory": alike(*ops) for name, ops in BY_MEMORY.items()}
ORDERS |= {f"{name} by a port": alike(*ops, kind="port") for name, ops in PORTS.items()}
READ = on("get", src_buff=[at(0)], dst_buff=[S])
ORDERS["inputs are ready at the start"] = alike(READ, NOP, SIGNAL, WAIT, NOP, ADD, remote="i")


def ended(names, kind):
    """An allgather of two ranks: each copies its chunk, puts it, and does these ops."""
    found = []
    for rank in (0, 1):
        own = op("copy", [I], [at("o", rank)])
        sent = on("put", (0,), kind, src_buff=[I], dst_buff=[at(0, rank)])
        ops = [NOP if name == "nop" else on(name, (0,), kind) for name in names.split()]
        found.append([[own, sent, *ops]])
    sizes = {"sizes": (1, 2, 0), "remote": "o"}
    return plan(*found, kind=kind, collective="allgather", inplace=False, **sizes)


ENDS = "nop signal wait", "signal wait", "nop rlxsignal rlxwait", ""
ORDERS |= {f"ends after {names!r} by memory": ended(names, "memory") for names in ENDS}
ORDERS |= {f"ends after {n!r} by a port": ended(n, "port") for n in ("signal wait", "flush")}


def meeting(first, second):
    """Each block fills and signals one chunk; the first then sums both. Their barriers: counts.

    None stands for a barrier without num_threadblocks.
    """
    blocks = []
    for tb, own in enumerate((first, second)):
        sent = on("put", src_buff=[at("i", tb)], dst_buff=[at(0, tb)])
        barriers = [{"name": "barrier", "barrier_id": 0, "num_threadblocks": n} for n in own]
        for barrier in barriers if None in own else ():
            del barrier["num_threadblocks"]
        blocks.append([sent, NOP, SIGNAL, WAIT, NOP, *barriers])
    blocks[0].append(op("re", [at("i", 0, 2), at("s", 0, 2)], [at("i", 0, 2)]))
    return plan(blocks, blocks, sizes=(2, 2, 2))


MEETINGS = [([2], [2]), ([2, 2], [2, 2]), ([2, 1], [1, 2]), ([], []), ([1], [1]), ([3], [3])]
MEETINGS += [([2], [3]), ([2, 2], [2]), ([2], []), ([2], [1]), ([None], [None])]
ORDERS |= {f"barriers of {a} and {b}": meeting(a, b) for a, b in MEETINGS}


def divided(between):
    """Two thread blocks share a copy of two chunks, then a copy of the first of them."""
    blocks = []
    for tb in (0, 1):
        group = {"tbg_info": {"tb_id": tb, "tbg_size": 2}}
        both, one = at("i", 0, 2), at("s")
        first, second = op("copy", [both], [at("s", 0, 2)]), op("copy", [one], [O])
        blocks.append([first | group, between, second | group])
    return plan(blocks, sizes=(2, 2, 2), collective="custom", inplace=False)


ORDERS["thread blocks that divide other chunks"] = divided(NOP)
ORDERS["and meet between"] = divided({"name": "barrier", "barrier_id": 0, "num_threadblocks": 2})


def unpacked(*readers):
    """Rank 0 sends packets; the thread blocks of rank 1 read them."""
    sent = on("ppkt", src_buff=[I], dst_buff=[FIRST])
    return plan([[sent]], readers, collective="custom", protocol="LL")


TWO, COPY, UNPACK = BARRIER | {"barrier_id": 0, "num_threadblocks": 2}, op("copy", [S], [O]), None
UNPACK = op("upkt", [S], [S])
ORDERS["packets are unpacked, and blocks meet"] = unpacked([UNPACK, TWO], [TWO, COPY])
ORDERS["packets are unpacked, and blocks do not meet"] = unpacked([UNPACK], [COPY])

# -- one rank writes or reads the other's memory

ONE_SIDED = {
    "put": put(),
    "get": on("get", src_buff=[FIRST], dst_buff=[I]),
    "rre": on("rre", src_buff=[I, FIRST], dst_buff=[I]),
    "res": on("res", src_buff=[I, I], dst_buff=[I, FIRST]),
    "rres": on("rres", src_buff=[I, FIRST], dst_buff=[I, FIRST]),
    "a put without channels": {k: v for k, v in put().items() if k != "channel_ids"},
}
ALONE = {"collective": "custom", "protocol": "LL"}
SIDES = {name: plan([[each]], [[]], remote="i", **ALONE) for name, each in ONE_SIDED.items()}
SIDES["pws"] = plan([[PWS]], [[P_WAIT]], kind="port", remote="i", **ALONE)
NO_CHANNEL = {k: v for k, v in put(kind="port").items() if k != "channel_ids"}
SIDES["a put without channels by a port"] = plan([[NO_CHANNEL]], [[]], kind="port", **ALONE)
SIDES |= {
    "packets by LL": unpacked([]),
    "packets by Simple": unpacked([]) | {"protocol": "Simple"},
    "packets in scratch that is shared": unpacked([])
    | {"protocol": "Simple", "reuse_resources": True},
    "a put by Simple": plan([[put()]], [[]], collective="custom"),
}

# -- switches, semaphores, pipelines, groups of thread blocks


def shared(change=lambda gpus: None, parts=(0, 1), **top):
    found = switched(parts) | top
    change(found["gpus"])
    return found


def blocks_of(gpus):
    return gpus[0]["threadblocks"]


def one_release(gpus):
    blocks_of(gpus)[0]["ops"][3]["semaphore_ids"] = [0]


def read_before(gpus):
    gpus[0]["scratch_chunks"] = 1
    blocks_of(gpus)[0]["ops"].insert(0, op("copy", [I], [S]))


def free(gpus):
    gpus[0]["semaphores"][1]["init_value"] = 1


def one_rank(gpus):
    gpus[0]["channels"][1]["rank_groups"][0]["ranks"] = [0]


def stored(middle=(NOP,), places=(0, 1)):
    """An allgather of two ranks: each stores its chunk at both."""
    found = switched(()) | {"collective": "allgather"}
    for rank, gpu in enumerate(found["gpus"]):
        gpu |= {"input_chunks": 1, "output_chunks": 2}
        gpu["channels"][1]["buffer_type"] = "o"
        place = {"switch_channel_id": 0, "index": places[rank], "size": 1}
        ops = [op("gstore", [I], [place], channel_type="switch"), *middle, SIGNAL, WAIT]
        own = [{"channel_type": kind, "channel_ids": [0]} for kind in ("switch", "memory")]
        gpu["threadblocks"] = [{"id": 0, "ops": ops, "channels": own}]
    return found


def packed(places=(0, 1)):
    """Each rank packs its chunk into scratch, and a switch stores these packets at every rank."""
    found = switched(()) | {"collective": "allgather"}
    for rank, gpu in enumerate(found["gpus"]):
        gpu |= {"input_chunks": 1, "output_chunks": 2, "scratch_chunks": 2}
        gpu["channels"][1]["buffer_type"] = "s"
        mine, place = at("s", rank), {"switch_channel_id": 0, "index": places[rank], "size": 1}
        store = op("gstorepkt", [mine], [place], channel_type="switch")
        unpack = op("upkt", [at("s", 0, 2)], [at("o", 0, 2)])
        own = [{"channel_type": "switch", "channel_ids": [0]}]
        blocks = [op("cpkt", [I], [mine])], [store], [unpack]
        gpu["threadblocks"] = [{"id": i, "ops": b, "channels": own} for i, b in enumerate(blocks)]
    return found


def renamed(old, new, top):
    return json.loads(json.dumps(top).replace(old, new))


SWITCHES = {
    "two halves": shared(),
    "names of a buffer's type before": renamed("buffer_type", "buff", shared()),
    "one half twice": shared(parts=(0, 0)),
    "one half": shared(parts=(0,)),
    "a third half": shared(parts=(0, 2)),
    "a switch of one rank": shared(one_rank),
    "an acquire without a release": shared(one_release),
    "an acquire of what is free": shared(lambda gpus: [one_release(gpus), free(gpus)]),
    "a read before the release": shared(read_before),
    "a read before the release, and free": shared(lambda gpus: [read_before(gpus), free(gpus)]),
    "stored at both": stored(),
    "stored at both, the signal too early": stored(middle=()),
    "both stored in one place": stored(places=(0, 0)),
    "packets stored at both": packed(),
    "packets of both in one place": packed(places=(0, 0)),
    "channels of an older version": renamed("channel_type", "type", shared()),
    "chunks of an older version": renamed("input_chunks", "inputChunks", shared()),
}

# -- files of our own ring with one thing in another way

RING = json.dumps(json.loads(mscclpp.dump(own_plan("ring", 3, "mscclpp-json", 3))))
REPLACED = {
    "a maximum": ('"reduce_op": "sum"', '"reduce_op": "max"'),
    "a longer source": ('"size": 1', '"size": 2'),
    "a thread block at another's place": ('"threadblocks": [{"id": 0', '"threadblocks": [{"id": 5'),
    "a buffer for other channels": (
        *('"access_channel_types": ["memory"]', '"access_channel_types": ["port"]'),
    ),
    "another's channel": ('"channel_ids": [0]', '"channel_ids": [1]'),
    "a channel not there": ('"channel_ids": [0]', '"channel_ids": [99]'),
}
OWN = {name: json.loads(RING.replace(*words, 1)) for name, words in REPLACED.items()}
for relaxed in ("signal", "wait"):
    OWN[f"relaxed {relaxed}s"] = renamed(f'"{relaxed}"', f'"rlx{relaxed}"', json.loads(RING))
OWN["ranks in another order"] = json.loads(RING) | {"gpus": json.loads(RING)["gpus"][::-1]}
for key in ("name", "collective", "protocol", "inplace", "gpus"):
    OWN[f"without {key}"] = {k: v for k, v in json.loads(RING).items() if k != key}
for key in ("id", "input_chunks", "output_chunks", "scratch_chunks"):
    OWN[f"a gpu without {key}"] = json.loads(RING)
    del OWN[f"a gpu without {key}"]["gpus"][1][key]
for name in ("ring", "direct", "tree", "halving-doubling"):
    top = json.loads(mscclpp.dump(own_plan(name, 4, "mscclpp-json", 4)))
    for block in (block for gpu in top["gpus"] for block in gpu["threadblocks"]):
        block["ops"] = [each for each in block["ops"] if each != NOP]
    OWN[f"{name} without nops"] = top
TABLES = {"ops": OPS, "orders": ORDERS, "sides": SIDES, "switches": SWITCHES, "own": OWN}


def said_of(top):
    try:
        found = mscclpp.parse("x", json.dumps(top).encode())
    except BadFile as error:
        return str(error)
    return "\n".join(as_lines("x", found, judge(found, LINK, 1024)))


@pytest.mark.parametrize("table", TABLES)
def test_plans_of_mscclpp(table, approved):  # noqa: F811
    found = [f"== {name}\n{said_of(top)}" for name, top in TABLES[table].items()]
    assert "\n".join(found) == approved
