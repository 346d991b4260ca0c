"""Lesson 06: what sparse training learns. Forms of momentum correction, and controls of the choice.

    found = learn_all(run, split, jobs)     {job: {"loss", "accuracy"}}

Each training runs on one rank, with the batch of eight, so that the ranks train different runs at
the same time. The sums are those of eight ranks, because all ranks choose the same chunks and every
form is linear. Only the norms differ: here of the sum, in data-parallel training summed over ranks.

Controls of the choice: the same training, but the norms that come back from the allreduce are
replaced, on all ranks alike.

    by importance    the norms of what would be sent
    after sending    the norms of what stays (CSC's option `after`)
    at random        random numbers
    in turn          steps since the chunk was last sent
"""

import functools
from dataclasses import dataclass

import numpy as np

import kit
from kit import flow, images, trials
from refgf.comm.slices import length
from refgf.device import to_host
from refgf.exchange.chunk_choice import Density
from refgf.exchange.csc import CSC
from refgf.machine.accelerator import InstantComm
from refgf.training.data import batches, steps_per_epoch
from refgf.training.gradientflow import GradientFlow

RANKS = 8  # whose batches one rank computes
DENSE = "dense"


@dataclass(frozen=True)
class Job:
    """One training.

    form      "dense" or one of FORMS
    rate      times the lesson's. In all a gradient moves a weight by rate / (1 - momentum). The
              learning rate is scaled so that this is the same for each momentum
    choice    one of CHOICES
    """

    form: str
    seed: int
    fold: int
    epochs: int
    rate: float = 1.0
    momentum: float = 0.9
    choice: str = "importance"
    warmup: bool = True
    after: bool = False


def pairs(count: int) -> list[tuple[int, int]]:
    """`count` different (seed, fold)."""
    return [(1 + i // 5 + i % 5, i % 5) for i in range(count)]


def learn_all(run: kit.Run, split, jobs: list[Job]) -> dict[Job, dict]:
    """{job: result}; each job is done once, by one rank. Collective."""
    jobs = list(dict.fromkeys(jobs))
    learn_one = functools.partial(learn, run, Folds(run, split))
    return dict(zip(jobs, trials.deal(run, [(job,) for job in jobs], learn_one)))


class Folds:
    """(train, held_out) of a fold; a rank loads each once."""

    def __init__(self, run: kit.Run, split) -> None:
        self.run, self.split, self.loaded = run, split, {}

    def __call__(self, number: int):
        if number not in self.loaded:
            self.loaded[number] = images.fold(self.run, *self.split, number)
        return self.loaded[number]


def learn(run: kit.Run, folds: Folds, job: Job) -> dict:
    """Train on this rank. -> {"loss": of the last epoch, "accuracy": held out, in percent}"""
    train, held_out = folds(job.fold)
    batch = RANKS * run.options.batch
    per_epoch = steps_per_epoch(train.size, batch)
    with new(run, train, job) as stack:
        for step, one in enumerate(all_batches(train, batch, job)):
            rate = job.rate * images.rate(run, step, per_epoch, job.epochs)
            if step % per_epoch == 0:
                losses = []
            losses.append(stack.step(*one, rate=rate * (1 - job.momentum) / (1 - 0.9)))
        right, samples = stack.evaluate(held_out)
    return {"loss": float(np.mean(losses)), "accuracy": 100 * right / max(1, samples)}


def all_batches(train, batch: int, job: Job):
    for epoch in range(job.epochs):
        yield from batches(train, batch, epoch, job.seed, rank=0, size=1)


def new(run: kit.Run, train, job: Job) -> GradientFlow:
    """GradientFlow around a fresh network, on this rank by itself."""
    csc = None
    if job.form != DENSE:
        per_epoch = steps_per_epoch(train.size, RANKS * run.options.batch)
        warmup = trials.warmup_of(run, job.epochs) if job.warmup else ()
        density = Density(run.options.density, warmup, per_epoch)
        csc = flow.csc(run, train, density, job.form, after=job.after)
    model = images.model(run, train, job.seed, momentum=job.momentum)
    model.network.dropout_rng = np.random.default_rng(job.seed)  # the same on every rank
    stack = GradientFlow(InstantComm(0, 1), model, csc=csc)
    if csc:
        stack.csc.sum_norms = CHOICES[job.choice](stack.csc, job.seed)
    return stack


# ---- the choice ----


def by_importance(csc: CSC, seed: int):
    return csc.sum_norms


def at_random(csc: CSC, seed: int):
    """All ranks draw the same numbers. Times the lengths, because importance divides by them."""
    rng, lengths = np.random.default_rng(seed), np.array([length(c) for c in csc.chunks])

    def sums(message) -> None:  # (C + 1,) float64: norms and a flag
        message[:-1] = rng.random(len(lengths)) * lengths

    return sums


def in_turn(csc: CSC, seed: int):
    """The chunks that have waited longest; those of this step are the last."""
    lengths = np.array([length(c) for c in csc.chunks])

    def sums(message) -> None:
        message[:-1] = csc.gap * lengths
        message[:-1][slice(None) if csc.chosen is None else csc.chosen] = 0

    return sums


CHOICES = {"importance": by_importance, "random": at_random, "turn": in_turn}


def watch(run: kit.Run, train) -> dict:
    """Which chunks a short training chooses, and how uneven its gradients are in the end."""
    percent = run.options.density
    run.section(f"Which chunks are chosen at {percent:g} %")
    chosen = run.plain.bcast(run.on_rank_0(lambda: watched(run, train)))
    sparse, chunks = [numbers for numbers in chosen["lists"] if numbers], len(chosen["norms"])
    times = np.bincount(np.concatenate(sparse).astype(int), minlength=chunks)
    never, always = (f"{100 * np.mean(times == count):.0f} %" for count in (0, len(sparse)))
    run.say(f"in {len(sparse)} sparse steps of training {never} of the {chunks} chunks were never")
    run.say(f"chosen, {always} always. Mean |g| differs between chunks: the largest is")
    run.say(f"{max(chosen['norms']) / np.median(chosen['norms']):.0f} x the median")
    after = run.plain.bcast(run.on_rank_0(lambda: watched(run, train, after=True)))
    return chosen | {"percent": percent, "after": after["lists"]}


def watched(run: kit.Run, train, after: bool = False) -> dict:
    steps = run.quick(6, 60, 200)
    job = Job("none", images.SEED, 0, epochs=1 + steps, warmup=False, after=after)
    with new(run, train, job) as stack:
        lists, model, settings = [], stack.model, stack.csc.settings
        for _, one in zip(range(steps), all_batches(train, RANKS * run.options.batch, job)):
            lists.append(stack.csc.chosen or [])
            stack.step(*one, rate=run.options.rate)
        model.network.loss(*one)
        model.network.backward(lambda i: None)
        tensors = zip(model.network.tensors, model.gradients.offsets)
        edges = [(spec.name, offset / settings.chunk) for spec, offset in tensors]
        magnitudes = np.abs(to_host(model.gradients.flat))
        norms = [float(magnitudes[c].mean()) for c in stack.csc.chunks]
    return {"lists": lists, "edges": edges, "norms": norms}
