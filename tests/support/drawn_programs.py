"""Hypothesis draws programs for mpi_programs.py: right ones, then up to two mistakes in them."""

import copy

from hypothesis import strategies as st

SIZES = [0, 1, 3, 1000, 100_000]  # the last ones wait for their receive in both MPIs
TYPES = ["f4", "f8", "i4", "i8", "f2", "u1", "c16"]


class Program:
    """Right by construction: events in one order, each of which all its ranks can end."""

    def __init__(self, draw, ranks):
        self.draw, self.code, self.events = draw, [[] for _ in range(ranks)], 0
        self.late = [[] for _ in range(ranks)]  # requests to wait for in the end

    def some(self, choices):
        return self.draw(st.sampled_from(choices))

    def rank(self):
        return self.draw(st.integers(0, len(self.code) - 1))

    def arrays(self, rank, role, n, dtype):
        name = f"{role}{self.events}"
        kind = "read-only" if role == "out" and self.draw(st.integers(0, 9)) == 0 else "plain"
        self.code[rank].append(["array", name, n, dtype, self.events * 10 + rank, kind])
        return [name]

    def message(self):
        """One message, of blocking calls or others."""
        source = self.rank()
        dest = (source + self.draw(st.integers(1, len(self.code) - 1))) % len(self.code)
        n, dtype, tag = self.some(SIZES), self.some(TYPES), self.some([0, 0, 7, 32767])
        room = n + self.some([0, 0, 0, 2])
        out = self.arrays(source, "out", n, dtype)
        into = self.arrays(dest, "in", room, dtype)
        self.begin(source, "Isend" if self.draw(st.booleans()) else "Send", out, dest, tag)
        receive = {"source": source, "tag": tag}
        if self.draw(st.integers(0, 3)) == 0:
            del receive["tag"]
        self.begin(dest, "Irecv" if self.draw(st.booleans()) else "Recv", into, None, receive)

    def begin(self, rank, call, buf, dest, tag):
        keywords = tag if dest is None else {"dest": dest, "tag": tag}
        if not call.startswith("I"):
            return self.code[rank].append([call, buf, keywords])
        request = f"r{self.events}{buf[0]}"
        self.code[rank].append([call, request, buf, keywords])
        if self.draw(st.booleans()):
            self.code[rank].append([self.some(["Wait", "Test"]), request])
        else:
            self.late[rank].append(request)

    def two_tags(self):
        """Two messages that are received in the other order, told apart by their tags."""
        source, n = self.rank(), self.some(SIZES)
        dest = (source + 1) % len(self.code)
        for tag in (1, 2):
            self.events += 1
            out = self.arrays(source, "out", n, "f8")
            request = f"r{self.events}"
            self.code[source].append(["Isend", request, out, {"dest": dest, "tag": tag}])
            self.late[source].append(request)
        for tag, event in ((2, self.events), (1, self.events - 1)):
            self.code[dest].append(["array", f"in{event}", n, "f8", event, "plain"])
            self.code[dest].append(["Recv", [f"in{event}"], {"source": source, "tag": tag}])

    def ring(self):
        """Every rank sends to the right."""
        n, dtype, p = self.some(SIZES), self.some(TYPES), len(self.code)
        how = self.some(["Sendrecv", "Sendrecv", "Irecv first", "odd ranks receive first"])
        for rank in range(p):
            out, into = self.arrays(rank, "out", n, dtype), self.arrays(rank, "in", n, dtype)
            to, source, code = (rank + 1) % p, (rank - 1) % p, self.code[rank]
            send, receive = ["Send", out, {"dest": to}], ["Recv", into, {"source": source}]
            if how == "Sendrecv":
                both = {"dest": to, "sendtag": 5, "source": source, "recvtag": 5}
                code.append(["Sendrecv", out, into, both])
            elif how == "Irecv first":
                request = f"r{self.events}"
                code += [["Irecv", request, into, {"source": source}], send, ["Wait", request]]
            else:
                code += [receive, send] if rank % 2 else [send, receive]

    def in_a_pool(self):
        """A ring between neighbouring slices of one array, as in the ring of lesson 01."""
        p, n = len(self.code), self.some([1, 3, 50_000])
        for rank in range(p):
            name = f"pool{self.events}"
            self.code[rank].append(["array", name, n * p, "f4", rank, "plain"])
            out, into = rank, (rank - 1) % p
            both = {"dest": (rank + 1) % p, "source": (rank - 1) % p}
            slices = [[name, i * n, (i + 1) * n] for i in (out, into)]
            self.code[rank].append(["Sendrecv", *slices, both])

    def collective(self):
        call = self.some(["Barrier", "bcast", "allgather", "allreduce"])
        root = self.rank()
        for rank, code in enumerate(self.code):
            given = {"Barrier": [], "bcast": [rank * 3 + 1, root]}
            code.append([call, given.get(call, [rank * 3 + 1])])

    def from_any_rank(self):
        """A receive from any rank, which one message fits."""
        source, n = self.rank(), self.some(SIZES)
        dest, tag = (source + 1) % len(self.code), 100 + self.events
        out, into = self.arrays(source, "out", n, "f8"), self.arrays(dest, "in", n, "f8")
        self.begin(source, "Send", out, dest, tag)
        self.code[dest].append(["Recv", into, {"tag": tag}])

    def end(self):
        for code, late in zip(self.code, self.late):
            if late and self.draw(st.booleans()):
                code.append(["Waitall", *late])
            else:
                code += [["Wait", request] for request in late]


EVENTS = ["message"] * 4 + ["ring"] * 2 + ["two_tags", "in_a_pool", "collective", "from_any_rank"]


@st.composite
def programs(draw, most=2):
    """most: mistakes. Right ones are as frequent as wrong ones."""
    program = Program(draw, draw(st.sampled_from([2, 2, 3])))
    for _ in range(draw(st.integers(1, 4))):
        program.events += 1
        getattr(program, draw(st.sampled_from(EVENTS)))()
    program.end()
    code, wrong = program.code, []
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, most]))):
        mistake = draw(st.sampled_from(sorted(MISTAKES)))
        places = [(r, i) for r, calls in enumerate(code) for i in range(len(calls))]
        places = [place for place in places if MISTAKES[mistake](copy.deepcopy(code), *place)]
        if places:
            MISTAKES[mistake](code, *draw(st.sampled_from(places)))
            wrong.append(mistake)
    return {"ranks": len(code), "code": code, "wrong": wrong}


# ---- mistakes: (code, rank, index) -> could it be made there? ----


def other_tag(code, rank, i):
    keywords = code[rank][i][-1]
    names = {"tag", "sendtag"} & set(keywords if isinstance(keywords, dict) else ())
    for name in names:
        keywords[name] = 9
    return bool(names)


def negative_tag(code, rank, i):
    keywords = code[rank][i][-1]
    found = isinstance(keywords, dict) and "tag" in keywords
    if found:
        keywords["tag"] = -7
    return found


def no_such_rank(code, rank, i):
    keywords = code[rank][i][-1]
    found = isinstance(keywords, dict) and "dest" in keywords
    if found:
        keywords["dest"] = len(code)
    return found


def itself(code, rank, i):
    keywords = code[rank][i][-1]
    found = isinstance(keywords, dict) and "dest" in keywords
    if found:
        keywords["dest"] = rank
    return found


def lost_call(code, rank, i):
    found = code[rank][i][0] not in ("array", "write")
    del code[rank][i]
    return found


def twice(code, rank, i):
    code[rank].insert(i, copy.deepcopy(code[rank][i]))
    return code[rank][i][0] in ("Send", "Recv", "Barrier")


def later(code, rank, i):
    """A call changes place with the next one."""
    if i + 1 >= len(code[rank]) or "array" in (code[rank][i][0], code[rank][i + 1][0]):
        return False
    code[rank][i], code[rank][i + 1] = code[rank][i + 1], code[rank][i]
    return True


def all_send_first(code, rank, i):
    """A ring of blocking calls, with none that receives first."""
    if code[rank][i][0] != "Sendrecv":
        return False
    found = False
    for calls in code:
        for k, call in enumerate(calls):
            if call[0] == "Sendrecv":
                _, out, into, both = call
                tags = both.get("sendtag", 0), both.get("recvtag", 0)
                send = ["Send", out, {"dest": both["dest"], "tag": tags[0]}]
                calls[k : k + 1] = [
                    send,
                    ["Recv", into, {"source": both["source"], "tag": tags[1]}],
                ]
                found = True
                break
    return found


def array_is(**change):
    """An array of another size, type or kind."""

    def mistake(code, rank, i):
        call = code[rank][i]
        if call[0] != "array" or call[1].startswith("pool"):
            return False
        if "n" in change:
            call[2] += change["n"]
        call[3] = change.get("dtype", call[3])
        call[5] = change.get("kind", call[5])
        return call[2] > 1 and call[1].startswith(change.get("role", ""))

    return mistake


def changed_early(code, rank, i):
    """Something writes into the array before the Wait of its request."""
    call = code[rank][i]
    if call[0] not in ("Isend", "Irecv") or code[rank][i + 1 : i + 2] == [["Test", call[1]]]:
        return False
    arrays = {c[1]: c for c in code[rank] if c[0] == "array"}
    code[rank].insert(i + 1, ["write", call[2], 1])
    return arrays[call[2][0]][2] > 0 and arrays[call[2][0]][5] == "plain"


def overlapping(code, rank, i):
    """A Sendrecv receives into what it sends."""
    call = code[rank][i]
    if call[0] != "Sendrecv":
        return False
    call[2] = call[1]
    return True


def other_collective(code, rank, i):
    call = code[rank][i]
    if call[0] == "bcast":
        call[1][1] = (call[1][1] + 1) % len(code)
    elif call[0] in ("allgather", "Barrier"):
        code[rank][i] = ["allreduce", [5]]
    return call[0] in ("bcast", "allgather", "Barrier")


MISTAKES = {
    "other tag": other_tag,
    "negative tag": negative_tag,
    "no such rank": no_such_rank,
    "sends to itself": itself,
    "lost call": lost_call,
    "call twice": twice,
    "calls in another order": later,
    "all send first": all_send_first,
    "longer array": array_is(n=3),
    "shorter array": array_is(n=-1),
    "other type": array_is(dtype="i2"),
    "strided": array_is(kind="strided"),
    "reversed": array_is(kind="reversed"),
    "objects": array_is(kind="objects"),
    "list": array_is(kind="list"),
    "swapped bytes": array_is(kind="swapped"),
    "table": array_is(kind="table"),
    "read-only": array_is(kind="read-only", role="in"),
    "changed before Wait": changed_early,
    "overlapping": overlapping,
    "other collective": other_collective,
}
