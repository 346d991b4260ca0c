"""Where a file of the project is found on the site.

README.md -> about/index.html    lessons/03_lazy_allreduce.py -> lessons/03/index.html
figures/x.png -> figures/x.png      any other text -> source/PATH.html, made when a page links to it
"""

import functools
import os
import re
from pathlib import Path, PurePosixPath

PAGES = {
    "README.md": "about/index.html",
    "refgf/READING.md": "reading/index.html",
    "refgf/oracle/SPEC.md": "spec/index.html",
    "lessons/README.md": "lessons/index.html",
    "lessons/glossary.md": "glossary/index.html",
    "lessons/cluster/README.md": "cluster/index.html",
    "lessons/teaching/README.md": "teaching/index.html",
    "lessons/teaching/plans.md": "teaching/plans/index.html",
    "lessons/teaching/first-day.md": "teaching/first-day/index.html",
    "lessons/teaching/faq.md": "teaching/faq/index.html",
    "lessons/teaching/exam.md": "teaching/exam/index.html",
    "lessons/slides/README.md": "slides/index.html",
    "lessons/LICENSE.md": "license/index.html",
    "docs/judge.md": "judge/index.html",
    "docs/predict.md": "predict/index.html",
    "docs/torch.md": "torch/index.html",
    "docs/results.md": "results/index.html",
    "docs/scale.md": "scale/index.html",
    "docs/install.md": "setup/index.html",
    "docs/clusters.md": "clusters/index.html",
    "docs/gpu.md": "gpu/index.html",
    "docs/house.md": "house/index.html",
    "docs/how-to/lesson.md": "how-to/lesson/index.html",
    "docs/how-to/statement.md": "how-to/statement/index.html",
    "docs/how-to/algorithm.md": "how-to/algorithm/index.html",
}
LESSON = re.compile(r"lessons/(\d\d)_\w+\.py")
TEACHING = re.compile(r"lessons/teaching/(\d\d)\.md")
ASSETS = {"lessons/drawings": "drawings", "figures": "figures"}
PRIVATE = ("lessons/teaching/", "lessons/solutions/", "lessons/slides/")
KEPT = "lessons/teaching/answers/exam.md"  # no site has it: no text may link to it
WITHHELD = PAGES["lessons/teaching/README.md"]  # says so
COPIED = (".svg", ".png", ".json", ".ipynb")
FOLDERS = ("refgf", "lessons", "tests", "figures", "docs", ".github")  # and files at the root


@functools.cache
def lesson_numbers(root: Path) -> tuple[str, ...]:
    """("00", "01", ...)"""
    return tuple(sorted(file.name[:2] for file in (root / "lessons").glob("[0-9][0-9]_*.py")))


class Repository:
    """The project's files, and which of them the pages need.

    sources, copies: {path in the repository: address on the site}, filled by `address`.
    private: without solutions, answers and teacher's pages.
    """

    def __init__(self, root: Path, private: bool = False) -> None:
        if not (root / "README.md").is_file() or not (root / "lessons").is_dir():
            raise ValueError(
                f"site: got {root}, which lacks README.md or lessons/; wanted a checkout of the "
                "project; next: clone it, and call make site there"
            )
        self.root, self.sources, self.copies = root.resolve(), {}, {}
        self.private = PRIVATE if private else ()

    def text(self, path: str) -> str:
        return (self.root / path).read_text(encoding="utf-8")

    def find(self, name: str, beside: str = "README.md") -> str | None:
        """The path of a name in a text: from the folder of `beside`, the root, or refgf/."""
        if not re.fullmatch(r"[\w.][\w./-]*\w/?", name) or name.endswith("."):
            return None
        folder = PurePosixPath(beside).parent
        for start in (folder, PurePosixPath("."), PurePosixPath("refgf")):
            path = PurePosixPath(os.path.normpath(start / name))
            inside = len(path.parts) == 1 or path.parts[0] in FOLDERS
            if inside and str(path) != KEPT and (self.root / path).is_file():
                return str(path)
        return None

    def address(self, path: str) -> str:
        """The address of a file. A source page or a copy is made for it when it needs one."""
        if path.startswith(self.private):
            return WITHHELD
        if path in PAGES:
            return PAGES[path]
        if found := LESSON.fullmatch(path):
            return f"lessons/{found[1]}/index.html"
        if found := TEACHING.fullmatch(path):
            return f"teaching/{found[1]}/index.html"
        return self.source(path) if not path.endswith(COPIED) else self.copy(path)

    def source(self, path: str) -> str:
        """The address of the page that shows the file itself."""
        return self.sources.setdefault(path, f"source/{path}.html")

    def copy(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        return self.copies.setdefault(path, f"{ASSETS.get(folder, 'files/' + folder)}/{name}")


def relative(address: str, page: str) -> str:
    """The link from one page to an address: pages work below any path, and from a disk."""
    path, hash_sign, anchor = address.partition("#")
    start = str(PurePosixPath(page).parent)
    return os.path.relpath(path, start) + hash_sign + anchor
