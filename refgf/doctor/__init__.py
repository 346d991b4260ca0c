"""Finds what is wrong with this machine and prints the commands that fix it.

__main__.py      the command `python -m refgf.doctor`, its trial jobs, the report
facts.py         collects facts about this machine in a dictionary
site.py          names a site's MPICH as mpi4py wants it
checks.py        facts -> ok, look or broken: the machine
checks_mpi.py    facts -> ok, look or broken: MPI and its launcher
"""
