"""E: the time of a collective, counted round by round.

flat.py   E1 to E5  over p ranks
nodes.py  E6, E7    over m nodes of k ranks, and of top-k

n         elements of the vector, of `itemsize` bytes each
link      (alpha, beta, gamma): a message of m bytes takes alpha + beta m seconds, adding it gamma m
round     (elements of the longest message, elements that its receiver adds)
result    seconds until the slowest rank has finished, if all ranks start together

p = 4, n = 8          rounds
ring                  (2, 2) (2, 2) (2, 2) (2, 0) (2, 0) (2, 0)
tree                  (8, 8) (8, 8) (8, 0) (8, 0)
recursive doubling    (8, 8) (8, 8)
halving-doubling      (4, 4) (2, 2) (2, 0) (4, 0)
"""
