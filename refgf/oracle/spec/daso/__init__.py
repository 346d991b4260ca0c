"""A: DASO. A node averages gradients in every batch; nodes sum parameters rarely, and late.

batches.py     A1, A2, A4, A5         what happens in which batch; exercise global_sums
arithmetic.py  A3, A6 to A8, A15      means, sums and merges; exercises node_means, merge
phases.py      A9, A10, A19           the phase of each epoch
run.py         A11                    one batch, and runs
epoch.py                              exercise epoch
heat.py        A13, A14, A16 to A18   as the authors' public code runs them
heat_cases.py                         golden cases of heat.py
traffic.py     A12, A20               what each rank sends

p ranks on m nodes of k = p/m ranks; node i has the ranks i k .. i k + k-1. Batches count from 0 in
each epoch, which has `batches` of them. A phase is (B, L, W): a sum over nodes every B batches,
the gradients of a node averaged every L, the sum received W batches after it was sent.
(0, 0, 0): a blocking sum in every batch.

A13 to A20 are Heat's `heat/optim/dp_optimizer.py`. Of A1 to A12 only A2 and A5 are what that code
says of itself. It differs in when a sum is received (A13), which gradients are averaged (A14), two
roundings (A15, A16), whose parameters a node takes over (A17), and the phases (A19). There L is at
least 1 where B is.
"""
