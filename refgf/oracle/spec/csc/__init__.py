"""C: coarse-grained sparse communication. Only the most important chunks of the pool are sent.

importance.py  C1, C4          chunks, their importance
choice.py      C5, C6          the choice, the density of each step
residual.py    C2, C3, C7      what a chunk sends, what stays; exercise csc_step
update.py      C11 to C13      weights, decay, LARS; settings of a run
step.py        C8 to C10, C14  one whole step, and runs
cases.py                       golden and fresh runs
warmup.py      C15             runs with LARS and both warm-ups
"""
