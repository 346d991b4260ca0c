"""The project's layers behind the names and arguments of SPEC.md. Part of own.py."""

from collections import namedtuple

import numpy as np

from refgf.nn import loss
from refgf.nn.alexnet import AlexNet
from refgf.nn.conv import Convolution, Filters
from refgf.nn.layers import Dropout, FullyConnected, ReLU
from refgf.nn.local_response import LocalResponseNorm
from refgf.nn.normalization import BatchNorm
from refgf.nn.pooling import MaxPool
from refgf.nn.workspace import Workspace
from refgf.papers.resnet50.resnet50 import ResNet50


def layer(kind, x, *arguments, tensors=(), **options):
    """Apply a layer with these tensors. -> (y, backward(dy) -> dx, gradients)"""
    made = kind("layer", x.shape[1:], *arguments, workspace=Workspace(np, x.dtype), **options)
    gradients = [np.zeros_like(t) for t in tensors]
    made.bind(list(tensors), gradients)
    return (
        made.forward(x, True).copy(),
        lambda dy: made.backward(dy.copy(), lambda k: None),
        gradients,
    )


def conv(x, w, b, stride=1, pad=0):
    return layer(Convolution, x, Filters(len(b), len(w), stride, pad), tensors=[b, w])[0]


def conv_backward(x, w, dy, stride=1, pad=0):
    tensors = [np.zeros(w.shape[-1]), w]
    filters = Filters(w.shape[-1], len(w), stride, pad)
    _, backward, (db, dw) = layer(Convolution, x, filters, tensors=tensors)
    return backward(dy), dw, db


def max_pool(x, window=3, stride=2):
    y, backward, _ = layer(MaxPool, x, window, stride)
    return y, backward


def max_pool_backward(x, backward, dy):
    return backward(dy)


def relu(x):
    return layer(ReLU, x[None])[0][0]


def batch_norm(x, gamma, beta):
    return layer(BatchNorm, x, tensors=[beta, gamma])[0]


def batch_norm_backward(x, gamma, dy):
    _, backward, (dbeta, dgamma) = layer(BatchNorm, x, tensors=[np.zeros_like(gamma), gamma])
    return backward(dy), dgamma, dbeta


def local_response_norm(x):
    return layer(LocalResponseNorm, x)[0]


def fully_connected(x, w, b):
    return layer(FullyConnected, x, len(b), tensors=[b, w])[0]


def dropout(x, kept, rate):
    draws = namedtuple("Draws", "random")(
        lambda shape, dtype: np.where(kept, rate, 0).reshape(shape)
    )
    made = Dropout("layer", x.shape, rate, Workspace(np, x.dtype), lambda: draws)
    return made.forward(x[None], True)[0]


def softmax_cross_entropy(logits, labels, global_batch):
    return loss.softmax_cross_entropy(logits, labels, global_batch)


def double():
    return Workspace(dtype=np.float64)


def alexnet_step(images, labels, tensors, global_batch):
    return step(
        AlexNet(len(tensors[0]), images.shape[1], 1 / 64, dropout=0.0, workspace=double()),
        images,
        labels,
        tensors,
        global_batch,
    )


def resnet50_step(images, labels, tensors, global_batch):
    return step(
        ResNet50(len(tensors[0]), images.shape[1], 1 / 64, workspace=double()),
        images,
        labels,
        tensors,
        global_batch,
    )


def step(network, images, labels, tensors, global_batch):
    gradients = [np.zeros_like(t) for t in tensors]
    network.bind(tensors, gradients)
    value = network.loss(images, labels, global_batch)
    network.backward(lambda i: None)
    return value, gradients
