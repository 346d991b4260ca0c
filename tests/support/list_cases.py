"""Lists of gradients for `plan --model`, right and wrong ones: {name of the file: its text}."""

import json


def of(*rows, **about):
    """A JSON file of these gradients."""
    return json.dumps(about | {"gradients": list(rows)} if about else list(rows))


LISTS = {
    "usual.csv": "name,elements,ready_ms\nlate, 30, 20\nearly,1000,10\n",
    "spreadsheet.csv": "\ufeffElements, Ready_ms \n1000,10\n",
    "bytes.csv": "bytes,ready_us\n400,7\n",
    "optimiser.json": of({"elements": 5, "ready_s": 1.5}, after_ms=250, batch=8),
    "two_times.csv": "elements,ready_ms,ready_s\n5,1,\n6,,2\n",
    "two_sizes.csv": "elements,bytes,ready_ms\n5,,1\n,8,2\n",
    "no_sizes.csv": "name,ready_ms\nfc,1\n",
    "semicolons.csv": "name;elements;ready_ms\nfc;5;1,5\n",
    "a_gap.csv": "name,elements,ready_ms\nfc,,1\nconv,5,2\n",
    "no_unit.csv": "elements,ready\n5,1\n",
    "no_times.csv": "elements,ready_ms\n5,\n",
    "long_in_s.csv": "elements,ready_s\n5,31.2\n",
    "long_in_ms.csv": "elements,ready_ms\n5,70000\n",
    "long_in_us.csv": "elements,ready_us\n5,4e9\n",
    "too_fast.csv": "elements,ready_ms\n25557032,0.069\n",
    "more_columns.csv": "elements,ready_ms\n5,1,2\n",
    "fewer_columns.csv": "name,elements,ready_ms\nfc,5\n",
    "large_field.csv": 'elements,ready_ms\n"' + "5" * 200_000 + '",1\n',
    "negative.csv": "elements,ready_ms\n5,-1\n",
    "a_word.csv": "elements,ready_ms\nmany,1\n",
    "no_element.csv": "bytes,ready_ms\n5,1\n",
    "zero.csv": "elements,ready_ms\n5,0\n",
    "empty.csv": "elements,ready_ms\n",
    "half_a_minute.csv": "elements,ready_ms\n5,31200\n",
    "40_seconds.csv": "elements,ready_ms\n5,30000\n5,40000\n",
    "half_a_ms.csv": "elements,ready_us\n5,500\n",
    "twice.csv": "name,elements,ready_ms\na,1,1\na,2,2\n",
    "zero_elements.csv": "elements,ready_ms\n0,1\n5,2\n",
    "bfloat16.json": of({"bytes": 400, "dtype": "bfloat16", "ready_ms": 12.5}),
    "float64.json": of({"bytes": 400, "dtype": "torch.float64", "ready_ms": 12.5}),
    "bf16.json": of({"elements": 400, "dtype": "BF16", "ready_ms": 12.5}),
    "fp32.json": of({"bytes": 400, "dtype": "fp32", "ready_ms": 12.5}),
    "int8.json": of({"bytes": 400, "dtype": "int8", "ready_ms": 12.5}),
    "402_bytes.json": of({"bytes": 402, "dtype": "float32", "ready_ms": 12.5}),
    "a_list.json": "name,elements",
    "cut.json": '{"traceEvents": [{"ph": "X", "na',
    "nothing.json": "{}",
    "true.json": '[{"elements": true, "ready_s": 1}]',
    "no_batch.json": of({"elements": 1, "ready_s": 1}, batch=1.5),
    "no_after.json": of({"elements": 1, "ready_s": 1}, after_ms="soon"),
}
