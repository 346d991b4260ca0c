"""Uses that would train wrongly: each is a sentence, and none trains in silence."""

import collections
import math
import re
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (  # noqa: E402
    allreduce_hook,
)
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from refgf.torch import Chunks, GradientFlow, Warmup  # noqa: E402
from tests.support.gloo import on_gloo  # noqa: E402
from tests.torch.test_torch_flow import Prescribed, gradients  # noqa: E402

OWN_SGD = type("OwnSGD", (torch.optim.SGD,), {})  # LARS and others are made like this


def sgd(parameters, **options):
    return torch.optim.SGD(parameters, **{"lr": 0.1, "momentum": 0.9} | options)


def made(optimizer_of=sgd, network=None, ddp=None, **options):
    model = DistributedDataParallel(network or Prescribed(), **ddp or {})
    optimizer = optimizer_of(model.parameters())
    return model, optimizer, GradientFlow(model, optimizer, **options)


def backward(model, rank, step=0):
    model(gradients(rank, step)).backward()


def trains(rank, made_of, before=lambda model, optimizer, flow: None):
    """One step; `before` it something that should not be done."""
    model, optimizer, flow = made_of
    before(model, optimizer, flow)
    backward(model, rank)
    optimizer.step()


def momentum_put_back(model, optimizer, flow):
    optimizer.param_groups[0]["momentum"] = 0.9


def nesterov_put_in(model, optimizer, flow):
    optimizer.param_groups[0]["nesterov"] = True


def one_cycle(model, optimizer, flow):
    torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10)


def loaded_later(model, optimizer, flow):
    optimizer.load_state_dict(sgd(Prescribed().parameters()).state_dict())


def group_added(model, optimizer, flow):
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})


def changed(rank, trained):
    """A parameter is frozen after GradientFlow was made, or no longer."""
    network = Prescribed()
    network.p[1].requires_grad_(trained)
    of = made(network=network, ddp={"find_unused_parameters": True})
    trains(rank, of, lambda m, o, f: m.module.p[1].requires_grad_(not trained))


def two_backwards(rank):
    model, _, _ = made()
    for step in range(2):
        backward(model, rank, step)


def another_optimizer(rank):
    model, _, _ = made()
    other = sgd(model.parameters())
    for step in range(2):
        backward(model, rank, step)
        other.step()


def never_communicates(rank):
    model, optimizer, _ = made()
    with model.no_sync():
        backward(model, rank)
    optimizer.step()


def two_steps(rank):
    model, optimizer, _ = made()
    backward(model, rank)
    optimizer.step()
    optimizer.step()


def past_ddp(rank):
    model, optimizer, _ = made()
    backward(model.module, rank)
    optimizer.step()


def cleared_between(rank):
    model, optimizer, _ = made()
    backward(model, rank)
    optimizer.zero_grad()
    optimizer.step()


def loaded_without_flow(rank, when):
    """A warning: the flow was made first, or training goes back to a checkpoint."""
    model, optimizer, flow = made()
    for step in range(when):
        backward(model, rank, step)
        optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    backward(model, rank)


def edited(change, form="dgc", **options):
    """A warning: what is between backward and the step acts on the momentum."""

    def use(rank):
        model, optimizer, _ = made(lambda p: sgd(p, **options), form=form)
        backward(model, rank)
        change(model, optimizer)
        optimizer.step()

    return use


def decayed_by_hand(model, optimizer):
    for p in model.parameters():
        p.grad.add_(p.detach(), alpha=0.01)


def loads_on_one_rank(rank):
    _, _, flow = made()
    flow.load_state_dict(flow.state_dict() if rank else None)


def edited_under_a_scaler(rank, change=lambda model: None, unscales=True):
    """A warning if anything but the scaler changes gradients."""
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    model, optimizer, _ = made(lambda p: sgd(p, lr=0.0), scaler=scaler)
    for step in range(2):
        scaler.scale(model(gradients(rank, step))).backward()
        if unscales:
            scaler.unscale_(optimizer)
        change(model)
        scaler.step(optimizer)
        scaler.update()


def clipped(model):
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)


def moved(model, optimizer, flow):
    first, second = optimizer.param_groups
    first["params"], second["params"] = second["params"], first["params"]


def two_decays(parameters):
    first, *others = parameters
    return sgd([{"params": [first], "weight_decay": 0.1}, {"params": others}])


def replaced(model, optimizer, flow):
    """A parameter is another object under the same name: nobody updates it."""
    model.module.p[1] = nn.Parameter(torch.zeros(7))


def scaled(rank, given, stepped):
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    model, optimizer, _ = made(scaler=scaler if given else None)
    scaler.scale(model(gradients(rank, 0))).backward()
    scaler.step(optimizer) if stepped else optimizer.step()


def joined(rank):
    model, optimizer, _ = made()
    with model.join():
        backward(model, rank)


def for_ever(rank):
    model, optimizer, _ = made()
    for step in range(60):
        gs = gradients(rank, step)
        gs[0][0] = math.nan if rank == 1 else 1.0
        model(gs).backward()
        optimizer.step()


def once(rank):
    """A warning: the step is refused on both ranks, and training goes on."""
    model, optimizer, _ = made()
    gs = gradients(rank, 0)
    gs[0][0] = math.nan if rank == 1 else 1.0
    model(gs).backward()
    optimizer.step()


def saved_half_way(rank):
    model, _, flow = made()
    backward(model, rank)
    flow.state_dict()


def closed_half_way(rank):
    model, optimizer, flow = made()
    backward(model, rank)
    if not rank:
        optimizer.step()
    flow.close()


def saved_closed(rank):
    _, _, flow = made()
    flow.close()
    flow.state_dict()


def without_state(rank):
    """A warning: the optimiser is loaded, what waited is not."""
    _, optimizer, _ = made()
    saved = optimizer.state_dict()
    model = DistributedDataParallel(Prescribed())
    loaded = sgd(model.parameters())
    loaded.load_state_dict(saved)
    trains(rank, (model, loaded, GradientFlow(model, loaded)))


def loads(change):
    _, _, flow = made()
    flow.load_state_dict(change(flow.state_dict()))


def other_shapes(state):
    arrays = {name: values.reshape(-1)[:1] for name, values in state["state"]["u"].items()}
    return state | {"state": {"u": arrays, "v": arrays}}


def with_nan(state):
    state["state"]["v"]["p.1"].view(-1)[0] = math.nan
    return state


def half_a_velocity(rank):
    _, _, flow = made(form="history")
    saved = flow.state_dict()
    halves = {name: values.reshape(-1)[::2] for name, values in saved["velocity"].items()}
    flow.load_state_dict(saved | {"velocity": halves})


def infinite_velocity(rank):
    _, _, flow = made(form="history")
    saved = flow.state_dict()
    saved["velocity"]["p.1"].view(-1)[0] = math.inf
    flow.load_state_dict(saved)


def half_of_it(parameters):
    return sgd(list(parameters)[:2])


def with_another(parameters):
    return sgd([*parameters, nn.Parameter(torch.ones(1))])


def adam_with_another(parameters):
    return torch.optim.AdamW([*parameters, *Prescribed(seed=1).parameters()], 0.1)


def momenta(parameters):
    first, *others = parameters
    return sgd([{"params": [first], "momentum": 0.5}, {"params": others}])


def twice(rank):
    """The first one goes on."""
    model, optimizer, _ = made()
    try:
        GradientFlow(model, optimizer)
    finally:
        backward(model, rank)
        optimizer.step()


def hooked_on_one_rank(rank):
    """The ranks without another hook are left as they were, momentum included."""
    model = DistributedDataParallel(Prescribed())
    optimizer = sgd(model.parameters())
    if rank:
        model.register_comm_hook(None, allreduce_hook)
    try:
        GradientFlow(model, optimizer)
    finally:
        backward(model, rank)
        optimizer.step()
        assert optimizer.param_groups[0]["momentum"] == 0.9


def alone(rank, wrong, right=sgd):
    """Rank 1 has another optimizer."""
    return made(wrong if rank else right)


def adam_of(**options):
    def optimizer_of(parameters):
        return torch.optim.AdamW(parameters, 0.1, **options)

    return optimizer_of


def other_adam(**options):
    return lambda rank: made(adam_of(**options) if rank else adam_of(), form="none")


def other_network(rank, change):
    """DDP compares shapes itself, unless it is told not to, or they change afterwards."""
    model = DistributedDataParallel(Prescribed(), init_sync=False)
    if rank:
        change(model.module)
    return GradientFlow(model, sgd([p for p in model.parameters() if p.requires_grad]))


def changed_weights(model, rank):
    """As if rank 1 alone had loaded a checkpoint after DDP made all weights alike."""
    if rank:
        model.module.p[1].data[0] += 1


def other_weights(rank):
    model = DistributedDataParallel(Prescribed())
    changed_weights(model, rank)
    GradientFlow(model, sgd(model.parameters()))


def resumed_with_other_weights(rank):
    model, _, flow = made()
    changed_weights(model, rank)
    flow.load_state_dict(flow.state_dict())


def other_shape(network):
    network.p[1] = nn.Parameter(torch.zeros(8))


def one_more(network):
    network.p.append(nn.Parameter(torch.zeros(2)))


def without_ddp(rank):
    model = DistributedDataParallel(Prescribed())
    GradientFlow(model.module if rank else model, sgd(model.parameters()))


def other_scales(rank):
    made(scaler=torch.amp.GradScaler("cpu", init_scale=8.0 + rank))


def other_groups(rank):
    def of(parameters):
        first, *others = parameters
        groups = [[first], others] if rank else [others, [first]]
        return sgd([{"params": group} for group in groups])

    made(of)


def later(change, optimizer_of=sgd, **options):
    """Rank 1 changes its optimiser after the first step, which the second one notices."""

    def use(rank):
        model, optimizer, flow = made(optimizer_of, **options)
        for step in range(3):
            before = [p.detach().clone() for p in model.parameters()]
            backward(model, rank, step)
            try:
                optimizer.step()
            except ValueError:
                assert step == 1 and all(map(torch.equal, before, model.parameters()))
                raise
            if rank and not step:
                change(optimizer)

    return use


def halved(optimizer):
    optimizer.param_groups[0]["lr"] /= 2


def on_its_own_plateau(optimizer):
    """Its validation loss is worse than the other rank's."""
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    for loss in (1.0, 2.0):
        schedule.step(loss)


def other_betas(optimizer):
    optimizer.param_groups[0]["betas"] = (0.8, 0.999)


def cleared_state(model, optimizer, flow):
    optimizer.state.clear()


def state_anew(model, optimizer, flow):
    optimizer.state = collections.defaultdict(dict)


def adam(form):
    return lambda rank: made(lambda p: torch.optim.AdamW(p, 0.1), form=form)


WRONG = {
    # what is given
    "no DDP": lambda rank: GradientFlow(Prescribed(), sgd(Prescribed().parameters())),
    "float64": lambda rank: made(network=Prescribed().double()),
    "complex": lambda rank: made(network=Prescribed().to(torch.complex64)),
    "no optimizer": lambda rank: made(list),
    "Adam, dgc": adam("dgc"),
    "Adam, dgc_masked": adam("dgc_masked"),
    "Adam, history": adam("history"),
    "a subclass of SGD": lambda rank: made(lambda p: OWN_SGD(p, 0.1)),
    "LBFGS": lambda rank: made(torch.optim.LBFGS, form="none"),
    "nesterov": lambda rank: made(lambda p: sgd(p, nesterov=True)),
    "dampening": lambda rank: made(lambda p: sgd(p, dampening=0.1), form="history"),
    "maximize": lambda rank: made(lambda p: sgd(p, maximize=True)),
    "two momenta": lambda rank: made(momenta, form="history"),
    "some parameters": lambda rank: made(half_of_it),
    "another model's parameters": lambda rank: made(with_another),
    "two models, one AdamW": lambda rank: made(adam_with_another, form="none"),
    "form": lambda rank: made(form="momentum"),
    "wire": lambda rank: made(wire=torch.int8),
    "chunk": lambda rank: made(chunks=Chunks(0)),
    "half a chunk": lambda rank: made(chunks=Chunks(2.5)),
    "chunks as a number": lambda rank: made(chunks=256),
    "density 0": lambda rank: made(density=0),
    "density as text": lambda rank: made(density="10"),
    "warm-up of 0": lambda rank: made(warmup=Warmup((0,), 5)),
    "warm-up steps": lambda rank: made(warmup=Warmup((50,), 0)),
    "warm-up as a list": lambda rank: made(warmup=[100, 25]),
    "warm-up of one number": lambda rank: made(warmup=Warmup(25, 5)),
    "warm-up of text": lambda rank: made(warmup=Warmup(("100",), 5)),
    "dense_every": lambda rank: made(chunks=Chunks(dense_every=0)),
    "dgc_masked at 100": lambda rank: made(density=100, form="dgc_masked"),
    "scaler as bool": lambda rank: made(scaler=True),
    "twice": twice,
    # what differs between ranks
    "other densities": lambda rank: made(density=10 + rank),
    "other chunks": lambda rank: made(chunks=Chunks(8 + rank)),
    "other momenta": lambda rank: made(lambda p: sgd(p, momentum=0.5 + 0.1 * rank)),
    "other rates": lambda rank: made(lambda p: sgd(p, lr=0.1 + rank)),
    "other rates of NumPy": lambda rank: made(lambda p: sgd(p, lr=np.float32(0.5 + rank))),
    "other tuples": other_adam(betas=(0.9, 0.99)),
    "another eps": other_adam(eps=1e-6),
    "another flag": other_adam(amsgrad=True),
    "another optimizer's kind": lambda rank: made(
        lambda p: torch.optim.Adam(p, 0.1) if rank else torch.optim.AdamW(p, 0.1), form="none"
    ),
    "other groups": other_groups,
    "other scales": other_scales,
    "another shape": lambda rank: other_network(rank, other_shape),
    "another parameter": lambda rank: other_network(rank, one_more),
    "frozen on one rank": lambda rank: other_network(rank, lambda n: n.p[1].requires_grad_(False)),
    "other weights": other_weights,
    "other buckets": lambda rank: made(ddp={"bucket_cap_mb": 1 + rank}),
    # what is wrong on rank 1 only
    "Adam on one rank": lambda rank: alone(rank, lambda p: torch.optim.AdamW(p, 0.1)),
    "no optimizer on one rank": lambda rank: alone(rank, list),
    "nesterov on one rank": lambda rank: alone(rank, lambda p: sgd(p, nesterov=True)),
    "some parameters on one rank": lambda rank: alone(rank, half_of_it),
    "two momenta on one rank": lambda rank: made(momenta if rank else sgd, form="history"),
    "sparse embedding": lambda rank: made(network=nn.Embedding(9, 2, sparse=True)),
    "a form on one rank": lambda rank: made(form="momentum" if rank else "dgc"),
    "a density on one rank": lambda rank: made(density=0 if rank else 10),
    "no DDP on one rank": without_ddp,
    "a hook on one rank": hooked_on_one_rank,
    # what one rank changes later
    "another rate later": later(halved),
    "its own plateau": later(on_its_own_plateau),
    "another rate later, history": later(halved, form="history"),
    "other betas later": later(other_betas, lambda p: torch.optim.AdamW(p, 0.1), form="none"),
    # what a step finds
    "NaN on one rank": once,
    "NaN for ever": for_ever,
    # what the loop does
    "momentum put back": lambda rank: trains(rank, made(), momentum_put_back),
    "a cycle of momentum": lambda rank: trains(rank, made(), one_cycle),
    "nesterov put in": lambda rank: trains(rank, made(), nesterov_put_in),
    "state cleared": lambda rank: trains(rank, made(), cleared_state),
    "state made anew": lambda rank: trains(rank, made(form="history"), state_anew),
    "optimiser loaded later": lambda rank: trains(rank, made(), loaded_later),
    "a group added": lambda rank: trains(rank, made(), group_added),
    "frozen later": lambda rank: changed(rank, trained=True),
    "another type later": lambda rank: trains(rank, made(), lambda m, o, f: m.module.bfloat16()),
    "unfrozen later": lambda rank: changed(rank, trained=False),
    "replaced": lambda rank: trains(rank, made(ddp={"find_unused_parameters": True}), replaced),
    "cleared between": cleared_between,
    "zeroed between": edited(lambda m, o: o.zero_grad(set_to_none=False)),
    "decayed by hand": edited(decayed_by_hand),
    "clipped by value": edited(lambda m, o: nn.utils.clip_grad_value_(m.parameters(), 0.1)),
    "decayed by hand, history": edited(decayed_by_hand, "history"),
    "clipped under a scaler": lambda rank: edited_under_a_scaler(rank, clipped),
    "moved between groups": lambda rank: trains(rank, made(two_decays), moved),
    "decayed by hand, none": edited(decayed_by_hand, "none"),
    "two backwards": two_backwards,
    "two steps": two_steps,
    "another optimizer": another_optimizer,
    "no_sync for ever": never_communicates,
    "model.module": past_ddp,
    "scaler not given": lambda rank: scaled(rank, given=False, stepped=True),
    "scaler not stepped": lambda rank: scaled(rank, given=True, stepped=False),
    "join": joined,
    "closed half-way on one rank": closed_half_way,
    # stop and resume
    "saved half-way": saved_half_way,
    "saved after close": saved_closed,
    "resumed without state": without_state,
    "optimiser loaded, flow not": lambda rank: loaded_without_flow(rank, 0),
    "back to a checkpoint without it": lambda rank: loaded_without_flow(rank, 2),
    "a file on one rank only": loads_on_one_rank,
    "no state": lambda rank: loads(lambda state: None),
    "an empty state": lambda rank: loads(lambda state: {}),
    "state of another rank": lambda rank: loads(lambda s: s | {"rank": 1 - rank}),
    "state of more ranks": lambda rank: loads(lambda s: s | {"size": 3}),
    "state of another form": lambda rank: loads(lambda s: s | {"form": "none"}),
    "state of other chunks": lambda rank: loads(lambda s: s | {"chunk": 5}),
    "state of other shapes": lambda rank: loads(other_shapes),
    "state without its rank": lambda rank: loads(lambda s: {k: s[k] for k in s if k != "rank"}),
    "half a velocity": half_a_velocity,
    "half of the gaps": lambda rank: loads(lambda s: s | {"gap": s["gap"][::2]}),
    "gaps of NaN": lambda rank: loads(lambda s: s | {"gap": s["gap"] * math.nan}),
    "a NaN in the residual": lambda rank: loads(with_nan),
    "an infinite velocity": infinite_velocity,
    "weights loaded by one rank": resumed_with_other_weights,
    "one state twice": lambda rank: loads(lambda s: [s | {"rank": 0}] * 2),
    "files of two steps": lambda rank: loads(lambda s: s | {"steps": 3 + rank}),
}


def with_nan_in_a_group(parameters):
    """A NaN is no other value than itself, which two ranks' objects would be."""
    optimizer = sgd(parameters)
    optimizer.param_groups[0]["own"] = (float("nan"), np.float32("nan"))
    return optimizer


def frozen_embedding(rank):
    network = Prescribed()
    network.embedding = nn.Embedding(9, 2, sparse=True).requires_grad_(False)
    trains(rank, made(network=network))


RIGHT = {
    "edited without momentum": edited(decayed_by_hand, momentum=0),
    "a scaler that unscales": edited_under_a_scaler,
    "a scaler": lambda rank: edited_under_a_scaler(rank, unscales=False),
    "a rate of NumPy on one rank": lambda rank: made(
        lambda p: sgd(p, lr=np.float32(0.5) if rank else 0.5)
    ),
    "numbers of NumPy": lambda rank: made(
        density=np.int64(10), warmup=Warmup((np.float32(50),), np.int64(2))
    ),
    "a NaN on all ranks": lambda rank: made(with_nan_in_a_group),
    "a frozen sparse embedding": frozen_embedding,
}


def rightly_used(rank, _):
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for use in RIGHT.values():
            use(rank)
    return [str(w.message) for w in warned if str(w.message).startswith("GradientFlow: ")]


def test_a_right_use_is_no_warning():
    assert on_gloo(2, rightly_used, None) == [[], []]


def wrongly_used(rank, names):
    """{name: what is said}: "" where it is taken without a word."""
    said = {}
    for name in names:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                WRONG[name](rank)
                said[name] = ""
            except (ValueError, RuntimeError) as error:
                said[name] = str(error)
        own = [str(w.message) for w in warned if str(w.message).startswith("GradientFlow: ")]
        said[name] = said[name] or " ".join(own)
    return said


@pytest.fixture(scope="module")
def said():
    return on_gloo(2, wrongly_used, list(WRONG))


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_use_is_a_sentence_on_all_ranks(said, name):
    for rank in range(2):
        text = said[rank][name]
        assert "got " in text and "; next: " in text, text


NAMED = {  # what is wrong; of what differs between ranks both values
    "other densities": r"got density = 10 on rank 0 and 11 on rank 1;",
    "other chunks": r"got size of Chunks = 8 on rank 0 and 9 on rank 1;",
    "other momenta": r"got momentum of parameter group 0 = 0.5 on rank 0 and 0.6 on rank 1;",
    "other rates of NumPy": r"got lr of parameter group 0 = 0.5 on rank 0 and 1.5 on rank 1;",
    "other rates": r"got lr of parameter group 0 = 0.1 on rank 0 and 1.1 on rank 1;",
    "other tuples": r"betas of parameter group 0 = \(0.9, 0.999\) on rank 0 and \(0.9, 0.99\) on",
    "another eps": r"got eps of parameter group 0 = 1e-08 on rank 0 and 1e-06 on rank 1;",
    "another flag": r"got amsgrad of parameter group 0 = False on rank 0 and True on rank 1;",
    "another optimizer's kind": r"got the optimizer = AdamW on rank 0 and Adam on rank 1;",
    "other groups": r"got the group of p.4 = 0 on rank 0 and 1 on rank 1;",
    "other scales": r"got scaler = .*'scale': 8.0.* on rank 0 and .*'scale': 9.0.* on rank 1;",
    "another rate later": r"got lr of parameter group 0 = 0.1 on rank 0 and 0.05 on rank 1;",
    "its own plateau": r"got lr of parameter group 0 = 0.1 on rank 0 and 0.01\d* on rank 1;",
    "other betas later": r"betas of parameter group 0 = \(0.9, 0.999\) on rank 0 and \(0.8, ",
    "another type later": r"got \['p.0', 'p.1', 'p.2'\] frozen, unfrozen, new or of another type",
    "another shape": r"p.1 \(7,\) torch.float32 on rank 0 and p.1 \(8,\) torch.float32 on rank 1;",
    "another parameter": r"got parameter 0 of the pool = p.4 .* on rank 0 and p.5 .* on rank 1;",
    "frozen on one rank": r"= p.1 \(7,\) torch.float32 on rank 0 and p.0 .* on rank 1;",
    "other weights": r"got the sum of the weights' bits = -?\d+ on rank 0 and -?\d+ on rank 1;",
    "weights loaded by one rank": r"weights' bits = -?\d+ on rank 0 and .*; next: the files of the",
    "one state twice": r"got the state of rank 0, 0 of 2; wanted that of rank .* a list of all 2;",
    "files of two steps": r"got step of the files = 3 on rank 0 and 4 on rank 1;",
}


@pytest.mark.parametrize("name", NAMED)
def test_what_differs_is_named_with_its_ranks_and_values(said, name):
    for rank in range(2):
        assert re.search(NAMED[name], said[rank][name]), said[rank][name]


def test_a_rank_that_is_right_hears_which_one_is_wrong(said):
    for name in WRONG:
        if name.endswith("on one rank") and name not in ("NaN on one rank", "frozen on one rank"):
            assert said[0][name] == said[1][name] + " (on rank 1)", name


def each_another_rate(rank, _):
    """The middle one is the mean of the others, and hears it all the same."""
    with pytest.raises(ValueError) as error:
        model, optimizer, _ = made()
        for step in range(2):
            backward(model, rank, step)
            optimizer.step()
            optimizer.param_groups[0]["lr"] = (0.125, 0.25, 0.375)[rank]
    return str(error.value)


def test_all_ranks_hear_of_rates_that_differ_later():
    said = on_gloo(3, each_another_rate, None)
    assert len(set(said)) == 1
    assert "lr of parameter group 0 = 0.125 on rank 0 and 0.25 on rank 1 and 0.375" in said[0]


def one_of_three(rank, _):
    """Ranks 0 and 2 wait for none: each ends with a sentence."""
    said = []
    for optimizer_of, form in (
        (adam_of() if rank == 1 else sgd, "dgc"),
        (adam_of(betas=(0.9, 0.99) if rank == 1 else (0.9, 0.999)), "none"),
    ):
        with pytest.raises(ValueError) as error:
            made(optimizer_of, form=form)
        said.append(str(error.value))
    return said


def test_no_rank_of_three_waits_for_the_one_that_is_wrong():
    said = on_gloo(3, one_of_three, None)
    for rank, (wrong, other) in enumerate(said):
        assert wrong.startswith("GradientFlow: got an AdamW") or "AdamW and form" in wrong
        assert wrong.endswith("(on rank 1)") == (rank != 1)
        assert "= (0.9, 0.999) on rank 0, 2 and (0.9, 0.99) on rank 1;" in other
