"""Predictions for the papers' networks and clusters, up to 2048 ranks. Nothing here is measured.

shapes.py         layers with their gradient tensors, flops and bytes; a builder of workloads
workloads.py      AlexNet, ResNet-50 and the other networks (branched.py, transformer.py)
collectives.py    closed forms of other allreduces than the ring
simulate.py       the time of any schedule
systems.py        GradientFlow's techniques as settings of a predicted step
scaling.py        the best theta; scaling efficiency from 4 to 2048 ranks, as intervals
region.py         where lazy allreduce pays
machine.py        a machine as a JSON file; published.py: published machines
tables/           published numbers as data
rows.py           MG-WFBP's sixteen published rows next to the prediction
benchmark_rows.py the same for throughputs of public benchmarks by the same authors
interval.py       predictions as intervals over inputs with sources
headlines.py      the papers' headlines with their inputs; headline_steps.py: the steps behind them
confronted.py     every headline: predicted, measured here, or not to be had here
"""
