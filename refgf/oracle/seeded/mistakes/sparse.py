"""Mistakes in coarse-grained sparse communication."""

import math
from functools import partial

import numpy as np

from refgf.oracle.definitions import (
    accumulated_gradient,
    choose,
    chosen_rates,
    chunk_bounds,
    csc_payload_bytes,
    csc_run,
    csc_step,
    importance,
    lazy_allreduce,
    local_gradient,
    next_residual,
    percent_of_step,
    sent_elements,
    skip_step,
    update,
)
from refgf.oracle.seeded.mistakes.lazy import rest_stays_local
from refgf.oracle.seeded.mistakes.registry import mistake
from refgf.oracle.seeded.variants import variant


@mistake("C1", "chunk_bounds", "the short last chunk is lost")
def last_chunk_lost(n, chunk):
    full = [(start, start + chunk) for start in range(0, n - chunk + 1, chunk)]
    return full or chunk_bounds(n, chunk)


@mistake("C1", "chunk_bounds", "the remainder joins the last chunk")
def last_chunk_longer(n, chunk):
    bounds = chunk_bounds(n, chunk)
    return [*bounds[:-2], (bounds[-2][0], n)] if n % chunk and len(bounds) > 1 else bounds


@mistake("C2", "accumulated_gradient", "momentum not corrected: v + g")
def not_corrected(form, kept, g, momentum):
    return (
        kept["v"] + g if form.startswith("dgc") else accumulated_gradient(form, kept, g, momentum)
    )


@mistake("C2", "accumulated_gradient", "the residual is not added when a chunk is sent")
def residual_not_added(form, kept, g, momentum):
    return g.copy()


@mistake("C3", "next_residual", "the residual is not cleared when it is sent")
def not_cleared(form, kept, g, momentum, sent, dense=False):
    return next_residual(form, kept, g, momentum, np.zeros_like(sent), dense)


@mistake("C3", "next_residual", "the residual is not multiplied by the momentum")
def not_discounted(form, kept, g, momentum, sent, dense=False):
    return next_residual("none" if form == "history" else form, kept, g, momentum, sent, dense)


@mistake("C3", "next_residual", "factor masking in every form: u is cleared on chosen chunks")
def always_masked(form, kept, g, momentum, sent, dense=False):
    return next_residual("dgc_masked" if form == "dgc" else form, kept, g, momentum, sent, dense)


@mistake("C3", "next_residual", "factor masking in dense steps too")
def masked_when_dense(form, kept, g, momentum, sent, dense=False):
    return next_residual(form, kept, g, momentum, sent)


@mistake("C3", "next_residual", "no factor masking")
def never_masked(form, kept, g, momentum, sent, dense=False):
    return next_residual("dgc" if form == "dgc_masked" else form, kept, g, momentum, sent, dense)


@mistake("C4", "importance", "not divided by the chunk's length: the short last chunk starves")
def not_divided(per_rank, chunk):
    return importance(per_rank, chunk) * [j - i for i, j in chunk_bounds(len(per_rank[0]), chunk)]


@mistake("C4", "importance", "norms of rank 0 only, not summed over ranks")
def norms_of_rank_0(per_rank, chunk):
    return importance(per_rank[:1], chunk)


@mistake("C4", "importance", "Euclidean norms")
def euclidean(per_rank, chunk):
    squares = np.sum([np.float64(a) ** 2 for a in per_rank], axis=0)
    bounds = chunk_bounds(len(squares), chunk)
    return np.array([math.sqrt(squares[i:j].sum()) / (j - i) for i, j in bounds])


@mistake("C4", "importance", "norm of the sum instead of sum of the norms")
def norm_of_the_sum(per_rank, chunk):
    return importance([np.sum(np.asarray(per_rank, np.float64), axis=0)], chunk)


@mistake("C4", "importance", "norms are summed in float32")
def norms_in_float32(per_rank, chunk):
    with np.errstate(over="ignore", invalid="ignore"):
        magnitudes = np.abs(np.asarray(per_rank, np.float32))
        bounds = chunk_bounds(magnitudes.shape[1], chunk)
        norms = [magnitudes[:, i:j].sum(dtype=np.float32) / np.float32(j - i) for i, j in bounds]
    return np.array(norms, np.float64)


def largest(values, count):
    return sorted(sorted(range(len(values)), key=lambda c: (-values[c], c))[:count])


@mistake("C5", "choose", "ties go to the higher number")
def ties_to_higher(values, percent):
    count = max(1, math.ceil(len(values) * percent / 100))
    return sorted(sorted(range(len(values)), key=lambda c: (-values[c], -c))[:count])


@mistake("C5", "choose", "rounded down")
def rounded_down(values, percent):
    return largest(values, max(1, math.floor(len(values) * percent / 100)))


@mistake("C5", "choose", "rounded down, and one more: too many where the product is whole")
def one_more(values, percent):
    return largest(values, int(len(values) * percent / 100) + 1)


@mistake("C5", "choose", "percent is divided by 100 first: 28 % of 25 chunks is 8")
def divided_first(values, percent):
    return largest(values, max(1, math.ceil(len(values) * (percent / 100))))


@mistake("C5", "choose", "the least important chunks")
def least_important(values, percent):
    return choose([-v for v in values], percent)


@mistake("C5", "choose", "always the first chunks")
def always_the_first(values, percent):
    return list(range(len(choose(values, percent))))


@mistake("C5", "csc_run", "ties broken differently on each rank")
def ties_per_rank(w, gs, s, percents, lists=None):
    reports = csc_run(w, gs, s, percents, lists)
    for before, report in zip(reports, reports[1:]):
        if before["importance"] is not None and report["chosen"][0] is not None:
            percent = 100 * len(report["chosen"][0]) / len(before["importance"])
            other = ties_to_higher(before["importance"], percent)
            lists = enumerate(report["chosen"])
            report["chosen"] = [other if r % 2 else chosen for r, chosen in lists]
    return reports


@mistake("C6", "percent_of_step", "the first step is not dense")
def first_not_dense(step, steps_per_epoch, warmup_percents, percent):
    epoch = step // steps_per_epoch
    if epoch < len(warmup_percents):
        return warmup_percents[epoch], warmup_percents[epoch] == 100 and step > 0
    return percent, False


@mistake("C6", "percent_of_step", "warm-up one epoch too short")
def warmup_too_short(step, steps_per_epoch, warmup_percents, percent):
    return percent_of_step(step, steps_per_epoch, warmup_percents[:-1], percent)


@mistake("C7", "next_residual", "the residual of unsent chunks is dropped")
def residual_dropped(form, kept, g, momentum, sent, dense=False):
    after = next_residual(form, kept, g, momentum, sent, dense)
    return {name: a if name == "u" else np.zeros_like(a) for name, a in after.items()}


@mistake("C7", "next_residual", "swapped: the residual is cleared unless it is sent")
def swapped(form, kept, g, momentum, sent, dense=False):
    after, other = (next_residual(form, kept, g, momentum, which, dense) for which in (sent, ~sent))
    return {name: a if name == "u" else other[name] for name, a in after.items()}


@mistake("C8", "csc_step", "stale chunk list: that of the step before")
def stale_list(state, gs, s, percent_next, dense_next=False):
    after, report = csc_step(state, gs, s, percent_next, dense_next)
    if report["finite"]:
        fresh = after["chosen"]
        after["chosen"], after["fresh"] = state.get("fresh", fresh), fresh
    return after, report


@mistake("C8", "csc_step", "importance is that of the residual, without the option `after`")
def importance_after(state, gs, s, percent_next, dense_next=False):
    state, report = csc_step(state, gs, s, percent_next, dense_next)
    if report["finite"]:
        kept = [k["h" if "h" in k else "v"] for k in state["kept"]]
        state["chosen"] = None if dense_next else choose(importance(kept, s.chunk), percent_next)
    return state, report


@mistake("C9", "sent_elements", "chosen chunks are one chunk off")
def one_chunk_off(chosen, n, chunk):
    full = n // chunk
    if chosen is not None:
        chosen = [(c + 1) % full if c < full else c for c in chosen]
    return sent_elements(chosen, n, chunk)


@mistake("C9", "exchange_packed", "packed chunks are sent in one call, whatever theta is")
def sent_in_one_call(packed, state, s):
    scale = packed[0].dtype.type(state["scale"])
    scaled, sizes = [a * scale for a in packed], [len(packed[0])]
    return lazy_allreduce(scaled, sizes, float("inf"), s.wire, s.order)[0] / scale


@mistake("L2", "csc_run", "last bucket forgotten: every rank updates with its own values")
def rest_stays_local_per_rank(w, gs, s, percents, lists=None):
    """One run per rank, with what that rank holds after the exchange.

    This is right for momentum, but not for decay of weights that differ between ranks.
    """

    def held(packed, state, s, rank):
        sizes, scale = packed_sizes(state, s), packed[0].dtype.type(state["scale"])
        scaled = [a * scale for a in packed]
        return rest_stays_local(scaled, sizes, s.theta_bytes, s.wire, s.order)[rank] / scale

    runs = [
        variant(exchange_packed=partial(held, rank=r)).csc_run(w, gs, s, percents, lists)
        for r in range(len(gs[0]))
    ]
    return [{**reports[0], "w": [report["w"][0] for report in reports]} for reports in zip(*runs)]


def packed_sizes(state, s):
    bounds = chunk_bounds(len(state["w"]), s.chunk)
    if state["chosen"] is None:
        return s.sizes
    return [bounds[c][1] - bounds[c][0] for c in state["chosen"]]


@mistake("C10", "skip_step", "a skipped step leaves the scale as it is")
def scale_stays(state, scale):
    return {**state, "good_steps": 0}


@mistake("C10", "skip_step", "the step after a skipped one is dense")
def dense_after_skip(state, scale):
    return {**skip_step(state, scale), "chosen": None}


@mistake(
    "C10",
    "all_finite",
    "only sent elements are checked: an infinity in an unchosen chunk stays for ever",
)
def only_what_is_sent(arrays):
    return bool(np.isfinite(arrays[-1]).all())


@mistake("C11", "update", "unchosen weights are updated too, with their old velocity")
def all_weights_move(state, total, sent, s):
    w, velocity = update(state, total, sent, s)
    m, rate = w.dtype.type(s.momentum), w.dtype.type(s.rate)
    velocity = np.where(sent, velocity, m * velocity)
    return np.where(sent, w, w - rate * velocity), velocity


@mistake("C11", "update", "momentum twice: momentum SGD is applied to dgc's sum")
def momentum_twice(state, total, sent, s):
    w, velocity, t = state["w"].copy(), state["velocity"].copy(), state["w"].dtype.type
    velocity[sent] = t(s.momentum) * velocity[sent] + total
    w[sent] = w[sent] - t(s.rate) * velocity[sent]
    return (w, velocity) if s.form.startswith("dgc") else update(state, total, sent, s)


@mistake("C11", "update", "divided by the number of ranks")
def averaged(state, total, sent, s):
    return update(state, total / total.dtype.type(len(state["kept"])), sent, s)


@mistake("C11", "update", "divided by the number of ranks twice")
def averaged_twice(state, total, sent, s):
    return averaged(state, total / total.dtype.type(len(state["kept"])), sent, s)


@mistake("C12", "local_gradient", "every rank adds the whole decay: p times too much")
def decay_p_times(w, g, s, p):
    return local_gradient(w, g, s, 1)


@mistake("C12", "next_gap", "the decay of steps in which a chunk was not sent is lost")
def gap_ignored(gap, chosen):
    return np.ones_like(gap)


@mistake("C13", "chosen_rates", "LARS without a ratio: the rate alone")
def no_ratio(w, total, sent, s):
    return np.full(int(sent.sum()), s.rate).astype(w.dtype)


@mistake("C13", "chosen_rates", "norms of the whole layer's weights, not of the sent elements")
def whole_layer(w, total, sent, s):
    everything = np.zeros(len(w), w.dtype)
    everything[sent] = total
    return chosen_rates(w, everything, np.ones_like(sent), s)[sent]


@mistake("C14", "csc_payload_bytes", "the norms and the flag are forgotten")
def norms_forgotten(chosen, n, chunk, dtype="float32", wire=None):
    return csc_payload_bytes(chosen, n, chunk, dtype, wire) - 8 * (len(chunk_bounds(n, chunk)) + 1)


@mistake("C14", "csc_payload_bytes", "every chosen chunk counted as a full one")
def full_chunks(chosen, n, chunk, dtype="float32", wire=None):
    chunks = len(chunk_bounds(n, chunk))
    count = chunks if chosen is None else len(chosen)
    itemsize = 2 if wire in ("float16", "bfloat16") else 4
    return count * chunk * itemsize + 8 * (chunks + 1)
