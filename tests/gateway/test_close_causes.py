"""The causes of `sluice_connections_closed_total`: those listed are those there are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.admission import CAUSES
from gateway.close_causes import COMMON, by_cause
from gateway.protocols import PROTOCOLS
from gateway.protocols.amqp.handshake import OTHER_PROTOCOLS
from support.cases import in_one_loop

ROOT = Path(__file__).parents[2] / "gateway"
POSITIONS = {
    "send_close": 2,
    "close_gracefully": 2,
    "give_client_up": 2,
    "abort": 0,
    "finish": 0,
    "count_closed": 0,
    "_lost": 1,
    "client_error": 2,
    "Refusal": 0,
    "RefusedError": 0,
}


def texts(node: ast.expr) -> Iterator[str]:
    """The texts an expression can be: itself, or one of `a or b`, `a if c else b`."""
    match node:
        case ast.Constant(value=str(text)) if text:
            yield text
        case ast.BoolOp():
            for value in node.values:
                yield from texts(value)
        case ast.IfExp():
            yield from texts(node.body)
            yield from texts(node.orelse)


def said() -> Iterator[str]:
    """Every cause that stands in the code as a text."""
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if POSITIONS.get(name, 99) < len(node.args):
                    yield from texts(node.args[POSITIONS[name]])
                case ast.Call(func=ast.Name(id="partial"), args=[ast.Name(id=name), *args]) if POSITIONS.get(name, 99) < len(args):
                    yield from texts(args[POSITIONS[name]])
                case ast.FunctionDef(args=ast.arguments(posonlyargs=first, args=named, defaults=defaults)) if defaults:
                    for argument, default in zip([*first, *named][-len(defaults) :], defaults, strict=True):
                        if argument.arg == "cause":
                            yield from texts(default)
                case ast.keyword(arg="cause"):
                    yield from texts(node.value)
                case ast.Assign(targets=[ast.Attribute(attr="cause")]) | ast.Assign(targets=[ast.Name(id="cause")]):
                    yield from texts(node.value)


def test_every_cause_in_the_code_is_listed_and_no_other() -> None:
    found = {*said(), *CAUSES, "broker", "handshake_timeout"}  # the last three kinds stand as names or are put together
    found |= {f"wrong_protocol_{name}" for _, name in OTHER_PROTOCOLS}
    found |= {f"wrong_protocol_{name}" for name in ("unknown", "amqp_1_0", "amqp_version")}
    assert found - {"unknown", "amqp_1_0", "amqp_version"} == {
        *COMMON,
        *(cause for protocol in PROTOCOLS.values() for cause in protocol.close_causes),
    }


@in_one_loop
@pytest.mark.parametrize(
    ("cause", "meaning"), [*COMMON.items(), *(one for each in PROTOCOLS.values() for one in each.close_causes.items())]
)
def test_every_cause_has_a_meaning_in_whole_sentences(cause: str, meaning: str) -> None:
    assert meaning[0].isupper(), cause
    assert meaning.endswith("."), cause


def test_series_begin_at_0_for_every_cause_of_the_protocol() -> None:
    shown = by_cause("amqp", {"heartbeat": 3, "new": 1})
    assert (shown["heartbeat"], shown["idle"], shown["new"]) == (3, 0, 1)
    assert "heartbeat" not in by_cause("rocketmq", {})
