"""refgf: the reference implementation of GradientFlow.

The core, to be read in the order of READING.md:

    ops.py     the door to the engine: arithmetic in plain NumPy
    comm/      how bytes move between ranks: a collective is a list of steps
    nn/        forward and backward of AlexNet; knows nothing about ranks
    exchange/  which gradients are sent, when, and in what form
    training/  where the two sides meet: data, optimiser, one data-parallel step, GradientFlow
    predict/   what a step should take, by arithmetic only

Behind the wall, which nothing in the core imports:

    papers/    one folder a paper               engine/   the same bits, faster
    machine/   ranks as threads, links, timelines, checkpoints, images
    oracle/    the answers, written a second time and shorter; the judge of other implementations
    course/    packages for Gradescope, Otter and other graders
    cluster/   several nodes with shaped links on one machine
    plan/      `python -m refgf.predict plan`: a step on N ranks of a real cluster
    launch/    what must happen before MPI starts: make it the first import of a script
    doctor/    `python -m refgf.doctor` checks this machine and prints what to fix
    site/      `make site`: the lessons, SPEC and the core as web pages

Importing this package looks at how Python runs a program of ours (program.py), and imports nothing
else.
"""

from refgf import program as _program

_program.prepare(_program.program())
