"""Cases of coarse-grained sparse communication.

Numbers are small integers and momentum is 1/2, so that every norm is exact.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from refgf.oracle.definitions import FORMS, choose, conserved, csc_run, percent_of_step
from refgf.oracle.judge.functions.sparse import csc_settings
from refgf.oracle.seeded.generate.families import make, random_source, require
from refgf.oracle.seeded.generate.updates import exact_ratios
from refgf.oracle.spec.case import Case

CHUNK, SIZES = 8, [3, 1, 20, 2, 17, 9, 1]  # 53 elements: six chunks of 8 and one of 5
DECAYED = np.array([1, 0, 1, 0, 1, 1, 0], np.uint8)
PLAN = {"percent": 30, "warmup": (), "per_epoch": 5}


def run_case(
    name: str,
    why: str,
    statements: str = "",
    p: int = 3,
    steps: int = 20,
    plan: dict | None = None,
    change: Callable | None = None,
    dyadic: bool = True,
    **settings,
) -> Case:
    """csc_run. change(g) alters the gradients (T, p, n); dyadic=False: norms are not exact."""
    sizes = settings.pop("sizes", SIZES)
    rng, n = random_source("csc" + name), sum(sizes)
    w = rng.integers(-16, 17, n).astype(np.float32) / 4
    g = rng.integers(-4, 5, (steps, p, n)) if dyadic else rng.standard_normal((steps, p, n))
    arrays = {"w": w, "g": g.astype(np.float32), "sizes": sizes}
    if change:
        change(arrays["g"])
    if "decay" in settings:
        arrays["decayed"] = DECAYED
    plan = {**PLAN, **(plan or {})}
    percents = [
        percent_of_step(t, plan["per_epoch"], plan["warmup"], plan["percent"])
        for t in range(steps + 1)
    ]
    arguments = {
        "chunk": CHUNK,
        "form": "dgc",
        "rate": 0.125,
        "momentum": 0.5,
        "exact_norms": dyadic,
    }
    arguments |= {"percents": [list(pair) for pair in percents], **settings}
    return make(name, "csc_run", "C1 C2 C3 C4 C5 C8 C9 C11 " + statements, why, arguments, **arrays)


def form_cases() -> Iterator[Case]:
    for form in FORMS:
        yield from ties_and_conservation(form)
        why = "two dense epochs, one at 60 %, then 20 %: no masking in dense steps"
        plan = {"percent": 20, "warmup": (100, 100, 60), "per_epoch": 4}
        case = run_case(f"csc-{form}-warmup", why, "C6", plan=plan, form=form)
        counts = case["out.chosen"][:, 0].sum(axis=-1).tolist()
        require(counts == [7] * 8 + [5] * 4 + [2] * 8, case, "dense, then 5 and 2 of 7 chunks")
        yield case
        why = "weight decay, not on biases and normalisation"
        yield run_case(
            f"csc-{form}-decay", why, "C12", steps=8, dyadic=False, form=form, decay=0.25
        )


def ties_and_conservation(form: str) -> Iterator[Case]:
    why = f"{form}: 20 steps, ties in the norms, the first list from the dense step 0"
    case = run_case(f"csc-{form}", why, change=twins, form=form)
    require(ties_at_the_cut(case), case, "ties decide at least once")
    require(norms_are_exact(case), case, "norms are exact in any order")
    yield case
    case = run_case(
        f"csc-{form}-conserved",
        "sent + kept is what came in, bit for bit",
        "C7",
        steps=10,
        form=form,
    )
    require(is_conserved(case), case, "conservation")
    yield case


def other_cases() -> Iterator[Case]:
    yield run_case("csc-one-rank", "one rank: the sum is its own", p=1, steps=6)
    yield run_case("csc-five-ranks", "five ranks share the decay and the norms", p=5, steps=6)
    why = "100 % of the chunks without warm-up: lists of all chunks"
    yield run_case("csc-all-chunks", why, plan={"percent": 100}, steps=6)
    why = "100 % with masking is SGD without momentum after the dense first step"
    yield run_case("csc-all-chunks-masked", why, plan={"percent": 100}, steps=6, form="dgc_masked")
    yield run_case(
        "csc-one-chunk", "less than one chunk's share still sends one", plan={"percent": 1}, steps=8
    )
    yield run_case("csc-after", "importance of what is kept after the step", steps=10, after=True)
    why = "norms are not exact: any list within the bound of C4 is accepted"
    yield run_case("csc-values", why, steps=8, dyadic=False)
    why = "float16 on the wire, packed chunks sent lazily"
    lazily = {"wire": "float16", "theta_bytes": 20, "scale": 64.0}
    for order in ("ring", "direct"):
        yield run_case(
            f"csc-lazy-{order}", why, "P4 L1", p=4, steps=6, dyadic=False, order=order, **lazily
        )
    yield theta_case()
    why = "28 % of 25 chunks are 7, and neither 8 nor a rounding of 25 times 0.28"
    case = run_case(
        "csc-whole-share", why, plan={"percent": 28}, steps=6, sizes=[3, 20, 17, 9, 1], chunk=2
    )
    require((case["out.chosen"][1:].sum(axis=-1) == 7).all(), case, "7 of 25 chunks")
    yield case
    why = "chunks 1 and 3 differ by less than float32 can add up: 3 is more important"
    plan = {"percent": 14}
    case = run_case("csc-float64-norms", why, plan=plan, steps=6, change=nearly_twins)
    require(case["out.chosen"][1, 0].tolist() == [0, 0, 0, 1, 0, 0, 0], case, "3 comes first")
    require(norms_are_exact(case), case, "norms are exact in any order")
    yield case
    settings = {"form": "history", "trust": 64.0, "decay": 0.25}
    why = "LARS ratios above 1 and below, from norms in float64: the rates have these bits"
    case = run_case("csc-lars-bits", why, "C12 C13", steps=6, change=large_and_small, **settings)
    require(exact_ratios(case), case, "no order of summing the norms moves a rate")
    yield case
    settings = {"form": "history", "trust": 0.5, "decay": 0.25}
    case = run_case(
        "csc-lars", "LARS from the sent elements of each tensor", "C12 C13", steps=6, **settings
    )
    case.tensors["bound.w"] = 2.0**-20 * np.abs(case["out.w"]).max() * np.ones(case["out.w"].shape)
    yield case


def theta_case() -> Case:
    """Three chunks of 8 float16: the second ends on theta, and the third is sent with them."""
    why = "two packed chunks are exactly theta bytes on the wire: they wait for the third"
    lazily = {"wire": "float16", "theta_bytes": 2 * CHUNK * 2, "scale": 64.0}
    case = run_case(
        "csc-lazy-at-theta", why, "P4 L1 L2", p=4, steps=6, dyadic=False, order="ring", **lazily
    )
    earlier = {**case.arguments, "theta_bytes": lazily["theta_bytes"] - 1}
    other = csc_run(
        case["in.w"],
        list(case["in.g"]),
        csc_settings(replace(case, arguments=earlier)),
        earlier["percents"],
    )
    require(
        (case["out.w"][:, 0] != np.array([step["w"][0] for step in other])).any(),
        case,
        "firing at theta would show",
    )
    return case


def overflow_cases() -> Iterator[Case]:
    why = "an infinity in an unchosen chunk of one rank: nothing changes on any rank"
    for form in FORMS:
        name = f"csc-overflow-{form}"
        unchosen = np.flatnonzero(run_case(name, why, steps=8, form=form)["out.chosen"][4, 0] == 0)[
            0
        ]
        case = run_case(
            name, why, "C10", steps=8, form=form, change=planted(4, 1, unchosen * CHUNK + 2, np.inf)
        )
        require(case["out.finite"].tolist() == [1, 1, 1, 1, 0, 1, 1, 1], case, "step 4 is skipped")
        require((case["out.chosen"][4] == case["out.chosen"][5]).all(), case, "the list stays")
        yield case
    why = "finite gradients overflow on the wire: skipped, the scale drops, later ones fit"
    case = run_case("csc-overflow-wire", why, "C10 P6", steps=8, wire="float16", scale=2.0**15)
    require(0 < case["out.finite"].sum() < 8, case, "some steps are skipped")
    yield case


def twins(g: np.ndarray) -> None:
    """Chunks 1, 3 and 5 get the same gradients on all ranks: ties in the norms, also at the cut."""
    g[:, :, 24:32] = g[:, :, 40:48] = g[:, :, 8:16]


def nearly_twins(g: np.ndarray) -> None:
    """Chunks 1 and 3: one large number and seven small ones, of which chunk 3 has a larger one."""
    g[:, :, 8:16] = g[:, :, 24:32] = [2.0**12, *[2.0**-16] * 7]
    g[:, :, 25] = 2.0**-15


def large_and_small(g: np.ndarray) -> None:
    """The second tensor's gradients are far below its weights, the third's far above."""
    g[:, :, 3] *= 2.0**-8
    g[:, :, 4:24] *= 512


def planted(step: int, rank: int, element: int, value: float) -> Callable:
    def change(g):
        g[step, rank, element] = value

    return change


def reports(case: Case) -> list[dict]:
    return csc_run(case["in.w"], list(case["in.g"]), csc_settings(case), case.arguments["percents"])


def ties_at_the_cut(case: Case) -> bool:
    percents = case.arguments["percents"]
    for t, report in enumerate(reports(case)):
        chosen = choose(report["importance"], percents[t + 1][0])
        rest = np.delete(report["importance"], chosen)
        if len(rest) and rest.max() == report["importance"][chosen].min():
            return True
    return False


def norms_are_exact(case: Case) -> bool:
    """Multiples of 2^-26 that stay below 2^20 in sum add up exactly in float64, in any order."""
    states = np.concatenate(
        [case[name].ravel() for name in ("out.u", "out.v", "out.h") if name in case.tensors]
    )
    return bool(
        (states * 2.0**26 == np.rint(states * 2.0**26)).all() and np.abs(states).sum() < 2.0**20
    )


def is_conserved(case: Case) -> bool:
    """C7 on each rank, from the reports of the definition."""
    form, m, g = case.arguments["form"], np.float32(case.arguments["momentum"]), case["in.g"]
    for rank in range(g.shape[1]):
        sent_sums, g_sums, u_sums, u = (np.zeros(g.shape[2], np.float32) for _ in range(4))
        for t, report in enumerate(reports(case)):
            sent = np.repeat(case["out.chosen"][t, rank], CHUNK)[: g.shape[2]].astype(bool)
            g_sums, u = g_sums + g[t, rank], m * u + g[t, rank]
            u_sums = u_sums + u
            sent_sums = sent_sums + np.where(sent, report["accumulated"][rank], 0)
            u = report["kept"][rank].get("u", u)
            if not conserved(form, sent_sums, report["kept"][rank], g_sums, u_sums):
                return False
    return True


def function_cases() -> Iterator[Case]:
    why = "the last chunk is shorter where n is not divisible"
    networks = (62378344, 32768), (25557032, 32768)  # AlexNet and ResNet-50, as in lesson 06
    for n, chunk in ((0, 8), (7, 8), (8, 8), (53, 8), *networks):
        yield make(f"chunks-n{n}-chunk{chunk}", "chunk_bounds", "C1", why, {"n": n, "chunk": chunk})
    x = random_source("importance").integers(-8, 9, (3, 53)).astype(np.float32)
    x[:, 48:] = 6  # the short last chunk is first by its mean, not by its sum
    why = "divided by the chunk's length: the short last chunk is not starved"
    case = make("importance", "importance", "C4", why, {"chunk": 8}, x=x)
    sums = np.add.reduceat(np.abs(x).sum(axis=0), range(0, 53, 8))
    require(np.argmax(case["out.importance"]) == 6 != np.argmax(sums), case, "the length decides")
    yield case
    x = np.zeros((3, 53), np.float32)
    nearly_twins(x[None])
    why = "a large number and small ones that float32 cannot add to it"
    yield make("importance-float64", "importance", "C4", why, {"chunk": 8}, x=x)
    why, values = (
        "rounded up, at least one, ties to the lower number",
        np.array([3, 5, 5, 1, 5, 0, 7], np.float64),
    )
    for percent in (1, 30, 43, 50, 100):
        yield make(f"choose-{percent}", "choose", "C5", why, {"percent": percent}, values=values)
    why = "28 % of 25 are 7, and neither 8 nor a rounding of 25 times 0.28"
    values = random_source("choose-whole").integers(0, 6, 25).astype(np.float64)
    case = make("choose-whole-28", "choose", "C5", why, {"percent": 28}, values=values)
    require(len(case["out.chosen"]) == 7, case, "7 of 25")
    yield case
    why, plan = (
        "100, 100 and 60 % over epochs of 4 steps",
        {"warmup_percents": [100, 100, 60], "percent": 20},
    )
    for step in (0, 7, 8, 11, 12):
        arguments = {"step": step, "steps_per_epoch": 4, **plan}
        yield make(f"percent-step-{step}", "percent_of_step", "C6", why, arguments)
    for warmup in ([], [60]):
        arguments = {"step": 0, "steps_per_epoch": 4, "warmup_percents": warmup, "percent": 20}
        why = "the first step is dense, whatever its percentage: nobody has chosen"
        yield make(f"percent-first-step-{len(warmup)}", "percent_of_step", "C6", why, arguments)
    why = "chosen elements on the wire, seven norms and a flag in float64"
    for wire, chosen in ((None, [0, 6]), ("float16", [1, 2]), ("float16", None)):
        name = f"csc-bytes-{wire or 'float32'}-{'list' if chosen else 'dense'}"
        arguments = {"chosen": chosen, "n": 53, "chunk": 8, "dtype": "float32", "wire": wire}
        yield make(name, "csc_payload_bytes", "C14", why, arguments)


def cases() -> Iterator[Case]:
    for group in (function_cases, form_cases, other_cases, overflow_cases):
        yield from group()
