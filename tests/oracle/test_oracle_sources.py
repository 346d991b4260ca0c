"""What SPEC.md states of its sources."""

import re

import pytest

from refgf.oracle.spec.page import SPEC


def source(number):
    """The last column of a statement."""
    row = re.search(rf"^\| {number} \| .*\|$", SPEC.read_text(), re.MULTILINE)[0]
    return row.rsplit(" | ", 1)[1].removesuffix(" |")


@pytest.mark.parametrize(
    "number",
    ["C3", "H2", "H4", "H6", "K4", "L5", "M3", "M8", "M9", "N10", "P5", "T3", "T6", "T7"],
)
def test_what_is_ours_is_not_the_papers(number):
    """Each of these has a choice of this project, or an unverified part, in its source."""
    assert re.search(r"chosen|is ours|unverified", source(number))


def test_secondary_sources_have_names():
    """Each that a statement calls the article, the notes or the review is named above them all."""
    conventions, statements = SPEC.read_text().split("## Statements", 1)
    called = set(re.findall(r"the (article|notes|review)\b", statements))
    assert called == {"article", "notes", "review"}
    assert all(f'"the {each}"' in conventions for each in called)
    assert "kuizhiqing/papers" in conventions and "stella-y/TIL" in conventions
    assert "secondary sources" not in statements


def test_the_form_paper_is_heat_s_code_but_for_receipt_and_averaging():
    """Only A2 and A5 rest on Heat's documentation, but for the last batch, which its code has.

    All other rows name its code, or say chosen.
    """
    for number in range(1, 13):
        described = source(f"A{number}").startswith("described")
        assert described == (number in (2, 5)), number
        assert re.search("Heat's code" if described else "Heat|chosen", source(f"A{number}"))
