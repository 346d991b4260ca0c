"""Exercise nodes_of(hosts): given in the starter."""

from refgf.oracle.grade.exercises.before import Exercise, Part


def nodes_of(hosts):
    return [[r for r, h in enumerate(hosts) if h == host] for host in dict.fromkeys(hosts)]


def any_size(random):
    drawn = [f"n{i}" for i in sorted(random.integers(1, 20, 9).tolist())]
    return [(list("aabb"),), (list("abbbcc"),), (drawn,)]


NODES_OF = Exercise(
    "nodes_of",
    nodes_of,
    (
        Part("nodes of any size", 1, any_size),
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
