"""Mistakes seeded in refgf/nn."""

from mutant import Mutant

CONV, LAYERS, LOSS, NORM, POOL = (f"refgf.nn.{name}" for name in ("conv", "layers", "loss", "normalization", "pooling"))
MINIMAL = "refgf.nn.minimal"
ALEXNET, RESIDUAL, RESNET50, LAYOUT, WORKSPACE = (
    f"refgf.nn.{name}" for name in ("alexnet", "residual", "resnet50", "torch_layout", "workspace")
)

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
    Mutant(POOL, "of equal values the last one gets the gradient", "np.greater(value, y, out=larger)",
           "np.greater_equal(value, y, out=larger)", "of equal values the last one gets the gradient (violates N2)"),
    Mutant(POOL, "overlapping windows overwrite each other's gradient",
           "np.add.at(dx.reshape(-1), places.reshape(-1), dy.reshape(-1))",
           "dx.reshape(-1)[places.reshape(-1)] = dy.reshape(-1)",
           "overlapping windows overwrite each other's gradient (violates N2)"),
    Mutant(LAYERS, "ReLU leaks one percent", "self.xp.maximum(x[part], self.zeros, out=x[part])",
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
    Mutant(RESIDUAL, "ReLU before the shortcut", "y += beside\n        return self.relu.forward(y, training)",
           "y = self.relu.forward(y, training)\n        y += beside\n        return y",
           "ReLU before the shortcut is added (violates N14)"),
    Mutant(LAYERS, "dropout does not scale what it keeps", "        out *= 1 / (1 - self.probability)\n", "",
           "what is kept is not scaled (violates N7)"),
    Mutant(NORM, "epsilon is added to the deviation", "1 / self.xp.sqrt(variance + self.epsilon)",
           "1 / (self.xp.sqrt(variance) + self.epsilon)",
           "epsilon is added to the deviation, not to the variance (violates N4)"),
    Mutant(NORM, "the variance over n in the running statistics", "square / max(1, n - 1))", "square / n)",
           killed_by="nn/test_normalization.py::test_running_statistics"),
    Mutant(POOL, "places in the window, not in the image", "(k[:, None] * width + k)", "(k[:, None] * self.kernel + k)",
           killed_by="nn/test_pooling.py::test_a_second_batch_leaves_nothing_of_the_first"),
    Mutant(LOSS, "the gradient is the softmax alone", "    gradient[rows, labels] -= 1\n", "",
           killed_by="nn/test_loss.py::test_rows_of_very_different_size"),
    Mutant(ALEXNET, "initial weights for outputs, not for inputs", "(2 / (spec.size // spec.shape[-1])) ** 0.5",
           "(2 / spec.shape[-1]) ** 0.5", killed_by="nn/test_alexnet.py::test_initial_weights_have_the_variance_of_he"),
    Mutant(ALEXNET, "the loss is divided by this rank's images", "self.xp.asarray(labels), global_batch)",
           "self.xp.asarray(labels), max(1, len(images)))",
           killed_by="nn/test_alexnet_gradients.py::test_uneven_shards_add_up_to_the_batch"),
    Mutant(ALEXNET, "dropout goes on in evaluation", "return self.forward(images, False).copy()",
           "return self.forward(images, True).copy()",
           killed_by="nn/test_alexnet.py::test_predict_has_no_dropout_and_depends_on_no_other_image"),
    Mutant(RESIDUAL, "the gradient through the shortcut is forgotten", "            dx += beside\n", "",
           killed_by="nn/test_resnet50.py::test_the_slope_along_a_line"),
    Mutant(RESIDUAL, "the mean's gradient is not divided by the pixels", "        dx *= 1 / (height * width)\n", "",
           killed_by="nn/test_resnet50.py::test_gradients_of_border_and_mean"),
    Mutant(RESNET50, "the stride in the first 1 x 1 convolution", "filters, 1, 1, 0), (f\"{name}.b\", filters, 3, stride, 1)",
           "filters, 1, stride, 0), (f\"{name}.b\", filters, 3, 1, 1)",
           killed_by="nn/test_resnet50.py::test_the_stride_is_in_the_3_x_3_convolution"),
    Mutant(RESNET50, "its gradients in the order of the forward pass", "for layer in self.layers[::-1] for spec",
           "for layer in self.layers for spec", killed_by="nn/test_resnet50.py::test_tensors_in_order_of_generation"),
    Mutant(RESNET50, "normalisations of shortcuts keep no statistics", "return layer.main + layer.shortcut if",
           "return layer.main if", killed_by="nn/test_resnet50.py::test_all_normalisations_have_running_statistics"),
    Mutant(LAYOUT, "kernel rows and columns exchanged on the way there", "array.transpose(3, 2, 0, 1)",
           "array.transpose(3, 2, 1, 0)", killed_by="nn/test_torch_layout.py::test_single_elements"),
    Mutant(LAYOUT, "the flattened pixels keep their order", "            pixels = array.reshape(*layer.input_shape, -1)\n"
           "            array = pixels.transpose(2, 0, 1, 3).reshape(array.shape)", "            array = array",
           killed_by="nn/test_torch_layout.py::test_single_elements"),
    Mutant(LAYOUT, "gamma keeps its name", '.replace(".gamma", ".weight")', "",
           killed_by="nn/test_torch_layout.py::test_names"),
    Mutant(WORKSPACE, "the last worker has the rest of a rounded-down share", "-(-n * worker // self.threads)",
           "n // self.threads * worker", killed_by="nn/test_workspace.py::test_sum_over_blocks"),
    Mutant(WORKSPACE, "one buffer for all gradients", "self._turn = 1 - self._turn", "self._turn = 0",
           killed_by="nn/test_workspace.py::test_the_last_gradient_is_still_whole"),
    Mutant(WORKSPACE, "only the last block counts", "sums[worker] += term", "sums[worker][...] = term",
           killed_by="nn/test_workspace.py::test_sum_over_blocks"),
    Mutant(WORKSPACE, "the sums of other workers are forgotten", "                total += sums[worker]",
           "                pass", killed_by="nn/test_workspace.py::test_sum_over_blocks"),
    Mutant(MINIMAL, "at infinity the first coefficient", "np.eye(rows.shape[1])[-1:]", "np.eye(rows.shape[1])[:1]",
           killed_by="nn/test_minimal.py::test_the_transforms_filter"),
    Mutant(MINIMAL, "the rows of a last tile that is not full are left out", "-(-height // self.rows)",
           "max(1, height // self.rows)", killed_by="nn/test_minimal.py::test_forward"),
    Mutant(MINIMAL, "constants in half precision", "matrix.astype(workspace.dtype)",
           "matrix.astype(np.float16).astype(workspace.dtype)", killed_by="nn/test_minimal.py::test_gradients_in_float32"),
    Mutant(MINIMAL, "gradients below the last row keep what was there",
           "total[:height], total[height:] = dy.swapaxes(0, 1), 0",
           "total[:height] = dy.swapaxes(0, 1)", killed_by="nn/test_minimal.py::test_gradients"),
    Mutant(MINIMAL, "tiles are added to what the last block left", "rows[...] = 0\n        for i", "for i",
           killed_by="nn/test_minimal.py::test_gradients_in_blocks_and_threads"),
    Mutant(MINIMAL, "columns that no window reaches keep what they had", ", rows[:, :, columns:] = strips[:, :, :, 0], 0",
           " = strips[:, :, :, 0]", killed_by="nn/test_minimal.py::test_gradients"),
]
