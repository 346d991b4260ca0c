"""The network, forward and backward, on one rank: it knows nothing of ranks, messages or optimisers.

workspace.py      where temporaries live, how the images of a batch are cut into blocks and shared between threads
layers.py         TensorSpec, Layer, FullyConnected, ReLU, Dropout
conv.py           Convolution
minimal.py        MinimalConvolution: the same with fewer products and larger rounding errors, on request
pooling.py        MaxPool
normalization.py  BatchNorm, LocalResponseNorm
loss.py           softmax cross-entropy
alexnet.py        AlexNet: the layers in a row, the list of its tensors, loss and backward
torch_layout.py   weights and images to and from the layout of PyTorch

Activations are NHWC (images, height, width, channels), convolution weights (K, K, C, O), fully connected weights
(inputs, outputs).
"""
