"""G: the calls of a step in time, and which gradients are sent together.

times.py      G1 to G3  calls in time, theta's groups
groups.py     G4 to G6  the greedy rule of MG-WFBP, the best groups
lesson_09.py            exercises groupings, step_end, greedy_counts, best_end

ready_s   (L,) seconds at which each gradient is ready, ascending, in the order of generation
nbytes    (L,) bytes of each on the wire, at least 1
counts    gradients in each group of neighbours; a group is one call
line      (a, b): a call of m bytes takes a + b m seconds

ready at 1, 2 and 4, a byte each, a = 2, b = 1
    one by one     counts [1, 1, 1]     calls 1-4, 4-7, 7-10
    greedy (G4)    counts [2, 1]        calls 2-6, 6-9
    best (G6)      counts [1, 2]        calls 1-4, 4-8
"""
