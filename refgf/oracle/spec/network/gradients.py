"""N9: what a gradient is, and how far rounding may move a result in float64."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from refgf.oracle.spec.case import Case
from refgf.oracle.spec.draw import random_source
from refgf.oracle.spec.statement import Statement

Array = np.ndarray
U = 2.0**-53


def central_differences(function: Callable[..., Any], x: Array, h: float = 1e-6) -> Array:
    """N9: a gradient is the limit of central differences.

    function(x) -> float; x float64.
    """
    gradient = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += h
        down[i] -= h
        gradient[i] = (function(up) - function(down)) / (2 * h)
    return gradient


N9 = Statement("N9", central_differences)


def check(case: Case, function: Callable[..., Any], at: Array, name: str) -> None:
    """Central differences agree with the gradient to 1e-6 of its largest element."""
    difference = np.abs(central_differences(function, at) - case[name])
    allowed = 1e-6 * max(1.0, np.abs(case[name]).max(initial=0.0))
    case.shows((difference <= allowed).all(), f"{name} is a gradient")


def check_step(case: Case, step: Callable[..., Any], tensors: list[Array]) -> None:
    """The loss of a whole network has the slope of its gradients, along a random direction."""
    rng, h = random_source("direction"), 1e-6
    directions = [rng.standard_normal(t.shape) for t in tensors]
    given = case["in.images"], case["in.labels"]
    up, down = (
        step(*given, [t + s * h * d for t, d in zip(tensors, directions)], **case.arguments)[0]
        for s in (1, -1)
    )
    gradients = [a for name, a in case.tensors.items() if name.startswith("out.gradient")]
    slope = sum((g * d).sum() for g, d in zip(gradients, directions))
    error = abs((up - down) / (2 * h) - slope) / abs(slope)
    case.shows(error < 1e-5, "the loss moves along the gradient as it says")


def gamma(n: int, unit: float = U) -> float:
    """Higham's gamma_n: the relative error of n roundings. A sum of n - 1 products has n."""
    return n * unit / (1 - n * unit)


def bounds(names: tuple[str, ...], factor: float, sizes: Iterable[Any]) -> dict[str, Array]:
    return {f"bound.{name}": factor * np.asarray(size) for name, size in zip(names, sizes)}
