"""The table of techniques says which of its numbers are predicted."""

import json

import pytest

from docs.tools import gains
from kit import claims
from kit.claims import Claim

LESSONS = sorted((gains.ROOT / "lessons").glob("[0-9][0-9]_*.py"))
COMPUTED = {"far"}  # lesson 08's curves to 2048 ranks


class Watched(dict):
    """Notes which keys are read."""

    def __init__(self, content: dict, read: set) -> None:
        super().__init__({key: watched(value, read) for key, value in content.items()})
        self.read = read

    def __getitem__(self, key):
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key, default=None):
        self.read.add(key)
        return super().get(key, default)


def watched(value, read: set):
    if isinstance(value, dict):
        return Watched(value, read)
    return [watched(item, read) for item in value] if isinstance(value, list) else value


def hides_a_prediction(claim: Claim, result: dict) -> bool:
    """Does it compare predicted numbers, and not say so?"""
    read = set()
    claims.decide(claim, Watched(result, read))
    predicted = any(key in COMPUTED or str(key).startswith("predicted") for key in read)
    return predicted and "predict" not in claim.text.lower()


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda file: file.stem)
def test_a_predicted_gain_says_so(lesson):
    result = gains.figure(lesson.stem)
    for claim in gains.reveal_of(lesson).claims:
        if claim.kind in gains.KINDS:
            assert not hides_a_prediction(claim, result), claim.text


def test_a_hidden_prediction_is_noticed():
    result = json.loads('{"rows": [{"predicted_s": 1.0, "measured_s": 2.0}]}')
    for key, hidden in (("predicted_s", True), ("measured_s", False)):
        claim = Claim("It gains.", lambda r, key=key: (r["rows"][0][key], "<", 3.0), "nothing")
        assert hides_a_prediction(claim, result) == hidden
        path = Claim("It gains.", (("rows", 0, key), "<", 3.0), "nothing")
        assert hides_a_prediction(path, result) == hidden
    honest = Claim("PREDICTED: it gains.", lambda r: (r["rows"][0]["predicted_s"], "<", 3.0), "")
    assert not hides_a_prediction(honest, result)


def test_a_row_names_its_technique():
    assert gains.title("03_lazy_allreduce") == "03 lazy allreduce"
    assert gains.title("14_data_cache") == "14 data cache"
    assert "| [13 DASO](../lessons/13_daso.py), 4 ranks" in gains.table()
