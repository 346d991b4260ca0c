"""Search: the sections of all pages as data, in which the search page looks with MiniSearch (npm).

A form on every page leads there, so no other page loads a script for it. What a lesson folds and
what a teacher's page says are left out: no excerpt gives a measurement or a solution away.
"""

import json
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

from refgf.site import pyodide
from refgf.site.frame import page, title_of
from refgf.site.repository import Repository

ADDRESS = "search/index.html"
HEADINGS = ("h1", "h2", "h3", "h4")
INLINE = ("a", "b", "code", "em", "i", "span", "strong", "sub", "sup", "wbr")
SKIPPED = ("script", "style", "svg", "form", "nav", "noscript")


class Sections(HTMLParser):
    """found: [[anchor, heading, text], ...] of a page. skipped: further tags to leave out."""

    def __init__(self, html: str, skipped: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.skipped = SKIPPED + skipped
        self.found, self.outside, self.ends = [["", "", ""]], [], ""
        self.feed(html[html.index("<main") :])

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in INLINE:
            self.handle_data(" ")
        anchor, contents = dict(attributes).get("id"), ("class", "contents") in attributes
        if tag in self.skipped or contents or tag in self.outside:
            self.outside.append(tag)
        elif anchor and tag in (*HEADINGS, "tr"):
            self.found.append([anchor, "", ""])
            self.ends = "td" if tag == "tr" else tag  # a row is named by its first cell
        elif tag == "h1":
            self.ends = tag

    def handle_endtag(self, tag: str) -> None:
        if self.outside and tag == self.outside[-1]:
            self.outside.pop()
        elif tag == self.ends:
            self.ends = ""

    def handle_data(self, text: str) -> None:
        if not self.outside:
            self.found[-1][1 if self.ends else 2] += text


def documents(pages: dict[str, str]) -> Iterator[list[str]]:
    """[address, heading, text] of each section; of a file and a teacher's page its title only."""
    for address, html in pages.items():
        if address.startswith(("source/", "teaching/")):
            yield [address, unescape(title_of(html)), ""]
        elif address != ADDRESS:
            lesson = address.startswith("lessons/") and address != "lessons/index.html"
            for anchor, *texts in Sections(html, ("details",) * lesson).found:
                yield [f"{address}#{anchor}".strip("#"), *(" ".join(t.split()) for t in texts)]


def data_files(root: Path, pages: dict[str, str]) -> Iterator[tuple[str, str | bytes]]:
    """(address, content): the sections, and MiniSearch where npm has brought it."""
    yield "search/data.js", f"window.SECTIONS={json.dumps(list(documents(pages)))};\n"
    for name in ("dist/umd/index.js", "LICENSE.txt") * available(root):
        content = (pyodide.folder(root, "minisearch") / name).read_bytes()
        yield f"search/minisearch{Path(name).suffix}", content


def available(root: Path) -> bool:
    return (pyodide.folder(root, "minisearch") / "dist/umd/index.js").is_file()


def search_page(files: Repository) -> str:
    names = ("minisearch.js",) * available(files.root) + ("data.js", "../static/search.js")
    scripts = "".join(f'<script src="{name}" defer></script>\n' for name in names)
    body = """<h1>Search</h1>
<p id="said" role="status">Write in the field above.</p>
<noscript><p>The search needs JavaScript. All pages are listed in the menu.</p></noscript>
<ol id="found"></ol>"""
    return page(ADDRESS, "Search", body, "Search all pages of refgf.", scripts)
