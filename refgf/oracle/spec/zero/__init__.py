"""Z: ZeRO-1, where each rank holds the optimiser's state of one slice.

step.py         Z1 to Z3    who owns what, a step, what it sends
lesson_16.py                the exercises of lesson 16
"""
