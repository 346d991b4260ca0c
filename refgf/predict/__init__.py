"""What a training step will cost, by arithmetic only.

    cost.py, fit.py    the time of one collective in closed form; its coefficients from a fit
    timeline.py        the time of one step: computation and communication, overlapped or not

Nothing here sends a message, holds a gradient or measures. Times are in seconds, sizes in bytes or
elements. refgf/papers/scaling predicts the papers' networks and clusters with it.
"""
