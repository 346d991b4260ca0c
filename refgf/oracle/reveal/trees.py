"""A tree from the sizes of its smallest subtrees.

A tree is a rank, or the tuple of the trees that are added: two, or more where a sum has more than
two terms at once. The larger subtree stands first, then the one with the lower rank, so trees that
differ by a+b = b+a only are equal.
"""

from collections.abc import Callable, Iterable
from itertools import combinations

import numpy as np

from refgf.oracle.reveal.probes import pairs

Tree = int | tuple
Joined = dict[tuple[int, int], int]  # a pair of ranks -> leaves of, or the set lost with, both


def leaves(tree: Tree) -> list[int]:
    return [tree] if isinstance(tree, int) else [r for child in tree for r in leaves(child)]


def node(children: Iterable[Tree]) -> Tree:
    """The children in their standing order."""
    return tuple(sorted(children, key=lambda t: (-len(leaves(t)), min(leaves(t)))))


def canonical(tree: Tree) -> Tree:
    return tree if isinstance(tree, int) else node(canonical(child) for child in tree)


def text(tree: Tree) -> str:
    """((0+1)+2)+3; sum(0, 1, 2) where more than two are added at once."""
    if isinstance(tree, int):
        return str(tree)
    if len(tree) > 2:
        return f"sum({', '.join(text(child) for child in tree)})"
    return "+".join(text(t) if isinstance(t, int) or len(t) > 2 else f"({text(t)})" for t in tree)


def is_binary(tree: Tree) -> bool:
    return isinstance(tree, int) or (len(tree) == 2 and all(map(is_binary, tree)))


def sizes_of(tree: Tree, p: int) -> tuple[int, ...]:
    """What the probes find on a binary tree: for each pair the leaves of its smallest subtree."""
    found = {}

    def visit(part: Tree) -> list[int]:
        if isinstance(part, int):
            return [part]
        groups = [visit(child) for child in part]
        every = [r for group in groups for r in group]
        for a, group in enumerate(groups):
            for other in groups[a + 1 :]:
                found.update({(min(i, j), max(i, j)): len(every) for i in group for j in other})
        return every

    visit(tree)
    return tuple(found[pair] for pair in pairs(p))


def from_sizes(sizes: Iterable[int], p: int) -> Tree | None:
    """The tree with these subtree sizes, in the order of `pairs(p)`; None if there is none.

    The ranks under one child of the root are those whose smallest subtree is not the whole.
    """
    joined = dict(zip(pairs(p), map(int, sizes)))
    return _grouped(list(range(p)), lambda i, j, ranks: _of(joined, i, j) == len(ranks))


def from_lost(lost: Iterable[int], p: int) -> Tree | None:
    """The tree in which each pair loses these sets of ranks (bits); None if there is none.

    A sum of several terms that is rounded once loses only what its two largest terms hold: then no
    pair loses all ranks. Two pairs (i, j), (i, k) of different terms have the term of i in common.
    """
    joined = dict(zip(pairs(p), map(int, lost)))

    def whole(ranks: list[int]) -> int:
        return sum(1 << r for r in ranks)

    def at_once(ranks: list[int]) -> list[list[int]] | None:
        inside = [(i, j) for i, j in pairs(p) if i in ranks and j in ranks]
        i, j = max(inside, key=lambda pair: joined[pair].bit_count())
        both = joined[i, j]
        others = [k for k in ranks if not both >> k & 1]
        if not others:
            return None
        first = both & _of(joined, i, others[0])
        sets = {first, both & ~first} | {_of(joined, i, k) & ~first for k in others}
        return [[r for r in ranks if bits >> r & 1] for bits in sets]

    def meet(i: int, j: int, ranks: list[int]) -> bool:
        return _of(joined, i, j) == whole(ranks)

    tree = _grouped(list(range(p)), meet, at_once)
    return tree if tree is not None and _loses(tree, joined)[1] else None


def _loses(tree: Tree, joined: Joined) -> tuple[int, bool]:
    """(the ranks of a tree as bits, does each pair lose what its two terms, or all terms, hold?)"""
    if isinstance(tree, int):
        return 1 << tree, True
    terms = [_loses(child, joined) for child in tree]
    every, fits = sum(bits for bits, _ in terms), all(fits for _, fits in terms)
    for first, second in combinations(tree, 2):
        both = sum(1 << r for r in leaves(first) + leaves(second))
        crossing = [_of(joined, i, j) for i in leaves(first) for j in leaves(second)]
        fits = fits and all(bits in (both, every) for bits in crossing)
    return every, fits


def _of(joined: Joined, i: int, j: int) -> int:
    return joined[min(i, j), max(i, j)]


def _grouped(
    ranks: list[int],
    meet: Callable[[int, int, list[int]], bool],
    at_once: Callable[[list[int]], list[list[int]] | None] = lambda ranks: None,
) -> Tree | None:
    """meet(i, j, ranks): do i and j meet only at the root of `ranks`? at_once: if none do."""
    if len(ranks) == 1:
        return ranks[0]
    groups, rest = [], ranks
    while rest:
        groups.append([k for k in rest if k == rest[0] or not meet(rest[0], k, ranks)])
        rest = [k for k in rest if k not in groups[-1]]
    group_of = {k: number for number, group in enumerate(groups) for k in group}
    crossing = [(i, j) for i in ranks for j in ranks if i < j]
    if any(meet(i, j, ranks) != (group_of[i] != group_of[j]) for i, j in crossing):
        return None
    if len(groups) == 1:
        groups = at_once(ranks)
        if groups is None or sorted(r for group in groups for r in group) != ranks:
            return None
    children = [_grouped(group, meet, at_once) for group in groups]
    return None if None in children else node(children)


def evaluate(tree: Tree, xs: list[np.ndarray], rounded: Callable) -> np.ndarray:
    """The sum in this order; every partial sum is rounded. p arrays (n,) -> (n,)"""
    if isinstance(tree, int):
        return xs[tree]
    first, second = (evaluate(child, xs, rounded) for child in tree)
    return rounded(first + second)
