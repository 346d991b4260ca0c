"""Lesson 15: a step whose rings overlap backward, and its efficiency. It has no statement."""

import numpy as np

from refgf.oracle.spec.exercise import Arguments, Exercise

NETWORK, WAIT = "rings queue behind each other", "rings wait for backward"

HIDDEN, BARE = "all rings end before backward", "layers without parameters"

FEW = "one rank, no layers"


def ring_seconds(n: int, p: int, alpha: float, beta: float) -> float:
    return 2 * (p - 1) * (alpha + 4 * n / p * beta)


def step(
    forward_s: list[float],
    backward_s: list[float],
    elements: list[int],
    p: int,
    alpha: float,
    beta: float,
    **how: bool,
) -> tuple[float, float]:
    """how: the typical mistakes.

    last_first: the order of backward; late: a ring waits for its own layer; forward: backward comes
    after forward; bare: layers without parameters have a ring; wait: rings wait for backward
    """
    how = {"last_first": True, "late": True, "forward": True, "bare": False, "wait": True} | how
    layers = list(zip(backward_s, elements))
    compute_s = sum(forward_s, 0.0) + sum(backward_s, 0.0)
    now_s, end_s = sum(forward_s, 0.0) * how["forward"], 0.0
    for seconds, n in reversed(layers) if how["last_first"] else layers:
        ready_s = now_s + seconds * how["late"]
        now_s += seconds
        if n or how["bare"]:
            ready_s = ready_s if how["wait"] or not end_s else 0.0
            end_s = max(end_s, ready_s) + ring_seconds(n, p, alpha, beta)
    return result(compute_s, max(compute_s, end_s))


def result(compute_s: float, step_s: float) -> tuple[float, float]:
    return step_s, 100 * compute_s / step_s if step_s else 100.0


EXAMPLE = ([1.0, 1.0], [2.0, 3.0])


def layers(
    random: np.random.Generator, shortest_s: float, longest_s: float, low: int, high: int
) -> Arguments:
    """6 layers of random times and elements; p, alpha, beta."""
    times = random.uniform(shortest_s, longest_s, (2, 6)).tolist()
    elements = random.integers(low, high, 6).tolist()
    return *times, elements, int(random.choice([2, 4, 8])), 0.05, 1e-8


def few(random: np.random.Generator) -> list[Arguments]:
    drawn = random.uniform(0.1, 4.0, (2, 2)).tolist()
    return [
        (*EXAMPLE, [5, 10], 1, 0.5, 0.05),
        ([], [], [], 4, 0.5, 0.1),
        (*drawn, [5, 10], 1, 0.5, 0.05),
    ]


def queueing(random: np.random.Generator) -> list[Arguments]:
    """A ring takes 2 s or longer, a layer at most 0.4 s."""
    return [(*EXAMPLE, [5, 10], 2, 0.5, 0.05), layers(random, 0.1, 0.4, 5 * 10**7, 10**8)]


def waiting(random: np.random.Generator) -> list[Arguments]:
    """A ring ends before the next layer's backward does. The forward pass is short."""
    forward_s, *others = layers(random, 1.0, 4.0, 10**5, 10**6)
    rows = [([0.5, 0.5], [2.0, 3.0], [5, 2], 2, 0.5, 0.05)]
    return rows + [([seconds / 500 for seconds in forward_s], *others)]


def hidden(random: np.random.Generator) -> list[Arguments]:
    """As before, but the first layer, whose backward is last, has no parameters."""
    drawn = layers(random, 1.0, 4.0, 10**5, 10**6)
    drawn[2][0] = 0
    return [([1.0, 1.0], [6.0, 3.0], [0, 10], 2, 0.5, 0.05), drawn]


def bare(random: np.random.Generator) -> list[Arguments]:
    """Rings queue, and some layers in between have no parameters."""
    drawn = layers(random, 0.1, 0.4, 5 * 10**7, 10**8)
    drawn[2][1] = drawn[2][3] = 0
    return [([1.0] * 3, [2.0, 1.0, 3.0], [5, 0, 10], 2, 0.5, 0.05), drawn]


# the operations may be in another order: a few roundings of 1e-16
STEP_15 = Exercise("15.4", step, relative=1e-12)
STEP_15.part(NETWORK, 2, queueing)
STEP_15.part(WAIT, 1, waiting)
STEP_15.part(HIDDEN, 1, hidden)
STEP_15.part(BARE, 1, bare)
STEP_15.part(FEW, 1, few)


@STEP_15.mistake("you add all rings to the kernels: this is the step without overlap")
def without_overlap(forward_s, backward_s, elements, p, alpha, beta):
    compute_s = sum(forward_s, 0.0) + sum(backward_s, 0.0)
    rings_s = sum(ring_seconds(n, p, alpha, beta) for n in elements if n)
    return result(compute_s, compute_s + rings_s)


@STEP_15.mistake("backward begins with the last layer; layers are given in forward order")
def first_layer_first(forward_s, backward_s, elements, p, alpha, beta):
    return step(forward_s, backward_s, elements, p, alpha, beta, last_first=False)


@STEP_15.mistake(
    "your rings start before their layer's own backward, which computes what they send"
)
def before_its_layer(forward_s, backward_s, elements, p, alpha, beta):
    return step(forward_s, backward_s, elements, p, alpha, beta, late=False)


@STEP_15.mistake("no gradient is ready before the forward pass of all layers has ended")
def no_forward_pass(forward_s, backward_s, elements, p, alpha, beta):
    return step(forward_s, backward_s, elements, p, alpha, beta, forward=False)


@STEP_15.mistake("a layer without parameters has no ring, so no latencies either")
def rings_of_nothing(forward_s, backward_s, elements, p, alpha, beta):
    return step(forward_s, backward_s, elements, p, alpha, beta, bare=True)


@STEP_15.mistake(
    "your rings follow each other without a gap, although their gradients are not ready"
)
def without_gaps(forward_s, backward_s, elements, p, alpha, beta):
    return step(forward_s, backward_s, elements, p, alpha, beta, wait=False)


STEP_15.given("beta is for a byte, and a float32 has 4 of them", beta=lambda beta: beta / 4)


@STEP_15.mistake("your efficiency is upside down: it is the kernels' time over that of the step")
def upside_down(forward_s, backward_s, elements, p, alpha, beta):
    step_s, percent = step(forward_s, backward_s, elements, p, alpha, beta)
    return step_s, 1e4 / percent


@STEP_15.mistake("your efficiency is a fraction; wanted percent")
def fraction(forward_s, backward_s, elements, p, alpha, beta):
    step_s, percent = step(forward_s, backward_s, elements, p, alpha, beta)
    return step_s, percent / 100
