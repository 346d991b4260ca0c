"""Marks for students' files: python -m refgf.oracle grade 01 lessons/student/01.py

exercises/     of a teacher's own, one module a lesson; the published ones stand in oracle/spec
sandbox.py     a student's file in processes of its own, behind oracle/foreign's wall
collective.py  the ranks of an exercise: the judge carries and counts their messages
marking.py     points and sentences
shown.py       a failing case in few numbers
report.py      as text, JSON and CSV
"""
