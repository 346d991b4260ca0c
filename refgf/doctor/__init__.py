"""What is wrong with this machine, and the command that mends it: `python -m refgf.doctor`.

    __main__.py    the command, its trials in jobs of their own, the report
    facts.py       what is found here, as a dictionary
    checks.py      facts -> ok, look or broken: the machine;  checks_mpi.py: MPI and its launcher
"""
