"""What the lessons' oracles reject: it ends the lesson, unless --wrong-anyway asks to measure it.

All ranks of a process share one list, because a rank that stopped would leave the others waiting.
"""

from collections.abc import Callable

MOST = 3  # sentences that are shown
ANYWAY: list[bool] = []  # not empty: go on
SENTENCES: list[str] = []


def begin(anyway: bool) -> None:
    """Forget an earlier lesson of this process. anyway: --wrong-anyway"""
    SENTENCES.clear()
    ANYWAY[:] = [True] * anyway


def reject(text: str, error: type[Exception] = AssertionError) -> None:
    """Raise this error, or with --wrong-anyway note it and go on."""
    if not ANYWAY:
        raise error(text)
    SENTENCES.append(text)


def noted(require: Callable[[], object]) -> None:
    """Call what raises ValueError on all ranks alike; with --wrong-anyway note it and go on."""
    try:
        require()
    except ValueError as error:
        if not ANYWAY:
            raise
        SENTENCES.append(str(error))


def of_all(comm) -> list[str]:
    """The first sentences of all ranks, and how many there are. Collective."""
    if not ANYWAY:
        return []
    every = list(dict.fromkeys(each for mine in comm.allgather(SENTENCES[:]) for each in mine))
    return every[:MOST] + [f"and {len(every) - MOST} more of this kind"] * (len(every) > MOST)
