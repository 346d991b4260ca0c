"""Networks with branches: GoogLeNet, DenseNet and Inception-v4, as layers.

Branches are listed as their papers draw them, left to right, so backward announces them right to
left. In a framework branches may finish in another order; the sizes stay the same.
"""

from collections.abc import Callable

from refgf.papers.scaling.shapes import Builder, Window, Workload

Convolution = tuple[int, Window, int, Window]  # filters, kernel, stride, pad
Branch = Callable[[], None]

# name: 1x1, 3x3 reduced, 3x3, 5x5 reduced, 5x5, 1x1 after pooling
INCEPTIONS = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}


def chain(net: Builder, prefix: str, *convolutions: Convolution, norm: bool = True) -> Branch:
    """A branch of convolutions, with normalisation in place of biases if `norm`."""

    def run() -> None:
        for number, (filters, kernel, stride, pad) in enumerate(convolutions, 1):
            net.conv(
                f"conv{prefix}.{number}", filters, kernel, stride, pad, bias=not norm, norm=norm
            )

    return run


def pooled_chain(
    net: Builder,
    prefix: str,
    kernel: int,
    stride: int,
    pad: int,
    *convolutions: Convolution,
    norm: bool = True,
) -> Branch:
    """A branch that pools first."""

    def run() -> None:
        net.pool(f"pool{prefix}", kernel, stride, pad)
        chain(net, prefix, *convolutions, norm=norm)()

    return run


def googlenet(auxiliary: bool = True) -> Workload:
    """GoogLeNet with biases and without batch normalisation, as Caffe defines it.

    13,378,280 parameters with the two auxiliary classifiers, which training uses, and 6,998,552
    without them (computed).
    """
    net = Builder("GoogLeNet", 224, 224, 3)
    net.conv("conv1", 64, 7, 2, 3)
    net.pool("pool1", 3, 2, whole=False)
    net.conv("conv2.reduce", 64, 1)
    net.conv("conv2", 192, 3, 1, 1)
    net.pool("pool2", 3, 2, whole=False)
    for name, (one, reduce3, three, reduce5, five, after) in INCEPTIONS.items():
        net.branches(
            chain(net, f"{name}.1x1", (one, 1, 1, 0), norm=False),
            chain(net, f"{name}.3x3", (reduce3, 1, 1, 0), (three, 3, 1, 1), norm=False),
            chain(net, f"{name}.5x5", (reduce5, 1, 1, 0), (five, 5, 1, 2), norm=False),
            pooled_chain(net, f"{name}.pool", 3, 1, 1, (after, 1, 1, 0), norm=False),
        )
        if auxiliary and name in ("4a", "4d"):
            auxiliary_classifier(net, name)
        if name in ("3b", "4e"):
            net.pool("pool" + name[0], 3, 2, whole=False)
    net.global_pool("pool5")
    net.fc("fc", 1000)
    return net.workload()


def auxiliary_classifier(net: Builder, name: str) -> None:
    start = net.shape
    net.pool(f"aux{name}.pool", 5, 3)
    net.conv(f"aux{name}.conv", 128, 1)
    net.fc(f"aux{name}.fc1", 1024)
    net.fc(f"aux{name}.fc2", 1000)
    net.shape = start


def densenet(name: str, growth: int, blocks: tuple[int, ...], channels: int) -> Workload:
    """DenseNet with bottlenecks of 4 * growth and transitions that halve the channels."""
    net = Builder(name, 224, 224, 3)
    net.conv("conv0", channels, 7, 2, 3, bias=False, norm=True)
    net.pool("pool0", 3, 2, 1)
    for block, count in enumerate(blocks, 1):
        for number in range(1, count + 1):
            dense_layer(net, f"{block}.{number}", growth)
        if block < len(blocks):
            net.norm(f"norm{block}.transition")
            net.conv(f"conv{block}.transition", net.shape[2] // 2, 1, bias=False)
            net.pool(f"pool{block}", 2, 2)
    net.norm("norm.last")
    net.global_pool("pool.last")
    net.fc("fc", 1000)
    return net.workload()


def dense_layer(net: Builder, name: str, growth: int) -> None:
    """Normalise all channels so far, reduce them, compute `growth` new ones and append these."""
    height, width, channels = net.shape
    net.norm(f"norm{name}.a")
    net.conv(f"conv{name}.a", 4 * growth, 1, bias=False, norm=False)
    net.norm(f"norm{name}.b")
    net.conv(f"conv{name}.b", growth, 3, 1, 1, bias=False, norm=False)
    net.shape = (height, width, channels + growth)


def densenet201() -> Workload:
    """20,013,928 parameters (verified: torchvision's documentation)."""
    return densenet("DenseNet-201", 32, (6, 12, 48, 32), 64)


def densenet161() -> Workload:
    """28,681,000 parameters (verified: torchvision's documentation)."""
    return densenet("DenseNet-161", 48, (6, 12, 36, 24), 96)


def inception_v4() -> Workload:
    """42,679,816 parameters with 1000 classes (computed)."""
    net = Builder("Inception-v4", 299, 299, 3)
    stem(net)
    for i in range(1, 5):
        inception_a(net, f"a{i}")
    net.branches(
        chain(net, "reduce_a.1", (384, 3, 2, 0)),
        chain(net, "reduce_a.2", (192, 1, 1, 0), (224, 3, 1, 1), (256, 3, 2, 0)),
        pooled_chain(net, "reduce_a.3", 3, 2, 0),
    )
    for i in range(1, 8):
        inception_b(net, f"b{i}")
    net.branches(
        chain(net, "reduce_b.1", (192, 1, 1, 0), (192, 3, 2, 0)),
        chain(net, "reduce_b.2", (256, 1, 1, 0), wide(256, 7), tall(320, 7), (320, 3, 2, 0)),
        pooled_chain(net, "reduce_b.3", 3, 2, 0),
    )
    for i in range(1, 4):
        inception_c(net, f"c{i}")
    net.global_pool("pool.last")
    net.fc("fc", 1000)
    return net.workload()


def wide(filters: int, length: int) -> Convolution:
    return filters, (1, length), 1, (0, length // 2)


def tall(filters: int, length: int) -> Convolution:
    return filters, (length, 1), 1, (length // 2, 0)


def stem(net: Builder) -> None:
    chain(net, "stem1", (32, 3, 2, 0), (32, 3, 1, 0), (64, 3, 1, 1))()
    net.branches(pooled_chain(net, "stem2.1", 3, 2, 0), chain(net, "stem2.2", (96, 3, 2, 0)))
    net.branches(
        chain(net, "stem3.1", (64, 1, 1, 0), (96, 3, 1, 0)),
        chain(net, "stem3.2", (64, 1, 1, 0), wide(64, 7), tall(64, 7), (96, 3, 1, 0)),
    )
    net.branches(chain(net, "stem4.1", (192, 3, 2, 0)), pooled_chain(net, "stem4.2", 3, 2, 0))


def inception_a(net: Builder, name: str) -> None:
    net.branches(
        chain(net, f"{name}.1", (96, 1, 1, 0)),
        chain(net, f"{name}.2", (64, 1, 1, 0), (96, 3, 1, 1)),
        chain(net, f"{name}.3", (64, 1, 1, 0), (96, 3, 1, 1), (96, 3, 1, 1)),
        pooled_chain(net, f"{name}.4", 3, 1, 1, (96, 1, 1, 0)),
    )


def inception_b(net: Builder, name: str) -> None:
    net.branches(
        chain(net, f"{name}.1", (384, 1, 1, 0)),
        chain(net, f"{name}.2", (192, 1, 1, 0), wide(224, 7), tall(256, 7)),
        chain(
            net, f"{name}.3", (192, 1, 1, 0), tall(192, 7), wide(224, 7), tall(224, 7), wide(256, 7)
        ),
        pooled_chain(net, f"{name}.4", 3, 1, 1, (128, 1, 1, 0)),
    )


def inception_c(net: Builder, name: str) -> None:
    """Two of the branches end in a fork of a wide and a tall convolution."""

    def forked(prefix: str, *convolutions: Convolution) -> Branch:
        def run() -> None:
            chain(net, prefix, *convolutions)()
            net.branches(
                chain(net, f"{prefix}.wide", wide(256, 3)),
                chain(net, f"{prefix}.tall", tall(256, 3)),
            )

        return run

    net.branches(
        chain(net, f"{name}.1", (256, 1, 1, 0)),
        forked(f"{name}.2", (384, 1, 1, 0)),
        forked(f"{name}.3", (384, 1, 1, 0), tall(448, 3), wide(512, 3)),
        pooled_chain(net, f"{name}.4", 3, 1, 1, (256, 1, 1, 0)),
    )
