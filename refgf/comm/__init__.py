"""How bytes move between ranks.

A collective is data: an algorithm (`ring.py`, `direct.py`) returns the schedule of one rank, a list of steps "send this
slice there, receive that slice from there, add or copy". `schedule.py` executes a schedule on a communicator, replays
all ranks' schedules in one process, and checks them; `pipeline.py` executes it with several messages under way. Ranks of
one node need no messages (`shared.py`), and `select.py` takes the fastest for a size.

The communicator may be mpi4py's, threads (`threads.py`), one that counts (`trace.py`), one that waits asleep
(`patient.py`) or like a slow link (`link.py`).
"""
