"""Measurements, claims and pictures: one folder a lesson. Shared code is in `kit`.

In each folder: `claims` says what the lesson reveals of its numbers, `picture` draws, `here` is the
scene on this machine as it is (--like this-machine), the others measure.
"""
