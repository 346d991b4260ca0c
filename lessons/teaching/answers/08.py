"""Answers to lessons/student/08.py: full marks."""


def ring_seconds(p, nbytes, alpha, beta):
    return 2 * (p - 1) * (alpha + beta * nbytes / p)


def speedup_and_efficiency(p, one_s, all_s, weak):
    batches = p if weak else 1
    speedup = (batches / all_s) / (1 / one_s)
    return speedup, 100 * speedup / p


def step_seconds(p, compute_s, ready_s, nbytes, alpha, beta):
    end_s = 0.0
    for ready, m in zip(ready_s, nbytes):
        end_s = max(end_s, ready) + ring_seconds(p, m, alpha, beta)
    return max(compute_s, end_s)


def predicted_efficiency(p, one_s, nbytes, alpha, beta, weak):
    compute_s = one_s if weak else one_s / p
    return 100 * compute_s / (compute_s + ring_seconds(p, nbytes, alpha, beta))
