"""Which gradients travel, when, and in what form.

Every technique takes an `Allreduce` (a callable that sums a flat array over all ranks, in place) and knows nothing else
about communication, so that each can be tested over any other: `lazy.py` decides when, `overlap.py` lets another
thread do it; `pool.py` is where the gradients lie.
"""
