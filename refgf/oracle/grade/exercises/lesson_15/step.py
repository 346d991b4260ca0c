"""Exercise step(forward_s, backward_s, elements, p, alpha, beta)."""

from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part
from refgf.oracle.grade.exercises.lesson_15.cases import ROUNDINGS

NETWORK, WAIT = "rings queue behind each other", "rings wait for backward"
HIDDEN, BARE = "all rings end before backward", "layers without parameters"
FEW = "one rank, no layers"


def ring_seconds(n, p, alpha, beta):
    return 2 * (p - 1) * (alpha + 4 * n / p * beta)


def step(forward_s, backward_s, elements, p, alpha, beta, **how):
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


def result(compute_s, step_s):
    return step_s, 100 * compute_s / step_s if step_s else 100.0


def without_overlap(forward_s, backward_s, elements, p, alpha, beta):
    compute_s = sum(forward_s, 0.0) + sum(backward_s, 0.0)
    rings_s = sum(ring_seconds(n, p, alpha, beta) for n in elements if n)
    return result(compute_s, compute_s + rings_s)


def first_layer_first(forward_s, backward_s, elements, p, alpha, beta):
    return step(forward_s, backward_s, elements, p, alpha, beta, last_first=False)


def before_its_layer(forward_s, backward_s, elements, p, alpha, beta):
    return step(forward_s, backward_s, elements, p, alpha, beta, late=False)


def no_forward_pass(forward_s, backward_s, elements, p, alpha, beta):
    return step(forward_s, backward_s, elements, p, alpha, beta, forward=False)


def rings_of_nothing(forward_s, backward_s, elements, p, alpha, beta):
    return step(forward_s, backward_s, elements, p, alpha, beta, bare=True)


def without_gaps(forward_s, backward_s, elements, p, alpha, beta):
    return step(forward_s, backward_s, elements, p, alpha, beta, wait=False)


def a_byte_an_element(forward_s, backward_s, elements, p, alpha, beta):
    return step(forward_s, backward_s, elements, p, alpha, beta / 4)


def upside_down(forward_s, backward_s, elements, p, alpha, beta):
    step_s, percent = step(forward_s, backward_s, elements, p, alpha, beta)
    return step_s, 1e4 / percent


def fraction(forward_s, backward_s, elements, p, alpha, beta):
    step_s, percent = step(forward_s, backward_s, elements, p, alpha, beta)
    return step_s, percent / 100


EXAMPLE = ([1.0, 1.0], [2.0, 3.0])


def layers(random, shortest_s, longest_s, low, high):
    """6 layers of random times and elements; p, alpha, beta."""
    times = random.uniform(shortest_s, longest_s, (2, 6)).tolist()
    elements = random.integers(low, high, 6).tolist()
    return [*times, elements, int(random.choice([2, 4, 8])), 0.05, 1e-8]


def few(random):
    drawn = random.uniform(0.1, 4.0, (2, 2)).tolist()
    return [
        (*EXAMPLE, [5, 10], 1, 0.5, 0.05),
        ([], [], [], 4, 0.5, 0.1),
        (*drawn, [5, 10], 1, 0.5, 0.05),
    ]


def queueing(random):
    """A ring takes 2 s or longer, a layer at most 0.4 s."""
    return [(*EXAMPLE, [5, 10], 2, 0.5, 0.05), layers(random, 0.1, 0.4, 5 * 10**7, 10**8)]


def waiting(random):
    """A ring ends before the next layer's backward does. The forward pass is short."""
    forward_s, *others = layers(random, 1.0, 4.0, 10**5, 10**6)
    rows = [([0.5, 0.5], [2.0, 3.0], [5, 2], 2, 0.5, 0.05)]
    return rows + [([seconds / 500 for seconds in forward_s], *others)]


def hidden(random):
    """As before, but the first layer, whose backward is last, has no parameters."""
    drawn = layers(random, 1.0, 4.0, 10**5, 10**6)
    drawn[2][0] = 0
    return [([1.0, 1.0], [6.0, 3.0], [0, 10], 2, 0.5, 0.05), drawn]


def bare(random):
    """Rings queue, and some layers in between have no parameters."""
    drawn = layers(random, 0.1, 0.4, 5 * 10**7, 10**8)
    drawn[2][1] = drawn[2][3] = 0
    return [([1.0] * 3, [2.0, 1.0, 3.0], [5, 0, 10], 2, 0.5, 0.05), drawn]


STEP = Exercise(
    "step",
    step,
    (
        Part(NETWORK, 2, queueing),
        Part(WAIT, 1, waiting),
        Part(HIDDEN, 1, hidden),
        Part(BARE, 1, bare),
        Part(FEW, 1, few),
    ),
    (
        Mistake(
            "you add all rings to the kernels: this is the step without overlap",
            without_overlap,
            (NETWORK, WAIT, HIDDEN, BARE),
        ),
        Mistake(
            "backward begins with the last layer; layers are given in forward order",
            first_layer_first,
            (NETWORK, WAIT, HIDDEN, BARE),
        ),
        Mistake(
            "your rings start before their layer's own backward, which computes what they send",
            before_its_layer,
            (NETWORK, WAIT, BARE),
        ),
        Mistake(
            "no gradient is ready before the forward pass of all layers has ended",
            no_forward_pass,
            (NETWORK, WAIT, BARE),
        ),
        Mistake(
            "a layer without parameters has no ring, so no latencies either",
            rings_of_nothing,
            (HIDDEN, BARE),
        ),
        Mistake(
            "your rings follow each other without a gap, although their gradients are not ready",
            without_gaps,
            (WAIT,),
        ),
        Mistake(
            "beta is for a byte, and a float32 has 4 of them",
            a_byte_an_element,
            (NETWORK, WAIT, BARE),
        ),
        Mistake(
            "your efficiency is upside down: it is the kernels' time over that of the step",
            upside_down,
            (NETWORK, WAIT, BARE),
        ),
        Mistake(
            "your efficiency is a fraction; wanted percent",
            fraction,
            (NETWORK, WAIT, HIDDEN, BARE, FEW),
        ),
    ),
    relative=ROUNDINGS,
)
