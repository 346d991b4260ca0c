"""Weight decay that code of a step's own adds to gradients: next to one rank's, how strong?"""

import numpy as np

from refgf.oracle.step.factors import RATIO_TOLERANCE, Cause, names_of
from refgf.oracle.step.stages import JudgedStep, Whole, close, multiple


def decay_in_gradient(step: JudgedStep, tensor: str, got: np.ndarray) -> Cause | None:
    """Is it the right gradient plus a multiple of the weights?"""
    weights, exact = step.stages["before"][tensor].value, step.exact[tensor]
    c = multiple(got - exact, weights, step.bounds[tensor])
    if c is None or c == 0:
        return None
    own = step.of_one(tensor)
    own = exact if own is None else own
    one = multiple(own - exact, weights, step.bounds[tensor])
    text, names = f"the gradient plus {c:.6g} times the weights: weight decay in the gradient", []
    for whose, decay in (
        ("the optimizer's", step.setting(tensor, "weight_decay")),
        ("one rank's", one),
    ):
        if decay:
            text += f", {c / decay:.4g} times {whose}"
            names += names_of(c / decay, step)
    return text, ["weight decay in the gradient", *names], c


def decays_alone(step: JudgedStep, tensors: list[str]) -> bool:
    """Does one rank's code add a multiple of the weights? That hides no factor of a gradient."""
    added = {t: (step.of_one(t) - step.exact[t]).ravel() for t in tensors}
    weights = {t: step.stages["before"][t].value.ravel() for t in tensors}

    def decay(names: list[str]) -> bool:
        own, of = (np.concatenate([a[t] for t in names]) for a in (added, weights))
        bound = max(step.bounds[t] for t in names)
        return own.size > 1 and multiple(own, of, bound) is not None  # not of any one number

    return decay(tensors) or all(decay([t]) for t in tensors)


def decay_causes(
    step: JudgedStep, states: dict[str, Whole], base: dict[str, Whole]
) -> dict[str, Cause]:
    """What the optimizer gets is one rank's plus one multiple of the weights, for all tensors."""
    if not all(state.agree for state in states.values()):
        return {}

    def flat(arrays: dict[str, np.ndarray]) -> np.ndarray:
        return np.concatenate([arrays[t].ravel() for t in states])

    bound = max(step.bounds[t] for t in states)
    got, before, weights = (
        flat({t: own[t].value for t in states}) for own in (states, base, step.stages["before"])
    )
    alone = flat(step.replay["used"])
    c = multiple(got - alone, weights, bound)
    if not c:
        return {}
    columns = np.stack([before, weights], axis=1)  # one rank may clip before it decays
    weight = np.linalg.lstsq(columns, alone, rcond=None)[0]
    decays = close(columns @ weight, alone, bound) and not close(weight[1] * weights, 0.0, bound)
    one = weight[1] if decays else None
    text = f"one rank's before the optimizer plus {c:.4g} times the weights: "
    text += "weight decay in the gradient"
    text += f", {round(1 + c / one, 6) + 0.0:.4g} times one rank's" if one else ""
    names = names_of(1 + c / one, step, RATIO_TOLERANCE) if one else []
    return dict.fromkeys(states, (text, ["weight decay in the gradient", *names], c))
