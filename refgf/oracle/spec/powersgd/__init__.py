"""W: PowerSGD, gradients of low rank whose factors an allreduce sums.

factors.py    W1, W2, W4    which tensors, orthogonal columns, what is sent
steps.py      W3            a step, with error feedback and warm start
"""
