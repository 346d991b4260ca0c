"""What the lessons' oracles share: random gradients of all ranks, one exchange, bits, counts."""

import numpy as np

import kit
from kit.rejected import of_all, reject
from kit.replay import replay_backward
from refgf.device import to_host
from refgf.oracle.definitions import same_bits


def vectors(run: kit.Run, n: int, *seed: int) -> list[np.ndarray]:
    """A random float32 vector (n,) for each rank, the same on all ranks."""
    return [
        np.random.default_rng([*seed, rank]).standard_normal(n).astype(np.float32)
        for rank in range(run.size)
    ]


def exchanged(run: kit.Run, pool, exchange, gradients: np.ndarray) -> np.ndarray:
    """What the pool holds after an exchange of this rank's gradients (n,), all ready at once."""
    pool.flat[:] = run.array(gradients)
    replay_backward(exchange, [0.0] * len(pool.specs))
    return to_host(pool.flat)


def agreed(run: kit.Run, *lines: str) -> None:
    """Say what is as defined; with --wrong-anyway only if no rank rejected anything. Collective."""
    wrong = of_all(run.plain)
    run.say("not as defined: see WRONG below" if wrong else "\n".join(lines))


def require_bits(where: str, got, wanted, whose: str = "the definition's") -> None:
    """AssertionError with the first element that differs, unless both arrays have the same bits."""
    got, wanted = to_host(got).reshape(-1), np.asarray(wanted).reshape(-1)
    if same_bits(got, wanted):
        return
    if (got.dtype, got.size) != (wanted.dtype, wanted.size):
        two = [f"{x.size} elements of {x.dtype}" for x in (got, wanted)]
        return reject(f"{where}: got {two[0]}; wanted {two[1]}, {whose}")
    i = next(i for i in range(got.size) if not same_bits(got[i : i + 1], wanted[i : i + 1]))
    reject(
        f"{where}, element {i} of {got.size}: got {got[i].item()!r}; "
        f"wanted {whose} {wanted[i].item()!r}"
    )


def require_sent(where: str, sent: tuple[int, int], wanted: tuple[int, int]) -> None:
    """AssertionError unless this rank has sent so many messages and bytes."""
    if sent != wanted:
        reject(f"{where}: got (messages, bytes) {sent}; wanted {wanted}")
