"""SPEC.md, the definitions, the golden cases and the seeded mistakes name the same statements."""

import json
import re

import pytest

from refgf.oracle.__main__ import parser
from refgf.oracle.definitions import CSCRunSettings, statements
from refgf.oracle.judge.cases import save_case, save_tensors
from refgf.oracle.judge.implementations import Files
from refgf.oracle.judge.report import spec_statements
from refgf.oracle.judge.verify import verify_case
from refgf.oracle.spec.case import SPEC as SPEC_VERSION
from refgf.oracle.spec.fresh import fresh_cases
from refgf.oracle.spec.page import SPEC, with_rows
from refgf.oracle.spec.statement import FUNCTIONS, MISTAKES
from refgf.oracle.spec.variants import defined
from tests.support.golden import CASES


def test_every_statement_has_a_row_and_every_row_a_statement():
    rows = re.findall(r"^\| ([A-Z]\d+) \| .+? \| .*\|$", SPEC.read_text(), re.MULTILINE)
    assert set(rows) == set(spec_statements()) == set(statements())


def test_numbers_are_used_once_and_in_order():
    numbers = re.findall(r"^\| ([A-Z])(\d+) \|", SPEC.read_text(), re.MULTILINE)
    by_letter = {}
    for letter, number in numbers:
        by_letter.setdefault(letter, []).append(int(number))
    for letter, found in by_letter.items():
        assert found == list(range(1, len(found) + 1)), letter


def test_rows_are_written_from_the_records():
    """If the docstring of a definition is what you mean: make spec."""
    assert with_rows(SPEC.read_text()) == SPEC.read_text()


@pytest.mark.parametrize("statement", sorted(spec_statements()))
def test_a_statement_has_a_golden_case_and_a_seeded_mistake(statement):
    assert any(statement in case.statements for case in CASES)
    assert any(statement == mistake.statement for mistake in MISTAKES)


def test_statements_added_later_have_three_seeded_mistakes():
    added = re.search(r"Added in 2026-11: (.*?), and the variant", SPEC.read_text())[1]
    found = set()
    for letter, first, last in re.findall(r"\b([A-Z])(\d+)(?: to [A-Z](\d+))?", added):
        found |= {f"{letter}{n}" for n in range(int(first), int(last or first) + 1)}
    assert found >= {"A13", "A20", "C15", "E1", "G6", "T8"} and found <= set(spec_statements())
    for statement in found:
        assert sum(mistake.statement == statement for mistake in MISTAKES) >= 3, statement


def test_golden_files_carry_the_version_of_the_spec():
    """Of its heading and of its history's last row. Files of another one are not loaded."""
    versions = re.findall(r"^(?:Version |\| )(\d+)[. ]", SPEC.read_text(), re.MULTILINE)
    assert versions[0] == versions[-1] == str(SPEC_VERSION)
    assert CASES


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


SHORT = {"float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "uint8": "U8"}
SHORT |= {"uint16": "U16"}
ITEM = re.compile(r"(\w+|state\.x)(?: to [a-z]+(\d+))? (F|[FIU]\d+)(?: \((.*?)\))?(, optional)?$")


def table():
    """{function: (argument names, {"in.x": (type, dimensions, optional)})} of SPEC's table."""
    text = SPEC.read_text().split("### Inputs and results of each function")[1]
    rows = re.findall(r"^\| ([\w, ]+) \| (.*?) \| (.*?) \| (.+) \|$", text, re.MULTILINE)
    found = {}
    for functions, arguments, *columns in rows[1:]:
        tensors = {}
        for prefix, column in zip(("in.", "out."), columns):
            for item in filter(None, column.strip().split("; ")):
                tensors |= tensors_of(prefix, item)
        for function in functions.split(", "):
            assert function not in found, f"{function} is listed twice"
            found[function] = {a for a in arguments.strip().split(", ") if a}, tensors
    return found


def tensors_of(prefix, item):
    """An item of the table: "x F (p, n)", or "tensor00 to tensor25 F64"."""
    name, last, kind, dimensions, optional = ITEM.fullmatch(item).groups()
    prefix = "" if name.startswith("state.") else prefix
    names = [name]
    if last:
        stem = name.rstrip("0123456789")
        names = [stem + str(i).zfill(len(last)) for i in range(int(last) + 1)]
    axes = None if dimensions is None else [d for d in dimensions.split(", ") if d]
    return {prefix + n: (kind, axes, bool(optional)) for n in names}


TABLE = table()


def test_the_table_has_every_judged_function():
    assert set(TABLE) == set(FUNCTIONS)


@pytest.mark.parametrize("function", sorted(FUNCTIONS))
def test_the_table_has_the_arguments_and_tensors_of_every_case(function):
    """Names, types and shapes; letters of shapes are the same length all over a case."""
    cases = [case for case in CASES if case.function == function]
    cases += fresh_cases(3, 0, lambda case: case.function == function)
    arguments, tensors = TABLE[function]
    assert set().union(*(case.arguments for case in cases)) <= arguments
    with_defaults = function in ("csc_run", "daso_run", "heat_run")
    assert with_defaults or all(set(case.arguments) == arguments for case in cases)
    needed = {name for name, (_, _, optional) in tensors.items() if not optional}
    for case in cases:
        given = {name for name in case.tensors if not name.startswith("bound.")}
        assert needed <= given <= set(tensors), case.name
        lengths = {k: v for k, v in case.arguments.items() if isinstance(v, int)}
        for name in given:
            kind, axes, _ = tensors[name]
            real = SHORT[case[name].dtype.name]
            assert real == kind or (kind == "F" and real[0] == "F"), (case.name, name)
            assert axes is None or len(axes) == case[name].ndim, (case.name, name)
            for axis, length in zip(axes or (), case[name].shape):
                wanted = int(axis) if axis.isdigit() else lengths.setdefault(axis, length)
                assert length == wanted, (case.name, name, axis)


def test_every_csc_setting_is_an_argument_or_an_input():
    settings = set(CSCRunSettings.__dataclass_fields__) - {"sizes", "decayed"}
    assert TABLE["csc_run"][0] == settings | {"percents", "exact_norms"}


def test_the_case_in_full_is_what_a_program_gets_and_must_write(tmp_path):
    text = SPEC.read_text().split("### One case in full")[1].split("### Traces")[0]
    blocks = re.findall(r"(?:^    .*\n)+", text, re.MULTILINE)
    about, inputs, result = (re.sub("^    ", "", block, flags=re.MULTILINE) for block in blocks)
    case = next(case for case in CASES if case.name == json.loads(about)["name"])
    save_case(case, tmp_path, prefixes=("in",), stems=("case", "inputs"))
    save_tensors(tmp_path / f"{case.name}.safetensors", case.with_prefix("out"))
    assert (tmp_path / "case.json").read_text() == about
    for name, printed in (("inputs", inputs), (case.name, result)):
        start, header, numbers = printed.splitlines()
        length = int.from_bytes(bytes.fromhex(start), "little")
        whole = bytes.fromhex(start) + header.encode().ljust(length) + bytes.fromhex(numbers)
        assert whole == (tmp_path / f"{name}.safetensors").read_bytes()
        assert f"{len(whole)} bytes" in text and f"{length}" in text
    assert verify_case(case, Files(tmp_path)).status == "pass"


def test_every_command_and_option_is_documented():
    documented = SPEC.read_text().split("## Using it")[1]
    commands = parser()._subparsers._group_actions[0].choices
    assert all(f"refgf.oracle {command} " in documented for command in commands)
    options = {
        text
        for action in commands["verify"]._actions
        for text in action.option_strings
        if text.startswith("--")
    }
    assert {option for option in options - {"--help"} if option not in documented} == set()
