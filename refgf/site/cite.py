"""How to cite: the file CITATION.cff as a sentence, as BibTeX, and itself."""

import re
from html import escape

from refgf.site.frame import page
from refgf.site.markdown import Text, plain
from refgf.site.repository import Repository

ADDRESS, FILE = "cite/index.html", "CITATION.cff"
WANTED = ("title", "message", "version", "date-released", "license")


def cite_page(files: Repository) -> str:
    text = Text(files, ADDRESS)
    file = files.text(FILE)
    license_page = text.link(files.address("lessons/LICENSE.md"))
    parts = [
        f"<h1>How to cite</h1>\n<p>{escape(fields(file)['message'])}</p>",
        text.heading("BibTeX"),
        plain(bibtex(file)),
        text.heading(FILE),
        plain(file),
        text.heading("Licence"),
        f"<p>Code: {escape(fields(file)['license'])}. Texts, drawings and figures: "
        f'<a href="{license_page}">their own licence</a>.</p>',
    ]
    return page(ADDRESS, "How to cite", "\n".join(parts), "How to cite refgf, and its licences.")


def fields(file: str) -> dict[str, str]:
    """The single values at the margin of a CFF file. Those that the page needs must be there."""
    found = dict(re.findall(r'^([\w-]+): *"?(.*?)"?$', file, re.M))
    if missing := [name for name in WANTED if not found.get(name)]:
        raise ValueError(
            f"site: got a {FILE} without {', '.join(missing)}; wanted a line for each; next: add it"
        )
    return found


def bibtex(file: str) -> str:
    """The entry of the software itself, whose authors are the first `authors` of the file."""
    about = fields(file)
    (names,) = re.findall(r"^authors:\n((?:^ .*\n)*)", file, re.M)
    people = re.findall(r'- name: "?(.*?)"?$', names, re.M)
    people += [
        f"{family}, {given}"
        for family, given in re.findall(
            r'- family-names: "?(.*?)"?\n +given-names: "?(.*?)"?$', names, re.M
        )
    ]
    key = about["title"].partition(":")[0]
    lines = {
        "title": f"{{{about['title']}}}",
        "author": " and ".join(f"{{{name}}}" if "," not in name else name for name in people),
        "version": about["version"],
        "year": about["date-released"][:4],
    }
    inner = "".join(f"  {name:<8} = {{{value}}},\n" for name, value in lines.items())
    return f"@software{{{key},\n{inner}}}"
