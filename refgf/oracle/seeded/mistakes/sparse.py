"""Mistakes in coarse-grained sparse communication."""

import math
from functools import partial

import numpy as np

from refgf.oracle.definitions import (
    carried,
    choose,
    chosen_rates,
    chunk_bounds,
    csc_payload_bytes,
    csc_run,
    csc_step,
    importance,
    keep,
    lazy_allreduce,
    local_gradient,
    percent_of_step,
    sent_elements,
    skipped,
    update,
)
from refgf.oracle.seeded.mistakes.lazy import rest_stays_local
from refgf.oracle.seeded.mistakes.registry import mistake
from refgf.oracle.seeded.variants import variant


@mistake("C1", "chunk_bounds", "the short last chunk is lost")
def last_chunk_lost(n, chunk):
    return [(start, start + chunk) for start in range(0, n - chunk + 1, chunk)] or chunk_bounds(n, chunk)


@mistake("C1", "chunk_bounds", "the remainder joins the last chunk")
def last_chunk_longer(n, chunk):
    bounds = chunk_bounds(n, chunk)
    return [*bounds[:-2], (bounds[-2][0], n)] if n % chunk and len(bounds) > 1 else bounds


@mistake("C2", "carried", "momentum not corrected: v + g")
def not_corrected(form, kept, g, momentum):
    return kept["v"] + g if form.startswith("dgc") else carried(form, kept, g, momentum)


@mistake("C2", "carried", "what was kept is not added when a chunk is sent")
def kept_not_added(form, kept, g, momentum):
    return g.copy()


@mistake("C3", "keep", "what was kept back is not cleared when it is sent")
def not_cleared(form, kept, g, momentum, sent, dense=False):
    return keep(form, kept, g, momentum, np.zeros_like(sent), dense)


@mistake("C3", "keep", "what was kept back is not discounted by the momentum")
def not_discounted(form, kept, g, momentum, sent, dense=False):
    return keep("none" if form == "history" else form, kept, g, momentum, sent, dense)


@mistake("C3", "keep", "factor masking always: u is cleared on chosen chunks")
def always_masked(form, kept, g, momentum, sent, dense=False):
    return keep("dgc_masked" if form == "dgc" else form, kept, g, momentum, sent, dense)


@mistake("C3", "keep", "factor masking in dense steps too")
def masked_when_dense(form, kept, g, momentum, sent, dense=False):
    return keep(form, kept, g, momentum, sent)


@mistake("C3", "keep", "factor masking never")
def never_masked(form, kept, g, momentum, sent, dense=False):
    return keep("dgc" if form == "dgc_masked" else form, kept, g, momentum, sent, dense)


@mistake("C4", "importance", "not divided by the chunk's length: the short last chunk starves")
def not_divided(per_rank, chunk):
    return importance(per_rank, chunk) * [j - i for i, j in chunk_bounds(len(per_rank[0]), chunk)]


@mistake("C4", "importance", "norms of rank 0 only, not summed over ranks")
def norms_of_rank_0(per_rank, chunk):
    return importance(per_rank[:1], chunk)


@mistake("C4", "importance", "Euclidean norms")
def euclidean(per_rank, chunk):
    squares = np.sum([np.float64(a) ** 2 for a in per_rank], axis=0)
    return np.array([math.sqrt(squares[i:j].sum()) / (j - i) for i, j in chunk_bounds(len(squares), chunk)])


@mistake("C4", "importance", "norm of the sum instead of sum of the norms")
def norm_of_the_sum(per_rank, chunk):
    return importance([np.sum(np.asarray(per_rank, np.float64), axis=0)], chunk)


@mistake("C5", "choose", "ties go to the higher number")
def ties_to_higher(values, percent):
    count = max(1, math.ceil(len(values) * percent / 100))
    return sorted(sorted(range(len(values)), key=lambda c: (-values[c], -c))[:count])


@mistake("C5", "choose", "rounded down")
def rounded_down(values, percent):
    count = max(1, math.floor(len(values) * percent / 100))
    return sorted(sorted(range(len(values)), key=lambda c: (-values[c], c))[:count])


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
            report["chosen"] = [other if r % 2 else chosen for r, chosen in enumerate(report["chosen"])]
    return reports


@mistake("C6", "percent_of_step", "the first step is not dense")
def first_not_dense(step, steps_per_epoch, warmup_percents, percent):
    epoch = step // steps_per_epoch
    warming = epoch < len(warmup_percents)
    return (warmup_percents[epoch], warmup_percents[epoch] == 100 and step > 0) if warming else (percent, False)


@mistake("C6", "percent_of_step", "warm-up one epoch too short")
def warmup_too_short(step, steps_per_epoch, warmup_percents, percent):
    return percent_of_step(step, steps_per_epoch, warmup_percents[:-1], percent)


@mistake("C7", "keep", "what is not sent is thrown away")
def thrown_away(form, kept, g, momentum, sent, dense=False):
    after = keep(form, kept, g, momentum, sent, dense)
    return {name: a if name == "u" else np.zeros_like(a) for name, a in after.items()}


@mistake("C7", "keep", "kept only when sent: the two halves swapped")
def swapped(form, kept, g, momentum, sent, dense=False):
    after, other = (keep(form, kept, g, momentum, which, dense) for which in (sent, ~sent))
    return {name: a if name == "u" else other[name] for name, a in after.items()}


@mistake("C8", "csc_step", "stale chunk list: the list of the step before")
def stale_list(state, gs, s, percent_next, dense_next=False):
    after, report = csc_step(state, gs, s, percent_next, dense_next)
    if report["finite"]:
        fresh = after["chosen"]
        after["chosen"], after["fresh"] = state.get("fresh", fresh), fresh
    return after, report


@mistake("C8", "csc_step", "importance is taken after clearing although it was not asked for")
def importance_after(state, gs, s, percent_next, dense_next=False):
    state, report = csc_step(state, gs, s, percent_next, dense_next)
    if report["finite"]:
        kept = [k["h" if "h" in k else "v"] for k in state["kept"]]
        state["chosen"] = None if dense_next else choose(importance(kept, s.chunk), percent_next)
    return state, report


@mistake("C9", "sent_elements", "chosen chunks are one chunk off")
def one_chunk_off(chosen, n, chunk):
    full = n // chunk
    return sent_elements(None if chosen is None else [(c + 1) % full if c < full else c for c in chosen], n, chunk)


@mistake("C9", "exchange_packed", "packed chunks are sent in one call, whatever theta says")
def sent_in_one_call(packed, state, s):
    scale = packed[0].dtype.type(state["scale"])
    return lazy_allreduce([a * scale for a in packed], [len(packed[0])], float("inf"), s.wire, s.order)[0] / scale


@mistake("L2", "csc_run", "last bucket forgotten: every rank goes on with its own")
def rest_stays_local_per_rank(w, gs, s, percents, lists=None):
    """One run per rank, with what that rank holds after the exchange: right for momentum, not for decay from other weights."""

    def held(packed, state, s, rank):
        sizes, scale = packed_sizes(state, s), packed[0].dtype.type(state["scale"])
        return rest_stays_local([a * scale for a in packed], sizes, s.theta_bytes, s.wire, s.order)[rank] / scale

    runs = [variant(exchange_packed=partial(held, rank=r)).csc_run(w, gs, s, percents, lists) for r in range(len(gs[0]))]
    return [{**reports[0], "w": [report["w"][0] for report in reports]} for reports in zip(*runs)]


def packed_sizes(state, s):
    bounds = chunk_bounds(len(state["w"]), s.chunk)
    return s.sizes if state["chosen"] is None else [bounds[c][1] - bounds[c][0] for c in state["chosen"]]


@mistake("C10", "skipped", "a skipped step keeps the scale")
def scale_stays(state, scale):
    return {**state, "good_steps": 0}


@mistake("C10", "skipped", "a skipped step sends everything next")
def dense_after_skip(state, scale):
    return {**skipped(state, scale), "chosen": None}


@mistake("C10", "all_finite", "only what is sent is looked at: an infinity in an unchosen chunk stays for ever")
def only_what_is_sent(arrays):
    return bool(np.isfinite(arrays[-1]).all())


@mistake("C11", "update", "unchosen weights move too, by their old velocity")
def all_weights_move(state, total, sent, s):
    w, velocity = update(state, total, sent, s)
    m, rate = w.dtype.type(s.momentum), w.dtype.type(s.rate)
    velocity = np.where(sent, velocity, m * velocity)
    return np.where(sent, w, w - rate * velocity), velocity


@mistake("C11", "update", "momentum twice: dgc's sum goes through momentum SGD again")
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


@mistake("C12", "next_gap", "decay is not made up for the steps in which a chunk was not sent")
def gap_ignored(gap, chosen):
    return np.ones_like(gap)


@mistake("C13", "chosen_rates", "LARS with the rate alone: no ratio")
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
    count = len(chunk_bounds(n, chunk)) if chosen is None else len(chosen)
    return count * chunk * (2 if wire in ("float16", "bfloat16") else 4) + 8 * (len(chunk_bounds(n, chunk)) + 1)
