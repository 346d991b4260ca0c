"""What a run consists of, as arrays and facts that a checkpoint holds and restores in place.

    shared   the same on all ranks: master weights, velocity, loss scale, chosen chunks
    own      each rank's: residual of CSC, a compressor's state, running statistics, random state

The working copy of the weights is not among them: it is the rounded master.
"""

from refgf.device import array_module
from refgf.training.gradientflow import GradientFlow

MUST_AGREE = ("csc", "form", "chunk", "compressor")  # with another value a saved state does not fit


def settings(flow: GradientFlow) -> dict:
    """The settings of a run, as a manifest holds them."""
    return {"compressor": None} | flow.settings


def shared(flow: GradientFlow) -> tuple[dict, dict]:
    """(arrays, facts) that are the same on all ranks."""
    model, csc = flow.model, flow.csc
    arrays = {"parameters": model.parameters.flat} | model.optimizer.state
    facts = {"steps": flow.steps, "loss_scale": model.loss_scale.state()}
    if csc:
        arrays["gap"] = csc.gap
        facts["chosen"] = csc.chosen
    return arrays, facts


def own(flow: GradientFlow) -> tuple[dict, dict]:
    """(arrays, facts) of this rank alone."""
    network = flow.model.network
    arrays = {f"running{i}": array for i, array in enumerate(network.running)}
    if flow.csc:
        state = flow.csc.residual.current_state()
        arrays |= {f"residual_{name}": array for name, array in state.items()}
    if flow.compressed:
        state = flow.compressed.compressor.state
        arrays |= {f"compressor_{name}": array for name, array in state.items()}
    return arrays, {"dropout_rng": network.dropout_rng.bit_generator.state}


def require_fitting(flow: GradientFlow, saved: tuple, saved_own: tuple) -> None:
    """ValueError unless each array and each fact of the run was saved, in its shape and type."""
    for here, there in ((shared(flow), saved), (own(flow), saved_own)):
        wanted, got = _described(*here), _described(*there)
        for name in wanted | got:
            if wanted.get(name) != got.get(name):
                raise ValueError(f"got {name} = {got.get(name)}, wanted {wanted.get(name)}")


def restore(flow: GradientFlow, saved: tuple, saved_own: tuple) -> None:
    """Continue from what `shared` and `own` returned, once `require_fitting` has passed."""
    for (arrays, _), (values, _) in ((shared(flow), saved), (own(flow), saved_own)):
        for name, array in arrays.items():
            array[...] = array_module(array).asarray(values[name])
    facts = saved[1]
    flow.steps = facts["steps"]
    flow.model.loss_scale.restore(facts["loss_scale"])
    if flow.csc:
        flow.csc.steps, flow.csc.chosen = facts["steps"], facts["chosen"]
    flow.model.network.dropout_rng.bit_generator.state = saved_own[1]["dropout_rng"]
    if flow.model.working:
        flow.model.working.refresh()


def _described(arrays: dict, facts: dict) -> dict[str, str]:
    """{name: what must agree for it to fit}"""
    kinds = {name: f"{array.dtype} {array.shape}" for name, array in arrays.items()}
    return kinds | dict.fromkeys(facts, "a fact")
