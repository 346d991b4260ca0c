"""W: what an allreduce sums: PowerSGD's factors of low rank, and votes.

factors.py    W1, W2, W4    which tensors, orthogonal columns, what is sent
steps.py      W3            a step, with error feedback and warm start
votes.py      W5            the majority of signs; exercise majority
"""
