"""refgf: the reference implementation of GradientFlow.

The floors of the house, each a folder; read them from the bottom up:

    comm/      how bytes move between ranks: schedules, ring, threads, traces
    nn/        forward and backward of AlexNet; knows nothing about ranks
    exchange/  which gradients travel, when, and in what form
    predict/   what a step should take, by arithmetic only
    training/  where the two sides meet: data, optimiser, one data-parallel step
    oracle/    the answers, written a second time and shorter
    cluster/   several nodes with shaped links on one machine

    launch/    what must happen before MPI starts: make it the first import of a script
    doctor/    `python -m refgf.doctor` checks this machine and prints what to fix
    device.py  NumPy or CuPy; host staging
    half.py    float32 to float16 and back, fast
    fused.py   loops over long arrays in one pass, where Numba is installed; fused_gpu.py: as CUDA kernels

Importing this package runs nothing and imports nothing.
"""
