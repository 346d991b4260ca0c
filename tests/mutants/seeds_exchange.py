"""Mistakes seeded in refgf/exchange."""

from mutant import Mutant

LAZY, MERGED, PRECISION, CHOICE, CORRECTION, CSC, STORE, TOPK = (
    f"refgf.exchange.{name}"
    for name in ("lazy", "merged", "precision", "chunk_choice", "momentum_correction", "csc", "store", "topk")
)
NOT_CORRECTED = """
def carry(self, block, g, scratch, right=MomentumBefore.carry):
    self.raw = getattr(self, "raw", None)
    self.raw = array_module(g).zeros_like(self.u) if self.raw is None else self.raw
    self.raw[block] = g
    right(self, block, g, scratch)

def travels(self, of, g, out):
    array_module(g).add(of(self.v), of(self.raw), out=out)

def age(self, block):
    self.v[block] += self.raw[block]

MomentumBefore.carry, MomentumBefore.travels, MomentumBefore.age = carry, travels, age
"""
LAST_LOST = """
class LastLost(MergedAllreduce):
    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self._ends.remove(len(self.pool.specs))

    def finish(self):
        self._start = self._next = 0
        self.wait()

MergedAllreduce = LastLost
"""

MUTANTS = [
    Mutant(LAZY, "fires at theta", "* self.itemsize > self.threshold_bytes", "* self.itemsize >= self.threshold_bytes",
           "fires at theta, not above it (violates L1)"),
    Mutant(LAZY, "last bucket forgotten", "if self._start < self.pool.offsets[-1]:", "if False:",
           "last bucket forgotten (violates L2)"),
    Mutant(LAZY, "theta counts the bytes of the pool", "self.itemsize = wire_itemsize or pool.flat.dtype.itemsize",
           "self.itemsize = pool.flat.dtype.itemsize", "theta counts the bytes of the array, not of the wire (violates L3)"),
    Mutant(LAZY, "waiting bytes are never reset", "        self._start = stop\n", "",
           "what was sent is sent again: every call begins with the first tensor (violates L1)"),
    Mutant(MERGED, "a group is sent one gradient early", "{group[-1] + 1 for group", "{group[-1] for group",
           "a group is sent before its last gradient is ready, which joins the next one (violates L5)"),
    Mutant(MERGED, "groups are never full", "return self._next in self._ends and", "return False and",
           "no group is ever full: one call at the end (violates L5)"),
    Mutant(MERGED, "groups are ignored", "return self._next in self._ends and", "return",
           "the groups are ignored: every tensor by itself (violates L5)"),
    Mutant(MERGED, "last group lost", "", LAST_LOST, "the last group is not summed (violates L5)"),
    Mutant(PRECISION, "the count of good steps is not reset", "self.good_steps, self.skipped = 0, self.skipped + 1",
           "self.skipped = self.skipped + 1", "the count of good steps is not reset by a skipped one (violates P6)"),
    Mutant(PRECISION, "the scale never grows", "if self.dynamic and self.good_steps == self.interval:", "if False:",
           "the scale never grows again (violates P6)"),
    Mutant(PRECISION, "never divided by the scale", "x[block] *= 1 / scale", "pass",
           "never divided by the scale (violates P4)"),
    Mutant(PRECISION, "never skipped", "return bool(array_module(x).isfinite(x).all())", "return True",
           "never skipped (violates P5)"),
    Mutant(PRECISION, "only infinities are looked for",
           "return bool(array_module(x).isfinite(x).all())",
           "return not bool(array_module(x).isinf(x).any())", "only infinities are looked for (violates P5)"),
    Mutant(CHOICE, "ties go to the higher number", 'numpy.argsort(-values, kind="stable")[:count]',
           'numpy.argsort(values, kind="stable")[::-1][:count]', "ties go to the higher number (violates C5)"),
    Mutant(CHOICE, "rounded down", "math.ceil(len(values) * percent / 100)", "int(len(values) * percent / 100)",
           "rounded down (violates C5)"),
    Mutant(CHOICE, "not divided by the chunk's length",
           "return norms / numpy.array([length(c) for c in chunks(n, chunk)], numpy.float64)", "return norms",
           "not divided by the chunk's length: the short last chunk starves (violates C4)"),
    Mutant(CHOICE, "the first step is not dense", "return self.percent, step == 0", "return self.percent, False",
           "the first step is not dense (violates C6)"),
    Mutant(CORRECTION, "momentum not corrected", "", NOT_CORRECTED, "momentum not corrected: v + g (violates C2)"),
    Mutant(CORRECTION, "v is not cleared when it is sent", "self.v[part] = 0", "pass",
           "what was kept back is not cleared when it is sent (violates C3)"),
    Mutant(CORRECTION, "h is not cleared when it is sent", "self.h[part] = 0", "pass",
           "what was kept back is not cleared when it is sent (violates C3)"),
    Mutant(CORRECTION, "factor masking in dense steps too", "if self.masked and not dense", "if self.masked",
           "factor masking in dense steps too (violates C3)"),
    Mutant(CORRECTION, "factor masking always", "if self.masked and not dense", "if not dense",
           "factor masking always: u is cleared on chosen chunks (violates C3)"),
    Mutant(CORRECTION, "factor masking never", "if self.masked and not dense", "if False",
           "factor masking never (violates C3)"),
    Mutant(CORRECTION, "history is not discounted", 'momentum if form == "history" else 1', "1",
           "what was kept back is not discounted by the momentum (violates C3)"),
    Mutant(CORRECTION, "what is not sent is thrown away", "self.v[block] += self.u[block]", "self.v[block] = 0",
           "what is not sent is thrown away (violates C7)"),
    Mutant(CSC, "stale chunk list", "self.chosen = None if dense else choose(self.importance, percent)",
           "fresh = None if dense else choose(self.importance, percent)\n"
           "        self.chosen, self.fresh = getattr(self, 'fresh', fresh), fresh",
           "stale chunk list: the list of the step before (violates C8)"),
    Mutant(CSC, "an infinity in an unchosen chunk is not looked for",
           "finite = numpy.isfinite(norms).all() and all(", "finite = all(",
           "only what is sent is looked at: an infinity in an unchosen chunk stays for ever (violates C10)"),
    Mutant(CSC, "norms of this rank only", "self.allreduce_norms(message)", "pass", killed_by="refused"),
    Mutant(STORE, "every rank adds the whole decay", "weight_decay / size if self.before", "weight_decay if self.before",
           "every rank adds the whole decay: p times too much (violates C12)"),
    Mutant(STORE, "decay is not made up for", "self.decay * gap[numbers]", "self.decay + 0.0 * gap[numbers]",
           "decay is not made up for the steps in which a chunk was not sent (violates C12)"),
    Mutant(STORE, "decay everywhere", "bool(self.share) and self.pool.specs[index].decay", "bool(self.share)",
           "decay everywhere, biases and normalisation included"),
    Mutant(STORE, "decay everywhere, after the exchange", "if len(positions):", "if False:",
           killed_by="training/test_gradientflow_oracle.py::test_forms_on_exact_data"),
    Mutant(TOPK, "rounded down", "math.ceil(round(n * percent / 100, 6))", "int(n * percent / 100)",
           "rounded down (violates T1)"),
    Mutant(TOPK, "the last of equals", "[: k - above.size]", "[::-1][: k - above.size]",
           "of equal ones the last (violates T2)"),
    Mutant(TOPK, "the start is forgotten", "first = int(start * (", "first = int(0 * (",
           "the neighbours are always the first ones (violates T3)"),
    Mutant(TOPK, "what was sent stays", "self.kept[indices] = 0", "pass", "what was sent is kept, too (violates T4)"),
    Mutant(TOPK, "what was not sent is dropped", "self.kept += gradient", "self.kept[...] = gradient",
           "what is not sent is dropped (violates T4)"),
]  # fmt: skip
