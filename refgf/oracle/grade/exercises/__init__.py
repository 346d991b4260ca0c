"""For exercises that are not published: lesson_93.py makes those of lesson 93, as spec/ does.

lessons/teaching/README.md says how. All others stand in spec/.
"""
