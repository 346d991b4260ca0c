"""Lesson 06: coarse-grained sparse communication - send a tenth of the chunks, keep the rest for later.

    mpiexec -n 8 python lessons/06_csc.py                    (--density PERCENT, --chunk, --warmup, --full, --data PATH ...)

QUESTION    Even half the bytes take too long on a slow network. Must every gradient travel in every step?
IDEA        Cut the pool into chunks, send only the most important ones, and add what was not sent to the next step's
            gradient. All ranks choose from the same norms, so they choose the same chunks: no indices travel, and a plain
            dense allreduce sums the packed chunks. (refgf/exchange/csc.py, chunk_choice.py, momentum_correction.py)
PREDICTION  A step sends k = max(1, ceil(C percent/100)) of C chunks, and C norms and one flag in float64:

                bytes = 4 or 2 x chosen elements + 8 (C + 1)        a tenth of the dense bytes, and a little

            What is kept must be corrected for momentum: a gradient that waits T steps would otherwise count once, where
            dense momentum SGD counts it 1 + m + ... + m^T times.

Before you run it, write down: how many steps does an unimportant chunk wait at a density of 10 %? And what happens to the
accuracy if the very first steps are already sparse?

This is weak scaling: each rank brings a batch of its own, whatever p is.

WHAT YOU SHOULD SEE    Bytes fall with the density exactly as predicted; time falls as far as bytes decide it. Of so small a
            network they do not: its 1900 norms weigh as much as the chosen chunks, and norms and packing take processor
            time, of which ranks that share cores have little; a step gains on slower links, or of larger networks (lesson
            07). The chosen chunks: the convolutions' few again and again, those of the large layers now and then, as what
            waits grows, many of them not once in so few steps. In a short training sparsity costs accuracy, most at the
            beginning and without warm-up; the longer the training, the less. Three runs prove little: --full takes 3 seeds
            x 5 folds, paired.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/06_csc.py)
    1. Importance without the division by the chunk's length. Which chunk is hardly ever chosen now?
    2. Each rank chooses from its own norms only, without the allreduce. What breaks, and at which step does the lesson notice?
    3. At which density do norms and flag cost as many bytes as the chunks, for the full AlexNet?
    4. A chunk is sent in every tenth step. Up to which learning rate does gradient descent on w^2 / 2 still converge, dense
       and with each form of correction? What does that say about the accuracies above?
"""

import refgf.launch  # noqa: F401  before MPI starts

import statistics

import numpy as np

import kit
from kit import axes, flow, images, trials
from kit.replay import Size, replay_backward
from refgf.comm import ring
from refgf.comm.schedule import collective
from refgf.comm.slices import length
from refgf.exchange.chunk_choice import Density
from refgf.exchange.csc import CHUNK_ELEMENTS, CSC
from refgf.exchange.momentum_correction import FORMS
from refgf.exchange.pool import Pool
from refgf.oracle.definitions import (
    CSCSettings,
    csc_payload_bytes,
    csc_run,
    direct_traffic,
    percent_of_step,
    ring_traffic,
    same_bits,
)
from refgf.predict.workloads import alexnet
from refgf.training.gradientflow import PlainSGD, direct_allreduce
from refgf.training.step import Replica
from refgf.training.sgd import MomentumSGD

DENSITIES = [100, 50, 25, 10, 5, 1]
SEEDS, EPOCHS = [1, 2, 3], (1, 4, 12)  # quick, default, full
DRAWN = {"dense": "black", "dgc": "tab:blue", "dgc_masked": "tab:cyan", "history": "tab:green", "none": "tab:red",
         "dgc, no warm-up": "tab:orange"}  # fmt: skip


def measure(run: kit.Run) -> dict:
    trials.require_density(run, EPOCHS)
    train, held_out = images.load(run)
    check_against_oracle(run)
    densities = sweep_densities(run, train)
    chosen = watch_choice(run, train)
    accuracy = compare_accuracy(run, train, held_out)
    chunk_sizes = compare_chunk_sizes(run, train, held_out)
    return {"densities": densities, "chosen": chosen, "accuracy": accuracy, "chunk_sizes": chunk_sizes}


# ---- one step: this is all there is to CSC, once the parts are there ----


def one_step(exchange: CSC, model: Replica, gradients, rate: float) -> None:
    """gradients (n,) as backward would announce them; sent chunks are updated, the rest of the weights stays."""
    model.gradients.flat[:] = gradients
    for i in range(len(model.gradients.specs)):
        exchange.ready(i)  # packs chosen chunks, sends them when there is enough
    if exchange.finish():  # norms, flag, what is kept, the next choice
        model.optimizer.step(model.gradients.flat, rate, exchange.sent)


# ---- the oracle ----


def check_against_oracle(run: kit.Run) -> None:
    """Every form on a small pool, order-sensitive numbers: weights, what is kept and choices are those of the definition."""
    run.section("The oracle")
    sizes, chunk, steps, percent = (30, 200, 0, 170), 16, run.quick(4, 8), 20
    tensors = [Size(f"t{i}", (n,), decay=True) for i, n in enumerate(sizes)]
    n = sum(sizes)
    gs = [[np.random.default_rng([t, r]).standard_normal(n).astype(np.float32) for r in range(run.size)] for t in range(steps)]
    for form in FORMS:
        parameters, gradients = Pool(tensors), Pool(tensors)
        parameters.flat[:] = w = np.random.default_rng(9).standard_normal(n).astype(np.float32)
        optimizer = PlainSGD(parameters.flat) if form.startswith("dgc") else MomentumSGD(tensors, parameters.flat, 0.9, 0)
        exchange = CSC(gradients, parameters.flat, collective(run.comm, ring.allreduce, np.float16),
                       direct_allreduce(run.comm), run.size, Density(percent), chunk=chunk, form=form,
                       wire_itemsize=2, threshold_bytes=100, weight_decay=0.01)  # fmt: skip
        lists, weights = [], []
        for t in range(steps):
            lists.append(exchange.chosen)
            one_step(exchange, Replica(None, parameters, gradients, optimizer), gs[t][run.rank], 0.1)
            weights.append(parameters.flat.copy())
        settings = CSCSettings(sizes, chunk, form, 0.1, 0.9, 0.01, wire="float16", order="ring", theta_bytes=100)
        wanted = csc_run(w, gs, settings, [percent_of_step(t, 1, (), percent) for t in range(steps + 1)], lists)
        for t, report in enumerate(wanted):
            if not same_bits(weights[t], report["w"][run.rank]):
                raise AssertionError(f"rank {run.rank}: {form}, step {t}: not the weights of the definition")
        for name, kept in wanted[-1]["kept"][run.rank].items():
            if not same_bits(exchange.kept[name], kept):
                raise AssertionError(f"rank {run.rank}: {form}: what is kept ({name}) is not that of the definition")
    run.say(f"{', '.join(FORMS)}: the bits of the definition over {steps} steps, with float16, laziness and weight decay")


# ---- the measurement ----


def sweep_densities(run: kit.Run, data) -> dict:
    """Bytes, asserted, and time of the exchange alone and of a training step, for each density."""
    run.section("Bytes and time against density")
    count, rows = run.quick(4, 8, 20), []
    n = sum(spec.size for spec in images.network(run, data).tensors)
    chunk = flow.chunk_of(run, n)
    chunks = flow.number_of_chunks(n, chunk)
    line = flow.fit_allreduce(run, [256, n // 64, n // 8, n], np.float16, run.quick(2, 5)).line
    full = flow.number_of_chunks(alexnet().parameters, CHUNK_ELEMENTS)
    told = f"(the full AlexNet: {full:,} of {CHUNK_ELEMENTS:,})"
    run.say(f"{n:,} gradients in {chunks} chunks of {chunk} {told}; float16 on the wire")
    for density in [None, *run.quick(DENSITIES[::3], DENSITIES)]:
        with flow.new(run, data, density=density, wire=np.float16, theta_bytes=2**17) as stack:
            timing = flow.time_steps(run, stack, images.steps(run, data, count))
            chosen = stack.csc.chosen if density else None
            run.comm.reset()
            stack.step(*next(images.steps(run, data, 1)), rate=0.0)
            sent = run.comm.bytes
            require_bytes(run, stack, sent, chunks if density else None)
            ready_s = [0.0] * len(stack.model.gradients.specs)
            stack.model.gradients.flat[:] = 1e-3
            alone = run.time(lambda s=stack, r=ready_s: replay_backward(s, r), run.quick(2, 5))
            payload = csc_payload_bytes(chosen, n, chunk, "float32", "float16") if density else 2 * n
            norms_s = line(8 * (chunks + 1)) if density else 0.0
            data_bytes = sum(2 * (call.stop - call.start) for call in stack.calls)
            predicted = len(stack.calls) * line.a_s + line.b_s_per_byte * data_bytes + norms_s
        rows.append({"density": density, "payload": payload, "sent": sent, "calls": len(stack.calls), "step": timing,
                     "alone": alone, "predicted_s": predicted})  # fmt: skip
    run.table(
        ["density", "payload", "calls", "rank 0 sends", "exchange alone", "its messages, predicted", "step"],
        [["no CSC" if r["density"] is None else f"{r['density']} %", kit.number_of_bytes(r["payload"]), r["calls"],
          kit.number_of_bytes(r["sent"]), r["alone"], kit.seconds(r["predicted_s"]), r["step"]] for r in rows],
    )  # fmt: skip
    return {"rows": rows, "elements": n, "chunks": chunks, "chunk": chunk}


def require_bytes(run: kit.Run, stack, sent: int, chunks: int | None) -> None:
    """The chosen chunks by the ring, the norms and a flag directly; nothing else."""
    wanted = sum(2 * ring_traffic(call.stop - call.start, run.size, run.rank)[1] for call in stack.calls)
    if chunks is not None:
        wanted += 8 * direct_traffic(chunks + 1, run.size, run.rank)[1]
        assert sum(map(length, stack.sent)) == sum(call.stop - call.start for call in stack.calls)
    if sent != wanted:
        raise AssertionError(f"rank {run.rank}: sent {sent} bytes, the definition says {wanted}")


def watch_choice(run: kit.Run, data) -> dict:
    """Which chunks are chosen in each step of a short training."""
    percent = run.options.density
    run.section(f"Which chunks are chosen at {percent:g} %")
    with flow.new(run, data, density=percent, theta_bytes=2**17) as stack:
        lists = []
        for batch in images.steps(run, data, run.quick(6, 60, 200)):
            lists.append(stack.csc.chosen or [])
            stack.step(*batch, rate=run.options.rate)
        everybody = run.plain.allgather(lists)
        if any(other != lists for other in everybody):
            raise AssertionError(f"rank {run.rank}: the ranks have chosen different chunks")
        edges = [(spec.name, offset / stack.csc.chunk) for spec, offset in zip(stack.model.network.tensors,
                                                                             stack.model.gradients.offsets)]  # fmt: skip
        chunks = len(stack.csc.chunks)
        waits = stack.csc.gap
    sparse = [chosen for chosen in lists if chosen]
    times = np.bincount(np.concatenate(sparse).astype(int), minlength=chunks)
    never, always = (f"{100 * np.mean(times == count):.0f} %" for count in (0, len(sparse)))
    run.say(f"in {len(sparse)} sparse steps {never} of the {chunks} chunks were never chosen, {always} always; "
            f"at the end the longest has waited {waits.max()} steps")  # fmt: skip
    return {"lists": lists, "chunks": chunks, "edges": edges, "percent": percent}


def compare_accuracy(run: kit.Run, train, held_out) -> dict:
    """The same training, dense and with each correction, over several seeds (and folds with --full)."""
    epochs, seeds = run.options.epochs or run.quick(*EPOCHS), run.quick([1], SEEDS)
    pairs = [(seed, fold) for seed in seeds for fold in run.quick([None], [None], range(5))]
    run.section(f"Accuracy after {epochs} epochs, density {run.options.density:g} %, {len(pairs)} runs of each")
    result = {}
    for name in run.quick(["dense", "dgc"], list(DRAWN)):
        splits = (images.fold(run, train, held_out, fold) for _, fold in pairs)
        result[name] = [trials.training(run, name, seed, *split, epochs) for (seed, _), split in zip(pairs, splits)]
        run.say(f"{name:>24}: {trials.told(result[name])}")
    if len(pairs) > 1:
        for name in list(result)[1:]:
            run.say(f"{name} minus dense, paired: {trials.interval(result[name], result['dense'])}")
    return {"runs": result, "epochs": epochs, "trials": pairs}


def compare_chunk_sizes(run: kit.Run, train, held_out) -> dict:
    """Longer chunks at equal density: fewer, so less choice."""
    n = sum(spec.size for spec in images.network(run, train).tensors)
    base = flow.chunk_elements(n)
    epochs, seeds = run.options.epochs or run.quick(*EPOCHS), run.quick([1], SEEDS)
    run.section("Chunk size at equal density")
    result = {}
    for factor in run.quick([1, 64], [1, 16, 190], [1, 4, 16, 64, 190]):
        name = f"{flow.number_of_chunks(n, factor * base)} chunks of {factor * base}"
        result[name] = [trials.training(run, "dgc", seed, train, held_out, epochs, factor * base) for seed in seeds]
        run.say(f"{name:>24}: {trials.told(result[name])}")
    return result


# ---- the picture ----


def draw(result: dict):
    title = "Lesson 06: coarse-grained sparse communication. A tenth of the chunks travels, the rest waits its turn"
    figure, (sizes, picture, losses, accuracy) = axes.frame(title, 2, 2, (15, 10))
    draw_densities(sizes, result["densities"])
    draw_choice(picture, result["chosen"])
    runs = result["accuracy"]["runs"]
    axes.losses(losses, runs, DRAWN)
    draw_accuracy(accuracy, runs, result["chunk_sizes"])
    return axes.finish(figure, sizes, losses)


def draw_densities(axis, densities: dict) -> None:
    rows = [row for row in densities["rows"] if row["density"] is not None]
    percents = [row["density"] for row in rows]
    dense = next(row for row in densities["rows"] if row["density"] is None)
    axis.loglog(percents, [row["payload"] / dense["payload"] for row in rows], "k.-", label="payload, counted")
    for key, told_, colour in (("alone", "exchange alone", "tab:red"), ("step", "training step", "tab:blue")):
        axis.loglog(percents, [row[key]["median_s"] / dense[key]["median_s"] for row in rows], "o-", color=colour,
                    label=f"{told_}, measured")  # fmt: skip
    axis.loglog(percents, [row["predicted_s"] / dense["predicted_s"] for row in rows], "--", color="tab:red",
                label="messages of the exchange, predicted")  # fmt: skip
    axis.set(title="Against density, as a share of dense training without CSC", xlabel="density, %", ylabel="share")


def draw_choice(axis, chosen: dict) -> None:
    picture = np.zeros((chosen["chunks"], len(chosen["lists"])))
    for step, numbers in enumerate(chosen["lists"]):
        picture[numbers if numbers else slice(None), step] = 1
    axis.imshow(picture, aspect="auto", cmap="Greys", interpolation="nearest")
    large = [(name, at) for (name, at), (_, end) in zip(chosen["edges"], [*chosen["edges"][1:], ("", chosen["chunks"])])
             if end - at > chosen["chunks"] / 50]  # fmt: skip
    axis.set(title=f"Chosen chunks at {chosen['percent']:g} % (black; the first step is dense)", xlabel="step",
             yticks=[at for _, at in large], yticklabels=[name for name, _ in large])  # fmt: skip


def draw_accuracy(axis, runs: dict, chunk_sizes: dict) -> None:
    for x, (name, some) in enumerate([*runs.items(), *chunk_sizes.items()]):
        right = [100 * (rows[-1]["accuracy"] or 0) for rows in some]
        colour = DRAWN.get(name, "tab:purple")
        axis.bar(x, statistics.mean(right), color=colour, alpha=0.6)
        axis.plot([x] * len(right), right, ".", color="black", ms=4)
    names = [*runs, *(f"dgc, {name}" for name in chunk_sizes)]
    axis.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=8)
    axis.set(title="Held-out images right at the end (dots: each run)", ylabel="%")
    axis.grid(alpha=0.3, axis="y")


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__)
    images.arguments(lesson)
    lesson.parser.set_defaults(width=1 / 16)
    lesson.argument("--density", type=float, default=10.0, metavar="PERCENT", help="how many percent of the chunks travel")
    lesson.argument("--chunk", type=int, metavar="ELEMENTS", help="length of a chunk (so long that there are about 1900)")
    lesson.argument("--warmup", type=float, nargs="*", metavar="PERCENT", help="densities of the first epochs")
    lesson.main(measure, draw)
