"""The judge: verify an implementation, explain a result.

cases                       golden cases and their files
implementations, isolation  foreign code: a module (behind oracle/foreign's wall), a program, files
verify, profiles, groups    a verdict per case
comparison, trace           the first wrong element; the first wrong message
diagnosis, violations       which mistake it looks like; which statements it violates
orders, explain             known orders of summation
report, page                text, JSON, JUnit XML and HTML
"""
