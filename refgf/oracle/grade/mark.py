"""An exercise's marks: the points of its parts, and why some are lost."""

import re
from dataclasses import dataclass, field

NOT_JUDGED = "not judged"  # because the exercise has failed before
FORBIDDEN = re.compile("raised PermissionError: (an|this) exercise may not")  # by a sentence


@dataclass
class PartMark:
    """A part's points, and why some are lost."""

    what: str
    points: int
    of: int
    sentence: str = ""


@dataclass
class Mark:
    """An exercise's points: those of its parts. printed: a call, and what it printed in lines."""

    name: str
    parts: list[PartMark] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)

    @property
    def points(self) -> int:
        return sum(part.points for part in self.parts)

    @property
    def of(self) -> int:
        return sum(part.of for part in self.parts)
