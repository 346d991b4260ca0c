"""Mistakes seeded in refgf/training: optimisers, a step, the stack, DASO, checkpoints."""

from mutant import Mutant

SGD, LARS, ACCUMULATE, STEP, FLOW, DASO, PHASES, CHECKPOINT, FILES = (
    f"refgf.training.{name}"
    for name in ("sgd", "lars", "accumulate", "step", "gradientflow", "daso", "daso_phases", "checkpoint", "checkpoint_files")
)
AVERAGED = """
Phase.averages = lambda self, batch, batches: True
"""

MUTANTS = [
    Mutant(SGD, "the rate inside the velocity", """        v += g
        xp.multiply(v, rate, out=t)
""", """        v += g * g.dtype.type(rate)
        t[...] = v
""", "the rate inside the velocity (violates M1)"),
    Mutant(SGD, "the old velocity moves the weights", """        v *= self.momentum
        v += g
        xp.multiply(v, rate, out=t)
        w -= t
""", """        old = v * v.dtype.type(rate)
        v *= self.momentum
        v += g
        w -= old
""", "the old velocity moves the weights (violates M1)"),
    Mutant(SGD, "Nesterov momentum", "xp.multiply(v, rate, out=t)",
           "xp.multiply(g + v.dtype.type(self.momentum) * v, rate, out=t)",
           "Nesterov momentum (violates M1)"),
    Mutant(SGD, "decay everywhere", "bool(spec.decay and weight_decay)", "bool(weight_decay)",
           "decay everywhere, biases and normalisation included (violates M2)"),
    Mutant(SGD, "decay forgotten", "bool(spec.decay and weight_decay)", "False", "decay forgotten (violates M2)"),
    Mutant(SGD, "warm-up from 0", "return start_rate + (rate - start_rate) * (step + 1) / warmup_steps",
           "return rate * (step + 1) / warmup_steps", "warms up from 0 instead of from the base rate (violates M3)"),
    Mutant(SGD, "warm-up one step late", "", """
def warmup(rate, step, warmup_steps, start_rate=0.0):
    return start_rate + (rate - start_rate) * min(1.0, step / warmup_steps)
""", "one step late: the first step is at the base rate (violates M3)"),
    Mutant(LARS, "the decay is left out below", "below = g + self.weight_decay * w", "below = g",
           "the decay is left out below (violates M4)"),
    Mutant(LARS, "ratio 0 for weights of zero", "if w > 0 and below > 0 else 1.0", "if below > 0 else 1.0",
           "ratio 0 for weights of zero: they never start to move (violates M4)"),
    Mutant(LARS, "no ratio", "rate * ratio, self.weight_decay", "rate, self.weight_decay",
           "no ratio: momentum SGD with the rate inside the velocity (violates M5)"),
    Mutant(SGD, "decay along a line", "return rate * max(0.0, 1 - step / steps) ** power",
           "return rate * max(0.0, 1 - step / steps)", "the power is forgotten: decay along a line (violates M6)"),
    Mutant(ACCUMULATE, "only the last part counts", "gradients.flat[own] += total[own]", "pass",
           "only the last part counts: backward overwrites (violates M7)"),
    Mutant(LARS, "layers are dealt out", "if own.start <= i < own.stop else []", "if i % self.size == self.rank else []",
           "layers are dealt out one by one (violates M8)"),
    Mutant(ACCUMULATE, "only the last two parts count", "            total += gradients.flat\n",
           "            total[...] = gradients.flat\n",
           killed_by="training/test_accumulate.py::test_exact_gradients_add_up_under_csc"),
    Mutant(ACCUMULATE, "running statistics are those of the last part", "array[...] = total / self.parts", "array[...] = array",
           killed_by="training/test_accumulate.py::test_a_step_that_is_not_accepted_changes_nothing"),
    Mutant(STEP, "a step that is not accepted updates the weights", "if exchange.finish() is not False:",
           "if exchange.finish() is not None:",
           killed_by="training/test_ladder.py::test_a_dense_step_with_a_bad_gradient_on_one_rank_is_skipped_on_all"),
    Mutant(STEP, "the loss scale is not applied", "network.logits_gradient *= scale  #", "pass  #",
           killed_by="training/test_ladder.py::test_a_scale_changes_nothing_where_nothing_underflows"),
    Mutant(STEP, "ranks evaluate overlapping shares", "np.arange(rank, dataset.size, size)", "np.arange(rank, dataset.size)",
           killed_by="training/test_gradientflow.py::test_evaluation_is_the_same_on_all_ranks_and_leaves_the_statistics_as_they_were"),  # noqa: E501
    Mutant(STEP, "evaluation leaves averaged statistics behind", "            array[...] = saved", "            pass",
           killed_by="training/test_gradientflow.py::test_evaluation_is_the_same_on_all_ranks_and_leaves_the_statistics_as_they_were"),  # noqa: E501
    Mutant(FLOW, "theta is ignored", "LazyAllreduce(self.model.gradients, send, wait=self._wait, **exchange)",
           "LazyAllreduce(self.model.gradients, send, math.inf, wait=self._wait)",
           killed_by="training/test_ladder.py::test_lazy_is_not_eager_on_the_ring"),
    Mutant(FLOW, "under CSC decay happens twice", "0.0 if csc else weight_decay, half_weights", "weight_decay, half_weights",
           killed_by="training/test_ladder.py::test_csc_history_at_100_percent_is_dense"),
    Mutant(FLOW, "nobody waits for the communication thread", "self._thread.wait() if self._thread else 0.0", "0.0",
           killed_by="training/test_ladder.py::test_overlapped_is_sequential"),
    Mutant(FLOW, "settings are not compared", '" ".join(map(str, self.settings.values()))', '""',
           killed_by="training/test_gradientflow.py::test_ranks_with_different_settings_say_so"),
    Mutant(DASO, "the own parameters weigh S, not 2S", "w.dtype.type(2 * waited if waited else 1)", "w.dtype.type(waited or 1)",
           "the own parameters weigh S, not 2S (violates A6)"),
    Mutant(DASO, "always spread by the first rank of the node", "turned, k, w = self.node[group:] + self.node[:group], len",
           "group = 0\n        turned, k, w = self.node[group:] + self.node[:group], len",
           "always spread by the first rank of the node (violates A8)"),
    Mutant(DASO, "blocking phases are not rounded", "self._sum_at_once[self.wire if self.phases.now.blocking else None]",
           "self._sum_at_once[None]", "blocking phases are not rounded to bfloat16 (violates A7)"),
    Mutant(DASO, "rounded while cycling, too", "self._sum_at_once[self.wire if self.phases.now.blocking else None]",
           "self._sum_at_once[self.wire]", "rounded to bfloat16 while cycling, too (violates A7)"),
    Mutant(DASO, "the node's sum is not multiplied", "if factor != 1:", "if False:",
           "the node's sum is not multiplied by the number of nodes (violates A3)"),
    Mutant(DASO, "replaced by the average of what was sent", "        part *= own\n",
           "        part *= 0\n        own = w.dtype.type(0)\n",
           "replaced by the average of what was sent: the batches since are lost (violates A6)"),
    Mutant(PHASES, "the group is not rotated", "math.ceil(batch / every) % groups", "0",
           "the group is not rotated (violates A4)"),
    Mutant(PHASES, "never skipped: averaged in every batch", "", AVERAGED,
           "never skipped: gradients averaged in the node in every batch (violates A2)"),
    Mutant(PHASES, "stays at B = 1", "        if self.now.global_skip == 1:\n",
           "        if self.now.global_skip == 1:\n            return self.now\n", "stays at B = 1 (violates A9)"),
    Mutant(PHASES, "a plateau one epoch early", "if self._worse <= self.patience:", "if self._worse < self.patience:",
           "a plateau after `patience` epochs, not after more (violates A10)"),
    Mutant(PHASES, "any smaller loss is better", "loss < (1 - self.threshold) * self._best", "loss < self._best",
           "any smaller loss counts as better (violates A10)"),
    Mutant(CHECKPOINT, "momentum is not saved", 'arrays["velocity"] = model.optimizer.velocity', "pass",
           killed_by="training/test_checkpoint.py::test_resumed_is_uninterrupted"),
    Mutant(CHECKPOINT, "the list of chosen chunks is not saved", 'facts["chosen"] = csc.chosen', 'facts["chosen"] = None',
           killed_by="training/test_checkpoint.py::test_resumed_is_uninterrupted"),
    Mutant(CHECKPOINT, "what CSC kept back is not saved",
           'arrays |= {f"kept_{name}": array for name, array in csc.kept.items()}', "pass",
           killed_by="training/test_checkpoint.py::test_resumed_is_uninterrupted"),
    Mutant(CHECKPOINT, "the working copy is not refreshed", "self.flow.model.working.refresh()", "pass",
           killed_by="training/test_checkpoint.py::test_resumed_is_uninterrupted"),
    Mutant(CHECKPOINT, "one rank's damage is its own affair", "everybody = self.comm.allgather(mine)\n", "everybody = [mine]\n",
           killed_by="training/test_checkpoint.py::test_a_damaged_checkpoint_gives_way_to_the_one_before"),
    Mutant(CHECKPOINT, "only the last one is kept", "self._folders()[KEEP:]", "self._folders()[1:]",
           killed_by="training/test_checkpoint.py::test_the_last_two_are_kept"),
    Mutant(FILES, "only lengths are compared", "return None if got == entry else", "return None if True else",
           killed_by="training/test_checkpoint.py::test_a_damaged_checkpoint_gives_way_to_the_one_before"),
    Mutant(FILES, "a missing file passes", "        return str(error)\n    if got", "        return None\n    if got",
           killed_by="training/test_checkpoint.py::test_a_damaged_checkpoint_gives_way_to_the_one_before"),
    Mutant(FILES, "what is removed stays", "    shutil.rmtree(folder, ignore_errors=True)\n", "    pass\n",
           killed_by="training/test_checkpoint.py::test_the_last_two_are_kept"),
]  # fmt: skip
