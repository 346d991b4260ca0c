"""Other people's text, shown; and what the wall of this machine lacks, said."""

import signal

WHAT = {
    "files": "read other files",
    "network": "use the network",
    "processes": "start and end processes",
}


def shown(text: object, most: int = 1 << 20) -> str:
    r"""A text whose control characters are written as escapes: a terminal obeys none of them.

    ESC [2J -> \x1b[2J. Ends of lines and tabs stay.
    """
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode()
        for c in str(text)[:most]
    )


def in_one_line(text: object, most: int = 1 << 20) -> str:
    return shown(text, most).replace("\n", " ")


def as_name(text: object) -> str:
    r"""A file's name in one line, whatever its bytes are: b"Lef\xe8vre" -> Lef\udce8vre."""
    return shown(text).replace("\n", r"\n").replace("\t", r"\t")


def exit_name(code: int) -> str:
    """The name of an exit code; Python reports SIGABRT as -6."""
    known = -code in set(signal.Signals)
    return f"signal {signal.Signals(-code).name}" if known else f"exit code {code}"


def unsafe(still_open: set[str], what: str) -> str:
    """ "" behind a whole wall; else what foreign code could do here. what: "marks are"."""
    if not still_open:
        return ""
    could = ", ".join(does for name, does in WHAT.items() if name in still_open)
    return (
        f"{what} not safe here: got a system without namespaces, Landlock or seccomp, where judged "
        f"code could {could}; next: run this in a container or an account that has nothing to lose"
    )
