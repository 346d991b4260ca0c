"""Lesson 12: top-k - fine-grained sparsity, next to the coarse-grained sparsity of lesson 06.

    mpiexec -n 8 python lessons/12_topk.py      (--quick, --full, --plot, --ranks-per-node K ...)

QUESTION    CSC sends the most important chunks. Why not the most important single gradients? Far
            fewer elements would do.
IDEA        Each rank sends its k largest values and their indices. All ranks gather these pairs
            and add them up. What was not sent stays in a residual for the next step. Finding the k
            largest of millions takes time of its own: MSTopK (Shi et al. 2021) bisects a threshold
            instead of sorting. HiTopKComm first sums densely inside each node.
            (refgf/papers/mstopk/topk.py)
PREDICTION  n gradients, k of them chosen on each of p ranks, m nodes of g ranks. A rank sends this
            many bytes in a step:

                dense ring    2(p-1)/p 4n
                CSC at d %    2(p-1)/p 4n d/100, and the chunks' norms  one chunk list for all ranks
                top-k         (p-1) (4 + 4) k                       values and indices; grows with p
                HiTopKComm    2(g-1)/g 4n in the node + (m-1) (4 + 4) k/g between nodes

            At equal bytes top-k may send only about d/p percent. Its sum has from k to p k
            non-zero elements.

Before you run it, write down: at how many ranks does top-k at 1 % send as many bytes as the dense
ring?

This is weak scaling: each rank brings its own batch, for any p.

WHAT YOU SHOULD SEE    Top-k at the same density sends p times the bytes of CSC, half of them
            indices. From about 100 ranks, top-k at 1 % sends more than the dense ring. Choosing
            takes time of its own: argpartition and MSTopK read all gradients several times, CSC's
            norms read them once. On one core, MSTopK's many passes gain little or nothing over the
            few passes of a partial sort. But they read memory in order and move nothing, and a GPU
            does that at its full bandwidth: MSTopK is an algorithm for GPUs. Top-k chooses better,
            so at equal density it learns faster than CSC. At equal bytes it may send only 1/p of
            that, and the advantage shrinks as the number of ranks grows.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/12_topk.py)
    1. How many non-zeros has a sum of top-k from p ranks, at least and at most? Count them for
       data that all ranks share.
    2. Remove the error feedback: send the k largest and drop the rest. On which problem does
       training never converge?
    3. From how many ranks does top-k at 1 % send more than the dense ring? And with 16-bit values?
"""

import refgf.launch  # noqa: F401  before MPI starts

import functools

import numpy as np

import kit
from kit import flow, images, placement, trials
from lab.topk_picture import COLOURS, PERCENTS, draw
from refgf.comm import gather, ring
from refgf.papers.jia.hierarchical import blocks
from refgf.comm.schedule import collective
from refgf.comm.slices import chunks
from refgf.exchange.chunk_choice import Density, add_norms
from refgf.papers.mstopk.topk import ROUNDS, TopK, exact_top_k, keep_count, mstopk
from refgf.oracle import definitions
from refgf.papers.mstopk.cost import gather_s, hitopk_s
from refgf.training.data import steps_per_epoch

CSC_PERCENT = 10.0
MOMENTUM = 0.9
ALEXNET = 62_378_344  # gradients at full size
PASSES = ROUNDS + 6  # magnitude, largest, mean, count above it, the rounds, two at the end
GPU_BYTES_PER_S = 900e9


def measure(run: kit.Run) -> dict:
    train, held_out = images.load(run)
    nodes = placement.equal_nodes(run)
    check_against_oracle(run, nodes)
    selection = time_selection(run)
    quality = judge_mstopk(run, train)
    traffic = count_bytes(run)
    exchange = time_exchanges(run, train, nodes)
    accuracy = compare_accuracy(run, train, held_out, nodes)
    return {
        "selection": selection,
        "quality": quality,
        "traffic": traffic,
        "exchange": exchange,
        "accuracy": accuracy,
    }


# ---- one step ----


class MomentumBefore:
    """Applies each rank's momentum before the choice, as in CSC's form `dgc`.

    The residual then decays as the momentum does.
    """

    def __init__(self, exchange, n: int) -> None:
        self.exchange, self.u = exchange, np.zeros(n, np.float32)

    def __call__(self, x) -> None:
        self.u *= MOMENTUM
        self.u += x
        x[:] = self.u
        self.exchange(x)  # adds the residual, chooses, sends, stores the new residual


# ---- the oracle ----


def check_against_oracle(run: kit.Run, nodes) -> None:
    """Sums, residuals, messages and bytes agree with the definition; n is no multiple of p.

    At 100 % the result is the dense sum of integers.
    """
    run.section("The oracle")
    n, p, steps, node = 1003, run.size, 3, next(node for node in nodes if run.rank in node)
    own = slice(*definitions.slice_bounds(n, len(node))[(node.index(run.rank) + 1) % len(node)])
    numbers = [
        [np.random.default_rng([t, r]).standard_normal(n).astype(np.float32) for r in range(p)]
        for t in range(steps)
    ]
    whole = [
        [(np.arange(n, dtype=np.float32) + t) % 97 * (r + 1) for r in range(p)]
        for t in range(steps)
    ]
    for percent, gs in ((1, numbers), (100, whole)):
        flat, nested = (
            TopK(n, percent, gather.allgather(run.comm)),
            placement.hitopk(run.comm, nodes, n, percent),
        )
        kinds = {
            "top-k": (flat, definitions.topk_run(gs, percent)),
            "HiTopKComm": (nested, definitions.hitopk_run(gs, nodes, percent)),
        }
        for name, (exchange, wanted) in kinds.items():
            for t, report in enumerate(wanted):
                x = gs[t][run.rank].copy()
                run.comm.reset()
                exchange(x)
                if not definitions.same_bits(x, report["x"][run.rank]):
                    raise AssertionError(
                        f"{name} at {percent} % on rank {run.rank}, step {t}: "
                        "got another sum than the definition"
                    )
                if percent == 100 and not np.array_equal(x, definitions.exact_sum(gs[t])):
                    raise AssertionError(
                        f"{name} at 100 % on rank {run.rank}: got another sum than the dense one"
                    )
                planned = definitions.topk_traffic(n, nodes, percent, run.rank, name != "top-k")
                if (run.comm.messages, run.comm.bytes) != planned:
                    got = f"{run.comm.messages} messages, {run.comm.bytes} bytes"
                    raise AssertionError(f"{name} on rank {run.rank}: got {got}; wanted {planned}")
            residual = wanted[-1]["kept"][run.rank][own if name != "top-k" else slice(0, n)]
            if not definitions.same_bits(exchange.feedback.residual, residual):
                raise AssertionError(
                    f"{name} on rank {run.rank}: got another residual than the definition"
                )
    run.say(
        f"top-k, and HiTopKComm on {len(nodes)} nodes x {len(nodes[0])} ranks, at 1 and 100 %, "
        f"over {steps} steps:\nsums, residuals, messages and bytes agree with the definition; "
        "100 % is the dense sum"
    )


# ---- the measurement ----


def time_selection(run: kit.Run) -> list[dict]:
    """Time to choose, on all ranks at once as in training: partial sort, bisection, CSC's norms."""
    run.section("How long does choosing take?")
    rows = []
    for n in run.quick([10**5], [10**5, 10**6, 10**7], [10**5, 10**6, 10**7, 3 * 10**7]):
        x = np.random.default_rng(run.rank).standard_normal(n).astype(np.float32)
        x *= x * x  # a heavy tail, as gradients have
        chunk = max(1, n // flow.CHUNKS)
        norms, scratch = np.zeros(len(chunks(n, chunk))), np.empty_like(x)
        for percent in PERCENTS:
            k = keep_count(n, percent)
            functions = {
                "argpartition": lambda x=x, n=n, k=k: np.argpartition(np.abs(x), n - k)[n - k :],
                "exact": functools.partial(exact_top_k, x, k),
                "MSTopK": functools.partial(mstopk, x, k),
                "CSC's norms": functools.partial(chunk_norms, norms, x, chunk, scratch),
            }
            times = {name: run.time(f, run.quick(2, 3, 7)) for name, f in functions.items()}
            rows.append({"n": n, "percent": percent, "times": times})
    run.table(
        ["n", "density", *rows[0]["times"]],
        [
            [
                f"{r['n']:,}",
                f"{r['percent']} %",
                *(kit.seconds(t.median_s) for t in r["times"].values()),
            ]
            for r in rows
        ],
    )
    run.say("medians, slowest rank; the saved numbers have the lowest and highest too")
    ratios = [
        r["times"]["MSTopK"].median_s / r["times"]["argpartition"].median_s
        for r in rows[-len(PERCENTS) :]
    ]
    listed = ", ".join(f"{ratio:.2f} at {percent:g} %" for ratio, percent in zip(ratios, PERCENTS))
    gpu_s = PASSES * 4 * n / GPU_BYTES_PER_S
    run.say(
        f"{n:,} gradients, time of MSTopK / argpartition: {listed}.\n"
        f"MSTopK's passes, at most {PASSES}, only read memory in order: at a GPU's "
        f"{1e-9 * GPU_BYTES_PER_S:g} GB/s\n(assumed: a V100) they take {kit.seconds(gpu_s)}."
    )
    return rows


def chunk_norms(norms, x, chunk: int, scratch) -> None:
    """norms (C,) <- norms + the L1 norms of the chunks of x (n,). scratch: as x."""
    add_norms(norms, np.abs(x, out=scratch), 0, chunk)


def judge_mstopk(run: kit.Run, data) -> list[dict]:
    """The magnitude that MSTopK loses against the exact choice, on real gradients."""
    run.section("What does bisection lose?")
    model = images.model(run, data)
    model.network.loss(*next(images.steps(run, data, 1)))
    model.network.backward(lambda i: None)
    g, rows = model.gradients.flat, []
    for percent in PERCENTS:
        k = keep_count(g.size, percent)
        best, got = (
            np.abs(g[choice]).sum(dtype=np.float64)
            for choice in (exact_top_k(g, k), mstopk(g, k, start=0.5))
        )
        lost = max(run.plain.allgather(1 - got / best if best else 0.0))
        share = min(run.plain.allgather(best / np.abs(g).sum(dtype=np.float64)))
        rows.append({"percent": percent, "k": k, "lost": lost, "share": share})
    cells = [
        [f"{r['percent']} %", r["k"], f"{100 * r['share']:.1f} %", f"{100 * r['lost']:.2g} %"]
        for r in rows
    ]
    run.table(
        ["density", "k", "share of magnitude in the k largest", "of it lost by MSTopK"], cells
    )
    return rows


def count_bytes(run: kit.Run, n: int = ALEXNET) -> dict:
    """Bytes that rank 0 sends in a step of the full AlexNet, as a share of the dense ring's.

    By the formulas that `check_against_oracle` has compared with counted bytes.
    """
    run.section("Bytes against the number of ranks")
    ranks = [2, 4, 8] + run.quick([64], [16, 32, 64, 128, 256, 512])
    result = {
        "ranks": ranks,
        "percent": 1.0,
        "n": n,
        "shares": {"CSC": [], "top-k": [], "HiTopKComm": []},
    }
    for p in ranks:
        dense, nodes = 4 * definitions.ring_traffic(n, p, 0)[1], blocks(p, 8)
        sent = {"CSC": flow.csc_bytes(n, p, 1.0)}
        sent |= {
            name: definitions.topk_traffic(n, nodes, 1.0, 0, name != "top-k")[1]
            for name in ("top-k", "HiTopKComm")
        }
        for name, nbytes in sent.items():
            result["shares"][name].append(nbytes / dense)
    run.table(
        ["p", *result["shares"]],
        [
            [p, *(f"{100 * shares[i]:.3g} %" for shares in result["shares"].values())]
            for i, p in enumerate(ranks)
        ],
    )
    run.say(
        "share of the dense ring's bytes, at a density of 1 %;\n"
        "HiTopKComm sends most of its bytes inside nodes of 8"
    )
    return result


def time_exchanges(run: kit.Run, data, nodes) -> list[dict]:
    """The exchange without training, choice included, at 1 and 10 %, and its predicted messages."""
    run.section("How long does the exchange take?")
    n = images.parameter_count(run, data)
    x = np.random.default_rng(run.rank).standard_normal(n).astype(np.float32)
    line, link = flow.ring_line_and_link(run, n)
    exchanges, predicted_s = {"dense ring": collective(run.comm, ring.allreduce)}, [line(4 * n)]
    for percent in (1.0, 10.0):
        packed = x[: n * int(percent) // 100].copy()
        exchanges[f"ring of {percent:g} %, packed"] = lambda _, packed=packed: collective(
            run.comm, ring.allreduce
        )(packed)
        exchanges[f"top-k {percent:g} %"] = TopK(n, percent, gather.allgather(run.comm))
        exchanges[f"MSTopK {percent:g} %"] = TopK(n, percent, gather.allgather(run.comm), mstopk)
        exchanges[f"HiTopKComm {percent:g} %"] = placement.hitopk(
            run.comm, nodes, n, percent, mstopk
        )
        k, m, g = keep_count(n, percent), len(nodes), len(nodes[0])
        sparse_s = gather_s(run.size, k, 4, link)
        predicted_s += [
            line(packed.nbytes),
            sparse_s,
            sparse_s,
            hitopk_s(m, g, n, k // g, 4, link, link),
        ]
    rows = []
    for (name, exchange), forecast_s in zip(exchanges.items(), predicted_s):
        y = x.copy()
        run.comm.reset()
        exchange(y)
        nbytes = run.comm.bytes
        timing = run.time(lambda e=exchange, y=y: e(y), run.quick(2, 7))
        rows.append({"name": name, "bytes": nbytes, "time": timing, "predicted_s": forecast_s})
    cells = [
        [r["name"], kit.number_of_bytes(r["bytes"]), r["time"], kit.seconds(r["predicted_s"])]
        for r in rows
    ]
    run.table(["exchange", "rank 0 sends", "time", "predicted, messages only"], cells)
    return rows


def compare_accuracy(run: kit.Run, train, held_out, nodes) -> dict:
    """The same training with each exchange: top-k at CSC's bytes a step, and at CSC's density."""
    epochs = run.options.epochs or run.quick(1, 4, 12)
    seeds = run.quick([1], [1, 2, 3])
    equal = flow.topk_percent(images.parameter_count(run, train), run.size, CSC_PERCENT)
    run.section(
        f"Accuracy after {epochs} epochs: CSC at {CSC_PERCENT:g} %, "
        f"top-k at {equal:.3g} % of the gradients"
    )
    percents = {
        "top-k": equal,
        "MSTopK": equal,
        "HiTopKComm": equal,
        "top-k, same density": CSC_PERCENT,
    }
    result = {}
    for name in run.quick(["dense", "CSC", "top-k"], list(COLOURS)):
        result[name] = {"runs": [], "bytes": None, "percent": percents.get(name)}
        for seed in seeds:
            with stack_of(run, name, train, nodes, seed, percents.get(name), epochs) as stack:
                result[name]["runs"].append(
                    flow.learn(run, stack, train, held_out, epochs, say=False, seed=seed)
                )
                run.comm.reset()
                stack.step(*next(images.steps(run, train, 1)), rate=0.0)
                result[name]["bytes"] = run.comm.bytes
        sent = kit.number_of_bytes(result[name]["bytes"])
        learned = trials.in_words(result[name]["runs"])
        run.say(f"{name:>20}: {sent:>10} a step from rank 0, {learned}")
    return {"methods": result, "epochs": epochs}


def stack_of(run: kit.Run, name: str, data, nodes, seed: int, percent: float | None, epochs: int):
    """The training stack of lesson 07 with another exchange: one call for the whole pool."""
    if name == "dense":
        return flow.new(run, data, seed)
    per_epoch = steps_per_epoch(data.size, run.options.batch * run.size)
    if name == "CSC":
        density = Density(CSC_PERCENT, (), per_epoch, epochs * per_epoch)
        return flow.new(run, data, seed, csc=flow.csc(run, data, density))
    n = images.parameter_count(run, data)
    random = np.random.default_rng([seed, run.rank])

    def bisect(x, k: int):
        return mstopk(x, k, start=random.random())

    def exchange(comm, wire=None):
        select = exact_top_k if name.startswith("top-k") else bisect
        sparse = (
            placement.hitopk(comm, nodes, n, percent, select)
            if name == "HiTopKComm"
            else TopK(n, percent, gather.allgather(comm), select)
        )
        return MomentumBefore(sparse, n)

    return flow.new(run, data, seed, allreduce=exchange, momentum=0.0)


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__)
    images.arguments(lesson)
    lesson.parser.set_defaults(width=1 / 16)
    placement.argument(lesson)
    lesson.main(measure, draw)
