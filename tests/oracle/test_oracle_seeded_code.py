"""Mistakes seeded in the project's own code: the golden cases notice each, and name it.

Each seed replaces one function. Small changes at random places are in tests/mutation.py.
"""

import pytest

from refgf.comm import ring, schedule
from refgf.comm.schedule import Step, local
from refgf.comm.slices import slices
from refgf.exchange import chunk_choice, csc, lazy
from refgf.exchange.momentum_correction import Residual
from refgf.exchange.precision import LossScale
from refgf.nn import loss
from refgf.oracle.judge.verify import verify
from tests.support.golden import CASES
from tests.support.project import Project


def lost_tail(n, size):
    return [slice(i * (n // size), (i + 1) * (n // size)) for i in range(size)]


def owner_adds_in_rank_order(rank, size, n):
    cut, others = slices(n, size), [(rank + t) % size for t in range(1, size)]
    mine, sends = cut[(rank + 1) % size], [(to, cut[(to + 1) % size]) for to in others]
    steps = [Step(*send, sender, mine, "buffer") for send, sender in zip(sends, others[::-1])]
    return [*steps, local("reduce", mine)]


def owner_is_not_rounded(rank, size, n, real=ring.allgather):
    return [step for step in real(rank, size, n) if step.op != "finish"]


def own_slice_first(part, received, wire):
    part[...] = part.astype(wire)
    for rank in sorted(received):
        part += received[rank]


def fires_at_theta(self, waiting_bytes, last):
    return waiting_bytes >= self.threshold_bytes


def forgets_the_last_bucket(self):
    self._start = self._next = 0


def not_divided_by_the_length(norms, n, chunk):
    return norms


def no_momentum(self, pool, parameters, settings, momentum, *more, real=Residual.__init__):
    real(self, pool, parameters, settings, 0.0, *more)


def not_cleared(self, sent, dense, real=Residual.update):
    real(self, [], dense)


def list_of_the_step_before(self, norms, sent, real=csc.CSC._choose):
    real(self, norms, sent)
    self.chosen, self.fresh = getattr(self, "fresh", self.chosen), self.chosen


def good_steps_go_on(self, finite, real=LossScale.update):
    before = self.good_steps
    real(self, finite)
    self.good_steps = self.good_steps if finite else before


def by_this_ranks_samples(logits, labels, global_batch, real=loss.softmax_cross_entropy):
    return real(logits, labels, max(1, len(logits)))


R, D, L, C = "ring_allreduce", "direct_allreduce", "lazy_allreduce", "csc_run"
I, N = "importance", "softmax_cross_entropy"
SEEDS = [  # the cases that notice, the function, what stands in its place, the diagnosis
    (R, ring, "slices", lost_tail, "lost tail: the n mod p last elements are not summed"),
    (R, ring, "reduce_scatter", owner_adds_in_rank_order, "summed in rank order"),
    (R, ring, "allgather", owner_is_not_rounded, "the owner keeps its finished slice unrounded"),
    (D, schedule, "reduce_in_rank_order", own_slice_first, "the owner adds its own slice first"),
    (L, lazy.Theta, "is_complete", fires_at_theta, "fires at theta, not above it"),
    (L, lazy.LazyAllreduce, "finish", forgets_the_last_bucket, "last bucket forgotten"),
    (I, chunk_choice, I, not_divided_by_the_length, "not divided by"),
    (C, Residual, "__init__", no_momentum, "momentum not corrected: v + g"),
    (C, Residual, "update", not_cleared, "not cleared when it is sent"),
    (C, csc.CSC, "_choose", list_of_the_step_before, "stale chunk list"),
    ("scaled_run", LossScale, "update", good_steps_go_on, "is not reset by a skipped one"),
    (N, loss, N, by_this_ranks_samples, "divided by this rank's samples, not by the global"),
]
NAMES = [seed[3].__name__ for seed in SEEDS]


@pytest.mark.parametrize("function, place, name, wrong, diagnosis", SEEDS, ids=NAMES)
def test_a_seeded_mistake_is_named(monkeypatch, function, place, name, wrong, diagnosis):
    monkeypatch.setattr(place, name, wrong)
    cases = (case for case in CASES if case.function == function)
    verdicts = (verify([case], Project())[0] for case in cases)  # up to the first that names it
    assert any(diagnosis in sentence for verdict in verdicts for sentence in verdict.diagnosis)
