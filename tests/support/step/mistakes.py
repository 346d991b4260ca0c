"""All rebuilt mistakes, for `oracle step`: step_mistakes.py:NAME is one of them."""

from tests.support.step import (  # noqa: F401
    mistakes_gradient,
    mistakes_later,
    mistakes_optimizer,
)
from tests.support.step.cases import MISTAKES

globals().update(MISTAKES)
