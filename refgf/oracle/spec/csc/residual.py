"""C2, C3, C7: what a chunk sends, and what each rank keeps of the rest.

form         accumulated gradient a    residual of a chosen chunk   residual of another chunk
none         g + h                     h = 0                        h = g + h
history      g + h                     h = 0                        h = m (g + h)
dgc          v + (m u + g)             v = 0, u = m u + g           v = a, u = m u + g
dgc_masked   v + (m u + g)             v = 0, u = 0                 v = a, u = m u + g
"""

import numpy as np
from numpy.typing import DTypeLike

from refgf.oracle.spec.exercise import Drawn, Exercise, not_in_float16
from refgf.oracle.spec.statement import Statement

FORMS = ("dgc", "dgc_masked", "history", "none")
Residual = dict[str, np.ndarray]  # {"u", "v"} or {"h"}, arrays (n,)


def zero_residual(form: str, n: int, dtype: DTypeLike = np.float32) -> Residual:
    """The residual before the first step."""
    return {name: np.zeros(n, dtype) for name in ("uv" if form.startswith("dgc") else "h")}


# ---- C2: what is sent ----


def accumulated_gradient(
    form: str, residual: Residual, g: np.ndarray, momentum: float
) -> np.ndarray:
    """C2: a chunk sends its accumulated gradient: `none`, `history`: g + h; `dgc`, `dgc_masked`: v
    + (m u + g).

    Source: `dgc`, `dgc_masked` as in DGC's code (Lin et al. 2018); `history`, `none`: chosen.
    GradientFlow has a momentum correction (the notes); its formula is not at hand.

    What each element sends if its chunk is chosen, before anything is cleared. -> (n,)
    """
    if form.startswith("dgc"):
        return residual["v"] + (g.dtype.type(momentum) * residual["u"] + g)
    return g + residual["h"]


C2 = Statement("C2", accumulated_gradient)


@C2.mistake("momentum not corrected: v + g")
def not_corrected(form, kept, g, momentum):
    if form.startswith("dgc"):
        return kept["v"] + g
    return accumulated_gradient(form, kept, g, momentum)


@C2.mistake("the residual is not added when a chunk is sent")
def residual_not_added(form, kept, g, momentum):
    return g.copy()


# ---- C3: what stays ----


def next_residual(
    form: str,
    residual: Residual,
    g: np.ndarray,
    momentum: float,
    sent: np.ndarray,
    dense: bool = False,
) -> Residual:
    """C3: the residual: on chosen chunks h = 0 or v = 0; elsewhere `none` h = g + h, `history` h =
    m (g + h), `dgc` v = the accumulated gradient; u = m u + g everywhere, except that `dgc_masked`
    clears u on chosen chunks of steps that are not dense.

    Source: as C2. In dense steps DGC's code forms u of the averaged gradient, alike on all ranks;
    here each rank has its own u, whose mean that is: chosen.

    sent: bool (n,), True in chosen chunks. In a dense step u is ordinary momentum.
    """
    m, a = g.dtype.type(momentum), accumulated_gradient(form, residual, g, momentum)
    zero = np.zeros_like(g)
    if form.startswith("dgc"):
        u = m * residual["u"] + g
        masked = form == "dgc_masked" and not dense
        return {"u": np.where(sent, zero, u) if masked else u, "v": np.where(sent, zero, a)}
    return {"h": np.where(sent, zero, m * a if form == "history" else a)}


C3 = Statement("C3", next_residual)
C3.given(
    "the residual is not multiplied by the momentum",
    form=lambda form: "none" if form == "history" else form,
)
C3.given(
    "factor masking in every form: u is cleared on chosen chunks",
    form=lambda form: "dgc_masked" if form == "dgc" else form,
)
C3.given("factor masking in dense steps too", dense=lambda dense: False)
C3.given("no factor masking", form=lambda form: "dgc" if form == "dgc_masked" else form)


@C3.mistake("the residual is not cleared when it is sent")
def not_cleared(form, kept, g, momentum, sent, dense=False):
    return next_residual(form, kept, g, momentum, np.zeros_like(sent), dense)


# ---- C7: nothing is lost ----


def conserved(
    form: str,
    sent_sums: np.ndarray,
    residual: Residual,
    g_sums: np.ndarray,
    u_sums: np.ndarray,
) -> bool:
    """C7: bit for bit on exact data, on each rank: `none` sent + residual = sum of g; `dgc` sent +
    v = sum of u.

    Source: follows from C2, C3.

    dgc_masked: as dgc, with u as it was before masking. history has only its recurrence (C3), so
    this function returns True for it.
    sent_sums, g_sums, u_sums: sums over all steps on one rank (n,); residual: after the last step.
    """
    if form == "history":
        return True
    if form == "none":
        return bool((sent_sums + residual["h"] == g_sums).all())
    return bool((sent_sums + residual["v"] == u_sums).all())


C7 = Statement("C7", conserved)


@C7.mistake("the residual of unsent chunks is dropped", next_residual)
def residual_dropped(form, kept, g, momentum, sent, dense=False):
    after = next_residual(form, kept, g, momentum, sent, dense)
    return {name: a if name == "u" else np.zeros_like(a) for name, a in after.items()}


@C7.mistake("swapped: the residual is cleared unless it is sent", next_residual)
def swapped(form, kept, g, momentum, sent, dense=False):
    after, other = (next_residual(form, kept, g, momentum, which, dense) for which in (sent, ~sent))
    return {name: a if name == "u" else other[name] for name, a in after.items()}


# ---- C2, C3 of all ranks, as students write them ----


def csc_step(
    gradients: list[np.ndarray], residuals: list[np.ndarray], chosen: list[int], chunk: int
) -> tuple[np.ndarray, list[np.ndarray]]:
    """With the form `none`. -> the packed sum of the chosen chunks, the residual of each rank"""
    sent, pairs = in_chunks(gradients, chosen, chunk), list(zip(residuals, gradients))
    packed = sum(accumulated_gradient("none", {"h": h}, g, 0)[sent] for h, g in pairs)
    return packed, [next_residual("none", {"h": h}, g, 0, sent)["h"] for h, g in pairs]


def in_chunks(gradients: list[np.ndarray], chosen: list[int], chunk: int) -> np.ndarray:
    """True where an element's chunk is chosen. -> bool (n,)"""
    return np.isin(np.arange(gradients[0].size) // chunk, chosen)


def steps(residuals: bool, *shapes: tuple[int, int, list[int], int]) -> Drawn:
    """shapes: (p, n, chosen, chunk) of each case."""

    def numbers(random: np.random.Generator, p: int, n: int) -> list[np.ndarray]:
        return [not_in_float16(random, n) for _ in range(p)]

    def kept(random: np.random.Generator, p: int, n: int) -> list[np.ndarray]:
        return numbers(random, p, n) if residuals else [np.zeros(n, np.float32)] * p

    return lambda random: [
        (numbers(random, p, n), kept(random, p, n), chosen, chunk) for p, n, chosen, chunk in shapes
    ]


STEP_06 = Exercise("06.4", csc_step)
STEP_06.part("the first step: residuals are 0", 2, steps(False, (2, 4, [1], 2), (2, 10, [0, 2], 3)))
STEP_06.part("with residuals of earlier steps", 2, steps(True, (2, 4, [1], 2), (4, 20, [0, 2], 6)))
STEP_06.part("the shorter last chunk is sent", 1, steps(False, (2, 5, [2], 2), (3, 17, [0, 3], 5)))
STEP_06.part("one rank, all chunks", 1, steps(True, (1, 5, [0, 1], 2), (2, 5, [0, 1, 2], 2)))
STEP_06.given("you take the chosen numbers as elements: they are chunks", chunk=lambda chunk: 1)


@STEP_06.mistake("what you do not send is lost: it is the residual of the next step")
def unsent_is_lost(gradients, residuals, chosen, chunk):
    packed, _ = csc_step(gradients, residuals, chosen, chunk)
    return packed, [np.zeros_like(g) for g in gradients]


@STEP_06.mistake("you do not add the residual to the gradient, so it is never sent")
def without_residuals(gradients, residuals, chosen, chunk):
    return csc_step(gradients, [np.zeros_like(h) for h in residuals], chosen, chunk)


@STEP_06.mistake(
    "you send the gradient without the residual, and set the residual to 0: what was kept is lost"
)
def residual_not_sent(gradients, residuals, chosen, chunk):
    packed, _ = without_residuals(gradients, residuals, chosen, chunk)
    return packed, csc_step(gradients, residuals, chosen, chunk)[1]


@STEP_06.mistake(
    "in chunks that are not sent, your residual stays as it was; wanted the old residual plus the "
    "gradient"
)
def residual_stays(gradients, residuals, chosen, chunk):
    packed, _ = csc_step(gradients, residuals, chosen, chunk)
    return packed, csc_step([np.zeros_like(g) for g in gradients], residuals, chosen, chunk)[1]


@STEP_06.mistake(
    "in chunks that are not sent, your new residual is this step's gradient alone; wanted the old "
    "residual plus the gradient"
)
def residual_replaced(gradients, residuals, chosen, chunk):
    packed, _ = csc_step(gradients, residuals, chosen, chunk)
    return packed, without_residuals(gradients, residuals, chosen, chunk)[1]


@STEP_06.mistake(
    "you do not clear the residual of the chosen chunks: it would be sent a second time"
)
def residual_not_cleared(gradients, residuals, chosen, chunk):
    packed, _ = csc_step(gradients, residuals, chosen, chunk)
    return packed, [h + g for h, g in zip(residuals, gradients)]


@STEP_06.mistake("your residual is what was sent; wanted what was not")
def residual_of_what_was_sent(gradients, residuals, chosen, chunk):
    packed, unsent = csc_step(gradients, residuals, chosen, chunk)
    return packed, [h + g - rest for h, g, rest in zip(residuals, gradients, unsent)]


@STEP_06.mistake(
    "you give all ranks the sum of the residuals: each rank has its own, or it would be added once "
    "for each rank"
)
def one_residual_for_all(gradients, residuals, chosen, chunk):
    packed, unsent = csc_step(gradients, residuals, chosen, chunk)
    return packed, [sum(unsent) for _ in unsent]


@STEP_06.mistake("you send the mean over the ranks; wanted the sum")
def mean_of_ranks(gradients, residuals, chosen, chunk):
    packed, unsent = csc_step(gradients, residuals, chosen, chunk)
    return packed / np.float32(len(gradients)), unsent


@STEP_06.mistake(
    "you return all n elements with zeros between the chunks: only the chosen chunks are sent, "
    "packed"
)
def not_packed(gradients, residuals, chosen, chunk):
    packed, unsent = csc_step(gradients, residuals, chosen, chunk)
    sums = np.zeros_like(gradients[0])
    sums[in_chunks(gradients, chosen, chunk)] = packed
    return sums, unsent


@STEP_06.mistake("you send the last chunk as long as the others: it has fewer elements")
def last_chunk_padded(gradients, residuals, chosen, chunk):
    packed, unsent = csc_step(gradients, residuals, chosen, chunk)
    return np.pad(packed, (0, len(chosen) * chunk - packed.size)), unsent


@STEP_06.mistake(
    "your arrays are float64: the gradients are float32, and float64 is twice the bytes"
)
def float64_arrays(gradients, residuals, chosen, chunk):
    packed, unsent = csc_step(gradients, residuals, chosen, chunk)
    return packed.astype(np.float64), [h.astype(np.float64) for h in unsent]
