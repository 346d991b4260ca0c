"""Mistakes in the times of collectives."""

from fractions import Fraction
from math import ceil, log2

from refgf.oracle.definitions import (
    allgather_rounds,
    allreduce_line,
    allreduce_rounds,
    direct_s,
    halving_doubling_s,
    log_phases_s,
    longest_slice,
    recursive_doubling_rounds,
    recursive_doubling_s,
    reduce_scatter_rounds,
    ring_s,
    rounds_s,
    topk_s,
    tree_rounds,
    tree_s,
    two_level_s,
    with_extras,
)
from refgf.oracle.seeded.mistakes.registry import mistake


@mistake("E1", "rounds_s", "additions cost nothing")
def nothing_added(rounds, itemsize, link):
    return rounds_s(rounds, itemsize, (*link[:2], 0.0))


@mistake("E1", "rounds_s", "one latency for the whole collective")
def one_latency(rounds, itemsize, link):
    rest_s = rounds_s(rounds, itemsize, (0.0, *link[1:]))
    return rest_s + (link[0] if rounds else 0.0)


@mistake("E1", "rounds_s", "elements are counted as bytes")
def elements_as_bytes(rounds, itemsize, link):
    return rounds_s(rounds, 1, link)


@mistake("E1", "rounds_s", "a link carries one direction at a time: bytes cost twice")
def one_direction(rounds, itemsize, link):
    return rounds_s(rounds, itemsize, (link[0], 2 * link[1], link[2]))


@mistake("E2", "allgather_rounds", "p rounds, not p - 1")
def p_gathers(n, p):
    return [(longest_slice(n, p), 0)] * p


@mistake("E2", "reduce_scatter_rounds", "p rounds, not p - 1")
def p_scatters(n, p):
    return [(longest_slice(n, p), longest_slice(n, p))] * p


@mistake("E2", "longest_slice", "n // p elements: the longer slices are forgotten")
def shortest_slice(n, p):
    return n // p


@mistake("E2", "allgather_rounds", "the allgather adds what it receives")
def gathers_add(n, p):
    return [(longest_slice(n, p), longest_slice(n, p))] * (p - 1)


@mistake("E2", "direct_s", "two rounds of all slices: the other ranks' messages cost no latency")
def two_rounds(n, p, itemsize, link):
    return direct_s(n, p, itemsize, (0.0, *link[1:])) + (2 * link[0] if p > 1 else 0.0)


@mistake("E3", "tree_rounds", "floor(log2 p) rounds: ranks beyond the power of two are forgotten")
def tree_too_short(n, p):
    height = p.bit_length() - 1
    return [(n, n)] * height + [(n, 0)] * height


@mistake("E3", "tree_rounds", "the way down is forgotten")
def tree_up_only(n, p):
    return tree_rounds(n, p)[: (p - 1).bit_length()]


@mistake("E3", "with_extras", "the ranks beyond the power of two are forgotten")
def no_extras(n, p, rounds):
    return rounds


@mistake("E3", "with_extras", "the extra ranks' sums cost no addition")
def extras_not_added(n, p, rounds):
    return rounds if p & (p - 1) == 0 else [(n, 0), *rounds, (n, 0)]


@mistake("E3", "recursive_doubling_s", "log2 p rounds, a fraction where p is no power of two")
def fraction_of_a_round(n, p, itemsize, link):
    return log2(p) * rounds_s([(n, n)], itemsize, link)


@mistake("E3", "recursive_doubling_s", "ceil(log2 p) rounds, as if extra ranks took part")
def rounded_up(n, p, itemsize, link):
    return rounds_s([(n, n)] * ceil(log2(p)), itemsize, link)


@mistake("E4", "halving_doubling_rounds", "the whole vector in each round")
def never_halved(n, p):
    rounds = recursive_doubling_rounds(n, p)
    return rounds + [(n, 0)] * (p.bit_length() - 1)


@mistake("E4", "halving_doubling_rounds", "the way back adds too")
def back_adds(n, p):
    halves = [Fraction(n, 2**i) for i in range(1, p.bit_length())]
    return with_extras(n, p, 2 * [(half, half) for half in halves])


@mistake("E4", "halving_doubling_rounds", "half the vector in each round: it is halved only once")
def halved_once(n, p):
    half, count = Fraction(n, 2), p.bit_length() - 1
    return with_extras(n, p, [(half, half)] * count + [(half, 0)] * count)


@mistake("E4", "halving_doubling_s", "the slope of a ring of p ranks, where only q take part")
def slope_of_p(n, p, itemsize, link):
    latencies_s = halving_doubling_s(0, p, itemsize, link)
    return latencies_s + allreduce_line("ring", p, link)[1] * itemsize * n


@mistake("E5", "allreduce_line", "one latency, however many rounds")
def line_of_one_latency(algorithm, p, link):
    return link[0], allreduce_line(algorithm, p, link)[1]


@mistake("E5", "allreduce_line", "2 p latencies and 2 n bytes a link: (p - 1) / p is left out")
def line_of_many_ranks(algorithm, p, link):
    a_s, b_s = allreduce_line(algorithm, p, link)
    if algorithm == "ring":
        return 2 * p * link[0], 2 * link[1] + link[2]
    return a_s, b_s


@mistake("E5", "allreduce_line", "an addition for each message, also for those that are copied")
def line_adds_always(algorithm, p, link):
    alpha, beta, gamma = link
    return allreduce_line(algorithm, p, (alpha, beta + gamma, 0.0))


@mistake("E5", "allreduce_line", "b is per element: of a vector of one, each slice is all of it")
def line_of_one_element(algorithm, p, link):
    alpha, beta, gamma = link
    rounds = allreduce_rounds(algorithm, 1, p)
    b_s = beta * float(sum(r[0] for r in rounds)) + gamma * float(sum(r[1] for r in rounds))
    return alpha * len(rounds), b_s


@mistake("E6", "three_phase_s", "2 (k - 1) rounds in the node: gather and scatter are forgotten")
def two_phases_in_the_node(n, nodes, ranks_per_node, itemsize, inside, between):
    inside_s = ring_s(n, ranks_per_node, itemsize, inside)
    return inside_s + ring_s(n, nodes, itemsize, between)


@mistake("E6", "three_phase_s", "the masters' ring sends a slice only, not the whole vector")
def masters_send_slices(n, nodes, ranks_per_node, itemsize, inside, between):
    k = ranks_per_node
    rounds = reduce_scatter_rounds(n, k) + 3 * allgather_rounds(n, k)
    own = longest_slice(n, k)
    return rounds_s(rounds, itemsize, inside) + ring_s(own, nodes, itemsize, between)


@mistake("E6", "two_level_s", "one ring between nodes for the whole vector")
def whole_vector_between(n, nodes, ranks_per_node, itemsize, inside, between):
    inside_s = ring_s(n, ranks_per_node, itemsize, inside)
    return inside_s + ring_s(n, nodes, itemsize, between)


@mistake("E6", "two_level_s", "the rings of a node wait for each other: k times the bytes")
def rings_in_turn(n, nodes, ranks_per_node, itemsize, inside, between):
    alpha, beta, gamma = between
    shared = (alpha, ranks_per_node * beta, gamma)
    return two_level_s(n, nodes, ranks_per_node, itemsize, inside, shared)


@mistake("E6", "log_phases_s", "the tree in the node is not gone back")
def node_tree_up_only(n, nodes, ranks_per_node, itemsize, inside, between):
    up_s = rounds_s([(n, n)] * (ranks_per_node - 1).bit_length(), itemsize, inside)
    return up_s + halving_doubling_s(n, nodes, itemsize, between)


@mistake("E6", "log_phases_s", "a tree over the masters too")
def tree_over_masters(n, nodes, ranks_per_node, itemsize, inside, between):
    inside_s = tree_s(n, ranks_per_node, itemsize, inside)
    return inside_s + tree_s(n, nodes, itemsize, between)


@mistake("E6", "log_phases_s", "recursive doubling over the masters")
def doubling_over_masters(n, nodes, ranks_per_node, itemsize, inside, between):
    inside_s = tree_s(n, ranks_per_node, itemsize, inside)
    return inside_s + recursive_doubling_s(n, nodes, itemsize, between)


@mistake("E6", "log_phases_s", "nodes are ignored: log2 of all ranks, on the links between nodes")
def one_tree(n, nodes, ranks_per_node, itemsize, inside, between):
    return log_phases_s(n, nodes * ranks_per_node, 1, itemsize, inside, between)


@mistake("E7", "topk_s", "indices cost nothing")
def free_indices(p, chosen, itemsize, link):
    return rounds_s([(chosen, 0)] * (p - 1), itemsize, link)


@mistake("E7", "topk_s", "values and indices in one message: half of the latencies")
def one_message(p, chosen, itemsize, link):
    return rounds_s([(chosen, 0)] * (p - 1), itemsize + 4, link)


@mistake("E7", "topk_s", "indices have the size of values")
def indices_like_values(p, chosen, itemsize, link):
    return 2 * rounds_s([(chosen, 0)] * (p - 1), itemsize, link)


@mistake("E7", "topk_s", "a ring allreduce of k pairs: the bytes do not grow with p")
def sparse_ring(p, chosen, itemsize, link):
    return ring_s(chosen, p, itemsize + 4, (*link[:2], 0.0))


@mistake("E7", "hitopk_s", "the gathers go over all ranks, not between nodes")
def gathers_everywhere(n, nodes, ranks_per_node, chosen, itemsize, inside, between):
    p = nodes * ranks_per_node
    values_s = rounds_s([(chosen, 0)] * (p - 1), itemsize, between)
    indices_s = rounds_s([(chosen, 0)] * (p - 1), 4, between)
    return ring_s(n, ranks_per_node, itemsize, inside) + values_s + indices_s


@mistake("E7", "hitopk_s", "the node sends the chosen elements only")
def sparse_in_the_node(n, nodes, ranks_per_node, chosen, itemsize, inside, between):
    k = ranks_per_node
    inside_s = rounds_s([(chosen, 0)] * (2 * (k - 1)), itemsize, inside)
    values_s = rounds_s([(chosen, 0)] * (nodes - 1), itemsize, between)
    return inside_s + values_s + rounds_s([(chosen, 0)] * (nodes - 1), 4, between)


@mistake("E7", "hitopk_pairs_s", "the node gathers the pairs of one node, not of all")
def pairs_of_one_node(n, nodes, ranks_per_node, chosen, itemsize, inside, between):
    inside_s = rounds_s(reduce_scatter_rounds(n, ranks_per_node), itemsize, inside)
    pairs_s = topk_s(ranks_per_node, chosen, itemsize, inside)
    return inside_s + topk_s(nodes, chosen, itemsize, between) + pairs_s
