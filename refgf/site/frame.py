"""What every page has around its text: title, navigation, contents, licence."""

from html import escape

from refgf.site.repository import relative

NAVIGATION = (
    ("index.html", "refgf"),
    ("lessons/index.html", "Lessons"),
    ("player/index.html", "Schedule player"),
    ("explorer/index.html", "Theta explorer"),
    ("results/index.html", "Results"),
    ("judge/index.html", "Judge your code"),
    ("spec/index.html", "Spec"),
    ("setup/index.html", "Installing"),
)
MORE = (  # at the end of each page
    ("about/index.html", "About"),
    ("predict/index.html", "Predict a step"),
    ("clusters/index.html", "Clusters"),
    ("microscope/index.html", "Rounding microscope"),
    ("house/index.html", "The house"),
    ("reading/index.html", "Read the core"),
    ("glossary/index.html", "Glossary"),
    ("baselines/index.html", "Baselines"),
    ("api/index.html", "API of the core"),
    ("teaching/index.html", "For teachers"),
    ("cite/index.html", "How to cite"),
)
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
<header><nav aria-label="Site">{navigation}</nav></header>
<main id="main">
{body}
</main>
<footer><nav aria-label="More">{more}</nav>
<p>Generated from the project's own files by <code>make site</code>. Code: BSD-3-Clause.
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
        navigation=links(NAVIGATION, address),
        more=links(MORE, address),
        body=body,
        license=relative("license/index.html", address),
    )


def links(pages: tuple[tuple[str, str], ...], address: str) -> str:
    """Links to pages; the one that is read is marked."""
    found = []
    for target, name in pages:
        here = ' aria-current="page"' if target == address else ""
        found.append(f'<a href="{relative(target, address)}"{here}>{name}</a>')
    return "\n".join(found)


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
