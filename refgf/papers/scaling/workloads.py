"""The networks that the papers measure, as layers with gradients, flops and bytes.

These are shapes only; refgf.nn has networks that run. `WORKLOADS` maps a name to the function that
builds it. `PUBLISHED` holds parameter counts that others state; a test compares them.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial

from refgf.papers.scaling.branched import densenet161, densenet201, googlenet, inception_v4
from refgf.papers.scaling.shapes import Builder, Workload
from refgf.papers.scaling.transformer import bert_large


def alexnet(
    num_classes: int = 1000,
    image_size: int = 227,
    width: float = 1.0,
    normalization: str = "batch",
    channels: int = 3,
) -> Workload:
    """AlexNet with ungrouped convolutions.

    At full size 62,378,344 parameters in 16 tensors, with batch normalisation 62,381,096 in 26
    (computed). The 1903 chunks of 32K gradients stated of GradientFlow fit this one (inferred).

    normalization: "batch" (26 tensors), "local" or "none" (16; local response normalisation has no
    parameters).
    """
    if normalization not in ("batch", "local", "none"):
        wanted = "'batch', 'local' or 'none'; next: 'batch'"
        raise ValueError(f"alexnet: got normalization {normalization!r}; wanted {wanted}")
    net = Builder("AlexNet", image_size, image_size, channels)
    convolutions = {
        "conv1": (96, 11, 4, 0),
        "conv2": (256, 5, 1, 2),
        "conv3": (384, 3, 1, 1),
        "conv4": (384, 3, 1, 1),
        "conv5": (256, 3, 1, 1),
    }
    for name, (filters, kernel, stride, pad) in convolutions.items():
        filters = scaled(filters, width)
        net.conv(name, filters, kernel, stride, pad, norm=normalization == "batch")
        if name in ("conv1", "conv2", "conv5"):
            net.pool("pool" + name[-1], 3, 2)
    net.fc("fc6", scaled(4096, width))
    net.fc("fc7", scaled(4096, width))
    net.fc("fc8", num_classes)
    return net.workload()


def scaled(channels: int, width: float) -> int:
    """Channels of a network `width` times as wide, at least one."""
    return max(1, round(channels * width))


def resnet(blocks: Sequence[int], num_classes: int = 1000, image_size: int = 224) -> Workload:
    """ResNet with bottleneck blocks, version 1.5: the stride is in the 3 x 3 convolution."""
    net = Builder(f"ResNet-{3 * sum(blocks) + 2}", image_size, image_size, 3)
    net.conv("conv1", 64, 7, 2, 3, bias=False, norm=True)
    net.pool("pool1", 3, 2, 1)
    for stage, count in enumerate(blocks):
        for block in range(count):
            name, stride = f"{stage + 2}.{block + 1}", 2 if stage and not block else 1
            bottleneck(net, name, 64 * 2**stage, stride, project=not block)
    net.global_pool("pool5")
    net.fc("fc", num_classes)
    return net.workload()


def bottleneck(net: Builder, name: str, filters: int, stride: int, project: bool) -> None:
    """1 x 1, 3 x 3, 1 x 1 to four times `filters`; the first block of a stage projects its input.

    The projection is listed first, so its gradients are the last of the block. Frameworks differ in
    when these three tensors are ready.
    """
    start = net.shape
    if project:
        net.conv(f"conv{name}.shortcut", 4 * filters, 1, stride, bias=False, norm=True)
        net.shape = start
    net.conv(f"conv{name}.a", filters, 1, bias=False, norm=True)
    net.conv(f"conv{name}.b", filters, 3, stride, 1, bias=False, norm=True)
    net.conv(f"conv{name}.c", 4 * filters, 1, bias=False, norm=True)


def resnet50() -> Workload:
    """25,557,032 parameters in 161 tensors (computed)."""
    return resnet((3, 4, 6, 3))


def resnet152() -> Workload:
    """60,192,808 parameters (verified: torchvision's documentation)."""
    return resnet((3, 8, 36, 3))


def vgg16() -> Workload:
    """138,357,544 parameters in 32 tensors (verified: torchvision's documentation)."""
    net = Builder("VGG-16", 224, 224, 3)
    stages = [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)]
    for stage, (filters, count) in enumerate(stages, 1):
        for number in range(1, count + 1):
            net.conv(f"conv{stage}.{number}", filters, 3, 1, 1)
        net.pool(f"pool{stage}", 2, 2)
    for name, features in [("fc6", 4096), ("fc7", 4096), ("fc8", 1000)]:
        net.fc(name, features)
    return net.workload()


WORKLOADS: dict[str, Callable[[], Workload]] = {
    name: cache(build)  # a plan needs each of them dozens of times
    for name, build in {
        "AlexNet": alexnet,
        "AlexNet (16 tensors)": partial(alexnet, normalization="none"),
        "ResNet-50": resnet50,
        "ResNet-152": resnet152,
        "VGG-16": vgg16,
        "GoogLeNet": googlenet,
        "DenseNet-161": densenet161,
        "DenseNet-201": densenet201,
        "Inception-v4": inception_v4,
        "BERT-Large": bert_large,
    }.items()
}

# Parameter counts of others (verified).
PUBLISHED = {
    "AlexNet (16 tensors)": (
        62_378_344,
        "osmr/imgclsmob, gluon/README.md, and HewlettPackard/dlcookbook-dlbs, list of models",
    ),
    "ResNet-50": (25_557_032, "torchvision documentation"),
    "ResNet-152": (60_192_808, "torchvision documentation"),
    "VGG-16": (138_357_544, "torchvision documentation"),
    "DenseNet-161": (28_681_000, "torchvision documentation"),
    "DenseNet-201": (20_013_928, "torchvision documentation"),
    "GoogLeNet": (
        13_378_280,
        "independent implementations, with both auxiliary classifiers; 6,998,552 without",
    ),
    "Inception-v4": (42_679_816, "osmr/imgclsmob, gluon/README.md, and KerasHub"),
    "BERT-Large": (335_141_888, "KerasHub, uncased model with pooler"),
}
