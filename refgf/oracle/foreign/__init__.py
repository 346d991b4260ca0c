"""Code that is not ours: started, walled in, asked, ended. What comes back is bytes.

process.py     one process: its start, questions and answers, its end
view.py        what it may see and use; for students' files, and for implementations
start.py       the script that it runs: first the wall, then the foreign code
wall.py        namespaces, mounts, another user, limits; kernel.py: Landlock and seccomp
connection.py  messages of known length
closure.py     the modules of refgf that it needs, as texts
report.py      foreign text without escape sequences; what this machine's wall lacks

Not secret from the code: the cases that it is called with, and that it is judged.
"""
