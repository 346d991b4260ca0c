"""Is this training step rounding or a bug? One call runs it on p ranks and on one (CPU, gloo).

    python -m refgf.oracle step mine.py --ranks 2

or at the end of your own script

    if __name__ == "__main__":
        from refgf.oracle.step.judging import judge
        print(judge(__file__, ranks=2))

The file holds four functions. `train` is your own loop; only what it loops over is given:

    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    def model():                        # small, without dropout; the seed is set before
        return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))

    def batch(seed):                    # the global batch of one optimizer step
        drawn = torch.Generator().manual_seed(seed)
        return torch.randn(12, 6, generator=drawn), torch.randint(0, 3, (12,), generator=drawn)

    def loss(model, batch):             # what is meant: the mean over the whole batch
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    def train(model, batches, rank, size):
        wrapped = DistributedDataParallel(model) if size > 1 else model
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        for features, labels in batches:
            optimizer.zero_grad()
            own = loss(wrapped, (features[rank::size], labels[rank::size]))
            (own * size).backward()     # a mistake: DDP averages, the loss needs no factor
            optimizer.step()

This prints "WRONG  gradient, step 0, 1, 2, all tensors: 2 times what it should be = p", though
AdamW's update looks right. The process group exists already, with torchrun's variables:
init_process_group in the file does nothing. No GPU is seen. Known to work: DDP, accumulation and
no_sync, uneven batches and tokens, bfloat16, autocast, GradScaler, sums in 16 bits, Accelerate,
models on the meta device, and FSDP2 (fully_shard) where PyTorch's gloo averages (2.13's does, 2.7's
does not). The reference computes `model` and `loss` in float64: constants in float32 are converted,
and where that fails a sentence with the line says so.

Own code before the optimizer. Where a step clips gradients or adds weight decay to them, it calls
communicated() when its gradients are ready for that; without, the answer may be "cannot tell".
Clipping by torch.nn.utils is seen without. Where gradients are summed inside the optimizer's step,
or parameters are communicated after it (shards of one's own, averages), parameters are compared
with one rank's; where an update hides the gradient's size (Adam, sign) the answer is "cannot tell"
until the optimizer's step calls communicated().

State. Buffers are forced as parameters are; ranks that hold other ones than rank 0, or all of them
than one rank's training where that changes the gradient, are a finding. Where optimizers make
steps in turn on one batch (GAN), `loss` may return a loss for each.

Not seen: a forgotten set_epoch or shuffle (batches are given), what differs between steps further
apart than --steps, and a mistake that one rank makes too in clipping or in the update; in the
gradient, which `loss` defines, it is found. Where rounding may hide a tenth of a gradient, as under
autocast, the answer is "cannot tell" unless a mistake is larger: judge in float32 first. A tensor
is not judged that no optimizer has, nor in a step where it is frozen. A lost or repeated sample has
a name where the samples' gradients can be told apart: at most half as many as the model has
numbers, and not in 16 bits. Ranks that make other collective calls than each other get no verdict,
but a sentence with the first call that differs, its rank and line.

Refused: dropout, unless `train` sets it to .eval(); FSDP1; closures (LBFGS) and SAM; and statistics
of a rank's own samples (BatchNorm), unless --batch-norm whole judges with those of all ranks'.

    judging.py      records p ranks, asks for the reference, compares stage by stage
    compared.py     what ranks had, put together, and what it is judged by
    gradients.py    the first stage: the gradient where it is communicated
    updates.py      the last: parameters, also where sums are made inside the optimizer
    buffers.py      buffers of ranks
    hypotheses.py   names of wrong gradients, a table; fits.py: factors and samples
    clipping.py     names of wrong norms, and of weight decay in gradients
    verdict.py      findings as text, and why there is no verdict
    ranks.py        time limits; collectives.py: do ranks make the same calls?
    worker.py       inside the processes: record.py, state.py and watch.py what a rank does,
                    calls.py what it calls, normalisation.py batch norm of all samples,
                    reference.py float64, and how far rounding goes
"""

import sys


def communicated() -> None:
    """Called in `train`: the gradients are summed over ranks, without clipping and decay yet."""
    record = sys.modules.get("refgf.oracle.step.record")
    if record and record.current:
        record.current.before_clip(None, communicated=True)
