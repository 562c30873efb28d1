"""Names that outsiders rely on stay: everything published is still there (`tests/contracts/data/published-names.json`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.public_names import PUBLISHED, answers, encoded, missing, names, with_additions

HINT = "outsiders rely on these names; one that is to go is taken out of published-names.json, with a line under Changed in the CHANGELOG"


def test_every_published_name_is_still_there() -> None:
    gone = list(missing(json.loads(PUBLISHED.read_text())["names"], names()))
    assert not gone, f"{HINT}: {gone}"


async def test_every_published_field_of_an_answer_without_a_type_is_still_there(tmp_path: Path) -> None:
    gone = list(missing(json.loads(PUBLISHED.read_text())["answers"], await answers(tmp_path)))
    assert not gone, f"{HINT}: {gone}"


@pytest.mark.parametrize(
    ("published", "present", "gone"),
    [
        ({"a": ["x", "y"]}, {"a": ["y"]}, ["a / x"]),
        ({"a": ["x"]}, {"b": ["x"]}, ["a"]),
        ({"a": "counter"}, {"a": "gauge"}, ["a / counter (now gauge)"]),
        ({"a": ["x"]}, {"a": ["w", "x"], "b": []}, []),
    ],
)
def test_missing_names_are_listed_and_new_names_are_allowed(published: object, present: object, gone: list[str]) -> None:
    assert list(missing(published, present)) == gone
    assert list(missing(published, with_additions(published, present))) == []
    assert json.loads(encoded({"names": published})) == {"names": published}
