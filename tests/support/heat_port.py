"""A port of Heat's DASO, judged as any foreign code: names and arguments of SPEC.md's form `heat`.

Written from what `heat/optim/dp_optimizer.py` does when it is run event by event; no line of it is
copied. It has counters, a queue of sums on each rank, and a switch for averaging, where SPEC has
rules. `ported(*DIFFERENCES)` puts in what Heat does not do. Sums are the judge's, because MPI
leaves their order open.
"""

from types import SimpleNamespace

import numpy as np
from ml_dtypes import bfloat16

from refgf.oracle.definitions import ring_allreduce, ring_traffic
from refgf.oracle.spec.daso.traffic import tree_children

DIFFERENCES = {  # what is put in: the diagnosis
    "receives before it looks at the next batch": "W = B - 1: received after W batches",
    "does not spread again": "a sending does not spread the parameters of the group before again",
    "compares with the whole wait": "due in the last W batches is received when it is",
    "divides in float32": "blocking phases divide in float32",
    "casts what is sent only": "a member adds its parameters unrounded",
    "divides once": "one quotient of the weighted sum",
}


class Process:
    """What one process holds: parameters, velocity, and sums that it has sent for."""

    def __init__(self, w):
        self.w, self.v, self.queue = w.copy(), np.zeros_like(w), []
        self.messages = self.bytes = 0

    def count(self, messages, nbytes):
        self.messages += messages
        self.bytes += nbytes


class Cluster:
    """All processes in lockstep: what one of them does in a batch, they all do."""

    def __init__(self, w, p, settings, differences):
        self.s, self.differences, self.k = settings, differences, p // settings.nodes
        self.ranks = [Process(w) for _ in range(p)]
        self.batch, self.turn, self.turn_before, self.averaging = 0, 0, None, True

    def group(self, number):
        return self.ranks[number :: self.k]

    def train(self, gradients, phase):
        self.update(gradients)
        between, _, wait = phase
        last = self.s.batches - 1
        left = wait if self.batch + wait <= last else last - self.batch
        if self.batch == last or between == 0 or self.batch % between == 0:
            self.global_batch(phase, left, last)
        else:
            self.local_batch(phase, left, last)
            self.batch += 1

    def update(self, gradients):
        s, k, one = self.s, self.k, np.float32
        if self.averaging:
            nodes = [gradients[i : i + k] for i in range(0, len(gradients), k)]
            gradients = [one(s.nodes) * g for node in nodes for g in ring_allreduce(node)]
        else:
            gradients = [one(len(gradients)) * g for g in gradients]
        for place, (process, g) in enumerate(zip(self.ranks, gradients)):
            process.v = one(s.momentum) * process.v + g
            process.w = process.w - one(s.rate) * process.v
            messages, elements = ring_traffic(g.size, k, place % k)
            process.count(*((messages, 4 * elements) if self.averaging else (0, 0)))

    def global_batch(self, phase, left, last):
        self.send(phase, left)
        if phase[2]:
            received = self.receive(sending=True)
            if received or "does not spread again" not in self.differences:
                self.spread(self.turn_before)
        following = (self.turn + 1) % self.k
        if self.batch < last and phase[2]:
            self.turn_before, self.turn = self.turn, following
            self.batch += 1
            return
        for process in self.group(self.turn):
            ((total, _, wire),) = process.queue
            process.queue, process.w = [], self.mean(total, wire)
        self.spread(self.turn)
        ended, self.turn_before = self.batch == last, None
        self.batch, self.turn = (0, 0) if ended else (self.batch + 1, following)

    def local_batch(self, phase, left, last):
        between, every, wait = phase
        since, following = self.batch % between, self.batch + 1
        if "compares with the whole wait" in self.differences:
            left = wait
        early = "receives before it looks at the next batch" in self.differences
        if early and since == left and self.receive():
            self.spread(self.turn_before)
        if following % between == 0:
            self.averaging = True
            return
        if since == left:
            if not early:
                self.receive()
                self.spread(self.turn_before)
            self.averaging = self.averaging and every == 1
        if since >= left and every > 1:
            if self.batch % every == 0:
                self.averaging = False
            elif following % every == 0:
                self.averaging = True
        self.averaging = self.averaging or following == last

    def send(self, phase, left):
        members, wire = self.group(self.turn), None if phase[0] else self.s.wire
        sent = [process.w for process in members]
        if wire and "casts what is sent only" not in self.differences:
            sent = [w.astype(bfloat16).astype(np.float32) for w in sent]
        parts = [slice(i, i + self.s.chunk) for i in range(0, sent[0].size, self.s.chunk)]
        sums = [ring_allreduce([w[part] for w in sent], wire)[0] for part in parts]
        for place, process in enumerate(members):
            process.queue.append((np.concatenate([sent[0][:0], *sums]), left, wire))
            for total in sums:
                messages, elements = ring_traffic(total.size, len(members), place)
                process.count(messages, elements * (2 if wire else 4))

    def receive(self, sending=False):
        """The group before merges the first sum in its queue, if there is one.

        Heat has two groups or more. With one group a sum that was just sent is not received.
        """
        members = [] if self.turn_before is None else self.group(self.turn_before)
        fresh = int(sending and self.k == 1)
        late = [process for process in members if len(process.queue) > fresh]
        for process in late:
            total, waited, _ = process.queue.pop(0)
            process.w = self.merged(process.w, total, waited)
        return bool(late)

    def merged(self, w, total, waited):
        own = 2.0 * waited if waited else 1.0
        weights = own + self.s.nodes
        if "divides once" in self.differences:
            return (np.float32(own) * w + total) / np.float32(weights)
        return w * np.float32(own / weights) + total / np.float32(weights)

    def mean(self, total, wire):
        mean = total / np.float32(self.s.nodes)
        short = wire and "divides in float32" not in self.differences
        return mean.astype(bfloat16).astype(np.float32) if short else mean

    def spread(self, number):
        if number is None:
            return
        for place, process in enumerate(self.ranks):
            root = self.ranks[place // self.k * self.k + number]
            children = tree_children((place - number) % self.k, self.k)
            process.count(children, children * 4 * root.w.size)
            process.w = root.w.copy()


class Plan:
    """The phases of a training: counters that change at the end of an epoch."""

    def __init__(self, epochs, warmup, cooldown, largest):
        self.epochs, self.warmup, self.cooldown, self.largest = epochs, warmup, cooldown, largest
        self.epoch, self.best, self.bad, self.phase = 0, np.inf, 0, (0, 0, 0)

    def end_epoch(self, loss):
        self.epoch += 1
        if self.epoch < self.warmup:
            return
        if self.epoch == self.warmup:
            self.phase = 4, 1, 1
        if self.epoch >= self.epochs - self.cooldown:
            self.phase = 0, 0, 0
            return
        between, every, wait = self.phase
        if not self.stable(loss) or between == 0:
            return
        if between > 1:
            self.phase = between // 2, every // 2 or 1, wait - 1 or 1
        else:
            self.phase = self.largest, self.largest // 4, self.largest // 4

    def stable(self, loss):
        better = loss < self.best * (1 - 0.05)
        self.best, self.bad = (loss, 0) if better else (self.best, self.bad + 1)
        stable = self.bad > 2
        self.bad = 0 if stable else self.bad
        return stable


def ported(*differences):
    """The port as a module, with these differences from Heat put in."""

    def heat_run(w, gs, s, phases):
        cluster, states = Cluster(w, len(gs[0]), s, differences), []
        for t, gradients in enumerate(gs):
            cluster.train(gradients, phases[t // s.batches])
            ranks = cluster.ranks
            states.append({"w": [r.w.copy() for r in ranks], "v": [r.v.copy() for r in ranks]})
        return states

    def heat_traffic(n, p, nodes, batches, phase, chunk):
        s = {"nodes": nodes, "batches": batches, "chunk": chunk, "wire": "bfloat16"}
        s = SimpleNamespace(**s, rate=0.1, momentum=0.9)
        cluster = Cluster(np.zeros(n, np.float32), p, s, differences)
        for _ in range(batches):
            cluster.train([np.zeros(n, np.float32)] * p, phase)
        return [(process.messages, process.bytes) for process in cluster.ranks]

    def heat_phases(losses, epochs, warmup, cooldown, largest=8):
        plan, phases = Plan(epochs, warmup, cooldown, largest), []
        for loss in losses:
            phases.append(plan.phase)
            plan.end_epoch(loss)
        return phases

    def heat_merge(w, total, nodes, waited):
        s = SimpleNamespace(nodes=nodes)
        return Cluster(w, nodes, s, differences).merged(w, total, waited)

    names = heat_run, heat_traffic, heat_phases, heat_merge
    return SimpleNamespace(**{function.__name__: function for function in names})
