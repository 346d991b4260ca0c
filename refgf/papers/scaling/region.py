"""Where lazy allreduce pays: latencies and rates at which one call is g times as fast as one call a tensor.

k tensors of n bytes together, T(m) = a + b m, no overlap, communication only:

    gain = (k a + b n) / (a + b n)        so        a = b n (gain - 1) / (k - gain)

With the ring on p ranks a = 2(p-1) alpha and b = 2(p-1)/p beta (refgf/predict/cost.py), so the border is the line
alpha = beta n (gain - 1) / (p (k - gain)): what counts is latency times rate, and no gain beyond k is possible.
"""


def gain(calls: int, nbytes: int, line) -> float:
    """Eager time over the time of one call; 1 where both take no time. `line` is a refgf.predict.cost.Line."""
    one_call_s = line(nbytes)
    return (one_call_s + (calls - 1) * line.a_s) / one_call_s if one_call_s else 1.0


def latency_of_gain(wanted: float, calls: int, nbytes: int, size: int, beta_s_per_byte: float) -> float:
    """alpha in seconds at which the ring on `size` ranks gains exactly `wanted`. ValueError unless 1 <= wanted < calls."""
    if not 1 <= wanted < calls:
        raise ValueError(f"latency_of_gain: got a gain of {wanted} for {calls} calls; wanted 1 <= gain < calls")
    return beta_s_per_byte * nbytes * (wanted - 1) / (size * (calls - wanted))
