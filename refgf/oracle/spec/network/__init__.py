"""N: the layers of a network, forward and backward, by plain loops, and two networks of them.

gradients.py  N9          what a gradient is; bounds on rounding
layers.py     N1 to N5    convolution, pooling, ReLU, normalisations
head.py       N6 to N8    fully connected, dropout, the loss
alexnet.py    N10, N11    AlexNet
resnet50.py   N14, N15    ResNet-50

Slow on purpose. Images are (N, H, W, C), convolution weights (K, K, C, O), fully connected weights
(D, O). The order of summation is not stated, so implementations are judged within a bound, against
these in float64. N12 and N13, how far rounding may move AlexNet's gradients, are in rounding.py
beside this folder.
"""
