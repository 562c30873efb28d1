r"""JSON's escapes of characters beyond 16 bits (`"\ud83d\ude00"`), as `json.dumps` writes them, mean what JSON means by them."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from config import document, load
from config.document import Mapping, Node, Scalar, parse
from config.problems import Problems

PIECES = ("\U0001f600", "\\ud83d", "\\", '"', "'", "\n", "\u00e9", "\ue000", "\\ue000", " ", "#", ": ", "a")


@pytest.fixture(params=["CSafeLoader", "SafeLoader"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "_LOADER", getattr(yaml, request.param))


def plain(node: Node | None) -> object:
    if isinstance(node, Mapping):
        return {key: plain(inner) for key, inner in node.entries.items()}
    if isinstance(node, Scalar):
        return node.text
    return None if node is None else [plain(inner) for inner in node.items]


def read(text: str) -> object:
    problems = Problems()
    tree = parse(text.encode(), "any.yaml", problems)
    assert problems.found == []
    return plain(tree)


def test_a_configuration_that_json_has_written_is_loaded(tmp_path: Path) -> None:
    rules: list[dict[str, Any]] = [{"name": "a", "match": {"routing_key": "orders-\U0001f600"}, "limit": {"messages": "5/s"}}]
    listener = {"name": "rabbit", "protocol": "amqp", "bind": "127.0.0.1:5672", "upstream": "127.0.0.1:5673"}
    text = json.dumps({"listeners": [listener], "rules": rules})
    assert "\\ud83d\\ude00" in text
    (tmp_path / "sluice.json").write_text(text)
    [rule] = load(tmp_path / "sluice.json").rules
    assert rule.match.routing_key is not None
    assert "orders-\U0001f600" in str(rule.match.routing_key)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r'{"a\ud83d\ude00": "\uD83D\uDE00!"}', {"a\U0001f600": "\U0001f600!"}),
        (r'["\\ud83d\\ude00", "\\\ud83d\ude00"]', ["\\ud83d\\ude00", "\\\U0001f600"]),
        (r"""[ '\ud83d\ude00', \ud83d, "\ud83d\ude00" ]  # \ud83d""", [r"\ud83d\ude00", r"\ud83d", "\U0001f600"]),
        ('a: "x\n\n  \\ud83d\\\n  \\ude00"', {"a": "x\n\U0001f600"}),
        ('a: |  # \\ud83d\n  \\ud83d\n  \\ude00\n# \\ud83d\nb: "\\ud83d\\ude00"', {"a": "\\ud83d\n\\ude00\n", "b": "\U0001f600"}),
        ("a: >-\r  \\ud83d\\ude00\r  # no\r\r# \\ud83d\rb: 1", {"a": "\\ud83d\\ude00 # no", "b": "1"}),
        ('["\ue000", "\\ue001", "\\ud83d\\ude00"]', ["\ue000", "\ue001", "\U0001f600"]),
    ],
)
def test_a_pair_in_double_quotes_is_one_character_and_all_else_is_what_was_written(text: str, expected: object) -> None:
    assert read(text) == expected


def test_whatever_json_writes_is_read_as_the_same() -> None:
    random = Random(20261127)

    def word() -> str:
        return "".join(random.choices(PIECES, k=random.randrange(9)))

    for _ in range(500):
        tree = {word(): [word(), word()], "\U0001f600": word()}
        assert read(json.dumps(tree)) == tree


def test_a_half_is_named_by_its_place_and_the_rest_is_read() -> None:
    problems = Problems()
    tree = parse(b'a: "\xf0\x9f\x98\x80\\ud83d\\ude00 \\ud83d\\u0041"\nb: "\\ude00\nc"\nd: e\n', "any.yaml", problems)
    assert [(problem.line, problem.column) for problem in problems.found] == [(1, 19), (2, 5)]
    assert plain(tree) == {"a": "", "b": "", "d": "e"}


def test_places_behind_a_pair_are_the_true_ones() -> None:
    tree = parse(b'{"a": "\\ud83d\\ude00", "b": 1}', "any.yaml", Problems())
    assert isinstance(tree, Mapping)
    assert tree.key_at("b").column == 23
