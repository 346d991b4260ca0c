"""Is a gradient a multiple of the right one? Of which, and what in this training is that number?

A factor must explain the numbers of all its tensors: they are fitted together, and the residual of
the fit says how exactly the factor is known. It has a name only where that is as close.
"""

from dataclasses import dataclass

import numpy as np

from refgf.oracle.step.stages import JudgedStep, Whole, explains, multiple

Cause = tuple[str, list[str], float | None]
RATIO_TOLERANCE = 0.01
NEAR, ERRORS = 1e-4, 3.0  # relative; and of how many standard errors a factor may be off


def named_factors(step: JudgedStep) -> dict[str, float]:
    """Quantities of this training by which a gradient or an update may be off."""
    p, calls, scale = step.size, step.settings["calls"], step.settings["scale"]
    found = {"p": p}
    for group in range(2, p):
        if p % group == 0:
            found[f"a group of {group} ranks (expert or tensor parallel)"] = group
    if calls > 1:
        found |= {"accumulation steps": calls, "p x accumulation steps": p * calls}
    if scale not in (None, 1.0):
        found |= {"loss scale": scale, "loss scale / p": scale / p}
    for what, count in step.settings["counts"].items():
        found |= {what: count, f"{what} / p": count / p}
        found |= {f"{what} / (p x accumulation steps)": count / p / calls} if calls > 1 else {}
    found |= {"p squared": p * p, "sqrt(p)": p**0.5}
    both = {}
    for name, value in found.items():
        both[name] = float(value)
        both[f"1 / {name}" if " " not in name else f"1 / ({name})"] = 1 / value
    return {name: value for name, value in both.items() if value != 1}


def names_of(k: float, step: JudgedStep, error: float = 0.0) -> list[str]:
    """Which quantities are k, as exactly as it is known."""
    near = max(1e-4, min(RATIO_TOLERANCE, error))
    return [name for name, value in named_factors(step).items() if abs(k / value - 1) <= near]


def factor_text(k: float, step: JudgedStep, error: float = 0.0) -> Cause:
    names = names_of(k, step, error)
    return f"{k:.6g} times what it should be", names, k


@dataclass
class FactorFit:
    """got = k exact for these tensors. error: of k, relative."""

    k: float
    error: float
    tensors: list[str]

    def near(self, other: "FactorFit") -> bool:
        least = min(RATIO_TOLERANCE * 5, self.error + other.error)
        return abs(self.k / other.k - 1) <= max(NEAR, least)


def fit(step: JudgedStep, states: dict[str, Whole], tensors: list[str]) -> FactorFit:
    """Least squares over the elements of all these tensors."""
    got, exact = (
        np.concatenate([own[t].ravel() for t in tensors])
        for own in ({t: states[t].value for t in tensors}, step.exact)
    )
    square = float((exact * exact).sum())
    k = float((got * exact).sum()) / square
    rest = float(((got - k * exact) ** 2).sum())
    freedom = len(got) - 1  # a single element is a multiple of anything
    error = ERRORS * (rest / square / freedom) ** 0.5 / abs(k) if freedom else 0.0
    error = error + step.unit if freedom else step.factors[tensors[0]]
    return FactorFit(k, error, tensors)


def factor_causes(step: JudgedStep, states: dict[str, Whole]) -> dict[str, Cause]:
    """The tensors that are multiples of the right gradient; those of one factor together."""
    fits = []
    for t, state in states.items():
        if not (state.agree and np.isfinite(state.value).all() and state.value.any()):
            continue
        k = multiple(state.value, step.exact[t], step.bounds[t])
        if k and explains(state.value, k * step.exact[t], step.exact[t]):
            fits.append(fit(step, states, [t]))
    groups: list[FactorFit] = []
    for own in sorted(fits, key=lambda one: one.error):
        for i, group in enumerate(groups):
            if group.near(own):
                groups[i] = fit(step, states, group.tensors + own.tensors)
                break
        else:
            groups.append(own)
    found = {}
    for group in groups:
        cause = factor_text(group.k, step, group.error)
        found |= dict.fromkeys(group.tensors, cause)
    return {t: found[t] for t in states if t in found}
