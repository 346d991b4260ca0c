"""Mistakes seeded in refgf/nn and refgf/training."""

from mutant import Mutant

CONV, LAYERS, LOSS, NORM, POOL = (f"refgf.nn.{name}" for name in ("conv", "layers", "loss", "normalization", "pooling"))
ALEXNET, SGD, LARS = "refgf.nn.alexnet", "refgf.training.sgd", "refgf.training.lars"
ACCUMULATE = "refgf.training.accumulate"

WITH_OTHER_WEIGHTS = """
def mistaken(self, x, training, forward=Convolution.forward):
    bias, weight = self.parameters
    self.parameters = [bias, CHANGED.copy()]
    y = forward(self, x, training)
    self.parameters = [bias, weight]
    return y

Convolution.forward = mistaken
"""
BIAS_AVERAGED = """
import math

def mistaken(self, dy, ready, backward=Convolution.backward):
    dx = backward(self, dy, ready)
    self.gradients[0] /= max(1, math.prod(dy.shape[:-1]))
    return dx

Convolution.backward = mistaken
"""

MUTANTS = [
    Mutant(CONV, "rows and columns of the kernel exchanged", "",
           WITH_OTHER_WEIGHTS.replace("CHANGED", "weight.transpose(1, 0, 2, 3)"),
           "rows and columns of the kernel exchanged (violates N1)"),
    Mutant(CONV, "the kernel is flipped", "", WITH_OTHER_WEIGHTS.replace("CHANGED", "weight[::-1, ::-1]"),
           "the kernel is flipped: convolution instead of correlation (violates N1)"),
    Mutant(CONV, "bias gradient averaged over the pixels", "", BIAS_AVERAGED,
           "bias gradient averaged over the pixels (violates N1)"),
    Mutant(POOL, "of equal values the last one gets the gradient", "self.xp.greater(value, y, out=larger)",
           "self.xp.greater_equal(value, y, out=larger)", "of equal values the last one gets the gradient (violates N2)"),
    Mutant(POOL, "overlapping windows overwrite each other's gradient",
           "self.xp.add.at(dx[block].reshape(-1), places.reshape(-1), dy[block].reshape(-1))",
           "dx[block].reshape(-1)[places.reshape(-1)] = dy[block].reshape(-1)",
           "overlapping windows overwrite each other's gradient (violates N2)"),
    Mutant(LAYERS, "ReLU leaks one percent", "self.xp.maximum(x[part], 0, out=x[part])",
           "self.xp.maximum(x[part], 0.01 * x[part], out=x[part])", "leaks one percent (violates N3)"),
    Mutant(LAYERS, "no bias", "            y[:, columns] += bias[columns]\n", "", "no bias (violates N6)"),
    Mutant(NORM, "LRN: alpha divided by the number of neighbours", "base *= self.alpha", "base *= self.alpha / self.size",
           "alpha divided by the number of neighbours, as PyTorch means it (violates N5)"),
    Mutant(NORM, "mean and variance are taken for constants",
           "                dy_block -= correction\n                dy_block -= offset\n", "",
           "mean and variance are taken for constants (violates N9)"),
    Mutant(LOSS, "the largest logit of the whole batch is subtracted", "logits.max(axis=1, keepdims=True)",
           "logits.max(initial=-1e300)",
           "the largest logit of the whole batch is subtracted: small rows underflow"),
    Mutant(LOSS, "divided by this rank's samples",
           "gradient /= global_batch\n    value = losses",
           "global_batch = max(1, len(logits))\n    gradient /= global_batch\n"
           "    value = losses",
           "divided by this rank's samples, not by the global batch (violates N8)"),
    Mutant(ALEXNET, "gradients in the order of the forward pass", "backwards = self.layers[::-1]", "backwards = self.layers",
           killed_by="refused"),
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
    Mutant("refgf.nn.residual", "ReLU before the shortcut", "y += beside\n        return self.relu.forward(y, training)",
           "y = self.relu.forward(y, training)\n        y += beside\n        return y",
           "ReLU before the shortcut is added (violates N14)"),
]  # fmt: skip
