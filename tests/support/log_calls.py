"""Every place in the code that logs an event, read from the source: event, levels and fields. And a check of lines that are logged.

A place is a call of `log.event` or `log.failure`, or of a function that passes the event on: one with a parameter called `event`. Where the
event is an f-string, its beginning is known; where fields are unpacked (`**fields`), those are not seen.
"""

from __future__ import annotations

import ast
import json
import logging
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
sys.path.append(str(ROOT / "docs" / "reference"))  # where tests run on what is installed, the root is not on the path
import log_events  # noqa: E402

ALWAYS: Final = log_events.ALWAYS
LOG_EVENTS: Final = log_events.LOG_EVENTS
ROOMS: Final = ("common", "gateway", "admin", "control_plane", "limiter")
DIRECT: Final = {"event": 1, "failure": 0}  # functions of the modules `log`, and the position of the event's name
PASSED_ON: Final = frozenset({"name", "error", "level"})  # parameters of those that are no fields


class Place(NamedTuple):
    """`event` ends with `*` where only its beginning is known; `levels` is empty where a function passes it on."""

    event: str
    levels: frozenset[str]
    fields: frozenset[str]
    where: str


def texts(node: ast.expr | None) -> Iterator[str]:
    """The texts an expression can be: itself, or one of `a or b`, `a if c else b`; of an f-string its beginning and `*`."""
    match node:
        case ast.Constant(value=str(text)) if text:
            yield text
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            yield f"{text}*"
        case ast.BoolOp():
            for value in node.values:
                yield from texts(value)
        case ast.IfExp():
            yield from texts(node.body)
            yield from texts(node.orelse)


def places() -> list[Place]:
    trees = {path: ast.parse(path.read_text()) for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))}
    passing = {name: position for tree in trees.values() for name, position in _passing(tree)}
    return [place for path, tree in trees.items() for place in _places(tree, str(path.relative_to(ROOT)), passing)]


def _passing(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Functions that are given an event's name, and where; a class by its own name."""
    makers = {id(made): node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for made in node.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            names = [argument.arg for argument in node.args.args if argument.arg != "self"]
            if "event" in names:
                yield (makers.get(id(node), "") if node.name == "__init__" else node.name), names.index("event")


def _places(tree: ast.Module, where: str, passing: dict[str, int]) -> Iterator[Place]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr=name)) if name in DIRECT:
                yield from _place(node, DIRECT[name], where, {"error"} if name == "failure" else _levels(node.args[0]))
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in passing:
                yield from _place(node, passing[name], where, set())
            case ast.Assign(targets=[ast.Name(id="event")], value=value):
                yield from (Place(event, frozenset(), frozenset(), where) for event in texts(value))
            case ast.FunctionDef(args=ast.arguments(posonlyargs=first, args=named, defaults=defaults)) if defaults:
                for argument, default in zip([*first, *named][-len(defaults) :], defaults, strict=True):
                    if argument.arg == "event":
                        yield from (Place(event, frozenset(), frozenset(), where) for event in texts(default))


def _place(call: ast.Call, position: int, where: str, levels: set[str]) -> Iterator[Place]:
    fields = frozenset(word.arg for word in call.keywords if word.arg and word.arg not in PASSED_ON)
    given = call.args[position] if position < len(call.args) else None
    yield from (Place(event, frozenset(levels), fields, f"{where}:{call.lineno}") for event in texts(given))


def _levels(node: ast.expr) -> set[str]:
    """The levels that an expression can be: `logging.INFO`, or one of `a if c else b`."""
    return {found.attr.lower() for found in ast.walk(node) if isinstance(found, ast.Attribute) and found.attr.isupper()}


class LogCheck(logging.Handler):
    """Holds every line that is logged against the table of events. `unlike`: what is not as it says."""

    def __init__(self) -> None:
        super().__init__()
        self.unlike: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        self.unlike.update(faults(record.getMessage(), record.levelname.lower(), getattr(record, "fields", {})))


def faults(event: str, level: str, fields: Iterable[str]) -> Iterator[str]:
    """What of a line the table does not say."""
    described = LOG_EVENTS.get(event)
    if described is None:
        yield f"event {event}"
        return
    if level not in described.levels:
        yield f"{event}: level {level}"
    yield from (f"{event}: field {name}" for name in fields if name not in described.fields and name not in ALWAYS)


def faults_of_lines(log: str) -> set[str]:
    """The same of what a process has written to its standard error, in JSON."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith('{"ts": ')]
    return {fault for line in lines for fault in faults(line["event"], line["level"], line)}
