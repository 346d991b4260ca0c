"""What a judge and ranks of PyTorch send each other: a nest of dicts, lists, numbers, arrays.

    pack({"a": array, "b": [1, "x"]}) -> a line of JSON, then the arrays as safetensors

The other side runs foreign code, so nothing that arrives is executed.
"""

import json
from typing import Any

import numpy as np

from refgf.oracle.foreign.files import parse_tensors, tensor_bytes
from refgf.oracle.foreign.untrusted import BadFile, parse_json

PLACE = "the message of a rank"


def pack(nest: Any) -> bytes:
    arrays: dict[str, np.ndarray] = {}

    def without_arrays(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            name = str(len(arrays))
            arrays[name] = np.ascontiguousarray(value).reshape(value.shape)
            return {"#": name}
        if isinstance(value, dict):
            return {str(key): without_arrays(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [without_arrays(item) for item in value]
        return value

    head = json.dumps(without_arrays(nest)).encode()
    return head + b"\n" + tensor_bytes(arrays)


def unpack(message: bytes) -> Any:
    """What `pack` packed; tuples have become lists. Raises BadFile for anything else."""
    line, _, tensors = message.partition(b"\n")
    arrays, _ = parse_tensors(PLACE, tensors)

    def with_arrays(value: Any) -> Any:
        if isinstance(value, dict):
            if set(value) == {"#"}:
                if value["#"] not in arrays:
                    raise BadFile(f"{PLACE}: got no array {value['#']}; wanted all that it names")
                return arrays[value["#"]]
            return {key: with_arrays(item) for key, item in value.items()}
        return [with_arrays(item) for item in value] if isinstance(value, list) else value

    return with_arrays(parse_json(PLACE, line))
