"""A list of gradients: its units, and a sentence for each thing that can be wrong."""

import gzip
import json

import pytest

from refgf.plan.inputs import read_file


def written(folder, text, name="sizes.csv"):
    path = folder / name
    path.write_text(text)
    return str(path)


def test_csv_with_units_in_its_head(tmp_path):
    path = written(tmp_path, "name,elements,ready_ms\nlate, 30, 20\nearly,1000,10\n")
    step = read_file(path, None)
    assert step.ready == ((0.01, 1000), (0.02, 30))
    assert step.elements == 1030 and step.compute_s == 0.02


def test_csv_as_a_spreadsheet_writes_it(tmp_path):
    path = written(tmp_path, "\ufeffElements, Ready_ms \n1000,10\n")
    assert read_file(path, None).ready == ((0.01, 1000),)


def test_bytes_are_those_of_float32(tmp_path):
    assert read_file(written(tmp_path, "bytes,ready_us\n400,7\n"), None).ready == ((7e-6, 100),)


def test_json_with_an_optimiser_and_a_batch(tmp_path):
    data = {"gradients": [{"elements": 5, "ready_s": 1.5}], "after_ms": 250, "batch": 8}
    step = read_file(written(tmp_path, json.dumps(data), "sizes.json"), None)
    assert (step.compute_s, step.batch) == (1.75, 8)
    path = tmp_path / "sizes.json.gz"
    path.write_bytes(gzip.compress(json.dumps(data["gradients"]).encode()))
    assert read_file(str(path), None).ready == ((1.5, 5),)


@pytest.mark.parametrize(
    "text, said",
    [
        ("elements,ready_ms,ready_s\n5,1,\n6,,2\n", "mixed units of ready times"),
        ("elements,bytes,ready_ms\n5,,1\n,8,2\n", "mixed units of sizes"),
        ("name,ready_ms\nfc,1\n", "got no sizes in name, ready_ms; wanted a column elements or"),
        ("name;elements;ready_ms\nfc;5;1,5\n", "got columns divided by semicolons; wanted commas"),
        ("name,elements,ready_ms\nfc,,1\nconv,5,2\n", "gradient 1 (fc): got no elements"),
        ("elements,ready\n5,1\n", "got no ready times in elements, ready; wanted a column ready_s"),
        (
            "elements,ready_ms\n5,\n",
            "no ready times in elements, ready_ms; wanted numbers in ready_ms",
        ),
        ("elements,ready_s\n5,31.2\n", "name the column ready_ms if it holds ms"),
        ("elements,ready_ms\n5,70000\n", "name the column ready_us if it holds us"),
        ("elements,ready_us\n5,4e9\n", "at most 3600 s; is the unit right?"),
        ("elements,ready_ms\n25557032,0.069\n", "name the column ready_s if it holds s"),
        ("elements,ready_ms\n5,1,2\n", "more columns in line 2"),
        ("name,elements,ready_ms\nfc,5\n", "fewer columns in line 2"),
        ('elements,ready_ms\n"' + "5" * 200_000 + '",1\n', "got no CSV (field larger"),
        ("elements,ready_ms\n5,-1\n", "ready_ms = '-1'; wanted a number, 0 or more"),
        ("elements,ready_ms\nmany,1\n", "elements = 'many'"),
        ("bytes,ready_ms\n5,1\n", "got 5 bytes; wanted a whole number of elements"),
        ("elements,ready_ms\n5,0\n", "all 0"),
        ("elements,ready_ms\n", "got no gradients"),
    ],
)
def test_wrong_lists(tmp_path, text, said):
    with pytest.raises(ValueError, match="got .*; wanted .*; next: ") as error:
        read_file(written(tmp_path, text), None)
    assert said in str(error.value)


def test_a_long_step_in_a_smaller_unit(tmp_path):
    """With accumulation a step can take half a minute. In ms it is taken."""
    assert read_file(written(tmp_path, "elements,ready_ms\n5,31200\n"), None).compute_s == 31.2


@pytest.mark.parametrize(
    "text, said",
    [
        ("elements,ready_ms\n5,30000\n5,40000\n", "a step of 40 s is long. Is the unit, ready_ms"),
        ("elements,ready_us\n5,500\n", "a step of 0.5 ms is very short. Is the unit, ready_us"),
        (
            "name,elements,ready_ms\na,1,1\na,2,2\n",
            "names that stand more than once: 1, such as a.",
        ),
        ("elements,ready_ms\n0,1\n5,2\n", "1 of 2 gradients have 0 elements"),
        ("elements,ready_ms\n4,1\n5,2\n", None),
    ],
)
def test_what_may_be_a_mistake_is_said(tmp_path, text, said):
    notes = read_file(written(tmp_path, text), None).notes
    assert [said in note for note in notes] == [True] if said else notes == ()


@pytest.mark.parametrize(
    "given, elements, said",
    [
        ({"bytes": 400, "dtype": "bfloat16"}, 200, "gradients of bfloat16. All rows but half"),
        ({"bytes": 400, "dtype": "torch.float64"}, 50, "gradients of float64"),
        ({"elements": 400, "dtype": "BF16"}, 400, "gradients of bf16"),
        ({"bytes": 400, "dtype": "fp32"}, 100, None),
        ({"bytes": 400, "dtype": "int8"}, 0, "dtype 'int8'; wanted one of float16, half"),
        ({"bytes": 402, "dtype": "float32"}, 0, "402 bytes; wanted a whole number of elements"),
    ],
)
def test_the_type_of_gradients(tmp_path, given, elements, said):
    path = written(tmp_path, json.dumps([given | {"ready_ms": 12.5}]), "sizes.json")
    if not elements:
        with pytest.raises(ValueError) as error:
            read_file(path, None)
        assert said in str(error.value)
        return
    found = read_file(path, None)
    assert found.elements == elements
    assert [said in note for note in found.notes] == ([True] if said else [])


@pytest.mark.parametrize(
    "text, said",
    [
        ("name,elements", "got no JSON"),
        ('{"traceEvents": [{"ph": "X", "na', "next: the file may have been cut"),
        ("{}", "neither traceEvents nor gradients"),
        ('[{"elements": true, "ready_s": 1}]', "elements = True"),
        ('{"gradients": [{"elements": 1, "ready_s": 1}], "batch": 1.5}', "batch = 1.5"),
    ],
)
def test_wrong_json(tmp_path, text, said):
    with pytest.raises(ValueError) as error:
        read_file(written(tmp_path, text, "sizes.json"), None)
    assert said in str(error.value)


def test_a_file_that_is_not_there():
    with pytest.raises(ValueError, match="wanted one of alexnet.* --model resnet50"):
        read_file("nonsense", None)
    with pytest.raises(ValueError, match="no readable file"):
        read_file("missing.csv", None)
