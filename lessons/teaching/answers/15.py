"""Answers to lessons/student/15.py: full marks."""


def fully_connected(batch, inputs, outputs):
    flops = 2 * batch * inputs * outputs
    elements = batch * inputs + inputs * outputs + batch * outputs
    return flops, 4 * elements


def roofline(flops, nbytes, peak, bandwidth):
    compute_s, memory_s = flops / peak, nbytes / bandwidth
    seconds = max(compute_s, memory_s)
    return seconds, flops / seconds, "flops" if compute_s >= memory_s else "memory"


def ridge_batch(inputs, outputs, peak, bandwidth):
    for batch in range(1, 1001):
        flops, nbytes = fully_connected(batch, inputs, outputs)
        if roofline(flops, nbytes, peak, bandwidth)[2] == "flops":
            return batch
    return None


def step(forward_s, backward_s, elements, p, alpha, beta):
    now_s, end_s = sum(forward_s), 0.0
    for backward, n in list(zip(backward_s, elements))[::-1]:
        now_s += backward
        if n:
            end_s = max(end_s, now_s) + 2 * (p - 1) * (alpha + 4 * n / p * beta)
    seconds = max(now_s, end_s)
    return seconds, 100 * now_s / seconds if seconds else 100.0
