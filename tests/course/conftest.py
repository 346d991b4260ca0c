"""A build in this process marks answers and starter in the same processes for all exercises.

Fresh ones for each exercise, as always elsewhere, took most of a build. Programs that are started
here, and tests/oracle/grade, have them.
"""

import pytest

from refgf.oracle.grade import marking
from refgf.oracle.grade.sandbox import Sandbox


class NotFresh(Sandbox):
    def fresh(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        super().fresh()


@pytest.fixture(autouse=True, scope="module")
def few_processes():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marking, "Sandbox", NotFresh)
        yield
