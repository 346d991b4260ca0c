"""P: precision. Numbers on the wire, loss scaling, master weights, 8-bit blocks.

wire.py      P1 to P3   rounding to the wire type; exercise half
half_sum.py             lesson 05: sums with float16 on the wire, by ring (R3) and in order (D2)
scale.py     P4 to P6   loss scaling; exercise next_scale
master.py    P7, P8     master weights, a whole step; exercise update
blocks.py    P9         8-bit numbers that share a power of two in blocks; exercise in_blocks
"""
