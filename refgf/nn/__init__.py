"""The network, forward and backward, on one rank: no ranks, messages or optimisers.

workspace.py       scratch memory and blocks of images
layers.py          TensorSpec, Layer, FullyConnected, ReLU, Dropout
conv.py            Convolution
pooling.py         MaxPool
normalization.py   BatchNorm
local_response.py  LocalResponseNorm
loss.py            softmax cross-entropy
network.py         Network: layers in a row, their tensors, loss and backward
alexnet.py         AlexNet

Activations are NHWC (images, height, width, channels), convolution weights (K, K, C, O), fully
connected weights (inputs, outputs).
"""
