"""alpha and beta from measurements."""

import numpy as np

from refgf.predict.cost import Line


def fit_line(points) -> Line:
    """The line a + b * bytes through [(bytes, seconds)] with the least sum of squared *relative* errors.

    Relative, because sizes span many powers of ten: otherwise the longest message alone would decide, and a would be
    noise. Neither coefficient is below zero: where the best line would have one, the other is fitted alone.
    """
    nbytes, seconds = np.array(points, float).T
    if len(nbytes) < 2 or not (seconds > 0).all():
        raise ValueError(f"fit_line: got {len(nbytes)} points, times {seconds[:4]}; wanted two or more, all above 0 s")
    design = np.stack([1 / seconds, nbytes / seconds], axis=1)  # rows: [1, bytes], each divided by its time
    (a_s, b_s_per_byte), *_ = np.linalg.lstsq(design, np.ones(len(seconds)), rcond=None)
    if a_s < 0 or b_s_per_byte < 0:
        column = 1 if a_s < 0 else 0
        alone = design[:, column].sum() / (design[:, column] ** 2).sum()
        a_s, b_s_per_byte = (0.0, alone) if column else (alone, 0.0)
    return Line(float(a_s), float(b_s_per_byte))
