"""What every page has around its text: title, search field, menu, contents, licence."""

import re
from html import escape

from refgf.site.repository import relative

NAVIGATION = {
    "Begin": {
        "index.html": "Four machines, one sum",
        "tour/index.html": "Look around",
        "about/index.html": "About",
        "setup/index.html": "Installing",
    },
    "Learn": {"lessons/index.html": "Lessons", "glossary/index.html": "Glossary"},
    "Watch": {
        "player/index.html": "Schedule player",
        "explorer/index.html": "Theta explorer",
        "microscope/index.html": "Rounding microscope",
    },
    "Judge": {
        "judge/index.html": "Judge your code",
        "spec/index.html": "Spec",
        "torch/index.html": "With PyTorch",
        "baselines/index.html": "Baselines",
    },
    "Predict": {
        "predict/index.html": "Predict a step",
        "results/index.html": "Results",
        "scale/index.html": "10,000 ranks",
        "clusters/index.html": "Clusters",
        "gpu/index.html": "GPUs",
    },
    "Look inside": {
        "reading/index.html": "Read the core",
        "api/index.html": "API of the core",
        "house/index.html": "The house",
        "how-to/lesson/index.html": "Add a lesson",
        "how-to/statement/index.html": "Add a statement",
        "how-to/algorithm/index.html": "Add an algorithm",
    },
    "Teach": {
        "teaching/index.html": "For teachers",
        "teaching/plans/index.html": "Plans",
        "slides/index.html": "Lectures",
        "teaching/first-day/index.html": "The first day",
        "teaching/faq/index.html": "Questions that come",
        "teaching/exam/index.html": "Exam",
        "cluster/index.html": "On a real cluster",
    },
    "Use it": {"cite/index.html": "How to cite", "license/index.html": "Licence of the texts"},
}
LESSON = re.compile(r"lessons/\d\d/index\.html")
MENU = "<!-- menu -->"  # where `with_menu` puts it, when all pages are known
LONG = 4  # headings from which on a page lists them
FRAME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<meta name="description" content="{about}">
<meta property="og:type" content="website">
<meta property="og:title" content="{title}">
<meta property="og:description" content="{about}">
<meta name="twitter:card" content="summary">
<link rel="icon" type="image/svg+xml" href="{root}static/icon.svg">
<link rel="stylesheet" href="{root}static/site.css">
{head}</head>
<body>
<a class="skip" href="#main">Skip to the text</a>
<header><a href="{root}index.html">refgf</a>
<form role="search" action="{root}search/index.html">
<input type="search" name="q" aria-label="Search" placeholder="Search"></form></header>
<details id="pages"><summary>All pages</summary><nav aria-label="Site">
{menu}</nav></details>
<script>document.getElementById("pages").open = matchMedia("(min-width: 72rem)").matches;</script>
<main id="main">
{body}
</main>
<footer><p>Generated from the project's own files by <code>make site</code>. Code: BSD-3-Clause.
Texts and figures: <a href="{license}">CC BY 4.0</a>.</p></footer>
</body>
</html>
"""


def page(address: str, title: str, body: str, about: str = "", head: str = "") -> str:
    """A whole page. about: a sentence for search engines and for links that are sent."""
    return FRAME.format(
        title=escape(title if title.startswith("refgf") else f"{title} - refgf", quote=True),
        about=escape(about or title, quote=True),
        root="../" * address.count("/"),
        head=head,
        menu=MENU,
        body=body,
        license=relative("license/index.html", address),
    )


def with_menu(pages: dict[str, str]) -> dict[str, str]:
    """{address: HTML} with links from each page to all others. Lessons are listed by title."""
    lessons = {
        address: title_of(html).removeprefix("Lesson ")
        for address, html in pages.items()
        if LESSON.fullmatch(address)
    }

    def menu(here: str) -> str:
        found = []
        for group, named in NAVIGATION.items():
            items = links(named, pages, here)
            if group == "Learn":
                read = " open" * (here in lessons)
                more = f"<ul>{links(lessons, pages, here)}</ul>"
                items += f"<li><details{read}><summary>All lessons</summary>{more}</details></li>"
            found.append(f"<p>{group}</p><ul>{items}</ul>\n")
        return "".join(found)

    return {address: html.replace(MENU, menu(address), 1) for address, html in pages.items()}


def title_of(html: str) -> str:
    """The title of a page, as HTML."""
    return html.partition("<title>")[2].partition("</title>")[0].removesuffix(" - refgf")


def links(named: dict[str, str], pages: dict[str, str], here: str) -> str:
    """List items for those addresses that are pages; the one that is read is marked."""
    return "".join(
        f'<li><a href="{relative(address, here)}"{" aria-current=page" * (address == here)}>'
        f"{name}</a></li>"
        for address, name in named.items()
        if address in pages
    )


def contents(headings: list[tuple[int, str, str]], last: int = 2) -> str:
    """A list of the page's headings of the levels 2 to `last`, folded; nothing on a short page."""
    found = [each for each in headings if 2 <= each[0] <= last]
    if len(found) < LONG:
        return ""
    items = "".join(
        f'<li class="level{level}"><a href="#{name}">{escape(text)}</a></li>\n'
        for level, name, text in found
    )
    return f'<details class="contents"><summary>On this page</summary><ul>{items}</ul></details>\n'
