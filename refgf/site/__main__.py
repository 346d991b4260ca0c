"""python -m refgf.site build | serve: the static site, from the project's own files."""

import refgf.interrupt  # noqa: F401  first

# isort: split

import argparse
import sys
import time
from pathlib import Path

from refgf import program
from refgf.advice import install

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m refgf.site", description=__doc__)
    parser.add_argument("command", choices=("build", "serve"))
    parser.add_argument("--output", type=Path, default=ROOT / "site", help="default: site/")
    parser.add_argument("--port", type=int, default=8000, help="of serve; 0: any free one")
    about = "private: a site for students, without solutions, answers and teacher's pages"
    parser.add_argument("--solutions", choices=("public", "private"), default="public", help=about)
    options = parser.parse_args()

    def said(problem: Exception) -> str:
        if not isinstance(problem, ModuleNotFoundError):
            return str(problem)
        if problem.name not in ("markdown_it", "pygments"):
            raise problem
        return f"site: got no module {problem.name}; next: {install('site')}"

    errors = ModuleNotFoundError, ValueError, OSError
    return program.ended(lambda: run(options), said, *errors)


def run(options: argparse.Namespace) -> int:
    """Build or serve; 0."""
    if options.command == "serve":
        from refgf.site.serve import serve

        if not (options.output / "index.html").exists():
            raise ValueError(f"site: got no {options.output}/index.html; next: make site")
        serve(options.output, options.port)
        return 0
    from refgf.site.build import build
    from refgf.site.pyodide import install as install_pyodide

    if problem := install_pyodide(ROOT):
        print(problem, file=sys.stderr)
    start = time.monotonic()
    count = build(ROOT, options.output, options.solutions == "private")
    print(f"{count} pages in {options.output}, {time.monotonic() - start:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
