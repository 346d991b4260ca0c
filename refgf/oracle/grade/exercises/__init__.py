"""One module a lesson: EXERCISES, and ALLOWED, the modules of refgf that a file may import."""
