"""Answers to lessons/student/10.py: full marks."""

import numpy as np


def nodes_of(hosts):
    nodes = {}
    for rank, host in enumerate(hosts):
        nodes.setdefault(host, []).append(rank)
    return list(nodes.values())


def three_phases(xs, nodes):
    reduced, summed = list(xs), list(xs)
    for node in nodes:
        reduced[node[0]] = sum(xs[rank] for rank in node)
    total = sum(reduced[node[0]] for node in nodes)
    for node in nodes:
        summed[node[0]] = total
    return [reduced, summed, [total] * len(xs)]


def two_levels(xs, nodes):
    k = len(nodes[0])
    slices = [np.array_split(x, k) for x in xs]
    scattered, summed = [None] * len(xs), [None] * len(xs)
    for node in nodes:
        for j, rank in enumerate(node):
            scattered[rank] = sum(slices[other][j] for other in node)
    for j in range(k):
        total = sum(scattered[node[j]] for node in nodes)
        for node in nodes:
            summed[node[j]] = total
    total = np.concatenate([summed[rank] for rank in nodes[0]])
    return [scattered, summed, [total] * len(xs)]


def slow_links(sends, nodes):
    node_of = {rank: i for i, node in enumerate(nodes) for rank in node}
    found = [(0, 0)] * len(nodes)
    for source, dest, count in sends:
        i = node_of[source]
        if i != node_of[dest]:
            found[i] = (found[i][0] + 1, found[i][1] + count)
    return found
