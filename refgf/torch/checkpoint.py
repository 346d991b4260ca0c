"""Stop and resume: what a rank of `GradientFlow` saves, and how any number of ranks goes on.

`flow` is a `GradientFlow`, whose methods these are.
"""

from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor

from refgf.torch.wrong import on_all_ranks, require, require_alike

KEYS = {"rank", "size", "form", "steps", "chosen", "gap", "chunk", "state", "velocity"}
BROKEN = "an older checkpoint: this file is damaged"


def state_of(flow: Any) -> dict[str, Any]:
    """This rank's state, by names of parameters."""
    require(not flow._closed, "state_dict after close", "it before", "save, then close")
    got = "state_dict between backward and the optimiser's step"
    done = flow._stepped or not flow.accepted
    require(done, got, "it after the step", "optimizer.step(), then save")
    flow._settle()
    arrays = {name: flow.pool.named(rows) for name, rows in flow.residual.state.items()}
    own = {"rank": dist.get_rank(flow.group), "size": flow.size, "form": flow.form}
    step = {"steps": flow.steps, "chosen": flow.chosen, "gap": flow.gap.cpu().clone()}
    velocity = None if flow.velocity is None else flow.pool.named(flow.velocity)
    return own | step | {"chunk": flow.pool.chunk, "state": arrays, "velocity": velocity}


def load(flow: Any, saved: dict[str, Any] | Sequence[dict[str, Any]]) -> None:
    """What `GradientFlow.load_state_dict` does."""
    states = [saved] if isinstance(saved, dict) else list(saved or ())
    own = on_all_ranks(flow.group, require_fitting, flow, saved, states)
    first, share = states[0], 1 if own else flow.size
    files = {"step of the files": first["steps"], "chunks chosen": first["chosen"]}
    files["the sum of the weights' bits"] = flow.pool.bits()
    require_alike(flow.group, files, "the files of the last step that all ranks have saved")
    for name, rows in flow.residual.state.items():
        rows.copy_(sum(flow.pool.flat(state["state"][name]) for state in states) / share)
    flow.residual.empty = False
    if flow.velocity is not None:
        flow.velocity.copy_(flow.pool.flat(first["velocity"]))
    flow.steps, flow.chosen = first["steps"], first["chosen"]
    flow.gap.copy_(first["gap"])
    flow._outcome, flow._backward, flow._stepped = None, None, True
    flow.taken.loads -= 1


def require_fitting(flow: Any, saved: Any, states: list[Any]) -> bool:
    """ValueError unless these can be loaded. -> are they this rank's own?"""
    right = bool(states) and all(isinstance(s, dict) and s.keys() >= KEYS for s in states)
    require(right, f"{str(saved)[:40]}", "what state_dict gave, or a list of it", 'saved["flow"]')
    first, rank = states[0], dist.get_rank(flow.group)
    for name, wanted in (
        ("form", flow.form),
        ("chunk", flow.pool.chunk),
        ("steps", first["steps"]),
    ):
        for state in states:
            got = f"the state of {name}={state[name]!r}"
            require(state[name] == wanted, got, f"{wanted!r}", "the settings that saved it")
    own = isinstance(saved, dict) and (first["rank"], first["size"]) == (rank, flow.size)
    ranks = sorted(s["rank"] for s in states)
    got = f"the state of rank {', '.join(map(str, ranks))} of {first['size']}"
    wanted = f"that of rank {rank} of {flow.size}, or a list of all {first['size']}"
    every = not isinstance(saved, dict) and ranks == list(range(first["size"]))
    require(own or every, got, wanted, "one file a rank; for other ranks load all of them")
    mine = {name: p.shape for name, p in zip(flow.pool.names, flow.pool.parameters)}
    velocities = [first["velocity"]] if flow.velocity is not None else []
    for arrays in (*(a for s in states for a in s["state"].values()), *velocities):
        shapes = {name: values.shape for name, values in arrays.items()}
        other = sorted(name for name, _ in shapes.items() ^ mine.items())
        require(not other, f"other {other[:3]}", "this model's parameters", "the same network")
        require_finite(arrays)
    got = f"{first['gap'].numel()} gaps for {flow.pool.count} chunks"
    require(first["gap"].shape == flow.gap.shape, got, "one a chunk", BROKEN)
    require_finite({"gap": first["gap"]})
    return own


def require_finite(arrays: dict[str, Tensor]) -> None:
    """ValueError for an infinity or NaN, with which every step would be refused."""
    odd = [name for name, values in arrays.items() if not values.isfinite().all()]
    require(not odd, f"an infinity or NaN in {odd[:3]}", "finite numbers", BROKEN)
