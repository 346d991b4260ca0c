"""BERT-Large as layers: products by weights at every token, attention, layer normalisation."""

from refgf.papers.scaling.shapes import Builder, Workload


def bert_large(
    tokens: int = 128, layers: int = 24, features: int = 1024, words: int = 30_522
) -> Workload:
    """BERT-Large, uncased, with its pooler and without the heads of pre-training.

    335,141,888 parameters in 391 tensors (computed). One sample is a sequence of `tokens`. An
    allreduce needs the gradient of the word embedding as a dense array of all 30,522 rows, although
    a sequence touches at most `tokens` of them. It is the largest tensor and the last to be ready.
    """
    net = Builder("BERT-Large", 1, tokens, features)
    net.sample = f"sequence of {tokens} tokens"
    embedding(net, words, tokens, features)
    for number in range(1, layers + 1):
        attention(net, f"{number}", tokens, features)
        linear(net, f"{number}.up", 4 * features)
        linear(net, f"{number}.down", features)
        net.norm(f"{number}.norm2")
    net.shape = (1, 1, features)  # the pooler reads the first token only
    linear(net, "pooler", features)
    return net.workload()


def linear(net: Builder, name: str, features: int) -> None:
    """The same product at every token."""
    height, width, channels = net.shape
    shape = height, width, features
    net.product(name, "fc", (channels, features), height * width, True, shape)


def embedding(net: Builder, words: int, tokens: int, features: int, kinds: int = 2) -> None:
    """The sum of three tables. Every token adds its gradient to one row of each."""
    tables = {"kinds": kinds, "places": 512, "words": words}
    tensors = [(name, (rows, features), tokens * features) for name, rows in tables.items()]
    net.add("embedding", "embedding", tensors, 2 * tokens * features, 0, net.shape)
    net.norm("embedding.norm")


def attention(net: Builder, name: str, tokens: int, features: int) -> None:
    """Query, key, value; scores and weighted values (no parameters); output; normalisation."""
    start = net.shape
    for projection in ("query", "key", "value"):
        net.shape = start
        linear(net, f"{name}.{projection}", features)
    flops = 4 * tokens * tokens * features
    net.add(f"{name}.attention", "attention", [], flops, 2 * flops, start)
    linear(net, f"{name}.output", features)
    net.norm(f"{name}.norm1")
