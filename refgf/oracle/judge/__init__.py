"""Judging: the checker for implementations, with its reports, marks and explanations."""
