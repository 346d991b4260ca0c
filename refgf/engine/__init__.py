"""Same bits, faster, optional: what replaces the plain functions of `refgf.ops`, and faster collectives."""
