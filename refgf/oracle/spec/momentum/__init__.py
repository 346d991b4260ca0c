"""M: momentum SGD, learning rates, LARS and large batches, on flat arrays.

Every multiplication and every addition is rounded by itself, in the type of the arrays; there is no
fused multiply-add. momentum, rate and decay are rounded to that type before use.

sgd.py          M1, M2      momentum SGD, decay
rates.py        M3, M6      warm-up, polynomial decay; exercise learning_rate
lars.py         M4          the ratio of LARS; exercise lars_ratio
lars_step.py    M5          a step of LARS; exercise lars_step
large_batch.py  M7 to M9    accumulation, LARS in parallel and under loss scaling
"""
