"""Which gradients are sent, when, and in what form.

Every technique takes an `Allreduce` (a callable that sums a flat array over all ranks, in place)
and knows nothing else about communication, so each can be tested over any other.

    pool.py       where the gradients lie            overlap.py     who sends them
    lazy.py       when they are sent: theta          precision.py   loss scale, master weights
    dense.py      all of them are sent               compressor.py  your own approximation
    csc.py        only some chunks are sent: chunk_choice.py (which), momentum_correction.py (what
                  is kept of the others)
"""
