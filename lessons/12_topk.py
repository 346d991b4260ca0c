"""Lesson 12: top-k - fine-grained sparsity, next to the coarse-grained sparsity of lesson 06.

    python -m refgf.cluster run --like v100-56gbit --ranks-per-node 2 -- python lessons/12_topk.py
    mpiexec -n 8 python lessons/12_topk.py      (--quick, --full, --plot, --like this-machine ...)

QUESTION    CSC sends the most important chunks. Why not the most important single gradients? Far
            fewer elements would do.
IDEA        Each rank sends its k largest values and their indices. All ranks gather these pairs
            and add them up. What was not sent stays in a residual for the next step:

                rank 0   .  5  .  .  .  .  7  .  .  .       2 of 10, with indices 1 and 6
                rank 1   .  .  .  2  .  .  4  .  .  .       2 of 10, with indices 3 and 6
                sum      .  5  .  2  .  . 11  .  .  .       3 of 10: other ranks, other elements

            Finding the k largest needs no sorting: a selection is enough. MSTopK (Shi et al. 2021)
            needs not even that. It bisects a threshold and counts how many values reach it.
            HiTopKComm first sums densely inside each node of g ranks. Each rank then chooses from
            its slice of that sum, so only one set of pairs a node is sent to other nodes.
            (refgf/papers/mstopk/topk.py)
PREDICTION  n gradients in float32, a density of d percent, k = n d / 100; p = m g ranks on m nodes.
            Bytes that a rank sends in a step, and bytes that leave a node:

                              a rank sends                              leave a node
                dense ring    2 (p-1)/p 4n                              2 (p-1)/p 4n
                CSC           2 (p-1)/p 4n d/100, and norms             2 (p-1)/p 4n d/100
                top-k         (p-1) (4 + 4) k                           (p-1) (4 + 4) k
                HiTopKComm    2 (g-1)/g 4n + (m-1) (4 + 4) k/g          (m-1) (4 + 4) k

            At equal bytes, top-k may send d/p percent where CSC sends d percent. The sum of top-k
            has from k to p k non-zero elements. With one rank a node HiTopKComm is top-k.

Before you run it, write down: at how many ranks does top-k at 1 % send as many bytes as the dense
ring?

This is weak scaling: each rank brings its own batch, for any p. The links are those of 56 Gbit/s
because their dilation, 56, slows a V100's 900 GB/s of memory (assumed) to 16 GB/s. With 10 Gbit/s
and K = 10 it would be 90 GB/s. The run prints what one core reads: choosing should be to scale.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/12_topk.py)
    1. How many non-zeros has a sum of top-k from p ranks, at least and at most? Count them for
       data that all ranks share.
    2. Remove the error feedback: send the k largest and drop the rest. On which problem does
       training never converge?
    3. From how many ranks does top-k at 1 % send more than the dense ring? And with 16-bit values?
"""

import refgf.launch  # noqa: F401  before MPI starts

import numpy as np

import kit
from kit import images, placement
from kit.claims import GAIN, LIMIT, Claim
from lab import topk_bytes, topk_choice, topk_exchange, topk_learning
from lab import topk_values as values
from lab.topk_picture import draw
from refgf.comm import gather
from refgf.oracle import definitions
from refgf.papers.mstopk.topk import TopK, mstopk


CLAIMS = (
    Claim(
        "MSTopK's threshold search takes less time than an exact selection of 1 %.",
        lambda r: (values.choosing(r, "MSTopK"), "<", values.choosing(r, "exact selection")),
        unless="memory: the search reads more often, the selection moves more",
    ),
    Claim(
        "CSC's norms take less time than MSTopK's search: here top-k loses.",
        lambda r: (values.choosing(r, "CSC's norms"), "<", values.choosing(r, "MSTopK")),
        unless="chunks of few elements",
    ),
    Claim(
        "At 1 %, the messages of top-k take less time than those of the dense ring.",
        lambda r: values.messages(r, "top-k", "<", "dense ring", 100.0),
        unless="100 ranks or more, or messages so short that latency decides",
    ),
    Claim(
        "At equal density, the messages of top-k take longer than CSC's: here top-k loses.",
        lambda r: values.messages(r, "top-k", ">", "CSC"),
        unless="messages so short that latency decides: CSC sends more of them",
        kind=LIMIT,
    ),
    Claim(
        "At 10 %, the messages of HiTopKComm take less time than those of top-k.",
        lambda r: values.in_nodes(r, "messages", 10.0, "<"),
        unless="links in a node that are no faster than those between nodes",
        kind=GAIN,
    ),
    Claim(
        "Inside a node, HiTopKComm sends more bytes than top-k at 1 %: here it loses.",
        lambda r: values.in_nodes(r, "inside", 1.0, ">"),
        unless="100 ranks or more",
    ),
    Claim(
        "From 101 ranks on, but not on 100, top-k at 1 % sends more bytes than the dense ring.",
        lambda r: (r["traffic"]["share_there"], ">", r["traffic"]["share_before"], 1.005),
        unless="another density: the limit is 100 / d ranks",
    ),
    Claim(
        "At equal density, top-k ends a short training with a higher accuracy than CSC.",
        lambda r: values.learned(r, "top-k, same density", ">"),
        unless="more epochs, or a warm-up of CSC's density",
    ),
)
PICTURE = (
    "Bars: time of the messages of dense ring, CSC, top-k and HiTopKComm. Lines: bytes out of a "
    "node against ranks. The other figures show the time to choose and the accuracy."
)


def measure(run: kit.Run) -> dict:
    train, held_out = images.load(run)
    nodes = placement.equal_nodes(run)
    check_against_oracle(run, nodes)
    n = topk_exchange.elements(run, train)
    return {
        "choice": topk_choice.measure(run, n),
        "exchange": topk_exchange.measure(run, nodes, n),
        "traffic": topk_bytes.against_ranks(run, n, len(nodes[0])),
        "learning": topk_learning.measure(run, train, held_out),
    }


# ---- the idea ----


def topk_step(residuals, gradients, k: int):
    """One step of all ranks, in one process. residuals, gradients: (p, n). -> the sum (n,)"""
    total = np.zeros_like(gradients[0])
    for residual, gradient in zip(residuals, gradients):
        residual += gradient  # what was not sent before counts too
        chosen = np.argpartition(np.abs(residual), -k)[-k:]  # (k,) a selection: not sorted
        total[chosen] += residual[chosen]  # k values and k indices are sent
        residual[chosen] = 0
    return total


def threshold(x, k: int, rounds: int = 30) -> float:
    """MSTopK's search: a magnitude that at most k elements of x (n,) reach, and nearly k do."""
    magnitude = np.abs(x)
    low, high = magnitude.mean(), magnitude.max()
    for _ in range(rounds):
        middle = (low + high) / 2
        if np.count_nonzero(magnitude >= middle) > k:  # one pass over memory
            low = middle
        else:
            high = middle
    return high


# ---- the oracle ----


def check_against_oracle(run: kit.Run, nodes) -> None:
    """Sums, residuals, messages and bytes agree with the definition; n is no multiple of p.

    The idea above gives the same sums. At 100 % the result is the dense sum of integers.
    """
    run.section("The oracle")
    n, p, steps = 1003, run.size, range(3)
    numbers = np.random.default_rng(0).standard_normal((len(steps), p, n), np.float32)
    drawn = [list(step) for step in numbers]
    whole = [[(np.arange(n, dtype=np.float32) + t) % 97 * (r + 1) for r in range(p)] for t in steps]
    for percent, gs in ((1, drawn), (100, whole)):
        check(run, TopK(n, percent, gather.allgather(run.comm)), gs, nodes, percent)
        check(run, placement.hitopk(run.comm, nodes, n, percent), gs, nodes, percent)
    residuals, k = np.zeros((p, n), np.float32), definitions.keep_count(n, 1)
    for t, report in enumerate(definitions.topk_run(drawn, 1)):
        if not np.array_equal(topk_step(residuals, drawn[t], k), report["x"][0]):
            raise AssertionError(f"topk_step, step {t}: got another sum than the definition")
    x = drawn[0][run.rank]
    reached = np.flatnonzero(np.abs(x) >= threshold(x, k))
    if not set(reached) <= set(mstopk(x, k)):
        raise AssertionError(f"threshold on rank {run.rank}: got elements that MSTopK leaves out")
    run.say(
        f"top-k, and HiTopKComm on {len(nodes)} nodes x {len(nodes[0])} ranks, at 1 and 100 %, "
        f"over {len(steps)} steps:\nsums, residuals, messages and bytes agree with the definition; "
        "100 % is the dense sum"
    )


def check(run: kit.Run, exchange, gs, nodes, percent: int) -> None:
    """Compare an exchange with its definition, on gs: per step the gradients of each rank."""
    node, nested = next(node for node in nodes if run.rank in node), not isinstance(exchange, TopK)
    n, place = len(gs[0][0]), f"{type(exchange).__name__} at {percent} % on rank {run.rank}"
    if nested:
        wanted = definitions.hitopk_run(gs, nodes, percent)
        own = slice(*definitions.slice_bounds(n, len(node))[(node.index(run.rank) + 1) % len(node)])
    else:
        wanted, own = definitions.topk_run(gs, percent), slice(0, n)
    for t, report in enumerate(wanted):
        x = gs[t][run.rank].copy()
        run.comm.reset()
        exchange(x)
        if not definitions.same_bits(x, report["x"][run.rank]):
            raise AssertionError(f"{place}, step {t}: got another sum than the definition")
        if percent == 100 and not np.array_equal(x, definitions.exact_sum(gs[t])):
            raise AssertionError(f"{place}, step {t}: got another sum than the dense one")
        sent = run.comm.messages, run.comm.bytes
        planned = definitions.topk_traffic(n, nodes, percent, run.rank, nested)
        if sent != planned:
            raise AssertionError(f"{place}: got (messages, bytes) = {sent}; wanted {planned}")
    if not definitions.same_bits(exchange.feedback.residual, wanted[-1]["kept"][run.rank][own]):
        raise AssertionError(f"{place}: got another residual than the definition")


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__, like="v100-56gbit", claims=CLAIMS, picture=PICTURE)
    images.arguments(lesson)
    lesson.parser.set_defaults(width=1 / 16)
    placement.argument(lesson)
    lesson.main(measure, draw)
