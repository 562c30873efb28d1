"""What goes to stdout: tables for people, JSON and YAML for programs.

Topic names come from untrusted clients, so no control character of theirs reaches a terminal.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import click

# Control characters (C0, DEL, C1), bidirectional overrides, zero-width and line separators, and surrogates, which no terminal can show.
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_ANSI: Final = re.compile("(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b\\]|\x9d).*?(?:\x07|\x1b\\\\|\x9c|$)|\x1b[@-_]")
WIDE: Final = 10_000  # columns of a "terminal" that is a pipe: never wrap what a program reads


def clean(text: object) -> str:
    """`text` on one line, without control characters and escape sequences."""
    return _UNSAFE.sub("·", _ANSI.sub("", str(text)))


def colourful() -> bool:
    """Colour only on a terminal, and not where NO_COLOR asks for none (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


Column = tuple[str, Callable[[dict[str, Any]], object]]


def column(title: str, *names: str) -> Column:
    """A column that shows the first member of an item that exists; `a.b` is the member b of a."""

    def read(item: dict[str, Any]) -> object:
        for name in names:
            value: Any = item
            for part in name.split("."):
                value = value.get(part) if isinstance(value, dict) else None
            if value is not None:
                return value
        return None

    return title, read


def columns(*titles: str) -> list[Column]:
    """Columns named as the members they show, with `_` as a blank."""
    return [column(title.replace("_", " ").split(".")[-1], title) for title in titles]


def emit(form: str, value: Any, shown: Sequence[Column] | None = None, *, stack: bool = False) -> None:
    """Write `value` to stdout as `table`, `json` or `yaml`. A list of objects is a table, an object one line per member.

    `stack`: on a terminal too narrow for the table, a few lines for each object instead.
    """
    if form == "json":
        click.echo(_escaped(json.dumps(value, indent=2, ensure_ascii=False)))
    elif form == "yaml":
        import yaml

        text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=200)
        if _UNSAFE.search(text.replace("\n", "")):  # YAML writes some of them plainly; without Unicode all are escapes in double quotes
            text = yaml.safe_dump(value, sort_keys=False, allow_unicode=False, width=200)
        click.echo(text, nl=False)
    elif isinstance(value, list):
        items, titles = [item for item in value if isinstance(item, dict)], shown or _all_columns(value)
        columns_here = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDE
        if stack and table_width(items, titles) > columns_here:
            click.echo("\n".join(stacked(items, titles, columns_here)))
        else:
            _table(items, titles)
    elif isinstance(value, dict):
        _lines(value)
    elif value is not None:
        click.echo("\n".join(clean(line) for line in str(value).splitlines()))


def _escaped(text: str) -> str:
    """JSON text with every control character escaped; one can only stand within double quotes."""
    return re.sub(_UNSAFE, lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def _all_columns(items: Iterable[Any]) -> list[Column]:
    names: dict[str, None] = {}
    for item in items:
        if isinstance(item, dict):
            names.update(dict.fromkeys(name for name, value in item.items() if not isinstance(value, dict | list)))
    return columns(*names)


def cell(value: object) -> str:
    """A value as it stands in a table."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    if isinstance(value, dict):
        return clean(", ".join(f"{name} {cell(inner)}" for name, inner in value.items()))
    if isinstance(value, list):
        return clean(", ".join(cell(inner) for inner in value))
    return clean(value)


def summarise(stored: object) -> str:
    """A stored change on one line: `messages 7/s`. Its author, time and reason have columns of their own."""
    if not isinstance(stored, dict):
        return "none"
    return cell({name: value for name, value in stored.items() if value is not None and name not in {"by", "at", "reason", "sha256"}})


def _table(items: list[dict[str, Any]], shown: Sequence[Column]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = sys.stdout.isatty()
    table = Table(box=None, pad_edge=False, show_header=True, header_style="bold" if colourful() else "")
    rows = [[cell(read(item)) for _, read in shown] for item in items]
    for number, (title, _) in enumerate(shown):
        numeric = bool(rows) and all(re.fullmatch(r"-|-?[0-9.]+", row[number]) for row in rows)
        table.add_column(title, justify="right" if numeric else "left", overflow="fold", no_wrap=not terminal)
    for row in rows:
        table.add_row(*(Text(text) for text in row))  # Text: brackets in names are not markup
    console = Console(
        file=sys.stdout,
        width=None if terminal else WIDE,
        no_color=not colourful(),
        force_terminal=None if terminal else False,
        highlight=False,
    )
    with console.capture() as capture:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


FOLDED: Final = 30  # columns; a last column, often a reason in words, may be folded to this and be read with ease (a guess)


def table_width(items: Sequence[dict[str, Any]], shown: Sequence[Column]) -> int:
    """Columns that the table takes: each column's widest cell and a blank, the last one folded to FOLDED."""
    widest = [max([len(title), *(len(cell(read(item))) for item in items)]) for title, read in shown]
    return sum(widest[:-1]) + len(widest) - 1 + min(widest[-1], FOLDED)


def stacked(items: Sequence[dict[str, Any]], shown: Sequence[Column], width: int) -> list[str]:
    """A few lines for each item: its first two columns, then each other one that has a value, folded to `width`."""
    lines: list[str] = []
    indent = max((len(title) for title, _ in shown[2:]), default=0) + 4
    for item in items:
        lines += textwrap.wrap(" ".join(cell(read(item)) for _, read in shown[:2]), width) or [""]
        for title, read in shown[2:]:
            text = cell(read(item))
            if text != "-":
                first = f"  {title:{indent - 4}}  "
                lines += textwrap.wrap(text, max(width, indent + 20), initial_indent=first, subsequent_indent=" " * indent)
    return lines


def _lines(value: dict[str, Any]) -> None:
    """An object as `name  value` lines; objects and lists within as lines of their own."""
    flat = list(_flat(value, ""))
    width = max((len(name) for name, _ in flat), default=0)
    for name, text in flat:
        click.echo(f"{name:{width}}  {text}".rstrip())


def _flat(value: Any, path: str) -> Iterable[tuple[str, str]]:
    if isinstance(value, dict) and (value or not path):
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{clean(name)}" if path else clean(name))
    elif isinstance(value, list) and any(isinstance(inner, dict | list) for inner in value):
        for number, inner in enumerate(value):
            yield from _flat(inner, f"{path}[{number}]")
    else:
        yield path, cell(value)


def counted(number: int, thing: str) -> str:
    """`1 rule`, `2 rules`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def print_status(message: str) -> None:
    """Write a message for the person at the terminal to stderr. Data goes to stdout (`emit`)."""
    click.echo(clean(message), err=True)
