"""All rebuilt mistakes, for `oracle step`: step_mistakes.py:NAME is one of them."""

import step_mistakes_gradient  # noqa: F401
import step_mistakes_later  # noqa: F401
import step_mistakes_optimizer  # noqa: F401
from step_cases import MISTAKES

globals().update(MISTAKES)
