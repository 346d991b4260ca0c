"""Code that is not ours: started, walled in, asked, ended. What comes back is bytes.

process.py     a program and its end; a process that answers questions
view.py        what it may see and use; for students' files, and for implementations
start.py       the script that it runs: first the wall, then the foreign code
forked.py      processes of students' files, forked from a template; template.py: that process
wall.py        namespaces, mounts, another user, limits; kernel.py: Landlock and seccomp
connection.py  messages of known length
closure.py     the modules of refgf that it needs, as texts
guard.py       in its process: exits, time limits, errors with their line
ranks.py       its collective on p ranks that are threads
gloo.py        ranks of PyTorch, a process each; messages.py: what they send
orphans.py     a keeper, so that nothing is left; scratch.py: folders, so that no file is
untrusted.py   its files: bytes and JSON, bounded; files.py: safetensors
report.py      foreign text without escape sequences; what this machine's wall lacks

Not secret from the code: the cases that it is called with, and that it is judged.
"""
