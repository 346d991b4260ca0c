"""Lesson 05's allreduce against the definition, on real gradients."""

import numpy as np

import kit
from kit.oracle import agreed, require_bits
from lab.precision import loss_scales
from refgf.comm import direct, ring
from refgf.oracle import definitions
from refgf.oracle.definitions import scaled_allreduce


def check(run: kit.Run, gradients: list[np.ndarray], half_allreduce) -> None:
    """Compare the bits of both schedules, with and without scaling. gradients: of all ranks.

    half_allreduce: (run, gradients, scale, algorithm), in place. AssertionError if bits differ.
    """
    run.section("The oracle")
    for algorithm, definition in (
        (direct.allreduce, definitions.direct_allreduce),
        (ring.allreduce, definitions.ring_allreduce),
    ):
        for scale in (1.0, loss_scales.GOOD):
            mine = run.array(gradients[run.rank].copy())
            half_allreduce(run, mine, scale, algorithm)
            wanted = scaled_allreduce(gradients, scale, allreduce=definition)[run.rank]
            where = f"{definition.__name__} of float16 on rank {run.rank}, scale {scale}"
            require_bits(where, mine, wanted)
    agreed(
        run,
        "float16 on the wire, with and without a loss scale, ring and direct:",
        "a real batch's gradients have the bits of the definition.",
    )
