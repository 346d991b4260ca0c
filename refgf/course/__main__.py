"""python -m refgf.course: a lesson's exercises as a package for a platform."""

import refgf.interrupt  # noqa: F401  first

# isort: split

import argparse
import sys
from pathlib import Path

from refgf import program
from refgf.course.build import build, build_for_students, new_seed, seed_of
from refgf.course.lesson import most_shared, next_variant
from refgf.course.package import ARCHIVE
from refgf.course.platforms import PLATFORMS
from refgf.course.similar import report
from refgf.oracle.grade.marking import divided
from refgf.oracle.spec.change import alike, rules


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m refgf.course", description=__doc__)
    commands = top.add_subparsers(required=True)
    about = "write starter/ for students, autograder/ for the platform, instructor/ for the teacher"
    sub = commands.add_parser("build", help=about, description=about)
    sub.add_argument("lesson", help="its number: 01; all, with --solutions private")
    sub.add_argument("--for", dest="platform", choices=PLATFORMS)
    about = "other rules, which N chooses: published answers get few marks; 1,5: both"
    which = sub.add_mutually_exclusive_group()
    which.add_argument("--variant", type=numbers, metavar="N", help=about)
    about = "the next variant, in which the answers to N, last year's, get least; 7,12: to both"
    which.add_argument("--after", type=numbers, metavar="N", help=about)
    about = "private: one archive for students, without solutions, answers and teacher's pages"
    sub.add_argument("--solutions", choices=("public", "private"), default="public", help=about)
    about = "of the hidden cases; default: that of an earlier build in DIR, else one is drawn"
    sub.add_argument("--seed", type=int, help=about)
    sub.add_argument("--output", metavar="DIR", help="default: course-LESSON-PLATFORM")
    sub.set_defaults(run=run_build)
    about = "how alike submissions are, and the published answers: a number, and the lines"
    sub = commands.add_parser("similar", help=about, description=about)
    sub.add_argument("lesson", help="its number: 01; what stands in its starter does not count")
    sub.add_argument("files", nargs="+", metavar="FILE", help="class/*.py")
    sub.add_argument("--most", type=int, default=10, help="this many pairs; default: 10")
    sub.set_defaults(run=run_similar)
    return top


def numbers(text: str) -> list[int]:
    """ "1,2,5" -> [1, 2, 5]"""
    return list(map(int, text.split(",")))


def run_build(options: argparse.Namespace) -> int:
    """Several variants of a class get one seed, each a folder of its own.

    What one group's answers get in another is printed: some numbers choose nearly alike.
    """
    given = options.variant or options.after
    if given is None:
        return build_one(options, options.lesson)
    if min(given) < 0 or options.lesson == "all":
        flag = "--variant" if options.variant else "--after"
        raise ValueError(
            f"build: got {options.lesson} {flag} {min(given)}; wanted one lesson, 0 "
            f"or more; next: build 03 {flag} 7 --for plain"
        )
    if options.after:
        options.variant = [after(divided(options.lesson)[0], options.after)]
    output, several = options.output, len(options.variant) > 1
    names = [f"{options.lesson}v{number}" for number in options.variant]
    if several and options.seed is None and options.platform:
        options.seed = new_seed()
    for lesson in names:
        options.output = str(Path(output) / lesson) if several and output else output
        build_one(options, lesson)
    if several:
        points, of, whose, where, others = most_shared(names, options.seed or 0)
        print(
            f"one group's answers get at most {points} of {of} points in another: {whose}'s as "
            f"{where}; of the other pairs {others} share more than half; other numbers may share "
            "less"
        )
    return 0


def after(lesson: str, earlier: list[int]) -> int:
    """The next variant, and what earlier answers get in it, printed."""
    number, points, of, whose, others = next_variant(lesson, earlier)
    if 2 * points > of:
        print("in every next variant earlier answers get more than half of the points; the least:")
    print(
        f"variant {number}: earlier answers get at most {points} of {of} in it: variant {whose}'s"
        + f"; of the others' {others} get more than half" * (len(earlier) > 1)
    )
    return number


def build_one(options: argparse.Namespace, lesson: str) -> int:
    private = options.solutions == "private"
    if private and not options.platform:
        made = build_for_students(lesson, options.output) / ARCHIVE
        print(f"{made}: for students, without solutions, answers and teacher's pages")
        print("next: give it to them; --for PLATFORM builds what marks their files")
        return 0
    if not options.platform:
        raise ValueError(
            f"build: got no --for; wanted one of {', '.join(PLATFORMS)}, or --solutions "
            "private; next: --for plain"
        )
    folder = build(lesson, options.platform, options.seed, options.output, private)
    print(
        f"{folder}: starter/ for students, autograder/ for {options.platform}, instructor/ for you"
    )
    print(f"hidden cases: seed {seed_of(folder)}; --seed gives another one")
    number, variant = divided(lesson)
    if variant:
        print(f"the rules of {lesson}: {'; '.join(rules(number, int(variant)))}")
        if same := alike(number, int(variant)):
            others = ", ".join(f"{number}v{each}" for each in same)
            print(f"the same rules as {others}: for another group take another number")
    print(f"next: {folder / 'instructor' / 'README.md'} says how to install it")
    return 0


def run_similar(options: argparse.Namespace) -> int:
    """1 if a file could not be compared."""
    text, complete = report(options.lesson, options.files, options.most)
    print(text)
    return 0 if complete else 1


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    said = "refgf.course: {}".format
    return program.ended(lambda: options.run(options), said, ValueError, OSError)


if __name__ == "__main__":
    sys.exit(main())
