"""What lesson 04 says of its numbers."""

from kit.claims import GAIN, LIMIT, Claim
from kit.guess import Guess
from kit.reveal import Reveal, Row
from kit.words import number_of_bytes, percent
from lab.overlap.here import TITLES
from lab.overlap.message_progress import NON_BLOCKING, THREAD
from lab.overlap.steps import EAGER, KINDS, ONE_CALL, hidden, name_of, row_of
from lab.overlap.yours import YOURS


OF_EAGER, OF_ONE_CALL = (("steps", "rows", {"theta": theta}) for theta in (EAGER, ONE_CALL))
LEFT = "progress", "left"  # to wait for after a sleep


def largest_error(result: dict) -> float | None:
    """1.03 where a predicted step is off by at most 3 %."""
    return 1 + result["steps"]["largest_error"] if "steps" in result else None


def hidden_of_eager(result: dict) -> dict | None:
    """What overlap hides of eager calls."""
    row = row_of(result, EAGER)
    return row and hidden(row)


CORE = "whether the communication thread has processor time without taking it from computing"
CLAIMS = (
    Claim(
        "With a call per gradient, overlap makes the step shorter.",
        ((*OF_EAGER, "overlapped"), "<", (*OF_EAGER, "sequential")),
        unless=CORE,
    ),
    Claim(
        "With a call per gradient, overlap hides at least 0.85 times what can be hidden, and not "
        "more than 1.2 times, which would be noise.",
        (hidden_of_eager, ">", (*OF_EAGER, "hideable_s"), 0.85),
        unless=CORE,
        kind=GAIN,
        control=(hidden_of_eager, "<", (*OF_EAGER, "hideable_s"), 1.2),
    ),
    Claim(
        "With one call a step, overlap changes nothing: it gains at most 5 %, and loses at most "
        "10 %.",
        ((*OF_ONE_CALL, "overlapped"), ">", (*OF_ONE_CALL, "sequential"), 0.95),
        unless="how a rank waits: a thread sleeps between polls, a blocking call does not",
        kind=LIMIT,
        control=((*OF_ONE_CALL, "overlapped"), "<", (*OF_ONE_CALL, "sequential"), 1.1),
    ),
    Claim(
        "With overlap, a call per gradient gives a shorter step than one call.",
        ((*OF_EAGER, "overlapped"), "<", (*OF_ONE_CALL, "overlapped")),
        unless="the latency, which many small calls pay often",
    ),
    Claim(
        "The timeline predicts each step within 10 %.",
        (largest_error, "<", 1.0, 1.1),
        unless="the processor's work, which is slower next to messages than without a network",
    ),
    Claim(
        "After a sleep, a thread's blocking call leaves less to wait for than a non-blocking call.",
        ((*LEFT, THREAD), "<", (*LEFT, NON_BLOCKING)),
        unless="whether MPI has a progress thread, and whether the message is small",
    ),
    Claim(
        "Where ranks compute on the cores that communicate, overlap makes the step longer.",
        (("here", "overlapped"), ">", ("here", "sequential")),
        unless="whether each rank's thread finds a free core",
        here=True,
    ),
)


def rows(r: dict) -> list[Row]:
    """Both steps of each theta, and the share that is hidden of eager calls."""
    if "here" in r:
        return rows_here(r["here"])
    k, found = r["regime"]["dilation"], []
    for row in r["steps"]["rows"]:
        for kind in KINDS:
            times_s = row[kind]["median_s"] / k, row["predicted"][kind] / k
            found.append(Row(name_of(row, kind), *times_s))
    eager = row_of(r, EAGER)
    predicted = eager["predicted"]
    if eager["hideable_s"] > 0 and predicted["hideable_s"] > 0:
        shares = (
            hidden(eager)["median_s"] / eager["hideable_s"],
            predicted["hidden_s"] / predicted["hideable_s"],
        )
        found.append(
            Row(f"{eager['calls']} calls: hidden, of what can be hidden", *shares, unit=percent)
        )
    return found


def rows_here(times: dict) -> list[Row]:
    """On this machine; predicted as if the calls had cores of their own."""
    names = TITLES | {"overlapped": "overlap (predicted: on free cores)"}
    return [Row(name, times[kind], times["predicted"].get(kind)) for kind, name in names.items()]


def answer(r: dict) -> str:
    if "here" in r:
        return f"{gain(r['here'])} with theta = {number_of_bytes(r['here']['theta'])}"
    eager, one = (gain(row_of(r, theta)) for theta in (EAGER, ONE_CALL))
    return f"{eager} with a call per gradient, {one} with one call"


def gain(row: dict) -> str:
    return f"{row['sequential']['median_s'] / row['overlapped']['median_s']:.2f} times"


REVEAL = Reveal(
    CLAIMS,
    rows,
    ask="How many times as fast is a step with overlap: with a call per gradient, with one call?",
    guess=Guess("3 times and 2 times"),
    answer=answer,
    picture="Bars of training steps without and with overlap, each with its prediction; the share "
    "hidden of what can be hidden, against theta.",
    yours=YOURS,
)
