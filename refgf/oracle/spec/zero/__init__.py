"""Z: ZeRO, where each rank holds a slice of the optimiser's state, or of everything.

step.py         Z1 to Z3    who owns what, a step, what it sends
layers.py       Z4          ZeRO-3: which calls a step makes, and what they send
lesson_16.py                the exercises of lesson 16
"""
