"""The best theta of each system. Lazy allreduce waits for theta bytes before a call.

Only the bytes of possible groups matter: between two of them every theta makes the same calls. The
largest theta is the whole vector, in one call. Which thetas are tried depends on the sizes alone,
so a step never gets faster if the network or a rank gets slower.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate

from refgf.papers.scaling.systems import NORM_BYTES, System, chosen_chunks
from refgf.predict.timeline import CallTime, Gradients, eager, lazy, predict

WORK = 6400  # thetas an octave times gradients: all thetas of a short list, 16 an octave of 400
LEAST = 2  # thetas an octave of any list
EQUAL = 1e-3  # relative; steps so close are as good (chosen)


@lru_cache(maxsize=16)
def groupings(sizes: tuple[int, ...]) -> dict[int, list[range]]:
    """{theta: groups}, both of `sizes`: 0, the bytes of groups, powers of two, and all.

    Of a long list not all sums of groups are tried, but WORK / len(sizes) an octave.
    """
    gradients, total = [(0.0, size) for size in sizes], sum(sizes)
    ratio = 2 ** (1 / max(LEAST, WORK // len(sizes)))
    thetas, theta = {1 << bit for bit in range(14, total.bit_length())} | {total}, 0
    while theta < total:
        thetas.add(theta)
        sums = (sum(sizes[group.start : group.stop]) for group in lazy(gradients, theta))
        theta = max(min(each for each in sums if each > theta), int(theta * ratio))
    return {theta: lazy(gradients, theta) for theta in sorted(thetas) if theta <= total}


@lru_cache(maxsize=16)
def sent(
    ready: Gradients, itemsize: int = 4, percent: float | None = None
) -> tuple[Gradients, Gradients]:
    """([(ready_s, bytes)] of all gradients or of CSC's chunks, the same of CSC's norms).

    After CSC's last chunk an entry without bytes ends backward, as the last gradient does: chunks
    that wait for more are flushed then. (refgf/exchange/lazy.py)
    """
    if percent is None:
        return [(ready_s, itemsize * elements) for ready_s, elements in ready], []
    found, chunks = chosen_chunks(ready, System("CSC", itemsize=itemsize, percent=percent))
    end_s = ready[-1][0]
    return [*found, (end_s, 0)], [(end_s, NORM_BYTES * chunks)]


@lru_cache(maxsize=16)
def bytes_before(ready: Gradients, itemsize: int, percent: float | None) -> list[float]:
    """Bytes of what is sent before each entry of `sent`, and of all."""
    return [0, *accumulate(nbytes for _, nbytes in sent(ready, itemsize, percent)[0])]


def calls(
    ready: Gradients, itemsize: int = 4, percent: float | None = None
) -> dict[int, list[range]]:
    """{theta in bytes: groups of what is sent}. percent: of the chunks, for CSC."""
    sizes = tuple(nbytes // itemsize for _, nbytes in sent(ready, itemsize, percent)[0])
    return {itemsize * theta: groups for theta, groups in groupings(sizes).items()}


def step_s(
    ready: Gradients,
    groups: list[range],
    allreduce_s: CallTime,
    overlap: float = 1.0,
    itemsize: int = 4,
    percent: float | None = None,
) -> float:
    """End of the last call or of backward, with a call for each group.

    A group is ready with its last gradient, so it is predicted as one gradient of its bytes.
    """
    gradients, norms = sent(ready, itemsize, percent)
    before = bytes_before(ready, itemsize, percent)
    sums = [(gradients[g.stop - 1][0], before[g.stop] - before[g.start]) for g in groups]
    sums += norms
    return predict(sums, eager(sums), allreduce_s, overlap, ready[-1][0]).step_s


def best(swept: dict[int, float], slow_s: Callable[[int], float]) -> int:
    """Of EQUAL steps the theta whose interval is the narrowest; of these the smallest.

    Fewer calls cost less where latency is higher than measured. What is sent earlier hides more.
    slow_s: theta -> the step with all inputs at their highest.
    """
    ties = [theta for theta, step_s in swept.items() if step_s <= (1 + EQUAL) * min(swept.values())]
    ends_s = {theta: slow_s(theta) for theta in ties} if len(ties) > 1 else {ties[0]: 0.0}
    least_s = min(ends_s.values())
    return next(theta for theta, end_s in ends_s.items() if end_s <= (1 + EQUAL) * least_s)
