"""For exercises that are not published: lesson_93.py makes those of lesson 93, as spec/ does.

The page for teachers says how. All others stand in spec/.
"""
