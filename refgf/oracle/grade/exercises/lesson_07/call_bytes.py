"""Exercise call_bytes(sizes, theta, half, chunk, chosen)."""

from math import inf

from refgf.oracle import definitions
from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part

DENSE, HALF = "float32, all gradients", "float16 on the wire, all gradients"
CSC, SHORT = "chosen chunks only", "the last chunk, which is shorter"
EXACTLY, ENDS = "exactly theta bytes go on waiting", "nothing to send, theta = 0, theta infinite"


def items_of(sizes, chunk, chosen):
    """Elements of what is sent, one item after another: gradients, or chosen chunks."""
    if chosen is None:
        return sizes
    bounds = definitions.chunk_bounds(sum(sizes), chunk)
    return [bounds[i][1] - bounds[i][0] for i in chosen]


def call_bytes(sizes, theta, half, chunk, chosen):
    items, itemsize = items_of(sizes, chunk, chosen), 2 if half else 4
    calls = definitions.lazy_calls(items, itemsize, theta)
    return [itemsize * (stop - start) for start, stop in calls]


def lazy(items, theta, itemsize, counted=None, equal=False, flush=True):
    """The rule of lesson 03; the keywords make typical mistakes. counted: bytes of an element."""
    calls, waiting = [], 0
    for size in items:
        waiting += size
        total = waiting * (counted or itemsize)
        if total > theta or equal and total == theta:
            calls.append(itemsize * waiting)
            waiting = 0
    return calls + [itemsize * waiting] * (flush and waiting > 0)


def greater_or_equal(sizes, theta, half, chunk, chosen):
    return lazy(items_of(sizes, chunk, chosen), theta, 2 if half else 4, equal=True)


def without_flush(sizes, theta, half, chunk, chosen):
    return lazy(items_of(sizes, chunk, chosen), theta, 2 if half else 4, flush=False)


def theta_in_float32(sizes, theta, half, chunk, chosen):
    return lazy(items_of(sizes, chunk, chosen), theta, 2 if half else 4, counted=4)


def all_chunks_alike(sizes, theta, half, chunk, chosen):
    items = sizes if chosen is None else [chunk] * len(chosen)
    return lazy(items, theta, 2 if half else 4)


def nothing_left_out(sizes, theta, half, chunk, chosen):
    return call_bytes(sizes, theta, half, chunk, None)


def drawn(random):
    """Sizes of 22 gradients, the last but one large and the last one small."""
    return [*random.integers(1, 12, 20).tolist(), 90, 1]


def dense(random):
    """theta is even, but no multiple of 4: no sum of float32 gradients has so many bytes."""
    theta = 4 * int(random.integers(3, 30)) + 2
    return [([1, 2, 2, 8, 1, 1], 17, False, 4, None), (drawn(random), theta, False, 4, None)]


def half(random):
    theta = 2 * int(random.integers(6, 30)) + 1
    return [([1, 2, 2, 8, 1, 1], 9, True, 4, None), (drawn(random), theta, True, 4, None)]


def sparse(random):
    """6 or 11 of 20 chunks of 10 elements, of which float16 sends 20 bytes each."""
    chosen = sorted(random.choice(20, 11, replace=False).tolist())
    sizes = [*random.integers(1, 18, 10).tolist(), 5]
    sizes.append(200 - sum(sizes))
    rows = [([5, 7, 8], 9, True, 4, [0, 2, 3]), ([5, 7, 8], 25, False, 4, [0, 1, 4])]
    rows.append((sizes, 71, True, 10, [0, 1, 2, 4, 9, 12]))
    return rows + [(sizes, 20 * int(random.integers(1, 3)) + 5, True, 10, chosen)]


def short(random):
    """The last chunk by itself, so neither theta nor the calls matter."""
    chunk, whole, rest = 7, int(random.integers(1, 9)), int(random.integers(1, 7))
    rows = [([5, 6], 0, True, 4, [2]), ([4, 9], 0, False, 5, [2])]
    return rows + [([whole * chunk, rest], 0, True, chunk, [whole])]


def exactly(random):
    """All float32, so what is wrong with float16 changes nothing here."""
    k = int(random.integers(2, 999))
    rows = [([2, 1, 2, 9], 12, False, 4, None), ([k, 1, k + 2], 4 * k + 4, False, 4, None)]
    return rows + [([5, 7, 18], 24, False, 3, list(range(10)))]


def ends(random):
    rows = [([], 8, False, 4, None), ([5, 3], 8, True, 4, []), ([2, 3], 0, True, 4, None)]
    drawn = random.integers(1, 99, 3).tolist()
    return rows + [(sizes, inf, False, 4, None) for sizes in ([2, 3, 1], drawn)]


CALLS = Exercise(
    "call_bytes",
    call_bytes,
    (
        Part(DENSE, 1, dense),
        Part(HALF, 2, half),
        Part(CSC, 2, sparse),
        Part(SHORT, 1, short),
        Part(EXACTLY, 1, exactly),
        Part(ENDS, 1, ends),
    ),
    (
        Mistake(
            "you send as soon as theta bytes wait; the rule says more than theta",
            greater_or_equal,
            (EXACTLY,),
        ),
        Mistake(
            "your flush is missing: what waits at the end is never sent",
            without_flush,
            (DENSE, HALF, CSC, EXACTLY, ENDS),
        ),
        Mistake(
            "theta counts bytes on the wire: float16 has 2, not 4", theta_in_float32, (HALF, CSC)
        ),
        Mistake(
            "the last chunk of the pool may be shorter than the others", all_chunks_alike, (SHORT,)
        ),
        Mistake(
            "you send all gradients; with CSC only the chosen chunks are sent",
            nothing_left_out,
            (CSC, SHORT, EXACTLY, ENDS),
        ),
    ),
)
