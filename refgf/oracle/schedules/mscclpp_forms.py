"""What MSCCL++'s executor takes: the buffers of each op, its channels, and how many fit.

    local, packets           memory of this rank; packets lie in its scratch memory
    remote, remote-packets   memory of another rank (buffer_id)
    switch, switch-packets   memory of all ranks of a switch channel (switch_channel_id)

A star stands for any number of them. Further buffers would be ignored by the executor. ROOM: as
its public source is compiled; it does not check these, and writes beyond its arrays.
"""

import re
from collections import Counter
from collections.abc import Iterator

from refgf.oracle.schedules.mscclpp_fields import item, listed

FORMS = {  # op: (its src_buff, its dst_buff)
    "put": ("local*", "remote*"),
    "pws": ("local*", "remote*"),
    "pwsf": ("local*", "remote*"),
    "get": ("remote*", "local*"),
    "copy": ("local", "local"),
    "re": ("local*", "local"),
    "res": ("local*", "local remote*"),
    "rre": ("local remote*", "local"),
    "rres": ("local remote*", "local remote*"),
    "ppkt": ("local*", "remote-packets*"),
    "rppkt": ("packets", "remote-packets*"),
    "cpkt": ("local", "packets"),
    "upkt": ("packets", "local"),
    "repkt": ("local packets*", "local"),
    "respkt": ("local packets*", "local remote-packets*"),
    "recpkt": ("local packets*", "local packets"),
    "recspkt": ("local packets*", "local packets remote-packets*"),
    "glres": ("switch", "switch"),
    "gstore": ("local", "switch"),
    "gstorepkt": ("packets", "switch-packets"),
}
PORT_FORMS = {"ppkt": ("packets*", "remote-packets*")}  # a port channel copies what is there
MEMORY_ONLY = ("get", "rre", "rres", "res", "respkt", "recspkt")
KINDS = {  # the letter of each entry, by `letter`
    "local": "[ls]",
    "packets": "s",
    "remote": "[rq]",
    "remote-packets": "q",
    "switch": "[wt]",
    "switch-packets": "t",
}
LETTERS = {"l": "local", "s": "local-scratch", "r": "remote", "q": "remote-scratch"}
LETTERS |= {"w": "switch", "t": "switch-scratch"}
ROOM = {"channel_ids": 8, "src_buff": 10, "dst_buff": 10, "semaphore_ids": 16}  # of an op
CROWDS = (
    ("channels", "channel_type", "channel_ids", "channels"),
    ("remote_buffer_refs", "access_channel_type", "remote_buffer_ids", "remote buffers"),
)
BARRIERS = 16  # of a GPU
CHANNELS, OPS = 16, 64  # of a thread block; channels and remote buffers: of each type


def letter(entry: dict, buffer: str) -> str:
    """Which memory an entry of src_buff or dst_buff names."""
    kind = "wt" if "switch_channel_id" in entry else "rq" if "buffer_id" in entry else "ls"
    return kind[buffer == "s"]


def misfit(name: str, port: bool, letters: tuple[str, str]) -> tuple[str, str] | None:
    """(got, wanted) of an op whose src_buff and dst_buff it does not take, by their letters."""
    forms = PORT_FORMS.get(name, FORMS[name]) if port else FORMS[name]
    for key, form, got in zip(("src_buff", "dst_buff"), forms, letters):
        pattern = "".join(KINDS[word.rstrip("*")] + "*" * ("*" in word) for word in form.split())
        if not re.fullmatch(pattern, got):
            words = " ".join(LETTERS[each] for each in got)
            return f"{key} {words[:200]} of {name}", f"{form} (*: any number of them)"
    return None


def beyond_room(path: str, op: dict) -> Iterator[str]:
    """What of an op the executor has no room for."""
    for key, most in ROOM.items():
        got = len(listed(path, op, key))
        if got > most:
            yield f"got {got} {key}; wanted at most {most}"
    if op["name"] == "barrier" and op["barrier_id"] >= BARRIERS:
        yield f"got barrier_id {op['barrier_id']}; wanted one below {BARRIERS}"


def crowded(path: str, block: dict) -> Iterator[str]:
    """The same of a thread block."""
    for key, kind, ids, what in CROWDS:
        counts = Counter()
        for entry in listed(path, block, key):
            entry = item(path, entry, dict, key)
            counts[str(entry.get(kind))[:20]] += len(listed(path, entry, ids))
        for name, number in counts.items():
            if number > CHANNELS:
                yield f"got {number} {name} {what}; wanted at most {CHANNELS}"


def number_of_ops(ops: list[dict]) -> int:
    """Those of a thread block, as the executor counts them."""
    return sum(1 + len(op.get("ops", ())) * (op["name"] == "pipeline") for op in ops)
