"""The links of built pages, and which of them lead nowhere."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlparse


class Links(HTMLParser):
    """links: [(what holds it, address)], anchors: names in a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links, self.anchors, self.twice = [], set(), []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src", "action"):
                self.links.append((tag, value))
            elif name == "id":
                self.twice += [value] * (value in self.anchors)
                self.anchors.add(value)


def pages_of(folder: Path) -> dict[Path, Links]:
    """{path: links of the page}"""
    return {file: Links(file.read_text()) for file in folder.rglob("*.html")}


def broken_links(folder: Path, pages: dict[Path, Links]) -> list[str]:
    """The link checker: links to files or anchors that the site has not."""
    broken = []
    for file, page in pages.items():
        for _, link in page.links:
            address = urlparse(link)
            if address.scheme:
                continue
            target = (file.parent / unquote(address.path)).resolve() if address.path else file
            anchor = address.fragment
            gone = not target.is_file() or not target.is_relative_to(folder)
            if gone or anchor and target in pages and anchor not in pages[target].anchors:
                broken.append(f"{file.relative_to(folder)}: {link}")
    return broken
