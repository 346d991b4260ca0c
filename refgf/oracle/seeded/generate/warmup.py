"""Cases of coarse-grained sparse communication with LARS and both warm-ups."""

from collections.abc import Iterator

import numpy as np

from refgf.oracle.seeded.generate.families import make, random_source, require
from refgf.oracle.seeded.generate.sparse import CHUNK, DECAYED, SIZES
from refgf.oracle.seeded.generate.updates import relative
from refgf.oracle.spec.case import Case

PLAN = {
    "warmup_steps": 5,
    "batch_factor": 3,
    "steps_per_epoch": 3,
    "warmup_percents": [100, 60],
    "percent": 30,
}
SETTINGS = {"chunk": CHUNK, "form": "history", "rate": 0.5, "momentum": 0.5, "trust": 0.25}


def cases() -> Iterator[Case]:
    why = "dense, then 60 %, then 30 %; the rate rises in steps 0 to 4; steps {} are skipped"
    for name, bad, more in (
        ("", (), {"wire": None, "scale": 1.0, "decay": 0.25}),
        ("-skipped", (1, 4, 7), {"wire": None, "scale": 4.0, "decay": 0.0}),
        ("-float16", (4,), {"wire": "float16", "scale": 64.0, "decay": 0.25}),
    ):
        rng = random_source("warmup" + name)
        n, steps, p = sum(SIZES), 9, 3
        w = rng.integers(-16, 17, n).astype(np.float32) / 4
        g = rng.integers(-4, 5, (steps, p, n)).astype(np.float32)
        for step in bad:
            g[step, 1, 7] = np.inf
        arrays = {"w": w, "g": g, "sizes": SIZES, "decayed": DECAYED}
        said = why.format(", ".join(map(str, bad)) or "none")
        arguments = {**SETTINGS, **PLAN, **more}
        case = make(f"warmup-lars{name}", "sparse_warmup_run", "C15", said, arguments, **arrays)
        wanted = [int(t not in bad) for t in range(steps)]
        require(case["out.finite"].tolist() == wanted, case, "these steps are skipped")
        sent = case["out.chosen"][:, 0].sum(axis=-1).tolist()
        require(sent[0] == 7 and 5 in sent and sent[-1] == 3, case, "7, 5 and 3 of 7 chunks")
        case.tensors["bound.w"] = relative(case["out.w"], 2.0**-20)  # norms in any order
        yield case
