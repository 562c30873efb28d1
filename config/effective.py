"""The effective configuration value by value, each with where it comes from (`GET /v1/config?origins=1`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from config.problems import SourceLocation
    from config.settings import Settings


def values_with_origins(settings: Settings) -> list[dict[str, object]]:
    """Every value: `path`, `value`, `origin`. None of them is a secret: tokens and passwords stand in files, of which the path is shown."""
    return [
        {"path": path, "value": value, "origin": describe_location(settings.origin(path))}
        for path, value in leaves(settings.describe(), "")
    ]


def leaves(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Every value with its path, in the order shown."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value and any(isinstance(item, dict | list) for item in value):
        for number, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{number}]")
    else:
        yield path, value


def describe_location(location: SourceLocation) -> dict[str, object]:
    """`{"kind": "file", "file": ..., "line": ..., "column": ...}`, or environment and flag with their `name`, or default."""
    if location.line:
        return {"kind": "file", "file": location.file, "line": location.line, "column": location.column}
    kind, _, name = location.file.partition(" ")
    if kind in ("environment", "flag"):
        return {"kind": kind, "name": name}
    return {"kind": "default"}
