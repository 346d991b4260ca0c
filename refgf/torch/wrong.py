"""The errors of `refgf.torch`: what was got, what is wanted, what to try."""


def require(ok: bool, got: str, wanted: str, next_step: str) -> None:
    """ValueError unless ok."""
    if not ok:
        raise ValueError(f"GradientFlow: got {got}; wanted {wanted}; next: {next_step}")
