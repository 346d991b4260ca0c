"""Mistakes seeded in refgf/fused.py: loops that are not what NumPy's passes are."""

from mutant import Mutant

FUSED = "refgf.fused"
NOT_THE_PASSES = "test_fused.py::test_as_python"

MUTANTS = [
    Mutant(FUSED, "decay everywhere", "decay * w[i] + g[i] if decays else g[i]", "decay * w[i] + g[i]",
           killed_by=NOT_THE_PASSES),
    Mutant(FUSED, "the rate inside the velocity", "w[i] = w[i] - rate * v[i]", "v[i] = rate * v[i]; w[i] = w[i] - v[i]",
           killed_by=NOT_THE_PASSES),
    Mutant(FUSED, "the weights move before the velocity", "        v[i] = momentum * v[i] + gradient\n",
           "        w[i] = w[i] - rate * v[i]\n        v[i] = momentum * v[i] + gradient\n", killed_by=NOT_THE_PASSES),
    Mutant(FUSED, "decay in double precision", "decay * w[i] + g[i] if", "np.float32(np.float64(decay) * w[i] + g[i]) if",
           killed_by=NOT_THE_PASSES),
    Mutant(FUSED, "ties do not go to even", "np.int32(exponent + (13 << 23))", "np.int32(exponent + (14 << 23))",
           killed_by=NOT_THE_PASSES),
    Mutant(FUSED, "too large for float16 without becoming infinite", "size = min(size, 143 << 23)", "pass",
           killed_by=NOT_THE_PASSES),
    Mutant(FUSED, "infinities of float16 are 65536", "bits | 0x7F800000", "bits | 0", killed_by=NOT_THE_PASSES),
    Mutant(FUSED, "what arrived takes the sum's place", "number if adds else number", "number if not adds else number",
           killed_by=NOT_THE_PASSES),
    Mutant(FUSED, "what is kept back does not age", "v[i] = v[i] + u[i]", "v[i] = v[i]", killed_by=NOT_THE_PASSES),
    Mutant(FUSED, "norms of gradients, not of what would travel", "out[i] = abs(v[i] + g[i])", "out[i] = abs(g[i])",
           killed_by=NOT_THE_PASSES),
    Mutant(FUSED, "momentum of a momentum that is scaled", "gradient = unscale * g[i]\n",
           "gradient = g[i]\n        momentum = momentum * unscale\n", killed_by=NOT_THE_PASSES),
    Mutant(FUSED, "packed as if the first chunks had been chosen", "for number in numbers:",
           "for number in range(len(numbers)):", killed_by=NOT_THE_PASSES),
    Mutant(FUSED, "of equal values the last one wins", "value[c] > largest[c]", "value[c] >= largest[c]",
           killed_by=NOT_THE_PASSES),
    Mutant(FUSED, "overlapping windows overwrite each other's gradient",
           "pixel[c] += gradient[c] if number[c] == w else np.float32(0)",
           "pixel[c] = gradient[c] if number[c] == w else pixel[c]", killed_by=NOT_THE_PASSES),
    Mutant("refgf.exchange.store", "what was sent ages", "[(slice(start, part.start), True), (part, False)]",
           "[(slice(start, part.start), True), (part, True)]", killed_by=NOT_THE_PASSES),
    Mutant("refgf.exchange.store", "what has settled ages again", "            yield block, False\n",
           "            yield block, True\n", killed_by=NOT_THE_PASSES),
]
