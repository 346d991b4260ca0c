"""SPEC.md, the definitions, the golden cases and the seeded mistakes name the same statements."""

import json
import re

import pytest

from refgf.oracle.__main__ import parser
from refgf.oracle.definitions import CSCRunSettings, statements
from refgf.oracle.judge.cases import GOLDEN, load_folder
from refgf.oracle.judge.functions import FUNCTIONS
from refgf.oracle.judge.report import SPEC, spec_statements
from refgf.oracle.seeded.mistakes import MISTAKES
from refgf.oracle.seeded.variants import defined

CASES = load_folder(GOLDEN)


def test_every_statement_has_a_function_and_every_function_a_statement():
    assert set(spec_statements()) == set(statements())


def test_numbers_are_used_once_and_in_order():
    numbers = re.findall(r"^\| ([A-Z])(\d+) \|", SPEC.read_text(), re.MULTILINE)
    by_letter = {}
    for letter, number in numbers:
        by_letter.setdefault(letter, []).append(int(number))
    for letter, found in by_letter.items():
        assert found == list(range(1, len(found) + 1)), letter


@pytest.mark.parametrize("statement", sorted(spec_statements()))
def test_a_statement_has_a_golden_case_and_a_seeded_mistake(statement):
    assert any(statement in case.statements for case in CASES)
    assert any(statement == mistake.statement for mistake in MISTAKES)


def test_golden_cases_name_only_statements_of_the_spec():
    for case in CASES:
        assert set(case.statements) <= set(spec_statements()), case.name
        assert len(case.why) > 5, case.name


def test_documented_signatures_are_those_of_the_definitions():
    """Every judged function is in SPEC's list, with the arguments that the definition has."""
    listed = dict(re.findall(r"^    (\w+)\((.*?)\)\s+->", SPEC.read_text(), re.MULTILINE))
    for name, function in defined().items():
        if name in listed:
            code = function.__code__
            names = [argument.split("=")[0] for argument in listed[name].split(", ")]
            assert names == list(code.co_varnames[: len(names)]), name
    assert set(FUNCTIONS) <= set(listed)


def test_fields_of_the_settings_and_their_defaults_are_listed():
    rows = re.findall(
        r"^\| ([\w, ]+) \|([^|]*)\|[^|]*\|$",
        SPEC.read_text().split("CSCRunSettings has")[1],
        re.MULTILINE,
    )
    listed = {}
    for names, defaults in rows:
        values = (
            defaults.split(", ")
            if "," in names and "," in defaults
            else [defaults] * (names.count(",") + 1)
        )
        listed |= dict(zip(names.split(", "), values))
    for name, field in CSCRunSettings.__dataclass_fields__.items():
        default = "" if name == "sizes" else json.dumps(field.default).lower()
        assert listed[name].strip() == default, name


def test_every_command_and_option_is_documented():
    documented = SPEC.read_text().split("## Using it")[1]
    commands = parser()._subparsers._group_actions[0].choices
    assert set(commands) == {"export", "verify", "explain", "grade"}
    assert all(f"refgf.oracle {command} " in documented for command in commands)
    options = {
        text
        for action in commands["verify"]._actions
        for text in action.option_strings
        if text.startswith("--")
    }
    assert {option for option in options - {"--help"} if option not in documented} == set()
