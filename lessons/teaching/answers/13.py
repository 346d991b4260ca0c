"""Answers to lessons/student/13.py: full marks."""

import numpy as np


def node_means(gradients, k):
    p, n = gradients.shape
    return gradients.reshape(p // k, k, n).mean(axis=1)


def global_sums(batches, global_skip, wait):
    last = batches - 1
    sent = [b for b in range(batches) if b % global_skip == 0 or b == last]
    return [(b, min(b + wait, last)) for b in sent]


def merge(w, total, nodes, waited):
    return (2 * waited * w + total) / (2 * waited + nodes)


def epoch(w, gradients, global_skip, wait, rate):
    batches, nodes = gradients.shape[:2]
    ws, in_flight, states = np.tile(w, (nodes, 1)), {}, []
    receipts = dict(global_sums(batches, global_skip, wait)) if nodes > 1 else {}
    for b in range(batches):
        ws = ws - rate * gradients[b]
        if b in receipts:  # in the last batch this replaces what is in flight
            in_flight[receipts[b]] = ws.sum(axis=0), receipts[b] - b
        if b in in_flight:
            ws = merge(ws, in_flight[b][0], nodes, in_flight[b][1])
        states.append(ws)
    return np.array(states)


def outer_step(start, v, ws, rate, momentum):
    d = (start - ws).mean(axis=0)
    v = momentum * v + d
    return start - rate * (d + momentum * v), v
