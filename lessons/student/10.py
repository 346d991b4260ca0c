"""Exercises of lesson 10, hierarchical allreduce. Fill in the functions, then let them be marked:

    python -m refgf.oracle grade 10 lessons/student/10.py

and let the lesson measure them, next to the project's (--quick: in short):

    mpiexec -n 4 python lessons/10_hierarchical_allreduce.py --mine lessons/student/10.py

Import only NumPy and Python's own modules. The marks do not know this file's other functions, so
add as many as you like. Exercise 1 is done, as an example.

`grade` shows what a function prints; a teacher's platform does not. To call one yourself:

    python -i lessons/student/10.py

There are no messages here: a function gets the arrays of all ranks in a list and returns the arrays
of all ranks. xs[r] is the array of rank r. The numbers are whole, so the order of adding does not
matter. Elements count, and which rank holds which array when.
"""

import numpy as np


# Exercise 1 (given)
def nodes_of(hosts: list[str]) -> list[list[int]]:
    """The ranks of each node, from the host name of each rank. Nodes as they first appear.

    nodes_of(["a", "a", "b", "b"]) -> [[0, 1], [2, 3]]
    nodes_of(["b", "a", "b", "a"]) -> [[0, 2], [1, 3]]          ranks assigned round robin
    """
    nodes = {}
    for rank, host in enumerate(hosts):
        nodes.setdefault(host, []).append(rank)
    return list(nodes.values())


# Exercise 2 (medium, 25 minutes)
def three_phases(xs: list[np.ndarray], nodes: list[list[int]]) -> list[list[np.ndarray]]:
    """Allreduce in three phases. -> what all ranks hold after each phase: 3 lists of p arrays (n,)

    The master of a node is the first of its ranks. Phase 1: each master holds the sum of its node.
    Phase 2: each master holds the sum of all masters. Phase 3: all ranks hold it.
    A rank that a phase does not change holds what it held before.

    three_phases([[1], [10], [100], [1000]], [[0, 1], [2, 3]])
        -> [[[11], [10], [1100], [1000]], [[1111], [10], [1111], [1000]], [[1111]] * 4]

    Nodes may have different numbers of ranks, and the ranks of a node need not be neighbours.

    Hint: begin each phase with a new list, or you change the phase before.
    """
    raise NotImplementedError


# Exercise 3 (medium, 35 minutes)
def two_levels(xs: list[np.ndarray], nodes: list[list[int]]) -> list[list[np.ndarray]]:
    """Allreduce in two levels. -> what all ranks hold after each of 3 steps: 3 lists of p arrays

    Every node has k ranks, and the n elements are cut into k slices (the first n mod k are one
    element longer, as np.array_split cuts). The j-th rank of a node is the owner of slice j.
    Step 1, in the node: the owner of slice j holds this slice, summed over the node's ranks.
    Step 2, between nodes: the owners of slice j hold its sum over all nodes.
    Step 3, in the node: all ranks hold all slices, in order.

    two_levels([[1, 2], [10, 20], [100, 200], [1000, 2000]], [[0, 1], [2, 3]])
        -> [[[11], [22], [1100], [2200]], [[1111], [2222], [1111], [2222]], [[1111, 2222]] * 4]

    All k ranks of a node use the slow link, each for one k-th of the elements: no master.

    Hint: slices[r][j] is slice j of rank r. Who adds slices[?][j] in step 1, and who in step 2?
    """
    raise NotImplementedError


# Exercise 4 (easy, 15 minutes)
def slow_links(sends: list[tuple[int, int, int]], nodes: list[list[int]]) -> list[tuple[int, int]]:
    """(messages, elements) that leave each node. sends: (source, dest, elements) of all messages.

    Messages inside a node are not counted, empty messages between nodes are.

    slow_links([(0, 1, 5), (1, 2, 5), (2, 3, 5), (3, 0, 5)], [[0, 1], [2, 3]]) -> [(1, 5), (1, 5)]
    slow_links([(0, 1, 5), (1, 2, 5), (2, 3, 5), (3, 0, 5)], [[0, 2], [1, 3]])
        -> [(2, 10), (2, 10)]

    Hint: first find the node of each rank.
    """
    raise NotImplementedError
