"""Mistakes of training steps, rebuilt in small from public threads, for `oracle step`.

Each function is a `train` with one mistake. @mistake says where it comes from and what the verdict
must name: a stage, and names of which at least one is given. A mistake without a thread was made
up: it is one that the command promises to name.
"""

from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from refgf.oracle.step import communicated

IGNORED, SAMPLES, CALLS = -100, 24, 3
MISTAKES: dict[str, SimpleNamespace] = {}
HUB = "https://github.com/"


def model():
    return nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, 3))


def batch(seed):
    """(features, labels); half of the first samples' labels have no loss."""
    drawn = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (SAMPLES,), generator=drawn)
    labels[: SAMPLES // 2 : 2] = IGNORED
    return torch.randn(SAMPLES, 6, generator=drawn), labels


def full_batch(seed):
    """Every label has a loss: equal shares have equal weights."""
    features, labels = batch(seed)
    return features, labels.clamp(min=0)


def loss(net, pair, reduction="mean"):
    return nn.functional.cross_entropy(net(pair[0]), pair[1], reduction=reduction)


def mistake(thread, stage, *names, **functions):
    def add(train):
        usual = {"model": model, "batch": full_batch, "loss": loss, "train": train}
        link = HUB + thread if thread else None
        case = SimpleNamespace(**usual | functions, thread=link, stage=stage, names=set(names))
        MISTAKES[train.__name__] = globals()[train.__name__] = case
        return case

    return add


def share(pair, rank, size):
    """Equal neighbours: the first ranks get the samples with ignored labels."""
    each = len(pair[0]) // size
    return tuple(t[rank * each : (rank + 1) * each] for t in pair)


def calls_of(pair, calls=CALLS):
    """The share of each backward call; the sizes may differ."""
    return zip(*(t.tensor_split(calls) for t in pair))


def ddp(net, size):
    return DistributedDataParallel(net) if size > 1 else net


def sgd(net, rate=0.1, **more):
    return torch.optim.SGD(net.parameters(), lr=rate, **more)


def adam(net):
    return torch.optim.AdamW(net.parameters(), lr=0.01)


def reduce_gradients(net, size, op=dist.ReduceOp.AVG, leave=()):
    for name, p in net.named_parameters():
        if size > 1 and not name.startswith(tuple(leave)):
            dist.all_reduce(p.grad)
            p.grad /= size if op == dist.ReduceOp.AVG else 1


def loop(net, batches, rank, size, value, optimizer=sgd, then=None):
    """The usual step with a loss of its own, and something between backward and the optimizer."""
    own, chosen = ddp(net, size), optimizer(net)
    for pair in batches:
        chosen.zero_grad()
        value(own, share(pair, rank, size)).backward()
        if then:
            then()
        chosen.step()


# -- factors of all gradients


@mistake("neuralmagic/sparseml/pull/135", "gradient", "p")
def loss_times_world_size(net, batches, rank, size):
    loop(net, batches, rank, size, lambda own, part: loss(own, part) * size, adam)


@mistake("sanderwood/bgpt/issues/5", "gradient", "1 / p")
def loss_over_world_size(net, batches, rank, size):
    loop(net, batches, rank, size, lambda own, part: loss(own, part) / size, adam)


@mistake("TianhongDai/hindsight-experience-replay/issues/4", "gradient", "p")
def summed_not_averaged(net, batches, rank, size):
    optimizer = adam(net)
    for pair in batches:
        optimizer.zero_grad()
        loss(net, share(pair, rank, size)).backward()
        reduce_gradients(net, size, dist.ReduceOp.SUM)
        optimizer.step()


@mistake("tensorflow/benchmarks/issues/466", "gradient", "p")
def summed_then_clipped(net, batches, rank, size):
    optimizer = sgd(net)
    for pair in batches:
        optimizer.zero_grad()
        loss(net, share(pair, rank, size)).backward()
        reduce_gradients(net, size, dist.ReduceOp.SUM)
        nn.utils.clip_grad_norm_(net.parameters(), 0.05)
        optimizer.step()


@mistake("meta-pytorch/torchtune/pull/2172", "gradient", "1 / p", batch=batch)
def tokens_counted_and_averaged(net, batches, rank, size):
    def value(own, part):
        tokens = (part[1] != IGNORED).sum()
        if size > 1:
            dist.all_reduce(tokens)
        return loss(own, part, "sum") / tokens

    loop(net, batches, rank, size, value, adam)


@mistake("ByteDance-Seed/VeOmni/pull/1079", "gradient", "1 / p")
def fsdp_averages_what_was_averaged(net, batches, rank, size):
    sharded(net, size)
    optimizer = sgd(net)
    for pair in batches:
        optimizer.zero_grad()
        (loss(net, share(pair, rank, size)) / size).backward()
        optimizer.step()


@mistake("NVIDIA/Megatron-LM/pull/7513", "gradient", "1 / p", batch=lambda seed: last_half(seed))
def tokens_of_one_rank(net, batches, rank, size):
    def value(own, part):
        return loss(own, part, "sum") / (part[1] != IGNORED).sum().clamp(min=1)

    loop(net, batches, rank, size, value)


def last_half(seed):
    """Only the last sample has a label: all tokens are on one rank."""
    features, labels = full_batch(seed)
    labels[:-1] = IGNORED
    return features, labels


@mistake("verl-project/verl/pull/5993", "gradient", "p", batch=batch)
def tokens_undercounted(net, batches, rank, size):
    """Each rank's sum over the mean of the counts, then the sum over ranks."""
    optimizer = sgd(net)
    for pair in batches:
        optimizer.zero_grad()
        part = share(pair, rank, size)
        tokens = (part[1] != IGNORED).sum().float()
        if size > 1:
            dist.all_reduce(tokens)
        (loss(net, part, "sum") / (tokens / size)).backward()
        reduce_gradients(net, size, dist.ReduceOp.SUM)
        optimizer.step()


@mistake(None, "gradient", "p")
def reduced_by_ddp_and_by_hand(net, batches, rank, size):
    loop(net, batches, rank, size, loss, adam, lambda: reduce_gradients(net, size, None))


# -- accumulation


def accumulate(net, batches, rank, size, over=CALLS, optimizer=sgd, sync=None, zero=False):
    own, chosen = ddp(net, size), optimizer(net)
    for pair in batches:
        chosen.zero_grad()
        for call, part in enumerate(calls_of(share(pair, rank, size))):
            if zero:
                chosen.zero_grad()
            if size > 1:
                own.require_backward_grad_sync = call == (CALLS - 1 if sync is None else sync)
            (loss(own, part) / over).backward()
        chosen.step()


@mistake("karpathy/nanoGPT/pull/207", "gradient", "accumulation steps")
def accumulation_not_divided(net, batches, rank, size):
    accumulate_equal(net, batches, rank, size, 1)


def accumulate_equal(net, batches, rank, size, over, **settings):
    """24 samples on 2, 3 or 4 ranks: 12, 8 or 6; two calls have equal shares."""
    own, chosen = ddp(net, size), adam(net)
    for pair in batches:
        chosen.zero_grad()
        for call, part in enumerate(calls_of(share(pair, rank, size), 2)):
            if size > 1:
                own.require_backward_grad_sync = call == 1
            (loss(own, part) / over).backward()
        chosen.step()


@mistake("llm-random/llm-random/pull/529", "gradient", "1 / (accumulation steps)")
def accumulation_divided_twice(net, batches, rank, size):
    accumulate_equal(net, batches, rank, size, 4)


@mistake("NVlabs/stylegan3/issues/184", "gradient", "accumulation steps")
def accumulation_by_manual_reduction(net, batches, rank, size):
    optimizer = adam(net)
    for pair in batches:
        optimizer.zero_grad()
        for part in calls_of(share(pair, rank, size), 2):
            loss(net, part).backward()
        reduce_gradients(net, size)
        optimizer.step()


@mistake("huggingface/transformers/pull/34191", "gradient", "shares weighted wrongly", batch=batch)
def mean_of_means_over_calls(net, batches, rank, size):
    accumulate_equal(net, batches, rank, size, 2)


@mistake("huggingface/transformers/pull/34373", "gradient", "shares weighted wrongly", batch=batch)
def mean_of_means_over_ranks(net, batches, rank, size):
    loop(net, batches, rank, size, loss)


@mistake("pytorch/pytorch/issues/67253", "gradient", "shares weighted wrongly")
def uneven_batches(net, batches, rank, size):
    own, optimizer = ddp(net, size), sgd(net)
    for features, labels in batches:
        optimizer.zero_grad()
        starts = [r * 4 for r in range(size)] + [SAMPLES]  # the last rank takes the rest
        mine = slice(starts[rank], starts[rank + 1])
        loss(own, (features[mine], labels[mine])).backward()
        optimizer.step()


@mistake("modelscope/FunASR/pull/3472", "gradient", "not communicated")
def synchronized_at_the_first_call(net, batches, rank, size):
    accumulate(net, batches, rank, size, sync=0)


@mistake("pytorch/torchtitan/pull/3575", "gradient", "lost", "rank 0, backward 0")
def zeroed_in_each_call(net, batches, rank, size):
    accumulate(net, batches, rank, size, zero=True)


@mistake("allenai/open-instruct/pull/1498", "gradient", "lost", "rank 0, backward 1")
def only_the_last_call_is_reduced(net, batches, rank, size):
    optimizer = sgd(net)
    for pair in batches:
        for part in calls_of(share(pair, rank, size)):
            net.zero_grad()
            (loss(net, part) / CALLS).backward()
            reduce_gradients(net, size)
        optimizer.step()


@mistake("tenstorrent/tt-blacksmith/pull/711", "gradient", "not zeroed")
def zero_grad_left_out(net, batches, rank, size):
    own, optimizer = ddp(net, size), sgd(net)
    for pair in batches:
        loss(own, share(pair, rank, size)).backward()
        optimizer.step()


# -- not communicated, lost, stale


@mistake("kohya-ss/sd-scripts/issues/924", "gradient", "not communicated")
def unwrapped(net, batches, rank, size):
    loop(net, batches, rank, size, lambda own, part: loss(net, part))


class TwoParts(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(6, 16), nn.Tanh()), nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.body(x))


@mistake("moojink/openvla-oft/issues/160", "gradient", "not communicated", model=TwoParts)
def head_without_its_wrapper(net, batches, rank, size):
    body, optimizer = ddp(net.body, size), sgd(net)
    for pair in batches:
        optimizer.zero_grad()
        features, labels = share(pair, rank, size)
        nn.functional.cross_entropy(net.head(body(features)), labels).backward()
        optimizer.step()


@mistake("NVIDIA/Megatron-LM/issues/1446", "gradient", "not communicated")
def norm_not_reduced(net, batches, rank, size):
    optimizer = sgd(net)
    for pair in batches:
        optimizer.zero_grad()
        loss(net, share(pair, rank, size)).backward()
        reduce_gradients(net, size, leave=["1."])
        optimizer.step()


@mistake("EleutherAI/gpt-neox/pull/1259", "gradient", "1 / p")
def norm_averaged_not_summed(net, batches, rank, size):
    optimizer = sgd(net)
    for pair in batches:
        optimizer.zero_grad()
        (loss(net, share(pair, rank, size)) / size).backward()
        reduce_gradients(net, size, dist.ReduceOp.SUM)
        for p in net[1].parameters():
            p.grad /= size
        optimizer.step()


@mistake("NVIDIA/Megatron-LM/pull/6871", "gradient", "stale")
def old_gradient_in_the_optimizer(net, batches, rank, size):
    """On p ranks the copy that the optimizer reads is refreshed a step late."""
    own, optimizer, kept = ddp(net, size), sgd(net), {}
    for pair in batches:
        optimizer.zero_grad()
        loss(own, share(pair, rank, size)).backward()
        for p in net.parameters() if size > 1 else ():
            new = p.grad.clone()
            p.grad.copy_(kept.get(p, torch.zeros_like(new)))
            kept[p] = new
        optimizer.step()


@mistake("facebookresearch/ParlAI/pull/1846", "start", "different start")
def different_seeds(net, batches, rank, size):
    torch.manual_seed(rank)
    net[0].reset_parameters()
    optimizer = sgd(net)
    for pair in batches:
        optimizer.zero_grad()
        loss(net, share(pair, rank, size)).backward()
        reduce_gradients(net, size)
        optimizer.step()


# -- experts: each rank owns a slice of them


class Experts(nn.Module):
    """Every sample goes to one of 12 experts; the router's layer is dense."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(6, 5)
        self.experts = nn.Parameter(torch.randn(12, 5, 3))

    def forward(self, x):
        x, chosen = torch.tanh(self.dense(x)), torch.arange(len(x)) % 12
        return torch.einsum("ni,nio->no", x, self.experts[chosen])


def expert_step(net, batches, rank, size, divide=1.0, clip=None):
    """Ranks gather all samples and compute their own experts: their gradients are not reduced."""
    optimizer = sgd(net)
    if size > 1:
        mesh = init_device_mesh("cpu", (size,))
        net.experts = nn.Parameter(distribute_tensor(net.experts.detach(), mesh, [Shard(0)]))
        optimizer = sgd(net)
    each = 12 // size
    for features, labels in batches:
        optimizer.zero_grad()
        own = torch.arange(SAMPLES) % 12 // each == rank
        experts = net.experts.to_local() if size > 1 else net.experts
        x = torch.tanh(net.dense(features[own]))
        chosen = torch.arange(SAMPLES)[own] % 12 - rank * each
        y = torch.einsum("ni,nio->no", x, experts[chosen])
        # the mean over the samples of a rank; a share of the batch has SAMPLES / size of them
        value = nn.functional.cross_entropy(y, labels[own], reduction="sum") / SAMPLES * size
        value.backward()
        if size > 1:
            for p in net.dense.parameters():
                dist.all_reduce(p.grad)
                p.grad /= size
            net.experts.grad /= divide
        if clip:
            communicated()
            clip(net)
        optimizer.step()


@mistake("pytorch/pytorch/issues/160285", "gradient", "p", model=Experts)
def experts_not_divided(net, batches, rank, size):
    expert_step(net, batches, rank, size)


@mistake(None, "gradient", "1 / p", model=Experts)
def experts_divided_twice(net, batches, rank, size):
    expert_step(net, batches, rank, size, size * size)


def clip_by(net, norm, limit=0.01):
    for p in net.parameters():
        grad = p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad
        grad *= min(1.0, limit / float(norm))


def square(net, kind=lambda p: True):
    parts = [p.grad for p in net.parameters() if kind(p)]
    locals_ = [g.to_local() if isinstance(g, DTensor) else g for g in parts]
    return sum(g.square().sum() for g in locals_)


@mistake(
    "NVIDIA-NeMo/Automodel/issues/3816", "clip", "norm of each rank's shard alone", model=Experts
)
def clip_by_own_experts(net, batches, rank, size):
    def clip(net):
        clip_by(net, square(net).sqrt())

    expert_step(net, batches, rank, size, size, clip)


@mistake("deepspeedai/DeepSpeed/issues/8475", "clip", "mean of the shards' norms", model=Experts)
def clip_by_the_mean_of_norms(net, batches, rank, size):
    def clip(net):
        norm = square(net).sqrt()
        if size > 1:
            dist.all_reduce(norm)
        clip_by(net, norm / size)

    expert_step(net, batches, rank, size, size, clip)


@mistake(
    "deepspeedai/DeepSpeed/pull/8613", "clip", "norm of the replicated tensors alone", model=Experts
)
def clip_without_experts(net, batches, rank, size):
    def clip(net):
        plain = square(net, lambda p: size == 1 or not isinstance(p, DTensor))
        clip_by(net, plain.sqrt())

    expert_step(net, batches, rank, size, size, clip)


# -- clipping


def sharded(net, size):
    fully_shard(net, mesh=init_device_mesh("cpu", (size,)))


def fsdp_clipped(net, batches, rank, size, norm_of):
    sharded(net, size)
    optimizer = sgd(net)
    for pair in batches:
        optimizer.zero_grad()
        loss(net, share(pair, rank, size)).backward()
        clip_by(net, norm_of(net))
        optimizer.step()


@mistake("pytorch/pytorch/issues/72548", "clip", "norm of each rank's shard alone")
def clip_by_own_shard(net, batches, rank, size):
    fsdp_clipped(net, batches, rank, size, lambda net: square(net).sqrt())


@mistake("pytorch/pytorch/pull/88955", "clip", "sqrt(p)")
def clip_counts_copies(net, batches, rank, size):
    def clip():
        total = square(net)
        if size > 1:
            dist.all_reduce(total)  # every rank has all of it: counted p times
        clip_by(net, total.sqrt())

    loop(net, batches, rank, size, loss, sgd, clip)


@mistake("hpcaitech/ColossalAI/issues/2192", "clip", "norm of each rank's shard alone")
def clip_by_own_shard_of_experts(net, batches, rank, size):
    def norm_of(net):
        return torch.stack([p.grad.to_local().norm() for p in net.parameters()]).norm()

    fsdp_clipped(net, batches, rank, size, norm_of)


@mistake(None, "clip", "clipped before communication")
def clip_before_allreduce(net, batches, rank, size):
    optimizer = sgd(net)
    for pair in batches:
        optimizer.zero_grad()
        loss(net, share(pair, rank, size)).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.05)
        reduce_gradients(net, size)
        optimizer.step()


@mistake("pytorch/examples/issues/1196", "gradient", "loss scale")
def clip_before_unscale(net, batches, rank, size):
    own, optimizer = ddp(net, size), sgd(net)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for pair in batches:
        optimizer.zero_grad()
        scaler.scale(loss(own, share(pair, rank, size))).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.05)
        scaler.step(optimizer)
        scaler.update()


# -- no thread: what the command promises to name


@mistake(None, "update", "weight decay", "p")
def decay_applied_p_times(net, batches, rank, size):
    own, optimizer = ddp(net, size), torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.5)
    for pair in batches:
        optimizer.zero_grad()
        loss(own, share(pair, rank, size)).backward()
        with torch.no_grad():
            for _ in range(size - 1):
                for p in net.parameters():
                    p -= 0.01 * 0.5 * p
        optimizer.step()


@mistake(None, "gradient", "whole batch")
def whole_batch_on_every_rank(net, batches, rank, size):
    own, optimizer = ddp(net, size), sgd(net)
    for pair in batches:
        optimizer.zero_grad()
        loss(own, pair).backward()
        optimizer.step()


@mistake(None, "gradient", "shard of rank 1", "twice")
def shard_scaled_twice(net, batches, rank, size):
    sharded(net, size)
    optimizer = sgd(net)
    for pair in batches:
        optimizer.zero_grad()
        loss(net, share(pair, rank, size)).backward()
        for p in net.parameters():
            if rank == 1:
                p.grad.to_local().mul_(2)
        optimizer.step()


@mistake(None, "update", "p")
def rate_times_world_size(net, batches, rank, size):
    loop(net, batches, rank, size, loss, lambda net: sgd(net, 0.1 * size))


@mistake(None, "update", "weight decay", "p")
def decay_setting_times_world_size(net, batches, rank, size):
    """With momentum no single factor would explain steps 1 and 2."""
    more = {"momentum": 0.9, "weight_decay": 0.1 * size}
    loop(net, batches, rank, size, loss, lambda net: sgd(net, **more))


@mistake(None, "update", "learning rate", "weight decay", "p", "1 / p")
def rate_times_and_decay_over_world_size(net, batches, rank, size):
    more = {"rate": 0.1 * size, "weight_decay": 0.1 / size}
    loop(net, batches, rank, size, loss, lambda net: sgd(net, **more))


@mistake(None, "update", "weight decay")
def decay_by_hand_p_times(net, batches, rank, size):
    def decay():
        with torch.no_grad():
            for p in net.parameters():
                p *= 1 - 0.001 * size

    loop(net, batches, rank, size, loss, then=decay)


@mistake(None, "gradient", "changed after communication")
def clip_by_the_norm_of_a_share(net, batches, rank, size):
    """Without communicated()."""

    def clip():
        norm = torch.sqrt(sum((p.grad**2).sum() for p in list(net.parameters())[rank::size]))
        for p in net.parameters():
            p.grad *= min(1.0, 0.01 / float(norm))

    loop(net, batches, rank, size, loss, then=clip)
