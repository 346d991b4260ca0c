"""python -m refgf.course: a lesson's exercises as a package for a platform."""

import refgf.interrupt  # noqa: F401  first

# isort: split

import argparse
import sys

from refgf.course.build import build, build_for_students, seed_of
from refgf.course.package import ARCHIVE
from refgf.course.platforms import PLATFORMS


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m refgf.course", description=__doc__)
    commands = top.add_subparsers(required=True)
    about = "write starter/ for students, autograder/ for the platform, instructor/ for the teacher"
    sub = commands.add_parser("build", help=about, description=about)
    sub.add_argument("lesson", help="its number: 01; all, with --solutions private")
    sub.add_argument("--for", dest="platform", choices=PLATFORMS)
    about = "private: one archive for students, without solutions, answers and teacher's pages"
    sub.add_argument("--solutions", choices=("public", "private"), default="public", help=about)
    about = "of the hidden cases; default: that of an earlier build in DIR, else one is drawn"
    sub.add_argument("--seed", type=int, help=about)
    sub.add_argument("--output", metavar="DIR", help="default: course-LESSON-PLATFORM")
    return top


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    private = options.solutions == "private"
    try:
        if private and not options.platform:
            made = build_for_students(options.lesson, options.output) / ARCHIVE
            print(f"{made}: for students, without solutions, answers and teacher's pages")
            print("next: give it to them; --for PLATFORM builds what marks their files")
            return 0
        if not options.platform:
            raise ValueError(
                f"build: got no --for; wanted one of {', '.join(PLATFORMS)}, or --solutions "
                "private; next: --for plain"
            )
        folder = build(options.lesson, options.platform, options.seed, options.output, private)
    except (ValueError, OSError) as error:
        print(f"refgf.course: {error}", file=sys.stderr)
        return 2
    print(
        f"{folder}: starter/ for students, autograder/ for {options.platform}, instructor/ for you"
    )
    print(f"hidden cases: seed {seed_of(folder)}; --seed gives another one")
    print(f"next: {folder / 'instructor' / 'README.md'} says how to install it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
