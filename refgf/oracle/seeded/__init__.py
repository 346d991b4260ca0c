"""Seeded: wrong variants of the definitions, and the generators of the golden cases."""
