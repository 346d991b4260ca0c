"""L: lazy allreduce and merged gradients.

Tensors lie in one pool, in the order in which backward generates their gradients.

calls.py  L1 to L3   which tensors a call sums; exercises pool_slices, lazy_calls
sums.py   L4, L5     what the calls sum, fixed groups; exercises sum_calls, step_seconds
changes.py           other rules for these exercises
"""
