"""H: sums in the orders of tree, doubling and hierarchies of nodes.

flat.py          H1 to H3  tree, doubling
nodes.py                   what the others share; exercise nodes_of
three_phases.py  H4, H6    three phases, the hybrid; exercise three_phases
two_levels.py    H5        two levels; exercise two_levels
log_phases.py    H8        three phases of a tree and of doubling
traffic.py       H7        what each rank sends; exercise slow_links

xs, wire and results are as in ring.py. p = 4, nodes [[0, 1], [2, 3]]:
    tree, doubling          (x0 + x1) + (x2 + x3)
    two levels, slice 0     (x0 + x1) + (x2 + x3)
    two levels, slice 1     (x1 + x0) + (x3 + x2)
"""
