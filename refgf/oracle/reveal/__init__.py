"""In which order did it add? The summation tree of every element of an allreduce, as a black box.

    probes      inputs whose sum counts the additions that came too late
    trees       the tree from these counts, and its text
    arithmetic  bits of the accumulator, sum or mean, rounding of inputs
    orders      known orders, to name what was found
    bounds      how far a sum may be from the exact one where bits cannot be compared
    search      all probes of one size; what was found
    report      what was found, as text
    sources     the black box: a Python function; mpi (MPI's Allreduce), gloo (torch.distributed)
    isolation   the Python function in a process of its own
    command     python -m refgf.oracle reveal

Rank i contributes M, rank j contributes -M, each other rank a unit that M absorbs. The sum counts
the units that were added after i and j had met. So p(p-1)/2 calls give for each pair of ranks the
size of the smallest subtree that holds both, and these sizes give the tree: of all n elements at
once, because each element has its own counts. Trees that differ by a+b = b+a are the same tree,
and give the same bits.

Source of the idea: Xie, Gao, Xue 2024, FPRev (arXiv 2411.00442), which reveals the order of one sum
in one process from large numbers that absorb small ones. Its abstract was at hand, not its text:
that the counts and the grouping here are the same is not verified.
Needs NumPy only; mpi4py, PyTorch or ml_dtypes if asked for.
"""
