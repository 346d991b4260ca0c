"""Which pages the site has; writes them into a folder, with their pictures and data."""

import re
import shutil
from collections.abc import Iterator
from html import escape
from pathlib import Path

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from refgf.site import api, baselines, cite, explorer, microscope, player, pyodide, search, start
from refgf.site.frame import contents, page, with_menu
from refgf.site.lesson import TOUR, Lesson, tour_page
from refgf.site.markdown import Text, plain
from refgf.site.repository import PAGES, WITHHELD, Repository, lesson_numbers
from refgf.site.spec import ADDRESS as SPEC
from refgf.site.spec import spec_page

STATIC = Path(__file__).parent / "static"
MARK = ".made-by-refgf-site"  # in a folder that may be written over
ALONE = {  # pages that a function of their own makes
    api.ADDRESS: api.api_page,
    baselines.ADDRESS: baselines.baselines_page,
    cite.ADDRESS: cite.cite_page,
    explorer.ADDRESS: explorer.explorer_page,
    microscope.ADDRESS: microscope.microscope_page,
    player.ADDRESS: player.player_page,
    search.ADDRESS: search.search_page,
    SPEC: spec_page,
    TOUR: tour_page,
    start.ADDRESS: start.start_page,
}


def build(root: Path, output: Path, private: bool = False) -> int:
    """Write the whole site into `output`, which may hold an older one. -> number of pages

    private: without solutions, answers and teacher's pages.
    """
    files = Repository(root, private)
    prepare(output)
    pages = dict(all_pages(files))
    for address, html in with_menu(pages).items():
        write(output / address, html)
    for path, address in files.copies.items():
        write(output / address, (root / path).read_bytes())
    for file in STATIC.iterdir():
        if file.suffix != ".html":  # a part of a page
            write(output / "static" / file.name, file.read_bytes())
    write(output / "microscope" / "data.js", microscope.script())
    for address, content in (
        *player.data_files(root),
        *explorer.data_files(root),
        *search.data_files(root, pages),
        *pyodide.files(root),
    ):
        write(output / address, content)
    return len(pages)


def prepare(output: Path) -> None:
    """An empty folder. Only a folder that this function has made is emptied."""
    if output.is_dir() and any(output.iterdir()):
        if not (output / MARK).exists():
            raise ValueError(
                f"site: got the folder {output}, which holds something else; wanted a new one, or "
                "one that was built before; next: --output with another name"
            )
        shutil.rmtree(output)
    output.mkdir(parents=True, exist_ok=True)
    (output / MARK).touch()


def write(file: Path, content: str | bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())


def all_pages(files: Repository) -> Iterator[tuple[str, str]]:
    """(address, HTML) of every page. Pages of sources come last: other pages ask for them."""
    for path, address in PAGES.items():
        if address not in (SPEC, WITHHELD) and files.address(path) == address:
            yield address, text_page(files, path, address)
    yield WITHHELD, teaching_page(files)
    for address, make in ALONE.items():
        yield address, make(files)
    for number in lesson_numbers(files.root):
        yield f"lessons/{number}/index.html", Lesson(files, number).html()
        path = f"lessons/teaching/{number}.md"
        if files.address(path) != WITHHELD:
            yield files.address(path), text_page(files, path, files.address(path))
    for path, address in list(files.sources.items()):
        yield address, source_page(files, path, address)


def text_page(files: Repository, path: str, address: str) -> str:
    """A Markdown file as a page."""
    text = Text(files, address, path)
    html = text.markdown(files.text(path))
    if path == "lessons/glossary.md":
        html = with_anchors(html)
    first, heading, rest = html.partition("</h1>")
    title = next((name for level, _, name in text.headings if level == 1), path)
    body = f"{first}{heading}{contents(text.headings)}{rest}"
    return page(address, title, body)


def teaching_page(files: Repository) -> str:
    """The teacher's pages begin here; or a sentence says that they are not here."""
    if not files.private:
        return text_page(files, "lessons/teaching/README.md", WITHHELD)
    said = "This site was built for students: solutions, answers and these pages are not in it."
    return page(WITHHELD, "For teachers", f"<h1>For teachers</h1><p>{said}</p>")


def with_anchors(html: str) -> str:
    """The glossary: an address for each word, its own words joined by -."""

    def row(found: re.Match) -> str:
        word = re.sub(r"<[^>]*>|&\w+;", "", found[1])
        name = re.sub(r"[^\w]+", "-", word.lower()).strip("-")
        return f'<tr id="{name}">\n<td>{found[1]}</td>'

    return re.sub(r"<tr>\n<td>(.*?)</td>", row, html)


def source_page(files: Repository, path: str, address: str) -> str:
    """A file itself. Lines of Python have the anchors L1, L2, ..."""
    code = files.text(path)
    body = plain(code)
    if path.endswith(".py"):
        lines = highlight(code, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True)).splitlines()
        numbered = (f'<span id="L{i}">{line}</span>\n' for i, line in enumerate(lines, start=1))
        body = f'<pre class="python" tabindex="0"><code>{"".join(numbered)}</code></pre>'
    return page(address, path, f'<h1 class="path">{escape(path)}</h1>\n{body}')
