"""Students' files, marked in this process, or in processes of their own as users' files are."""

from pathlib import Path
from unittest import mock

from refgf.oracle.grade import marking, student_process
from refgf.oracle.grade.mark import Mark
from refgf.oracle.grade.trusted import Trusted

ROOT = Path(__file__).resolve().parents[2]
ANSWERS = ROOT / "lessons" / "teaching" / "answers"


class InThisProcess(Trusted):
    """A sandbox without a process, for a file of ours."""

    def __init__(self, file):
        self.file, self.modules = Path(file), {}
        self.module = self.of_rank(0)

    def of_rank(self, rank):
        """The file once more for each rank: like processes, ranks share no variables."""
        if rank not in self.modules:
            self.modules[rank] = student_process.load(str(self.file), self.file.read_bytes())
        return self.modules[rank]


def answers_with(
    folder: Path, lesson: str, code: str, seed: int | None = None, before: str = "", only: str = ""
) -> dict[str, Mark]:
    """The marks by name of the lesson's answers with this code behind them.

    only: the exercise that is marked, instead of all of the lesson.
    """
    file = folder / f"{lesson}.py"
    file.write_text(before + (ANSWERS / file.name).read_text() + code)
    marked = [each for each in marking.exercises_of(lesson) if only in ("", each.name)]
    with mock.patch.object(marking, "exercises_of", lambda _: marked):
        return {mark.name: mark for mark in marking.grade(file, lesson, seed)}
