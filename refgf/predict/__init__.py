"""Prediction: what a training step will cost, by arithmetic only.

    shapes.py      layers with their gradient tensors, flops and bytes; a builder that follows shapes
    workloads.py   AlexNet, ResNet-50 and the other networks of the papers, as lists of layers
    cost.py        the time of one collective: closed forms, and any schedule handed in
    timeline.py    the time of one step: computation and communication, overlapped or not

Nothing here sends a message or holds a gradient: times are seconds (float), sizes are bytes or elements (int).
What comes from a paper carries a label:

    stated      in the paper's own abstract or summary
    verified    read in public code or data of the authors (or another named source)
    computed    arithmetic on stated or verified facts
    inferred    a design reading of such facts, not a quotation
    unverified  general knowledge of the field; never shown as a quoted result
"""
