"""K: a cache for training data, on the nodes that read it.

shards.py  K1, K2  which samples a node owns, and its ranks' batches; exercise shards
levels.py  K3, K4  which level serves a sample; exercise hits
epoch.py           exercises epoch_seconds, share_needed
"""
