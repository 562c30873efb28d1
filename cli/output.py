"""What goes to stdout: tables for people, JSON and YAML for programs.

Topic names come from untrusted clients, so no control character of theirs reaches a terminal.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import click

from cli import tables
from cli.tables import AnyColumn, TableColumn, cell_width, column
from common.figures import pluralise
from common.unsafe_characters import UNSAFE, escape

_ANSI: Final = re.compile("(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b\\]|\x9d).*?(?:\x07|\x1b\\\\|\x9c)|\x1b[@-_]")
WIDE: Final = "sluice.wide"  # in a context's `meta`: -o wide was given


Column = AnyColumn
__all__ = [
    "Column", "capture_lines", "cell", "clean", "colourful", "column", "columns", "emit", "emit_rows", "note_wide", "on_terminal",
    "out", "print_status", "prose", "stack_items", "summarise", "table_width", "terminal_width",
]  # fmt: skip


def clean(text: object) -> str:
    """`text` on one line, without control characters and escape sequences."""
    return UNSAFE.sub("·", _ANSI.sub("", str(text)))


def colourful() -> bool:
    """Colour only on a terminal, and not where NO_COLOR asks for none (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def columns(*titles: str) -> list[TableColumn]:
    """Columns named as the members they show, with `_` as a blank; the further right, the less important."""
    return [column(title.replace("_", " ").split(".")[-1], title, rank=min(at * 3, 90)) for at, title in enumerate(titles)]


def emit(
    form: str, value: Any, shown: Sequence[AnyColumn] | None = None, *, stack: bool = False, uncut: bool = False, empty: str = ""
) -> None:
    """Write `value` to stdout as `table`, `wide`, `csv`, `json` or `yaml`. A list of objects is a table, an object one line per member.

    On a terminal a table has as many columns as fit, with figures for people; `wide` has all of them. In a pipe a table has every column
    and exact values. `stack`: on a terminal too narrow for the table, a few lines for each object instead; `uncut`: the same where any cell
    would be shortened. `empty` says to a person what a list without items means.
    """
    wide = form == "wide" or (form == "table" and is_wide())
    if form == "json":
        out("\n".join(escape(line) for line in json.dumps(value, indent=2, ensure_ascii=False).split("\n")))
    elif form == "yaml":
        import yaml

        text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=200)
        if UNSAFE.search(text.replace("\n", "")):  # YAML writes some of them plainly; without Unicode all are escapes in double quotes
            text = yaml.safe_dump(value, sort_keys=False, allow_unicode=False, width=200)
        out(text.rstrip("\n"))
    elif form == "csv":
        _csv(value, shown)
    elif isinstance(value, list):
        items, titles = [item for item in value if isinstance(item, dict)], shown or _all_columns(value)
        if not items and empty:
            print_status(empty)
        narrow = (stack or uncut) and not wide and on_terminal() and table_width(items, titles, uncut=uncut) > terminal_width()
        if narrow:
            out("\n".join(stack_items(items, titles, terminal_width(), 1 if uncut else 2)))
        elif items or not on_terminal():
            _table(items, tables.rank_columns(titles), wide=wide)
    elif isinstance(value, dict):
        _lines(value)
    elif value is not None:
        out("\n".join(clean(line) for line in str(value).splitlines()))


def on_terminal() -> bool:
    return sys.stdout.isatty()


def terminal_width() -> int:
    return shutil.get_terminal_size().columns


def is_wide() -> bool:
    """Whether -o wide was given to the command that runs; its form is `table` then."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(WIDE))


def note_wide(context: click.Context, _: click.Parameter, value: str) -> str:
    """The callback of -o: `wide` is a table."""
    if value == "wide":
        context.meta[WIDE] = True
        return "table"
    return value


_frames: Final[list[list[str]]] = []  # that are being made, the innermost last


def out(text: str) -> None:
    """Write lines to stdout, or into the frame that is being made."""
    if _frames:
        _frames[-1].extend(text.split("\n"))
    else:
        click.echo(text)


@contextmanager
def capture_lines() -> Iterator[list[str]]:
    """Collect what is written meanwhile, the notes to the person too, as the lines of one frame."""
    _frames.append([])
    try:
        yield _frames[-1]
    finally:
        _frames.pop()


def _csv(value: Any, shown: Sequence[AnyColumn] | None) -> None:
    """Comma-separated values with a header (RFC 4180), exact and with every column; an object without a list is name and value."""
    if isinstance(value, dict):
        inner = next((each for each in value.values() if isinstance(each, list) and each and isinstance(each[0], dict)), None)
        if inner is None and any(isinstance(value.get(name), list) for name in ("items", "levels", "events", "changes")):
            inner = []
        if inner is None:
            inner, shown = [{"name": name, "value": text} for name, text in _flat(value, "")], columns("name", "value")
        value = inner
    items = [item for item in value if isinstance(item, dict)] if isinstance(value, list) else [{"value": value}]
    titles = tables.rank_columns(shown or _all_columns(items))
    emit_rows([[each.title.replace(" ", "_") for each in titles], *([each.read(item) for each in titles] for item in items)])


def emit_rows(rows: Iterable[Sequence[object]]) -> None:
    """Write lines of comma-separated values, one row each; characters that would do something where they are shown are escaped."""
    import csv  # here, because a gateway's start goes by this module

    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_exact(value) for value in row] for row in rows)
    written = text.getvalue().rstrip("\n")
    out(written)


def _exact(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return escape(json.dumps(value, ensure_ascii=False))
    return escape(value) if isinstance(value, str) else value


def _all_columns(items: Iterable[Any]) -> list[TableColumn]:
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


def _table(items: list[dict[str, Any]], shown: Sequence[TableColumn], *, wide: bool) -> None:
    terminal = on_terminal()
    if not terminal and not wide:
        made = tables.make_plain([each.title for each in shown], [[cell(each.read(item)) for each in shown] for item in items])
    else:
        rows = [[cell((each.people or each.read)(item)) for each in shown] for item in items]
        made = tables.make_plain([each.title for each in shown], rows) if wide else tables.fit_table(shown, rows, terminal_width())
    head, *lines = made.lines
    out("\n".join([f"\x1b[1m{head}\x1b[0m" if colourful() else head, *lines]))
    notes = [f"{pluralise(made.dropped, 'column')} more with -o wide"] if made.dropped else []
    notes += [f"{tables.ELLIPSIS} is whole with -o wide"] if made.shortened else []
    if notes:
        print_status("; ".join(notes))


FOLDED: Final = 30  # columns; a last column, often a reason in words, may be folded to this and be read with ease (a guess)


def table_width(items: Sequence[dict[str, Any]], shown: Sequence[AnyColumn], *, uncut: bool = False) -> int:
    """Columns that the table takes: each column's widest cell and the gap; of the last one FOLDED at most, unless it is to be `uncut`."""
    widest = [
        max([cell_width(each.title), *(cell_width(_format_cell(each, item)) for item in items)]) for each in tables.rank_columns(shown)
    ]
    return sum(widest[:-1]) + len(tables.GAP) * (len(widest) - 1) + (widest[-1] if uncut else min(widest[-1], FOLDED))


def stack_items(items: Sequence[dict[str, Any]], shown: Sequence[AnyColumn], width: int, heads: int = 2) -> list[str]:
    """A few lines for each item: its first columns (`heads`), then each other one that has a value, folded to `width`; words stay whole."""
    lines: list[str] = []
    titles = tables.rank_columns(shown)
    indent = max((len(each.title) for each in titles[heads:]), default=0) + 4
    for item in items:
        lines += _fold_text(" ".join(_format_cell(each, item) for each in titles[:heads]), "", width)
        for each in titles[heads:]:
            text = _format_cell(each, item)
            if text != "-":
                lines += tables.fold(text.split(" "), max(width, indent + 20), indent=" " * indent, first=f"  {each.title:{indent - 4}}  ")
    return lines


def _format_cell(shown: TableColumn, item: dict[str, Any]) -> str:
    return cell((shown.people or shown.read)(item))


def _lines(value: dict[str, Any]) -> None:
    """An object as `name  value` lines; objects and lists within as lines of their own."""
    flat = list(_flat(value, ""))
    width = max((len(name) for name, _ in flat), default=0)
    for name, text in flat:
        prose(f"{name:{width}}  {text}".rstrip(), " " * (width + 2))


def _flat(value: Any, path: str) -> Iterable[tuple[str, str]]:
    if isinstance(value, dict) and (value or not path):
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{clean(name)}" if path else clean(name))
    elif isinstance(value, list) and any(isinstance(inner, dict | list) for inner in value):
        for number, inner in enumerate(value):
            yield from _flat(inner, f"{path}[{number}]")
    else:
        yield path, cell(value)


def print_status(message: str) -> None:
    """Write a message for the person at the terminal to stderr, folded to its width. Data goes to stdout (`emit`)."""
    lines = _fold_text(clean(message), "") if sys.stderr.isatty() or (_frames and on_terminal()) else [clean(message)]
    if _frames:
        _frames[-1].extend(lines)
    else:
        click.echo("\n".join(lines), err=True)


def prose(line: str, indent: str = "") -> None:
    """Write a line to stdout, on a terminal folded at its blanks; the lines after the first are indented. A word is never broken."""
    text = clean(line).rstrip()
    out("\n".join(_fold_text(text, indent) if on_terminal() else [text]))


def _fold_text(text: str, indent: str, width: int = 0) -> list[str]:
    words = text.lstrip(" ").split(" ")
    first = " " * (len(text) - len(text.lstrip(" ")))
    return tables.fold(words, width or terminal_width(), indent=indent, first=first)
