"""The rounding microscope: the error of ring and direct for each p and wire type, as data.

Every sum is that of `refgf.comm.replay`, so it has the bits of a run over MPI. The exact sum is
`math.fsum`'s. An error is divided by the sum of the absolute values of what is added.
"""

import json
from math import fsum

import numpy as np

from refgf.comm import direct, ring
from refgf.comm.replay import replay
from refgf.site.frame import page
from refgf.site.repository import Repository

ADDRESS = "microscope/index.html"
SIZES = range(2, 17)  # ranks
ELEMENTS = 240
ORDERS = {"ring": ring.allreduce, "direct": direct.allreduce}
WIRES = {"float32": np.float32, "float16": np.float16}
KINDS = {
    "both signs": lambda rng, shape: rng.normal(size=shape),
    "positive": lambda rng, shape: abs(rng.normal(size=shape)),
    "many sizes": lambda rng, shape: rng.normal(size=shape) * 2.0 ** rng.integers(-12, 1, shape),
    "tiny": lambda rng, shape: 1e-7 * rng.normal(size=shape),
}


def inputs(kind: str, size: int) -> np.ndarray:
    """The ranks' vectors, (size, ELEMENTS) in float32; the same in every build."""
    rng = np.random.default_rng(size)
    return KINDS[kind](rng, (size, ELEMENTS)).astype(np.float32)


def errors(kind: str, size: int, wire: str, order: str) -> list[float]:
    """[root mean square, largest, percent without error, its element, its exact sum, its sum].

    A sum is without error if it is the exact sum rounded to float32. The last three are those of
    the element with the largest error.
    """
    xs = inputs(kind, size)
    schedules = [ORDERS[order](rank, size, ELEMENTS) for rank in range(size)]
    got = replay(schedules, list(xs), WIRES[wire])[0]
    exact = np.array([fsum(column) for column in xs.T.astype(float)])
    relative = abs(got - exact) / abs(xs.astype(float)).sum(axis=0)
    worst = int(relative.argmax())
    right = 100 * float(np.mean(got == exact.astype(np.float32)))
    rms = float(np.sqrt(np.mean(relative**2)))
    return [rms, float(relative[worst]), right, worst, float(exact[worst]), float(got[worst])]


def data() -> dict:
    """{kind: {wire: {order: [errors for p = 2, 3, ...]}}}"""
    return {
        kind: {
            wire: {order: [errors(kind, p, wire, order) for p in SIZES] for order in ORDERS}
            for wire in WIRES
        }
        for kind in KINDS
    }


def script() -> str:
    found = {"sizes": list(SIZES), "elements": ELEMENTS, "data": data()}
    return f"window.MICROSCOPE={json.dumps(found, separators=(',', ':'))};\n"


def microscope_page(files: Repository) -> str:
    body = files.text("refgf/site/static/microscope.html")
    about = "The rounding errors of ring and direct allreduce, for 2 to 16 ranks, two wire types."
    names = ("data.js", "../static/address.js", "../static/microscope.js")
    scripts = "".join(f'<script src="{name}" defer></script>\n' for name in names)
    return page(ADDRESS, "Rounding microscope", body, about, scripts)
