"""How ranges are printed, the same everywhere in the oracle."""


def span(start: int, stop: int) -> str:
    """elements 3..6 for the half-open range from 3 to 7: both ends belong to it."""
    if stop - start < 2:
        return f"element {start}" if stop > start else "no elements"
    return f"elements {start}..{stop - 1}"
