"""Exercises of lesson 14, the data cache. Fill in the functions, then let them be marked:

    python -m refgf.oracle grade 14 lessons/student/14.py

and let the lesson measure them, next to the project's (--quick: in short):

    mpiexec -n 4 python lessons/14_data_cache.py --mine lessons/student/14.py

Plain Python is all you need; import only Python's own modules and NumPy. The marks do not know
this file's other functions, so add as many as you like. Exercise 1 is done, as an example.

`grade` shows what a function prints; a teacher's platform does not. To call one yourself:

    python -i lessons/student/14.py

A data set of n samples is divided among the nodes: each reads its own shard. The ranks of a node
share its memory and its disk. What is in neither is read from the slow store.
"""


# Exercise 1 (given)
def shards(n: int, nodes: list[list[int]]) -> list[list[int]]:
    """The samples of each node: sample i belongs to the node of rank i mod p.

    nodes: the ranks of each node.

    shards(10, [[0, 1], [2, 3]]) -> [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7]]
    """
    p = sum(len(ranks) for ranks in nodes)
    return [[i for i in range(n) if i % p in ranks] for ranks in nodes]


# Exercise 2 (medium, 25 minutes)
def hits(orders: list[list[int]], memory: int, disk: int) -> list[list[int]]:
    """[[from memory, from disk, from the store], ...]: how many samples come from where, per epoch.

    orders: the samples that a node requests in each epoch, in order, each once an epoch. They need
    not be the same samples in each epoch. memory, disk: how many samples have room there; both are
    empty at first.
    Memory is asked first, the disk second, the store last. Whatever comes from the store is stored
    on the disk, and whatever memory does not have is stored in memory, while there is room. Nothing
    is evicted.

    hits([[0, 1, 2, 3], [3, 2, 1, 0]], 1, 3) -> [[0, 0, 4], [1, 2, 1]]
    hits([[0, 1, 2, 3], [3, 2, 1, 0]], 2, 2) -> [[0, 0, 4], [2, 0, 2]]

    Hint: two sets, which live longer than an epoch. Which samples do they hold in the examples?
    """
    raise NotImplementedError


# Exercise 3 (easy, 15 minutes)
def epoch_seconds(
    n: int,
    p: int,
    nodes: int,
    sample_bytes: int,
    memory_bytes: int,
    memory_s: float,
    store_s: float,
) -> tuple[float, float]:
    """Predicted seconds to load the samples of an epoch: (the first epoch, each later epoch).

    n samples of sample_bytes each are loaded by p ranks on this many nodes, all ranks at the same
    time. All shards have n/nodes samples. Each node has memory_bytes for its shard, and no disk. A
    sample takes a rank memory_s seconds from memory, store_s seconds from the store.

    epoch_seconds(1000, 4, 2, 100, 25000, 0.01, 0.05) -> (12.5, 7.5)
    epoch_seconds(1000, 4, 2, 100, 80000, 0.01, 0.05) -> (12.5, 2.5)

    Hint: which share of its requests does memory serve, in the first epoch and in later ones?
    """
    raise NotImplementedError


# Exercise 4 (medium, 15 minutes)
def share_needed(speedup: float, memory_s: float, store_s: float) -> float | None:
    """The share of the shard (0 to 1) that memory must hold for this speedup of later epochs.

    speedup: the time of an epoch without a cache over that of a later epoch with it, 1 or more.
    memory_s, store_s: as in exercise 3. None if the whole shard in memory is not enough.

    share_needed(2.0, 0.01, 0.05) -> 0.625          share_needed(4.0, 0.01, 0.05) -> 0.9375
    share_needed(6.0, 0.01, 0.05) -> None

    Hint: write down the time of one sample, on the average, with the share h. Solve for h.
    """
    raise NotImplementedError
