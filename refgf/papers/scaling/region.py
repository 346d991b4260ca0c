"""Where lazy allreduce pays: latencies and rates at which one call is g times as fast as eager.

k tensors of n bytes in total, T(m) = a + b m, no overlap, communication only:

    gain = (k a + b n) / (a + b n)        so        a = b n (gain - 1) / (k - gain)

On the ring a = 2(p-1) alpha and b = 2(p-1)/p beta, so the border is the line
alpha = beta n (gain - 1) / (p (k - gain)): latency times rate decides, and the gain stays below k.
"""

from refgf.predict.cost import Line


def gain(calls: int, nbytes: float, line: Line) -> float:
    """Time of eager calls over the time of one call; 1 if both take no time."""
    one_call_s = line(nbytes)
    return (one_call_s + (calls - 1) * line.a_s) / one_call_s if one_call_s else 1.0


def latency_of_gain(
    wanted: float, calls: int, nbytes: float, size: int, beta_s_per_byte: float
) -> float:
    """alpha in seconds at which the ring on `size` ranks has the gain `wanted`."""
    if not 1 <= wanted < calls:
        raise ValueError(
            f"latency_of_gain: got a gain of {wanted} for {calls} calls; wanted 1 <= gain < calls; "
            "next: a gain below the number of calls"
        )
    return beta_s_per_byte * nbytes * (wanted - 1) / (size * (calls - wanted))
