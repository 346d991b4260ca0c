"""Ways in which files break, for tests of readers."""

import random


def flipped(data: bytes, rng: random.Random) -> bytes:
    """One bit or a few are the other way round."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def cut(data: bytes, rng: random.Random) -> bytes:
    """The end is missing."""
    return data[: rng.randrange(len(data))]
