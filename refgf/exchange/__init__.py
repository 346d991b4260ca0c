"""Which gradients travel, when, and in what form.

Every technique takes an `Allreduce` (a callable that sums a flat array over all ranks, in place)
and knows nothing else about communication, so that each can be tested over any other:

    pool.py          where the gradients lie                      lazy.py       when they travel:
                     theta
    overlap.py       another thread does it                       meter.py      and how much that
                     hides
    merged.py        when they travel: measured once, then merged (MG-WFBP)
    precision.py     loss scale, float32 master weights           csc.py        only some chunks
                     travel
      csc.py reads   chunk_choice.py (which), momentum_correction.py (what is kept), store.py and
                     packing.py (how)
"""
