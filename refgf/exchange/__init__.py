"""Which gradients are sent, when, and in what form.

Every technique takes an `Allreduce` (a callable that sums a flat array over all ranks, in place)
and knows nothing else about communication, so each can be tested over any other.

    pool.py       where the gradients lie            overlap.py     the thread that sends them
    lazy.py       when they are sent: theta          precision.py   loss scale, master weights
    dense.py      all of them are sent               compressor.py  your own approximation
    csc.py        only the chosen chunks are sent: chunk_choice.py (which), and
                  momentum_correction.py (the residual of the others)
"""
