"""A21 to A23: DiLoCo. Workers train alone for H steps, then take one outer step together.

outer.py    A21    an outer step
run.py      A22    inner and outer steps, and runs
traffic.py  A23    what each rank sends

    inner step     A3 in the node, M1 on each rank; nothing else is sent
    outer step     A21 on the differences of all ranks: after H inner steps, or where one is asked

p ranks on `nodes` nodes of k ranks; a node is a worker, and with p nodes each rank is one.
"""
