"""Which ranks share a node, told by host name."""

import platform

from refgf.comm.topology import nodes
from refgf.machine import threads


def test_one_machine_is_one_node(on_ranks):
    def body(comm):
        assert nodes(comm) == [list(range(comm.Get_size()))]

    on_ranks(body)


def test_nodes_of_unequal_size_in_any_order():
    names = ["b", "a", "b", "c", "a", "b"]

    class Named:
        """A communicator whose ranks sit on these hosts."""

        def __init__(self, comm):
            self._comm = comm

        def Get_rank(self):
            return self._comm.rank

        def allgather(self, own):
            assert own == platform.node()
            return self._comm.allgather(names[self._comm.rank])

    def body(comm):
        return nodes(Named(comm))

    got = threads.run(6, body)
    assert all(groups == [[0, 2, 5], [1, 4], [3]] for groups in got)
