"""Rates and times as people type them: '1gbit', '50us'.

A rate counts decimal bits, as networks do: 1gbit = 10^9 bits = 125,000,000 bytes a second.
"""

import math
import re
from decimal import Decimal

BITS = {
    "bit": Decimal(1),
    "kbit": Decimal("1e3"),
    "mbit": Decimal("1e6"),
    "gbit": Decimal("1e9"),
    "tbit": Decimal("1e12"),
}
SECONDS = {"s": Decimal(1), "ms": Decimal("1e-3"), "us": Decimal("1e-6"), "ns": Decimal("1e-9")}
RATES, TIMES = (1.0, 1e18), (0.0, 3600.0)  # bits per second and seconds: no link has others


def parse_rate(text: str) -> float:
    """'1gbit' -> 125e6 bytes per second. ValueError unless within RATES, with a unit of BITS."""
    return _quantity(text, BITS, RATES, "rate", "1gbit, 2.5gbit, 200mbit") / 8


def parse_time(text: str) -> float:
    """'50us' -> 5e-05 seconds. ValueError unless within TIMES, with a unit of SECONDS."""
    return _quantity(text, SECONDS, TIMES, "time", "50us, 1.5ms, 0s")


def format_rate(bytes_per_s: float) -> str:
    """125e6 -> '1gbit'."""
    return _with_unit(bytes_per_s * 8, BITS)


def format_time(seconds: float) -> str:
    """5e-05 -> '50us'."""
    return _with_unit(seconds, SECONDS) if seconds else "0s"


def _quantity(
    text: str, units: dict, limits: tuple[float, float], what: str, examples: str
) -> float:
    match = re.fullmatch(
        r"\s*(\d+\.?\d*(?:e[+-]?\d{1,3})?|\.\d+)\s*([a-z]+)(?:/s)?\s*", text.lower()
    )
    value = float(Decimal(match[1]) * units[match[2]]) if match and match[2] in units else math.nan
    (least, most), base = limits, next(iter(units))
    if not least <= value <= most:
        wanted = f"a number and one of {', '.join(units)}, {least:g} {base} to {most:g} {base}"
        raise ValueError(f"{what}: got {text[:40]!r}; wanted {wanted}; next: try {examples}")
    return value


def _with_unit(value: float, units: dict) -> str:
    fitting = [u for u in units if float(units[u]) <= value * (1 + 1e-9)] or [
        min(units, key=lambda unit: units[unit])
    ]
    unit = max(fitting, key=lambda unit: units[unit])
    return f"{value / float(units[unit]):.4g}{unit}"
