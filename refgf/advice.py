"""What a user types to get what is missing: in a checkout, or where a wheel was installed."""

from pathlib import Path

CHECKOUT = (Path(__file__).resolve().parents[1] / "pyproject.toml").exists()


def install(*extras: str) -> str:
    """The command that installs these extras of refgf."""
    names = f"[{','.join(extras)}]"
    return f"pip install -e '.{names}'" if CHECKOUT else f"pip install 'refgf{names}'"
