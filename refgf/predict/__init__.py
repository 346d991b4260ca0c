"""Prediction: what a training step will cost, by arithmetic only.

    shapes.py        layers with their gradient tensors, flops and bytes; a builder that follows shapes
    workloads.py     AlexNet, ResNet-50 and the other networks of the papers (branched.py, transformer.py)
    cost.py          the time of one collective: closed forms, and any schedule handed in (simulate.py)
    wires.py         ranks that share a node's link, and links slower than the rest
    timeline.py      the time of one step: computation and communication, overlapped or not
    merge.py         which gradients to send together: MG-WFBP's greedy rule, and the exact best merge
    systems.py       GradientFlow's techniques as settings of a step; sweeps; speedup; time to train
    scaling.py       speedup from 4 to 2048 ranks for each technique, as intervals
    fit.py           alpha and beta from measurements, with their uncertainties
    machine.py       a measured machine as a JSON file; published.py: machines that others published
    rows.py          MG-WFBP's sixteen published rows beside the prediction
    interval.py      predictions as intervals over inputs with sources; headlines.py: the seeds' headlines
    roofline.py      which resource limits which layer and step; kernels.py: perceptrons for measured kernels

Nothing here sends a message, holds a gradient or measures: times are seconds (float), sizes are bytes or elements (int).
What comes from a paper carries a label:

    stated      in the paper's own abstract or summary
    verified    read in public code or data of the authors (or another named source)
    computed    arithmetic on stated or verified facts
    inferred    a design reading of such facts, not a quotation
    unverified  general knowledge of the field; never shown as a quoted result
"""
