"""Wrong functions that once had full marks, or the sentence of another mistake."""

import numpy as np
import pytest

from refgf.oracle.grade import marking
from refgf.oracle.grade.trusted import mark_of
from tests.support.students import ANSWERS

SEEDS = [(2019,), (2019, 1), (2019, 77)]


def mark_by_name(lesson, function, seeds=(2019,)):
    (exercise,) = (e for e in marking.exercises_of(lesson) if e.name == function.__name__)
    return mark_of(exercise, function, seeds)


def half(x):
    return x.astype(np.float16).astype(np.float32)


def blocks_of(rounded, fits=448):
    """in_blocks with another rounding, or another number that is the largest one."""

    def in_blocks(x, block):
        received = np.zeros_like(x)
        for i in range(0, len(x), block):
            part = x[i : i + block].astype(np.float64)
            top = abs(part).max()
            s = 2.0 ** np.ceil(np.log2(top / fits)) if top else 1.0
            received[i : i + block] = rounded(part / s) * s
        return received

    return in_blocks


def e4m3(y, least=2.0**-9):
    step = np.maximum(2.0 ** (np.frexp(y)[1] - 4), least)
    return np.rint(y / step) * step


def cut_off_blocks():
    """in_blocks that cuts off at 448, with s half as large between 256 and 448: y is up to 896."""

    def in_blocks(x, block):
        received = np.zeros_like(x)
        for i in range(0, len(x), block):
            part = x[i : i + block].astype(np.float64)
            limit = 448 * 2.0 ** (np.frexp(abs(part).max())[1] - 9)
            part = np.clip(part, -limit, limit)
            s = 2.0 ** np.floor(np.log2(abs(part).max() / 448)) if limit and part.any() else 1.0
            received[i : i + block] = e4m3(part / s) * s
        return received

    return in_blocks


def half_sum_with(flag):
    """half_sum with another flag, made of the sum before its last rounding."""

    def half_sum(terms, every_hop):
        total = terms[0] if every_hop else half(terms[0])
        for term in terms[1:]:
            total = half(total) + term if every_hop else total + half(term)
        return half(total), bool(flag(total))

    return half_sum


def next_scale(scale, missing, finite, interval):
    """From 2 it is not divided by four to 1."""
    if not finite:
        return (scale / 4 if scale / 4 >= 1 else scale), interval
    return (min(2.0**24, scale * 2), interval) if missing == 1 else (scale, missing - 1)


WRONG = {
    "multiples of 2^-10": ("05", blocks_of(lambda y: e4m3(y, 2.0**-10))),
    "multiples of 2^-8": ("05", blocks_of(lambda y: e4m3(y, 2.0**-8))),
    "no number from 449 to 896": ("05v0", cut_off_blocks()),
    "449 fits": ("05", blocks_of(e4m3, 449)),
    "447 fits": ("05", blocks_of(e4m3, 447)),
    "a flag too early": ("05v0", half_sum_with(lambda total: np.isfinite(total).all())),
    "65512 called too large": ("05v0", half_sum_with(lambda total: (abs(total) <= 65504).all())),
    "one finite number": ("05v0", half_sum_with(lambda total: np.isfinite(half(total)).any())),
    "no quarter from 2": ("05v0", next_scale),
}


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_function_loses_points(what, seeds):
    mark = mark_by_name(*WRONG[what], seeds)
    assert mark.points < mark.of


@pytest.mark.parametrize("seeds", SEEDS)
def test_a_mistake_that_the_file_does_not_make_is_not_named(seeds):
    """The published block order agrees with other mistakes where these make no difference."""
    published = blocks_of(e4m3)
    (lost,) = (part for part in mark_by_name("05v3", published, seeds).parts if not part.points)
    assert lost.sentence.startswith("as in the published exercise; here blocks begin at the end")


def update(master, total, scale, rate):
    applied = not np.isinf(total).any()
    if applied:
        master = master - np.float32(rate) * (total.astype(np.float32) / np.float32(scale))
    return master, master.astype(np.float16), applied


def test_a_flag_that_sees_no_nan_is_named():
    sentences = " ".join(part.sentence for part in mark_by_name("05v0", update).parts)
    assert "a NaN in the sum skips the step too" in sentences


def masked(step):
    """update in which only elements are skipped whose step is not finite."""

    def update(master, total, scale, rate):
        mine = step(total, scale, rate)
        master = master - np.where(np.isfinite(mine), mine, 0).astype(mine.dtype)
        return master, master.astype(np.float16)

    return update


def in_float16(total, scale, rate):
    return rate * (total / scale)


def divided_in_float16(total, scale, rate):
    return np.float32(rate) * (total / scale)


@pytest.mark.parametrize("step", [in_float16, divided_in_float16])
@pytest.mark.parametrize("seeds", SEEDS)
def test_an_infinity_that_is_masked_loses_its_point(step, seeds):
    """By 2**16, which float16 has as infinity, an infinity gives NaN and all else 0."""
    parts = {part.what: part for part in mark_by_name("05", masked(step), seeds).parts}
    assert not parts["an infinity or NaN in the sum"].points


@pytest.mark.parametrize("seeds", SEEDS)
def test_a_step_in_float16_is_named(seeds):
    def update(master, total, scale, rate):
        if np.isfinite(total).all():
            master = master - in_float16(total, scale, rate)
        return master, master.astype(np.float16)

    for function, also in ((update, ""), (masked(in_float16), "skip only the elements")):
        lost = [part.sentence for part in mark_by_name("05", function, seeds).parts]
        said = [each for each in lost if each]
        assert said and all("in float16, where" in each and also in each for each in said), said


MUTANTS = {  # lesson, function: (of the answers, in its place)
    ("01", "ring_cost"): ("if p == 1:", "if p in (1, 2):"),
    ("06", "choose"): ("* percent / 100)", "* percent / 101)"),
    ("06", "choose "): (', kind="stable"', ""),
    ("09", "greedy_counts"): (
        "counts, begin, start_s = [], 0, 0.0",
        "counts, begin, start_s = [], 0, 1.0",
    ),
    ("09", "greedy_counts "): ("nbytes[begin : i + 1]", "nbytes[begin : i + 2]"),
    ("12", "top_k"): (', kind="stable"', ""),
    ("13", "epoch"): ("ws.sum(axis=0)", "ws.sum()"),
    ("15", "ridge_batch"): ("range(1, 1001)", "range(1, 1000)"),
    ("17", "low_rank_sum"): (".all(axis=0)", ".all()"),
    ("17", "low_rank_sum "): (".all(axis=0)", ".any(axis=0)"),
}


@pytest.mark.parametrize("lesson, name", MUTANTS)
@pytest.mark.parametrize("seeds", SEEDS)
def test_a_changed_answer_loses_points(lesson, name, seeds):
    """A boundary, or a sort that is not stable, was right in all cases once."""
    old, new = MUTANTS[lesson, name]
    text = (ANSWERS / f"{lesson}.py").read_text()
    assert text.count(old) == 1
    functions: dict = {}
    exec(text.replace(old, new), functions)  # noqa: S102  ours
    mark = mark_by_name(lesson, functions[name.strip()], seeds)
    assert mark.points < mark.of
