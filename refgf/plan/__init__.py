"""`python -m refgf.predict plan`: how long a training step takes on N ranks of a real cluster.

step_times.py     what a step computes: a workload of ours, or a list of gradients
sizes.py          reads that list (CSV or JSON)
trace.py          a trace of torch.profiler by what its events are; profile.py: a step of it
ddp.py            a step without its exchange; several ranks as one
parameters.py     which gradients of a trace are those of parameters
fabric.py         what the network costs: a machine file, or the text of nccl-tests or OSU
benchmarks.py     reads these texts, whose tables texts.py finds; measurements.py: what they say
measure.py        measures a link on at most 2 nodes
thetas.py         the thetas that are tried, and the step with each
question.py       what is asked: its flat allreduce, and the ranges of its inputs
systems.py        each system: its predicted step, its theta, its bytes per rank
sharding.py       ZeRO-1, FSDP, HSDP and DiLoCo, with the memory of a rank
buckets.py        the best theta of refgf, the best buckets of PyTorch DDP and Horovod
uncertainty.py    the interval of a prediction, and the input that makes it wide
judged.py         how right the formulas were on published clusters
report.py         the answer as text and JSON; figure.py draws it
replay.py         the same allreduce in SimGrid; platforms.py describes networks to it

Times are in seconds, sizes in bytes or elements. Only NumPy is needed; SimGrid and matplotlib are
optional.
"""
