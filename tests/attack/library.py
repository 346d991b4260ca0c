"""Every public class of the papers is made, and used, with one wrong argument.

The classes are found by walking the modules, so a new one is attacked as soon as it exists; where
`made_up` cannot make right arguments of the annotations, RIGHT has them (`test_attack.py` says for
which class it is missing). A value that is no kind of what the annotation says must be refused by a
sentence; any other number may be taken, but nothing may end raw or hang.
"""

import collections.abc
import functools
import importlib
import inspect
import pkgutil
import random
import typing
from collections.abc import Callable
from pathlib import Path

import numpy as np

import refgf.papers
from refgf import arguments
from tests.attack.fate import fate_of, judge

RANKS, LIMIT_S = 2, 20.0
NO_NUMBER = (None, "x", [], {}, object(), b"1", 1j, [1], float("nan"))
ODD_NUMBERS = (-1, 0, 2**63, -(2**80), 0.5, float("inf"), -float("inf"), True, 1e-300, 10**6)
OTHERS = (3, 0.5, (), range(2), np.zeros(3), np.float32("nan"), "\udcff", "x" * 5000, len)
MODULE = "refgf.papers."


@functools.cache
def classes() -> dict[str, type]:
    """{name below refgf.papers: class} of all that have a constructor of their own."""
    found = {}
    for info in pkgutil.walk_packages(refgf.papers.__path__, MODULE):
        for name, kind in vars(importlib.import_module(info.name)).items():
            own = (
                inspect.isclass(kind) and kind.__module__ == info.name and "__init__" in vars(kind)
            )
            if own and not name.startswith("_") and not getattr(kind, "_is_protocol", False):
                found[f"{info.name.removeprefix(MODULE)}.{name}"] = kind
    return found


def specs() -> list:
    from tests.support.tiny import SPECS

    return SPECS


def right(name: str, comm: object, folder: Path) -> dict:
    """Right arguments of a class, which the annotations do not give."""
    from refgf.comm.gather import allgather, reduce_scatter
    from refgf.exchange.pool import Pool
    from refgf.nn.workspace import Workspace
    from refgf.papers.daso.phases import BLOCKING, Constant
    from refgf.papers.resnet50.residual import Border
    from refgf.predict.cost import Link
    from tests.support import stacks
    from tests.support.tiny import N, Prescribed

    nodes = [[0], [1]]
    link = Link(1e-5, 1e-9)
    gather = allgather(comm)
    decode = lambda index, content: np.zeros((2, 2, 3), np.uint8)  # noqa: E731
    return {
        "daso.daso.DASO": lambda: {
            "comm": comm,
            "model": stacks.new_model(Prescribed(np.float32)),
            "nodes": nodes,
            "phases": Constant(BLOCKING),
            "batches": 2,
        },
        "daso.bfloat16.Bfloat16Comm": lambda: {"comm": comm},
        "daso.phases.Phases": lambda: {"epochs": 12},
        "daso.heat.HeatPhases": lambda: {"epochs": 12},
        "diloco.diloco.DiLoCo": lambda: {
            "comm": comm,
            "model": stacks.new_model(Prescribed(np.float32)),
        },
        "datacache.Cache": lambda: {"read": bytes, "decode": decode, "shape": (2, 2, 3)},
        "datacache.disk.DiskCache": lambda: {
            "folder": str(folder / "disk"),
            "key": bytes(32),
            "limit_bytes": 10**4,
        },
        "datacache.memory.SharedSamples": lambda: {
            "comm": comm,
            "nodes": nodes,
            "n": 5,
            "shape": (2, 2, 3),
            "limit_bytes": 10**4,
        },
        "datacache.stores.FileServer": lambda: {"read": bytes},
        "datacache.stores.RemoteStore": lambda: {"comm": comm, "paths": []},
        "datacache.stores.Throttled": lambda: {"read": bytes, "link": link},
        "jia.lars.LARS": lambda: {"specs": specs(), "parameters": np.ones(N, np.float32)},
        "jia.lars.ParallelNorms": lambda: {"allreduce": len, "rank": 0, "size": 2},
        "jia.accumulate.RunningStatistics": lambda: {"network": Prescribed(np.float32)},
        "jia.wires.Wires": lambda: {"node_of_rank": [0, 1], "inside": link, "between": link},
        "mgwfbp.merged.Groups": lambda: {"ranges": (range(0, 2), range(2, 7))},
        "mgwfbp.merged.Profile": lambda: {"pool": Pool(specs(), np.float32)},
        "mstopk.topk.TopK": lambda: {"n": 20, "percent": 10.0, "allgather": gather},
        "mstopk.topk.HiTopK": lambda: {
            "n": 20,
            "percent": 10.0,
            "reduce_scatter": reduce_scatter(comm, [comm.Get_rank()]),
            "allgather": gather,
            "spread": len,
        },
        "mstopk.hitopk_pairs.HiTopKPairs": lambda: {
            "n": 20,
            "percent": 10.0,
            "ranks_per_node": 1,
            "reduce_scatter": reduce_scatter(comm, [comm.Get_rank()]),
            "allgather": gather,
            "spread": lambda y: y[None],
        },
        "resnet50.residual.ResidualBlock": lambda: {
            "name": "block",
            "main": [Border("border", (4, 4, 3), 0, 0.0, Workspace())],
            "shortcut": [],
            "workspace": Workspace(),
        },
        "resnet50.residual.Border": lambda: {
            "name": "border",
            "input_shape": (4, 4, 3),
            "pixels": 1,
            "value": 0.0,
            "workspace": Workspace(),
        },
        "powersgd.powersgd.PowerSGD": lambda: {"comm": comm, "shapes": ((4, 5), (3,))},
        "zero.zero3.ZeRO3": lambda: zero3(comm),
        "zero.zero1.ZeRO1": lambda: {
            "comm": comm,
            "parameters": np.ones(20, np.float32),
            "optimizer": lambda own: None,
        },
        "resnet50.residual.GlobalAveragePool": lambda: {
            "name": "pool",
            "input_shape": (4, 4, 3),
            "workspace": Workspace(),
        },
        "resnet50.resnet50.ResNet50": lambda: {"num_classes": 3, "image_size": 32, "width": 0.1},
        "scaling.interval.Input": lambda: {
            "name": "alpha",
            "values": (1.0,),
            "unit": "s",
            "label": "stated",
            "source": "the paper",
        },
        "scaling.interval.Headline": lambda: {
            "name": "speedup",
            "published": 2.0,
            "unit": "times",
            "label": "stated",
            "source": "the paper",
            "inputs": (),
            "predict": len,
        },
        "scaling.machine.Machine": lambda: made_up(classes()[name]) | {"label": "measured"},
        "scaling.simulate.Run": lambda: {"schedules": [[]], "itemsize": 4, "link": link},
        "signsgd.signsgd.SignSGD": lambda: {"comm": comm},
    }.get(name, lambda: made_up(classes()[name]))()


def zero3(comm: object) -> dict:
    from refgf.exchange.pool import Pool
    from tests.support.networks import small

    network, *_ = small("none")
    pools = [Pool(network.tensors, network.dtype) for _ in "pg"]
    network.bind(*(pool.views for pool in pools))
    return {"comm": comm, "network": network, "parameters": pools[0]}


def made_up(kind: type) -> dict:
    """Right arguments from the annotations of those without a default."""
    required = inspect.signature(kind).parameters.values()
    needed = [one for one in required if one.default is inspect.Parameter.empty]
    return {one.name: value_of(one.annotation) for one in needed}


def value_of(kind: object) -> object:
    origin, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
    plain = {int: 2, float: 0.5, str: "conv", bool: True, bytes: bytes(32), dict: {}}
    if origin in plain:
        return plain[origin]
    if origin is collections.abc.Callable:
        return len
    if origin in arguments.SEQUENCES or origin is collections.abc.Iterable:
        fixed = len(inner) > 1 and inner[1] is not ...
        return tuple(map(value_of, inner)) if fixed else tuple(map(value_of, inner[:1])) * 2
    if inspect.isclass(origin) and origin.__module__.startswith("refgf."):
        return origin(**made_up(origin))
    return np.ones(4, np.float32)


def use(made: object) -> None:
    """What comes next: one call with an array of 20 numbers, or an index."""
    if type(made).__name__ in ("TopK", "HiTopK", "HiTopKPairs", "LARS"):
        step = getattr(made, "step", None)
        step(np.ones_like(made.parameters), 0.1) if step else made(np.ones(20, np.float32))
    close = getattr(made, "close", None)
    if callable(close):
        close()


def case(rng: random.Random) -> tuple[str, Callable]:
    name = rng.choice(sorted(classes()))
    kind = classes()[name]
    parameters = inspect.signature(kind).parameters
    argument = rng.choice(list(parameters) or [""])
    value = rng.choice(rng.choice((NO_NUMBER, ODD_NUMBERS, OTHERS)))
    everywhere = rng.random() < 0.7
    annotation = kind.__init__.__annotations__.get(argument, typing.Any)
    refused = arguments.wrong(value, annotation, argument) is not None
    where = "all ranks" if everywhere else "rank 1"

    def attack(folder: Path) -> list[str]:
        def body(comm: object) -> None:
            given = right(name, comm, folder)
            if argument and (everywhere or comm.Get_rank()):
                given[argument] = value
            use(kind(**given))

        def program() -> None:
            import warnings

            from refgf.machine import threads

            warnings.simplefilter("ignore")
            try:
                threads.run(RANKS, body)
            except ValueError as error:
                raise SystemExit(f"{type(error).__name__}: {error}") from None

        fate = fate_of(program, folder, limit_s=LIMIT_S)
        says = "Deadlock: " not in fate.err and "Aborted: " not in fate.err
        wrong = judge(
            fate,
            lost=True if refused else None,
            says=says and not callable(value),
            own=callable(value),
        )
        return [text.replace("something was lost", "the value is wrong") for text in wrong]

    return f"{name}({argument}={arguments.shown(value)}), {where}", attack
