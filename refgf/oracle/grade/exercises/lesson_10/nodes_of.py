"""Exercise nodes_of(hosts): given in the starter."""

from refgf.oracle.grade.exercise import Exercise, Part


def nodes_of(hosts):
    return [[r for r, h in enumerate(hosts) if h == host] for host in dict.fromkeys(hosts)]


NODES_OF = Exercise(
    "nodes_of",
    nodes_of,
    (
        Part("nodes of any size", 1, lambda random: [(list("aabb"),), (list("abbbcc"),)]),
        Part(
            "ranks in any order, one rank",
            1,
            lambda random: [
                (list("baba"),),
                (["n7"],),
                ([f"n{i}" for i in random.integers(0, 4, 12)],),
            ],
        ),
    ),
)
