"""The judge: verify an implementation, explain a result.

case, cases, files          golden cases and their files; untrusted: bytes and JSON of others
functions/                  how each judged function is called with a case
implementations, isolation  foreign code: a module (behind oracle/foreign's wall), a program, files
guard, orphans, ranks       foreign code contained, its children ended; p ranks as p threads
verify, profiles, groups    a verdict per case
comparison, trace           the first wrong element; the first wrong message
diagnosis, violations       which mistake it looks like; which statements it violates
orders, explain             known orders of summation
report                      text, JSON and JUnit XML
"""
