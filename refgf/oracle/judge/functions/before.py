"""Functions of techniques that are no records in spec/ yet."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from refgf.oracle.spec import calls
from refgf.oracle.spec.calls import *  # noqa: F403
from refgf.oracle.spec.calls import RANK_ELEMENT, Outputs, allreduce, named, select
from refgf.oracle.spec.case import Case


@dataclass(frozen=True)
class FunctionBefore:
    """run(module, case) -> {"out.NAME": array}.

    axes: {"NAME": what each index means}, where "messages, bytes" says what index 0 and 1 count;
    also: definitions that `run` calls besides its namesake.
    """

    run: Callable[[Any, Case], Outputs]
    axes: dict[str, tuple[str, ...]]
    also: tuple[str, ...] = ()


JudgedFunction = FunctionBefore


def array_function(
    name: str, inputs: list[str], settings: list[str], **axes: tuple
) -> JudgedFunction:
    """A function of arrays, then named settings, that returns the results that `axes` lists."""

    def run(module: Any, case: Case) -> Outputs:
        arrays = (case[f"in.{i}"] for i in inputs)
        result = getattr(module, name)(*arrays, **select(case, *settings))
        return named(axes, result if len(axes) > 1 else [result])

    return JudgedFunction(run, axes)


def node_traffic(
    name: str, *before: str, after: tuple[str, ...] = (), counts: str = "messages, elements"
) -> JudgedFunction:
    """Traffic of every rank of some nodes; arguments are passed before and after the rank."""

    run = calls.node_traffic(name, *before, after=after)
    return JudgedFunction(run, {"traffic": ("rank", counts)})


def summing(name: str, *arguments: str) -> JudgedFunction:
    return JudgedFunction(allreduce(name, *arguments), RANK_ELEMENT)
