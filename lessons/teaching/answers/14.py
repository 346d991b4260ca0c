"""Answers to lessons/student/14.py: full marks."""


def shards(n, nodes):
    p = sum(len(ranks) for ranks in nodes)
    return [[i for i in range(n) if i % p in ranks] for ranks in nodes]


def hits(orders, memory, disk):
    in_memory, on_disk, counts = set(), set(), []
    for order in orders:
        counts.append([0, 0, 0])
        for i in order:
            level = 0 if i in in_memory else 1 if i in on_disk else 2
            counts[-1][level] += 1
            if level == 2 and len(on_disk) < disk:
                on_disk.add(i)
            if level > 0 and len(in_memory) < memory:
                in_memory.add(i)
    return counts


def epoch_seconds(n, p, nodes, sample_bytes, memory_bytes, memory_s, store_s):
    share = min(1, memory_bytes * nodes / (n * sample_bytes))
    return n / p * store_s, n / p * (share * memory_s + (1 - share) * store_s)


def share_needed(speedup, memory_s, store_s):
    share = (store_s - store_s / speedup) / (store_s - memory_s)
    return share if share <= 1 else None
