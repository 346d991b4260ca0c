"""Mistakes in ResNet-50."""

import numpy as np

from refgf.oracle.definitions import conv_norm, relu, residual_layers, resnet50_step
from refgf.oracle.seeded.mistakes.registry import mistake


@mistake("N14", "resnet50_step", "the last layer has no bias")
def no_last_bias(images, labels, tensors, global_batch):
    return resnet50_step(images, labels, [np.zeros_like(tensors[0]), *tensors[1:]], global_batch)


@mistake("N14", "bottleneck", "ReLU before the shortcut is added")
def activated_too_early(x, layers, stride):
    c, b, a, *shortcut = layers
    za, state_a = conv_norm(x, a, 1, 0)
    zb, state_b = conv_norm(relu(za), b, stride, 1)
    zc, state_c = conv_norm(relu(zb), c, 1, 0)
    identity, state_s = conv_norm(x, shortcut[0], stride, 0) if shortcut else (x, None)
    y = relu(zc) + identity
    return y, (za, zb, y, state_a, state_b, state_c, state_s)


@mistake("N15", "resnet50_step", "gradients in the order of the forward pass")
def forward_order(images, labels, tensors, global_batch):
    loss, gradients = resnet50_step(images, labels, tensors, global_batch)
    return loss, gradients[::-1]


@mistake("N15", "resnet50_step", "a block's shortcut before its main path")
def shortcut_first(images, labels, tensors, global_batch):
    loss, gradients = resnet50_step(images, labels, tensors, global_batch)
    (b, w), *blocks = residual_layers(gradients)
    turned = [[block[3], *block[:3]] if len(block) == 4 else block for block in blocks]
    return loss, [b, w, *(g for block in turned for triple in block for g in triple)]
