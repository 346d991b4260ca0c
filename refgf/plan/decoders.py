"""Decoder-only transformers by name, as layers: MPT and Llama, for --model and published steps.

One sample is a sequence. A block has attention and two products (MPT, with biases, one table of
words for input and output), or three without biases (Llama, a table each, fewer keys than queries).
Number of parameters (computed): MPT-7B 6,658,859,008, as its authors' table; Llama-2-7B
6,738,415,616; Llama-3-8B 8,030,261,248.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from refgf.papers.scaling.shapes import Builder, Workload


@dataclass(frozen=True)
class Decoder:
    """words: rows of the embedding. keys: features of the keys, and of the values.

    plain: no biases, a gated product, a table of its own for the output.
    """

    name: str
    tokens: int
    layers: int
    features: int
    words: int = 50_368
    hidden: int = 0
    keys: int = 0
    plain: bool = False

    def workload(self) -> Workload:
        net = Builder(self.name, 1, self.tokens, self.features)
        net.sample = f"sequence of {self.tokens} tokens"
        tables = {} if self.plain else {"places": self.tokens}
        looked = self.tokens * self.features
        tensors = [
            (name, (rows, self.features), looked)
            for name, rows in (tables | {"words": self.words}).items()
        ]
        net.add("embedding", "embedding", tensors, looked, 0, net.shape)
        for number in range(1, self.layers + 1):
            self.block(net, f"{number}")
        self.norm(net, "norm")
        self.head(net)
        return net.workload()

    def block(self, net: Builder, name: str) -> None:
        width, keys = self.features, self.keys or self.features
        self.norm(net, f"{name}.norm1")
        start = net.shape
        if self.plain:
            for projection, features in (("query", width), ("key", keys), ("value", keys)):
                net.shape = start
                self.linear(net, f"{name}.{projection}", features)
        else:
            self.linear(net, f"{name}.queries_keys_values", 3 * width)
        flops = 4 * self.tokens * self.tokens * width
        net.add(f"{name}.attention", "attention", [], flops, 2 * flops, start)
        self.linear(net, f"{name}.output", width)
        self.norm(net, f"{name}.norm2")
        start = net.shape
        for product in ("gate", "up") if self.plain else ("up",):
            net.shape = start
            self.linear(net, f"{name}.{product}", self.hidden or 4 * width)
        self.linear(net, f"{name}.down", width)

    def linear(self, net: Builder, name: str, features: int) -> None:
        """The same product at every token."""
        height, tokens, channels = net.shape
        shape = height, tokens, features
        net.product(name, "fc", (channels, features), tokens, not self.plain, shape)

    def norm(self, net: Builder, name: str) -> None:
        if not self.plain:
            net.norm(name)
            return
        elements = self.tokens * self.features
        net.add(
            name, "norm", [("gamma", (self.features,), elements)], *[4 * elements] * 2, net.shape
        )

    def head(self, net: Builder) -> None:
        """With one table the gradient of the output is added to that of the embedding."""
        shape = (1, self.tokens, self.words)
        flops = 2 * self.tokens * self.features * self.words
        tensors = [("weight", (self.words, self.features), flops)] if self.plain else []
        forward = flops, flops if self.plain else 2 * flops
        net.add("head", "fc", tensors, *forward, shape)


def units(workload: Workload) -> tuple[int, ...]:
    """Gradients of each unit that FSDP wraps, in the order of generation; () without blocks.

    A unit is a block; what precedes the first one; and what follows the last one.
    """
    layers = workload.layers[::-1]
    numbers = [layer.name.split(".")[0] for layer in layers]
    if "1" not in numbers:
        return ()
    first = numbers[::-1].index("1")
    names = [
        name if name.isdigit() else "before" if at >= len(layers) - first else "after"
        for at, name in enumerate(numbers)
    ]
    own = groupby(zip(names, layers), key=lambda pair: pair[0])
    counts = (sum(len(layer.tensors) for _, layer in group) for _, group in own)
    return tuple(count for count in counts if count)


MPT = {  # (layers, features) (verified: mosaicml/llm-foundry 4952183, scripts/train/yamls/pretrain)
    "MPT-125M": (12, 768),
    "MPT-350M": (24, 1024),
    "MPT-760M": (24, 1536),
    "MPT-1B": (24, 2048),
    "MPT-3B": (32, 2560),
    "MPT-7B": (32, 4096),
    "MPT-13B": (40, 5120),
    "MPT-30B": (48, 7168),
    "MPT-70B": (80, 8192),
}
LLAMA = [  # general knowledge: the models' own configurations
    Decoder("Llama-2-7B", 4096, 32, 4096, 32_000, 11_008, plain=True),
    Decoder("Llama-3-8B", 8192, 32, 4096, 128_256, 14_336, 1024, plain=True),
]
DECODERS = {name: Decoder(name, 2048, *shape) for name, shape in MPT.items()}
DECODERS |= {each.name: each for each in LLAMA}
NETWORKS: dict[str, Callable[[], Workload]] = {
    name: partial(Decoder.workload, each) for name, each in DECODERS.items()
}
