"""Communication between ranks.

A collective is data: an algorithm (`ring.py`, `direct.py`, `tree.py`) returns the schedule of one
rank, a list of steps "send this slice there, receive that slice from there, add or copy".
`schedule.py` executes a schedule on a communicator. `replay.py` runs all ranks' schedules in one
process and validates them. `gather.py` runs the two halves of the ring. `native.py` calls MPI's own
allreduce. `agreement.py` compares ranks' settings, and `topology.py` finds the nodes.

The communicator is mpi4py's, or one with the same methods, for example of ranks that are threads.
"""
