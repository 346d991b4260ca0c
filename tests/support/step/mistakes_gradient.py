"""Mistakes in gradients: factors, accumulation, what is not communicated, lost or stale."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DistributedSampler

from tests.support.step.cases import (
    CALLS,
    IGNORED,
    SAMPLES,
    adam,
    batch,
    calls_of,
    ddp,
    full_batch,
    loop,
    loss,
    mistake,
    reduce_gradients,
    sgd,
    sharded,
    share,
)

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


def sampled(net, batches, rank, size, drop_last):
    """By DistributedSampler. Of 25 samples one is too many for 2, 3 and 4 ranks."""
    own, optimizer = ddp(net, size), sgd(net)
    for pair in batches:
        optimizer.zero_grad()
        numbers = range(len(pair[0]))
        chosen = list(DistributedSampler(numbers, size, rank, shuffle=False, drop_last=drop_last))
        loss(own, tuple(t[chosen] for t in pair)).backward()
        optimizer.step()


def one_more(seed):
    """25 samples."""
    pairs = zip(full_batch(seed), full_batch(seed + 100))
    return tuple(torch.cat([t, other[:1]]) for t, other in pairs)


@mistake("pytorch/pytorch/issues/25162", "gradient", "counted more than once", batch=one_more)
def sampler_pads(net, batches, rank, size):
    sampled(net, batches, rank, size, drop_last=False)


@mistake("lhotse-speech/lhotse/pull/695", "gradient", "lost", "sample 24", batch=one_more)
def sampler_drops_the_rest(net, batches, rank, size):
    sampled(net, batches, rank, size, drop_last=True)


@mistake("a flat buffer's last part", "gradient", "not communicated", "part")
def last_part_is_not_sent(net, batches, rank, size):
    optimizer, tensors = sgd(net), list(net.parameters())
    for pair in batches:
        optimizer.zero_grad()
        loss(net, share(pair, rank, size)).backward()
        flat = torch.cat([t.grad.flatten() for t in tensors])
        for start in range(0, len(flat) - 79, 80) if size > 1 else ():
            dist.all_reduce(flat[start : start + 80])
            flat[start : start + 80] /= size
        for t, part in zip(tensors, flat.split([t.numel() for t in tensors])):
            t.grad.copy_(part.view_as(t))
        optimizer.step()


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
