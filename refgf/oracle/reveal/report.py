"""What the probes found, as lines of text."""

from collections.abc import Iterable

from refgf.oracle.judge.words import span
from refgf.oracle.reveal.arithmetic import FORMATS, Arithmetic
from refgf.oracle.reveal.orders import LIBRARIES, names_of_tree, other_ring
from refgf.oracle.reveal.probes import BITS
from refgf.oracle.reveal.search import Found, same_order
from refgf.oracle.reveal.trees import Tree, is_binary, text

LONGEST_LIST, MOST_NAMES = 20, 2
AT_ONCE = "    more than two terms are added at once"


def lines_of(found: Found) -> list[str]:
    """One size: runs with their trees, then ranks, repeats and arithmetic."""
    lines = [f"n = {found.n}: {headline(found)}"]
    lines += libraries(found.names) if found.n > 1 and found.right else []
    for start, stop, tree in found.runs[:LONGEST_LIST]:
        lines.append(f"  {span(start, stop)}: {tree_line(tree)}")
    if len(found.runs) > LONGEST_LIST:
        trees = len({tree for *_, tree in found.runs})
        lines.append(f"  and {len(found.runs) - LONGEST_LIST} runs more; {trees} trees in all")
    lines += uneven_lines(found)
    for rank, element, tree, other in found.ranks[:LONGEST_LIST]:
        lines.append(
            f"  rank {rank} adds in another order than rank 0, first in element {element}: "
            f"{tree_line(other)}; rank 0: {tree_line(tree)}"
        )
    for repeat, element, tree, other in found.repeats:
        both = f"{tree_line(other)}; before: {tree_line(tree)}"
        if tree is None and other is None:
            both = "the counts are others, and neither have a tree; next: look for a random "
            both += "order, or for one that depends on where the arrays lie in memory"
        lines.append(
            f"  repeat {repeat + 1} differs from the first, first in element {element}: {both}"
        )
    return lines + [f"  {line}" for line in arithmetic_lines(found)]


def headline(found: Found) -> str:
    name = whole_name(found)
    if found.uneven:
        ranks = sorted({rank for *_, ranks in found.uneven for rank in ranks})
        name = f"no sum of all ranks{on_ranks(ranks, found)}; the order on rank 0: {name}"
    elif found.ranks:
        name = f"on rank 0: {name}"
    return name


def on_ranks(ranks: list[int], found: Found) -> str:
    """ " on ranks 2, 3"; " on all ranks"; "" for one result that stands for all."""
    if found.rows == 1:
        return ""
    if len(ranks) == found.rows:
        return " on all ranks"
    some = ", ".join(map(str, ranks[:LONGEST_LIST])) + ", ..." * (len(ranks) > LONGEST_LIST)
    return f" on rank{'s' * (len(ranks) > 1)} {some}"


def whole_name(found: Found) -> str:
    names, trees = found.names, {tree for *_, tree in found.runs}
    if names and found.n == 1:
        (tree,) = trees
        name = first(names_of_tree(tree)) or first(names)
        return f"{name}; one element cannot tell it from a ring"
    if names:
        return first(names)
    if None in trees:
        return "no tree gives these sums in some elements"
    if len(trees) == 1:
        return "one order, " + (first(names_of_tree(*trees)) or "not a known one")
    ring = other_ring(found.runs)
    return ring or f"{len(trees)} orders in one vector, not as any known algorithm divides it"


def first(names: list[str]) -> str:
    more = len(names) - MOST_NAMES
    return "; ".join(names[:MOST_NAMES]) + (f"; {more} more" if more > 0 else "")


def libraries(names: Iterable[str]) -> list[str]:
    known = [LIBRARIES[name] for name in names if name in LIBRARIES]
    return [f"  the order of {'; '.join(known)}"] if known else []


def tree_line(tree: Tree | None) -> str:
    if tree is None:
        return "no tree: the calls contradict each other, or this is no sum of all ranks"
    known = first(names_of_tree(tree))
    return text(tree) + (f"    {known}" if known else AT_ONCE * (not is_binary(tree)))


def uneven_lines(found: Found) -> list[str]:
    """Ranks whose contribution is lost, or counted twice."""
    lines = []
    for start, stop, weights, ranks in found.uneven[:LONGEST_LIST]:
        where = f"{span(start, stop)}{on_ranks(ranks, found)}"
        each = ", ".join(f"rank {r}: {w:.4g}" for r, w in list(weights.items())[:LONGEST_LIST])
        lines.append(f"  {where}: no sum of all ranks; each 1 counts as {each}")
    return lines


def arithmetic_lines(found: Found) -> list[str]:
    told, lines = found.arithmetic, []
    if len(told.bits) == 1 and told.bits[0] == BITS[found.dtype]:
        lines.append(f"partial sums have {told.bits[0]} bits: {found.dtype}")
    elif told.bits:
        lines.append("; ".join(bits_line(b, found.dtype) for b in told.bits))
    lines += [told.lost] if told.lost else []
    lines += ["2^120 does not pass: probed in the range of float16"] * found.overflow
    if told.division:
        lines.append(f"a mean: divided by {found.p} {told.division}")
    elif told.factors != [1.0] and not found.uneven:
        weights = ", ".join(f"{f:.15g}" for f in told.factors)
        lines.append(f"not a sum: a contribution of 1 counts as {weights}")
    lines += [f"results have more bits than {found.dtype}, the type of the inputs"] * told.wide
    return lines + random_line(told, found) + apart_line(told, found.n) + told.special


def bits_line(bits: int, dtype: str) -> str:
    if bits == 0:
        return f"partial sums have more bits than {dtype} can show"
    than = "wider than" if bits > BITS[dtype] else "narrower than"
    than = than if bits != BITS[dtype] else "as in"
    return f"partial sums have {bits} bits ({FORMATS.get(bits, 'no known type')}), {than} the input"


def random_line(told: Arithmetic, found: Found) -> list[str]:
    if told.random is None:
        return [f"random numbers: {outside_text(told, found)}"]
    if told.random == 0:
        return ["random numbers: the bits that these trees give"]
    of = f"{told.random} of {found.n} elements"
    return [f"random numbers: {of} have other bits than these trees give"]


def outside_text(told: Arithmetic, found: Found) -> str:
    """Where the bits of the trees are not comparable: is it within the rounding that was found?"""
    far, kind = told.outside, told.wire or found.dtype
    if far is None:
        return "not compared: these sums have no tree, or no bound"
    if not far.elements:
        return f"within what rounding to {kind} may change, not compared bit by bit"
    return (
        f"{far.elements} of {found.n} elements are farther from the exact value than rounding to "
        f"{kind} explains, first element {far.element} on rank {far.rank}: got {far.got:.7g}; "
        f"wanted {far.exact:.7g} within {far.allowed:.2g}"
    )


def apart_line(told: Arithmetic, n: int) -> list[str]:
    if not told.apart:
        return []
    return [f"ranks differ: {told.apart} of {n} random numbers have other bits than on rank 0"]


def closing_lines(found: list[Found], times: int = 2) -> list[str]:
    """All sizes together. times: that all probes were asked."""
    calls = sum(each.calls for each in found)
    ranks = [each for each in found if each.ranks]
    apart = [each.n for each in found if each.arithmetic.apart]
    repeats = [each for each in found if each.repeats]
    unknown = [each.n for each in found if any(tree is None for *_, tree in each.runs)]
    same = f"no order is known at n = {unknown[0]}" if unknown else "the same order"
    bits = f", {'and' if unknown else 'but'} not the same bits at n = {apart[0]}" if apart else ""
    lines = [f"ranks differ, first at {at(ranks)}" if ranks else f"all ranks: {same}{bits}"]
    if repeats:
        lines.append(f"repeats differ, first at {at(repeats)}")
    elif times == 1:
        lines.append("asked once: whether repeats differ is not known")
    else:
        lines.append(
            f"all repeats: {same}, over {times} repeats; a rarer one needs more, --repeats N"
        )
    if len(found) > 1 and not unknown:
        common, where = same_order(found)
        if where is None:
            named = [name for name in common if not name.startswith("(")]
            lines.append(f"all sizes: the same order{': ' + first(named) if named else ''}")
        else:
            lines.append(f"sizes differ: at n = {where} no order of the sizes before holds")
    return [*lines, f"{calls} calls"]


def at(found: list[Found]) -> str:
    each = found[0]
    rank, element, *_ = (each.ranks or each.repeats)[0]
    return f"n = {each.n}, element {element}"
