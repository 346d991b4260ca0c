"""Packages of a lesson's exercises: python -m refgf.course build 01 --for gradescope

build.py       a folder with starter/ (students), autograder/ (the platform), instructor/ (teacher)
lesson.py      a lesson's exercises, starter and answers
package.py     one archive for students, without answers
similar.py     how alike two submissions are
platforms/     one module a platform: the files of its autograder, how a teacher installs them
instructor.py  the teacher's page
autograder/    what runs on the platform; it is copied there with the oracle's marking code

Nothing here needs a network. The rest of refgf does not import it.
"""
