"""Lesson 06: coarse-grained sparse communication - send a tenth of the chunks, accumulate the rest.

    mpiexec -n 8 python lessons/06_csc.py     (--density PERCENT, --chunk, --warmup, --full, ...)

QUESTION    Even half the bytes take too long on a slow network. Must every gradient be sent in
            every step?
IDEA        Divide the pool into chunks and send only the most important ones. Add what was not
            sent, the residual, to the next step's gradient. All ranks choose from the same norms,
            so they choose the same chunks. No indices are sent, and a plain dense allreduce sums
            the packed chunks. (refgf/exchange/csc.py, chunk_choice.py, momentum_correction.py)
PREDICTION  A step sends k = max(1, ceil(C percent/100)) of C chunks. It also sends C norms and one
            flag in float64:

                bytes = 4 or 2 x chosen elements + 8 (C + 1)    a little over a tenth of dense

            The residual must be corrected for momentum. Without correction a gradient that waits T
            steps counts once, where dense momentum SGD counts it 1 + m + ... + m^T times.

Before you run it, write down: how many steps does an unimportant chunk wait at a density of 10 %?
And what happens to the accuracy if the very first steps are already sparse?

This is weak scaling: each rank brings a batch of its own, whatever p is.

WHAT YOU SHOULD SEE    Bytes fall with the density exactly as predicted. Time falls only where bytes
            decide it: for millions of gradients on a network. For the small network trained here
            they do not. Its 1900 norms have as many bytes as the chosen chunks, and choosing and
            packing take processor time, which is scarce where ranks share cores. In shared memory
            choosing and packing may take longer than the saved bytes would.
            Of the chosen chunks, the convolutions' few are chosen again and again. Those of the
            large layers are chosen now and then, when their residual has grown. Many of them are
            not chosen once in so few steps.
            In a short training sparsity costs accuracy, most at the beginning and without warm-up.
            The longer the training, the less it costs. Three runs prove little: --full takes
            3 seeds x 5 folds, paired.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/06_csc.py)
    1. Compute importance without the division by the chunk's length. Which chunk is hardly ever
       chosen now?
    2. Each rank chooses from its own norms only, without the allreduce. What breaks, and at which
       step does the lesson notice?
    3. At which density do norms and flag cost as many bytes as the chunks, for the full AlexNet?
    4. A chunk is sent in every tenth step. Up to which learning rate does gradient descent on
       w^2 / 2 still converge, dense and with each form of correction? What does that say about the
       accuracies above?
"""

import refgf.launch  # noqa: F401  before MPI starts

import numpy as np

import kit
from kit import flow, images, trials
from lab.csc_picture import DRAWN, draw
from kit.replay import Size, replay_backward, sizes_of
from refgf.comm.direct import direct_allreduce
from refgf.comm.ring import ring_allreduce
from refgf.comm.slices import length
from refgf.engine.residual import FusedResidual
from refgf.exchange.csc import CSC
from refgf.exchange.dense import DenseExchange, Transport
from refgf.exchange.lazy import Theta
from refgf.exchange.momentum_correction import BEFORE, FORMS, CSCSettings
from refgf.exchange.pool import Pool
from refgf.exchange.precision import LossScale
from refgf.oracle import definitions
from refgf.oracle.definitions import (
    csc_payload_bytes,
    csc_run,
    direct_traffic,
    percent_of_step,
    ring_traffic,
    same_bits,
)
from refgf.papers.scaling.workloads import alexnet
from refgf.training.step import Replica
from refgf.training.sgd import MomentumSGD

CHUNK_ELEMENTS = 32_768  # of the full AlexNet
DENSITIES = [100, 50, 25, 10, 5, 1]
SEEDS, EPOCHS = [1, 2, 3], (1, 4, 12)  # quick, default, full


def measure(run: kit.Run) -> dict:
    trials.require_density(run, EPOCHS)
    train, held_out = images.load(run)
    check_against_oracle(run)
    densities = sweep_densities(run, train)
    large = sweep_large(run)
    chosen = watch_choice(run, train)
    accuracy = compare_accuracy(run, train, held_out)
    chunk_sizes = compare_chunk_sizes(run, train, held_out)
    return {
        "densities": densities,
        "large": large,
        "chosen": chosen,
        "accuracy": accuracy,
        "chunk_sizes": chunk_sizes,
    }


# ---- one step: all of CSC, built from the core ----


def one_step(exchange: CSC, model: Replica, gradients, rate: float) -> None:
    """One step from gradients (n,), announced in backward's order. Only sent chunks are updated."""
    model.gradients.flat[:] = gradients
    for i in range(len(model.gradients.specs)):
        exchange.ready(i)  # packs chosen chunks, sends them above theta bytes
    result = exchange.finish()  # norms, flag, residual, the next choice
    if result.accepted:
        model.update(rate, result)


def exchange_of(run: kit.Run, model: Replica, settings: CSCSettings, theta: float) -> CSC:
    """CSC over a float16 ring. Momentum and decay that CSC applies leave the optimiser."""
    model.optimizer, momentum, decay = model.optimizer.split(settings.form in BEFORE)
    pools = model.gradients, model.parameters.flat
    residual = settings.residual(*pools, settings, momentum, decay, run.size)
    transport = Transport(ring_allreduce(run.comm, wire=np.float16), Theta(theta), itemsize=2)
    return CSC(settings, residual, transport, direct_allreduce(run.comm), model.loss_scale)


# ---- the oracle ----


def check_against_oracle(run: kit.Run) -> None:
    """Every form on a small pool: weights, residual and choices are those of the definition.

    The numbers are sensitive to the order of summation.
    """
    run.section("The oracle")
    sizes, chunk, steps, percent = (30, 200, 0, 170), 16, run.quick(4, 8), 20
    tensors = [Size(f"t{i}", (n,), decay=True) for i, n in enumerate(sizes)]
    n = sum(sizes)
    gs = [[random_vector([t, r], n) for r in range(run.size)] for t in range(steps)]
    for form in FORMS:
        parameters, gradients = Pool(tensors), Pool(tensors)
        parameters.flat[:] = w = random_vector(9, n)
        optimizer = MomentumSGD(tensors, parameters.flat, 0.9, 0.01)
        model = Replica(None, parameters, gradients, optimizer)
        settings = CSCSettings(percent, form, chunk, residual=FusedResidual)
        exchange = exchange_of(run, model, settings, theta=100)
        lists, weights = [], []
        for t in range(steps):
            lists.append(exchange.chosen)
            one_step(exchange, model, gs[t][run.rank], 0.1)
            weights.append(parameters.flat.copy())
        settings = definitions.CSCRunSettings(
            sizes, chunk, form, 0.1, 0.9, 0.01, wire="float16", order="ring", theta_bytes=100
        )
        percents = [percent_of_step(t, 1, (), percent) for t in range(steps + 1)]
        wanted = csc_run(w, gs, settings, percents, lists)
        place = f"CSC on rank {run.rank}, form {form}"
        for t, report in enumerate(wanted):
            if not same_bits(weights[t], report["w"][run.rank]):
                raise AssertionError(f"{place}, step {t}: got weights of other bits than defined")
        for name, defined in wanted[-1]["kept"][run.rank].items():
            if not same_bits(exchange.residual.settled()[name], defined):
                raise AssertionError(f"{place}: got a residual {name} of other bits than defined")
    run.say(
        f"{', '.join(FORMS)}:\nthe bits of the definition over {steps} steps, "
        "with float16, lazy allreduce and weight decay"
    )


def random_vector(seed, n: int):
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


# ---- the measurement ----


def sweep_densities(run: kit.Run, data) -> dict:
    """For each density: bytes (asserted), time of the exchange by itself and of a training step."""
    run.section("Bytes and time against density")
    count, rows = run.quick(4, 8, 20), []
    n = images.parameter_count(run, data)
    chunk = flow.chunk_of(run, n)
    chunks = flow.number_of_chunks(n, chunk)
    line = flow.fit_allreduce(run, [256, n // 64, n // 8, n], np.float16, run.quick(2, 5)).line
    full = flow.number_of_chunks(alexnet().parameters, CHUNK_ELEMENTS)
    alexnet_chunks = f"(the full AlexNet: {full:,} of {CHUNK_ELEMENTS:,})"
    run.say(f"{n:,} gradients in {chunks} chunks of {chunk} {alexnet_chunks}; float16 on the wire")
    for density in [None, *run.quick(DENSITIES[::3], DENSITIES)]:
        csc = density and flow.csc(run, data, density)
        with flow.new(run, data, csc=csc, wire=np.float16, grouping=Theta(2**17)) as stack:
            timing = flow.time_steps(run, stack, images.steps(run, data, count))
            chosen = stack.csc.chosen if density else None
            run.comm.reset()
            stack.step(*next(images.steps(run, data, 1)), rate=0.0)
            sent = run.comm.bytes
            require_bytes(run, stack, sent, chunks if density else None)
            ready_s = [0.0] * len(stack.model.gradients.specs)
            stack.model.gradients.flat[:] = 1e-3
            exchange = run.time(lambda s=stack, r=ready_s: replay_backward(s, r), run.quick(2, 5))
            payload = (
                csc_payload_bytes(chosen, n, chunk, "float32", "float16") if density else 2 * n
            )
            predicted = messages_s(line, stack.calls, chunks + 1 if density else 0)
        rows.append(
            {
                "density": density,
                "payload": payload,
                "sent": sent,
                "calls": len(stack.calls),
                "step": timing,
                "alone": exchange,
                "predicted_s": predicted,
            }
        )
    run.table(
        ["density", "payload", "calls", "sent", "exchange", "predicted", "step"],
        [
            [
                percent_or_none(r["density"]),
                kit.number_of_bytes(r["payload"]),
                r["calls"],
                kit.number_of_bytes(r["sent"]),
                kit.seconds(r["alone"].median_s),
                kit.seconds(r["predicted_s"]),
                r["step"],
            ]
            for r in rows
        ],
    )
    run.say("sent: by rank 0; exchange: without computing, median; predicted: its messages")
    return {"rows": rows, "elements": n, "chunks": chunks, "chunk": chunk}


def messages_s(line, calls: list, norms: int) -> float:
    """Predicted seconds: the calls in float16, and one for norms and flag in float64."""
    calls_s = sum(line(2 * (call.stop - call.start)) for call in calls)
    return calls_s + (line(8 * norms) if norms else 0.0)


def percent_or_none(density: float | None) -> str:
    return "no CSC" if density is None else f"{density} %"


def sweep_large(run: kit.Run) -> dict:
    """The exchange where bytes decide: a share of each of AlexNet's 26 gradients, no computing."""
    share = run.quick(256, 8, 1)
    tensors, chunk = sizes_of(alexnet(), share), max(1, CHUNK_ELEMENTS // share)
    n = sum(tensor.shape[0] for tensor in tensors)
    run.section(
        f"The exchange of {n:,} gradients, 1/{share} of AlexNet's"
        if share > 1
        else f"AlexNet's {n:,} gradients"
    )
    line = flow.fit_allreduce(run, [256, n // 64, n // 8, n], np.float16, run.quick(2, 5)).line
    rows = []
    for density in [None, *run.quick(DENSITIES[::3], DENSITIES)]:
        parameters, pool, chunks = Pool(tensors), Pool(tensors), flow.number_of_chunks(n, chunk)
        model = Replica(None, parameters, pool, MomentumSGD(tensors, parameters.flat))
        if density is None:
            ring = ring_allreduce(run.comm, wire=np.float16)
            exchange = DenseExchange(pool, Transport(ring, Theta(2**20), itemsize=2), LossScale())
        else:
            settings = CSCSettings(density, chunk=chunk, residual=FusedResidual)
            exchange = exchange_of(run, model, settings, theta=2**20)
        pool.flat[:] = 1e-3
        timing = run.time(
            lambda e=exchange: replay_backward(e, [0.0] * len(tensors)), run.quick(2, 5), warmup=2
        )
        predicted = messages_s(line, exchange.calls, chunks + 1 if density else 0)
        rows.append(
            {
                "density": density,
                "alone": timing,
                "predicted_s": predicted,
                "calls": len(exchange.calls),
            }
        )
    run.table(
        ["density", "calls", "exchange", "its messages, predicted"],
        [
            [percent_or_none(r["density"]), r["calls"], r["alone"], kit.seconds(r["predicted_s"])]
            for r in rows
        ],
    )
    return {"rows": rows, "elements": n, "share": share}


def require_bytes(run: kit.Run, stack, sent: int, chunks: int | None) -> None:
    """The ring sends the chosen chunks, the direct allreduce norms and flag: nothing else."""
    wanted = sum(
        2 * ring_traffic(call.stop - call.start, run.size, run.rank)[1] for call in stack.calls
    )
    if chunks is not None:
        wanted += 8 * direct_traffic(chunks + 1, run.size, run.rank)[1]
        assert sum(map(length, stack.result.sent)) == sum(
            call.stop - call.start for call in stack.calls
        )
    if sent != wanted:
        raise AssertionError(f"CSC on rank {run.rank}: got {sent} bytes sent; wanted {wanted}")


def watch_choice(run: kit.Run, data) -> dict:
    """Which chunks are chosen in each step of a short training."""
    percent = run.options.density
    run.section(f"Which chunks are chosen at {percent:g} %")
    with flow.new(run, data, csc=flow.csc(run, data, percent), grouping=Theta(2**17)) as stack:
        lists = []
        for batch in images.steps(run, data, run.quick(6, 60, 200)):
            lists.append(stack.csc.chosen or [])
            stack.step(*batch, rate=run.options.rate)
        if any(other != lists for other in run.plain.allgather(lists)):
            raise AssertionError(f"CSC on rank {run.rank}: got different chunks on other ranks")
        edges = [
            (spec.name, offset / stack.csc.settings.chunk)
            for spec, offset in zip(stack.model.network.tensors, stack.model.gradients.offsets)
        ]
        chunks = len(stack.csc.chunks)
        longest_wait = stack.csc.gap.max()
    sparse = [chosen for chosen in lists if chosen]
    times = np.bincount(np.concatenate(sparse).astype(int), minlength=chunks)
    never, always = (f"{100 * np.mean(times == count):.0f} %" for count in (0, len(sparse)))
    run.say(
        f"in {len(sparse)} sparse steps {never} of the {chunks} chunks were never chosen, "
        f"{always} always;\nat the end the longest wait is {longest_wait} steps"
    )
    return {"lists": lists, "chunks": chunks, "edges": edges, "percent": percent}


def compare_accuracy(run: kit.Run, train, held_out) -> dict:
    """The same training, dense and with each correction: several seeds, and folds with --full."""
    epochs, seeds = run.options.epochs or run.quick(*EPOCHS), run.quick([1], SEEDS)
    pairs = [(seed, fold) for seed in seeds for fold in run.quick([None], [None], range(5))]
    run.section(
        f"Accuracy after {epochs} epochs, density {run.options.density:g} %, "
        f"{len(pairs)} runs of each"
    )
    result = {}
    for name in run.quick(["dense", "dgc"], list(DRAWN)):
        splits = (images.fold(run, train, held_out, fold) for _, fold in pairs)
        result[name] = [
            trials.training(run, name, seed, *split, epochs)
            for (seed, _), split in zip(pairs, splits)
        ]
        run.say(f"{name:>24}: {trials.in_words(result[name])}")
    if len(pairs) > 1:
        for name in list(result)[1:]:
            run.say(f"{name} minus dense, paired: {trials.interval(result[name], result['dense'])}")
    return {"runs": result, "epochs": epochs, "trials": pairs}


def compare_chunk_sizes(run: kit.Run, train, held_out) -> dict:
    """Longer chunks at equal density: fewer chunks, so less choice."""
    n = images.parameter_count(run, train)
    base = flow.chunk_elements(n)
    epochs, seeds = run.options.epochs or run.quick(*EPOCHS), run.quick([1], SEEDS)
    run.section("Chunk size at equal density")
    result = {}
    for factor in run.quick([1, 64], [1, 16, 190], [1, 4, 16, 64, 190]):
        name = f"{flow.number_of_chunks(n, factor * base)} chunks of {factor * base}"
        result[name] = [
            trials.training(run, "dgc", seed, train, held_out, epochs, factor * base)
            for seed in seeds
        ]
        run.say(f"{name:>24}: {trials.in_words(result[name])}")
    return result


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__)
    images.arguments(lesson)
    lesson.parser.set_defaults(width=1 / 16)
    lesson.argument(
        "--density",
        type=float,
        default=10.0,
        metavar="PERCENT",
        help="how many percent of the chunks are sent",
    )
    lesson.argument(
        "--chunk",
        type=int,
        metavar="ELEMENTS",
        help="length of a chunk (default: about 1900 chunks)",
    )
    lesson.argument(
        "--warmup", type=float, nargs="*", metavar="PERCENT", help="densities of the first epochs"
    )
    lesson.main(measure, draw)
