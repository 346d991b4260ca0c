"""Markdown and docstrings as HTML: anchors, links between pages, tables that scroll."""

import re
from collections import Counter
from html import escape

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from refgf.site.repository import Repository, lesson_numbers, relative

NAME = re.compile(r"(?:refgf|lessons|tests|docs)/[\w./-]*\w|\b[Ll]esson \d\d\b")
NUMBER = re.compile(r"\b\d\d\b")  # of a lesson, in these columns of tables
LESSON_COLUMNS = ("lesson", "first met in")
PROSE = 40  # characters from which on a table cell is not squeezed
SCROLLS = '<div class="scroll" role="group" tabindex="0" aria-label="{}">'


def slug(text: str) -> str:
    """The anchor of a heading, as GitHub forms it."""
    return re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")


def python(code: str) -> str:
    """Python in colours; a reader can scroll it with the keyboard."""
    lines = highlight(code.strip("\n"), PythonLexer(), HtmlFormatter(nowrap=True))
    return f'<pre class="python" tabindex="0"><code>{lines}</code></pre>'


def plain(text: str, name: str = "") -> str:
    """Text as it stands. name: its class."""
    named = f' class="{name}"' if name else ""
    return f'<pre{named} tabindex="0"><code>{escape(text)}</code></pre>'


def code(token: Token) -> str:
    """A block of a Markdown text: Python where it says so."""
    return python(token.content) if token.info == "python" else plain(token.content)


def folded(summary: str, body: str, name: str = "") -> str:
    """A part that the reader opens. summary is HTML."""
    named = f' class="{name}"' if name else ""
    return f"<details{named}><summary>{summary}</summary>\n{body}\n</details>"


def table(columns: list[str], rows: list[list[str]], caption: str) -> str:
    """A table of HTML cells that scrolls by itself."""
    head = "".join(f'<th scope="col">{name}</th>' for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n" for row in rows)
    group = SCROLLS.format(escape(caption, quote=True))
    return f"{group}<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"


def lesson_cells(tokens: list[Token]) -> set[int]:
    """Places of the texts of table cells whose numbers are those of lessons."""
    found, columns, column = set(), [], 0
    for i, token in enumerate(tokens):
        if token.type == "thead_open":
            columns = []
        elif token.type == "tr_open":
            column = -1
        elif token.type in ("th_open", "td_open"):
            column += 1
            if token.type == "th_open":
                columns.append(tokens[i + 1].content)
            elif columns[column] in LESSON_COLUMNS:
                found.add(i + 1)
    return found


class Text:
    """Renders the texts of one page. headings: [(level, anchor, text)] in their order."""

    def __init__(self, files: Repository, page: str, beside: str = "README.md") -> None:
        self.files, self.page, self.beside = files, page, beside
        self.headings, self.used = [], Counter()

    def markdown(self, text: str, html: bool = True, level: int = 0) -> str:
        """html: may the text contain HTML? level: added to the level of each heading."""
        parser = MarkdownIt("commonmark", {"html": html}).enable("table")
        rules = parser.renderer.rules
        rules["table_open"] = lambda *_: f"{SCROLLS.format('table')}<table>"
        rules["table_close"] = lambda *_: "</table></div>\n"
        for kind in ("code_block", "fence"):
            rules[kind] = lambda tokens, i, *_: code(tokens[i]) + "\n"
        tokens = parser.parse(text)
        lessons = lesson_cells(tokens)
        for i, token in enumerate(tokens):
            if token.type == "heading_open":
                self._heading(tokens, i, level)
            elif token.type == "td_open" and len(tokens[i + 1].content) > PROSE:
                token.attrSet("class", "prose")
            elif token.type == "inline":
                token.children = self._inline(
                    token.children or [], NUMBER if i in lessons else NAME
                )
        return parser.renderer.render(tokens, parser.options, {})

    def docstring(self, text: str) -> str:
        """A part of a docstring without its indentation, which is nearly Markdown."""
        return self.markdown(text, html=False)

    def link(self, address: str) -> str:
        return relative(address, self.page)

    def anchor(self, text: str, level: int = 2) -> str:
        """A new anchor for a heading, which is noted."""
        name = slug(text)
        self.used[name] += 1
        if self.used[name] > 1:
            name = f"{name}-{self.used[name] - 1}"
        self.headings.append((level, name, text))
        return name

    def heading(self, text: str, level: int = 2) -> str:
        return f'<h{level} id="{self.anchor(text, level)}">{escape(text)}</h{level}>'

    def _heading(self, tokens: list[Token], i: int, more: int) -> None:
        level = int(tokens[i].tag[1]) + more
        tokens[i].tag = tokens[i + 2].tag = f"h{level}"
        content = re.sub(r"[`*]", "", tokens[i + 1].content)
        tokens[i].attrSet("id", self.anchor(content, level))

    def _inline(self, children: list[Token], names: re.Pattern) -> list[Token]:
        """Links and pictures to where the site has them; names of files and lessons become links.

        names: what is a name in text.
        """
        found, linked = [], False
        for token in children:
            if token.type == "link_open":
                linked = True
                token.attrSet("href", self._target(str(token.attrGet("href"))))
            elif token.type == "link_close":
                linked = False
            elif token.type == "image":
                token.attrSet("src", self._target(str(token.attrGet("src"))))
            path = None
            if token.type == "code_inline" and not linked:
                path = self.files.find(token.content, self.beside)
            if path:
                href = self.link(self.files.address(path))
                found += [Token("link_open", "a", 1, attrs={"href": href}), token]
                found += [Token("link_close", "a", -1)]
            elif token.type == "text" and not linked:
                found += self._words(token.content, names)
            else:
                found.append(token)
        return found

    def _words(self, text: str, names: re.Pattern) -> list[Token]:
        """Text as tokens, with links."""
        found, end = [], 0
        for name in names.finditer(text):
            if address := self._address(name[0]):
                found += [Token("text", "", 0, content=text[end : name.start()])]
                found += [Token("link_open", "a", 1, attrs={"href": self.link(address)})]
                found += [Token("text", "", 0, content=name[0]), Token("link_close", "a", -1)]
                end = name.end()
        return [*found, Token("text", "", 0, content=text[end:])]

    def _address(self, name: str) -> str | None:
        """Of another page: "refgf/ops.py", "lesson 03" or "03"."""
        if number := re.search(r"^\D*(\d\d)$", name):
            address = f"lessons/{number[1]}/index.html"
            known = number[1] in lesson_numbers(self.files.root)
            return address if known and address != self.page else None
        path = self.files.find(name, self.beside)
        return self.files.address(path) if path else None

    def _target(self, href: str) -> str:
        """A link as the text has it -> as the page needs it."""
        if re.match(r"[a-z]+:", href) or href.startswith("#"):
            return href
        name, hash_sign, anchor = href.partition("#")
        path = self.files.find(name, self.beside)
        if path is None:
            raise ValueError(
                f"site: got a link to {href} in {self.beside}; wanted a file of the project; next: "
                "correct the link"
            )
        return self.link(self.files.address(path)) + hash_sign + anchor
