"""The same bits, faster: what replaces the plain functions of `refgf.ops`, and faster collectives.

    import refgf.engine             replaces them (`refgf.launch` does it unless REFGF_ENGINE=off)
    with refgf.engine.off(): ...    the plain functions again, to compare or to debug

Everything here is optional. Nothing in the core imports it.
"""

import contextlib
from collections.abc import Iterator

from refgf import ops
from refgf.engine import exact, fused, half, sgd, sleeping, staging

REPLACEMENTS = fused.REPLACEMENTS | {
    "cast": half.cast,
    "add": half.add,
    "rounded": half.rounded,
    "momentum_sgd": sgd.momentum_sgd,
    "plain_sgd": sgd.plain_sgd,
    "unscale": sgd.unscale,
    "background": sleeping.sleeping,
    "exact": exact.exact,
    "Buffers": staging.buffers,
}
PLAIN = {name: getattr(ops, name) for name in REPLACEMENTS}


def install() -> None:
    """Put the engine's functions in the places of the plain ones."""
    for name, function in REPLACEMENTS.items():
        setattr(ops, name, function)


@contextlib.contextmanager
def off() -> Iterator[None]:
    """The plain functions while this lasts."""
    for name, function in PLAIN.items():
        setattr(ops, name, function)
    try:
        yield
    finally:
        install()


install()
