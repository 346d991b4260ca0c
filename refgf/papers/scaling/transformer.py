"""BERT-Large as layers: products by weights at every token, attention between tokens, layer normalisation."""

from refgf.papers.scaling.shapes import Builder


def bert_large(tokens=128, layers=24, features=1024, words=30_522):
    """BERT-Large, uncased, with its pooler and without the heads of pre-training: 335,141,888 parameters in 391 tensors
    (computed). One sample is a sequence of `tokens`.

    A word embedding's gradient is dense here, as an allreduce needs it: all 30,522 rows, although a sequence touches
    at most `tokens` of them. It is the largest tensor, and the last one to be ready.
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


def linear(net, name, features):
    """The same product at every token."""
    height, width, channels = net.shape
    net.product(name, "fc", (channels, features), height * width, True, (height, width, features))


def embedding(net, words, tokens, features, places=512, kinds=2):
    """Three tables added up; every token adds its gradient to one row of each."""
    tables = {"kinds": kinds, "places": places, "words": words}
    tensors = [(name, (rows, features), tokens * features) for name, rows in tables.items()]
    net.add("embedding", "embedding", tensors, 2 * tokens * features, 0, net.shape)
    net.norm("embedding.norm")


def attention(net, name, tokens, features):
    """Query, key, value; scores and weighted values (no parameters); output product; normalisation."""
    start = net.shape
    for part in ("query", "key", "value"):
        net.shape = start
        linear(net, f"{name}.{part}", features)
    flops = 4 * tokens * tokens * features
    net.add(f"{name}.attention", "attention", [], flops, 2 * flops, start)
    linear(net, f"{name}.output", features)
    net.norm(f"{name}.norm1")
