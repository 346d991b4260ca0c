"""Mistakes seeded in refgf/comm."""

from mutant import Mutant

SLICES, RING, DIRECT, SCHEDULE = (f"refgf.comm.{name}" for name in ("slices", "ring", "direct", "schedule"))
TREE, DOUBLING, HIERARCHICAL = (f"refgf.comm.{name}" for name in ("tree", "doubling", "hierarchical"))

BOTH_HALVES = "return reduce_scatter(rank, size, n) + allgather(rank, size, n)"
BLOCKED = """return [half for s in reduce_scatter(rank, size, n) + allgather(rank, size, n) for half in (
        [Step(s.send_to, s.send, None, slice(0, 0), "add"), Step(None, slice(0, 0), s.receive_from, s.receive, s.op)]
        if s.send_to is not None else [s])]"""
TREE_IN_RANK_ORDER = """
def reduce(rank, size, n):
    if rank:
        return [send(slice(0, n), 0)]
    return [receive(slice(0, n), r, "add") for r in range(1, size)] + [local("finish", slice(0, n))]
"""

MUTANTS = [
    Mutant(SLICES, "the last slice takes the whole remainder", "i * each + min(i, longer)",
           "i * each + (longer if i == size else 0)", "the last slice takes the whole remainder (violates R1)"),
    Mutant(SLICES, "slices are rounded up", "[i * each + min(i, longer) for i in range(size + 1)]",
           "[min(i * -(-n // size), n) for i in range(size + 1)]", "slices are rounded up"),
    Mutant(SLICES, "lost tail", "[i * each + min(i, longer) for i in range(size + 1)]",
           "[i * each for i in range(size + 1)]", "lost tail: the n mod p last elements are not summed (violates R1)"),
    Mutant(SLICES, "the short last chunk is lost", "range(0, n, chunk)", "range(0, n - chunk + 1, chunk)",
           "the short last chunk is lost (violates C1)"),
    Mutant(RING, "chunk off by one in the reduce-scatter", 'parts[(rank - k - 1) % size], "add")',
           'parts[(rank - k - 2) % size], "add")', killed_by="messages"),
    Mutant(RING, "one step short in the reduce-scatter", """"add")
        for k in range(size - 1)""", """"add")
        for k in range(size - 2)""",
           "the last step of the reduce-scatter is missing: slice s is what rank s-1 contributed (violates R2)"),
    Mutant(RING, "one step short in the allgather", """"copy")
        for k in range(size - 1)""", """"copy")
        for k in range(size - 2)""", "the allgather stops one step early"),
    Mutant(RING, "whole tensor round the ring", BOTH_HALVES,
           'return [Step((rank + 1) % size, slice(0, n), (rank - 1) % size, slice(0, n), "add")] * (size - 1)',
           killed_by="messages"),
    Mutant(RING, "empty messages are left out on one side", BOTH_HALVES, BOTH_HALVES.replace("return ", "return [s for s in ")
           + " if s.send.stop > s.send.start or s.receive.stop > s.receive.start]", killed_by="messages"),
    Mutant(RING, "the finished slice is not rounded by its owner",
           'return [local("finish", parts[(rank + 1) % size])] + [', "return [] + [",
           "the owner keeps its finished slice unrounded (violates R4)"),
    Mutant(RING, "blocked sends: everybody sends before receiving", BOTH_HALVES, BLOCKED, killed_by="deadlock"),
    Mutant(RING, "the ring runs in the other direction", "right, left = (rank + 1) % size, (rank - 1) % size\n    return [\n",
           "right, left = (rank - 1) % size, (rank + 1) % size\n    return [\n", killed_by="messages"),
    Mutant(DIRECT, "the result goes to all but the last rank", "for to, sender in others]\n    return",
           "for to, sender in others[:-1]]\n    return", killed_by="messages"),
    Mutant(DIRECT, "the result is not rounded", 'local("finish", own)', 'local("finish", slice(0, 0))',
           "the owner keeps its own finished slice unrounded (violates D2)"),
    Mutant(DIRECT, "the nearest neighbour is left out", "for t in range(1, size)]\n    collect",
           "for t in range(2, size)]\n    collect", killed_by="messages"),
    Mutant(SCHEDULE, "the last rank of a fold is forgotten", "for term in terms[1:]:", "for term in terms[1:-1] or terms[1:]:",
           "the last rank is forgotten (violates D1)"),
    Mutant(SCHEDULE, "a fold begins with the own slice",
           "own if rank == position else kept[rank][block] for rank in range(len(kept) + 1)",
           "own, *(kept[rank][block] for rank in sorted(kept))",
           "the owner adds its own slice first: bits depend on the cut (violates D3)"),
    Mutant(SCHEDULE, "the own slice is not rounded before a fold", "own = part[block].astype(wire)", "own = part[block].copy()",
           "the owner's own slice is not rounded: bits depend on the cut (violates D3)"),
    Mutant(SCHEDULE, "added twice", '    if step.op == "add":\n', '    if step.op == "add":\n        part += arrived\n',
           "counted twice"),
    Mutant(SCHEDULE, "copied instead of added", '    if step.op == "add":\n',
           '    if step.op == "add":\n        part[...] = arrived\n    elif step.op == "never":\n', "lost"),
    Mutant(TREE, "the root does not round its own sum", 'return steps + [local("finish", everything)]', "return steps",
           "the root's own sum is not rounded (violates H1)"),
    Mutant(TREE, "the root adds rank after rank", "", TREE_IN_RANK_ORDER, "the root adds rank after rank (violates H1)"),
    Mutant(TREE, "the last child is never received", "if rank + distance < size:", "if rank + distance < size - 1:",
           killed_by="refused"),
    Mutant(DOUBLING, "an extra rank's vector is not added", 'receive(everything, rank + 1, "add")',
           'receive(everything, rank + 1, "copy")',
           killed_by="comm/test_doubling.py::test_schedules_take_as_long_as_the_closed_forms"),
    Mutant(DOUBLING, "halving keeps the half that it sends", "steps += _exchange(partner, lower, upper)",
           "steps += _exchange(partner, upper, upper)",
           killed_by="comm/test_doubling.py::test_forgotten_extras_pass_for_powers_of_two"),
    Mutant(DOUBLING, "partners do not round their own sides", 'return [local("finish", keep), Step(', "return [Step(",
           "a partner does not round its own side (violates H3)"),
    Mutant(HIERARCHICAL, "log phases go round the ring in the node", "return three_phase(nodes, tree.reduce, ",
           "return three_phase(nodes, ring_to_master, ", "a node's sum is formed around its ring (violates H8)"),
    Mutant(HIERARCHICAL, "log phases let the masters' ring run", "between: Algorithm = doubling.halving_doubling) ->",
           "between: Algorithm = ring.allreduce) ->", "the ring runs over the masters (violates H8)"),
    Mutant(HIERARCHICAL, "log phases start with the masters in the order of their numbers",
           "    masters = [node[0] for node in nodes]\n", "    masters = sorted(node[0] for node in nodes)\n",
           killed_by="refused"),
    Mutant(HIERARCHICAL, "log phases forget the nodes", "return three_phase(nodes, tree.reduce, between)",
           "return tree.allreduce",
           "the nodes are forgotten: one tree over all ranks, in the order of their numbers (violates H8)"),
    Mutant(HIERARCHICAL, "the sum stays with the masters", "return up + over + way_back(up)", "return up + over",
           killed_by="comm/test_hierarchical.py::test_steps_of_the_paper"),
    Mutant(HIERARCHICAL, "the hybrid takes three phases whatever it was given", "hierarchy = short(nodes)",
           "hierarchy = three_phase(nodes)",
           killed_by="comm/test_hierarchical.py::test_hybrid_takes_the_form_for_short_vectors"),
    Mutant(HIERARCHICAL, "three phases at the threshold", "hierarchy if n < threshold_elements",
           "hierarchy if n <= threshold_elements",
           "three phases at the threshold, too (violates H6)"),
    Mutant(HIERARCHICAL, "ranks in the order of their numbers, not node by node",
           "    if len({len(node) for node in nodes}) > 1:\n",
           "    k, ranks = len(nodes[0]), sorted(rank for node in nodes for rank in node)\n"
           "" "    nodes = [ranks[i : i + k] for i in range(0, len(ranks), k)]\n"
           "    if len({len(node) for node in nodes}) > 1:\n",
           "the ranks are taken in the order of their numbers (violates H5)"),
    Mutant(HIERARCHICAL, "the flat ring below the threshold", "hierarchy if n < threshold_elements",
           "hierarchy if n >= threshold_elements", "the flat ring below the threshold (violates H6)"),
]  # fmt: skip
