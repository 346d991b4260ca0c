"""What the exercises of this lesson share."""

ROUNDINGS = 1e-12  # the operations may be in another order: a few roundings of 1e-16
