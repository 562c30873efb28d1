"""Tables for people: as many columns as the terminal is wide, the important ones first, and no name broken.

A pipe gets every column and exact values, so that scripts may count on them. Widths are those of a terminal: a Chinese character takes two
columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from common import figures
from common.records import dataclass
from common.views.columns import Column, first_member

GAP: Final = "  "
MAX_CELL: Final = 36  # columns; a cell beside the name; longer text is shortened in the middle (a guess)
ELSEWHERE: Final = 60  # the rank of columns that people see within another one, so that a narrower table does not miss them
ESSENTIAL: Final = 3  # columns of this rank and below make room for none
MIN_CELL: Final = 14  # columns; what is left of shortened words (a guess)
NAME_SHARE: Final = 0.45  # of the terminal's width; a longer name has a line of its own (a guess: at 80 columns 36)
MIN_NAME: Final = 24  # columns; what a name has at least
BELOW: Final = "    "  # before what stands below a line
ELLIPSIS: Final = "…"
_NUMBER: Final = re.compile(r"-|-?[0-9.]+")
_FIGURE: Final = re.compile(r"-|-?[0-9][0-9.]*[kMGT]?(/s)?|-?[0-9][0-9.]* ([KMGT]i)?B(/s)?|-?[0-9.]+ %")

Read = Callable[[dict[str, Any]], object]


class TableColumn(NamedTuple):
    """A column: its exact value for programs, and what people see of it.

    `rank`: 0 is the name, which always is there; the higher the rank, the sooner the column makes room. `short` is its title on a terminal.
    """

    title: str
    read: Read
    rank: int = 50
    short: str = ""
    people: Read | None = None  # the same with units and three digits; None: as it is
    whole: bool = False  # its cells are never shortened: a less important column makes room, or it is not there; a name takes more lines
    below: bool = False  # where a cell would be shortened or have no room, the column's cells stand below their lines, whole
    pressing: int | None = None  # the rank where one of its cells is not 0; None: as ever

    @property
    def title_for_people(self) -> str:
        return self.short or self.title


AnyColumn = tuple[str, Read] | TableColumn


def rank_columns(shown: Sequence[AnyColumn]) -> list[TableColumn]:
    """Plain columns are the less important the further right they stand; the first one is the name."""
    return [each if isinstance(each, TableColumn) else TableColumn(each[0], each[1], rank=min(at * 3, 90)) for at, each in enumerate(shown)]


def column(
    title: str, *names: str, rank: int = 50, short: str = "", figure: Callable[[float], str] | None = None, people: Read | None = None,
    whole: bool = False, below: bool = False, pressing: int | None = None,
) -> TableColumn:  # fmt: skip
    """A column that shows the first member of an item that exists; `a.b` is the member b of a. `figure` writes its number for people."""

    read = first_member(*names)

    def written(item: dict[str, Any]) -> object:
        value = read(item)
        return figure(value) if figure is not None and isinstance(value, int | float) and not isinstance(value, bool) else value

    return TableColumn(title, read, rank, short, people or (written if figure is not None else None), whole, below, pressing)


FIGURES: Final[dict[str, Callable[[float], str]]] = {  # how a number of a unit is written for people
    "messages": figures.count,
    "batches": figures.count,
    "messages/s": figures.rate,
    "bytes": figures.size,
    "bytes/s": figures.byte_rate,
    "seconds": figures.duration,
    "share": figures.percent,
    "wait ms": figures.wait,
}


class Special(NamedTuple):
    """What a terminal shows of a column otherwise than its unit says."""

    people: Read | None = None
    whole: bool = False  # as of a TableColumn
    below: bool = False
    read: Read | None = None  # the command's exact value, where that differs, too


def choose_columns(found: Sequence[Column], special: Mapping[str, Special]) -> list[TableColumn]:
    """The columns of views on a terminal. `special`: by title."""

    def table_column(each: Column) -> TableColumn:
        own, fact = special.get(each.title, Special()), each.fact
        people = own.people or (None if own.read else _people(each))
        return TableColumn(each.title, own.read or each.read, fact.rank, fact.short, people, own.whole, own.below, fact.pressing)

    return [table_column(each) for each in found]


def _people(each: Column) -> Read | None:
    figure = FIGURES.get(each.fact.unit)
    if figure is None:
        return None

    def written(item: dict[str, Any]) -> object:
        value = each.read(item)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        return figure(value) if value or not each.fact.quiet else None

    return written


@dataclass(frozen=True, slots=True)
class Table:
    """A table as lines, its header first, and how many columns it has no room for."""

    lines: list[str]
    dropped: int = 0
    shortened: bool = False


def cell_width(text: str) -> int:
    """Columns of a terminal: two for a wide character, none for one that joins the character before it."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    width = 0
    for each in text:
        kind = category(each)
        if kind[0] == "M" or kind == "Cf" or "\u1160" <= each <= "\u11ff" or "\ud7b0" <= each <= "\ud7fb":  # Korean vowels, endings
            continue
        width += 2 if east_asian_width(each) in "FW" else 1
    return width


def pad(text: str, width: int, *, right: bool = False) -> str:
    blanks = " " * max(width - cell_width(text), 0)
    return blanks + text if right else text + blanks


def shorten(text: str, width: int) -> str:
    """`text` in at most `width` columns; of a longer one the middle is left out, because names often differ at their end."""
    if cell_width(text) <= width:
        return text
    if width <= 1:
        return ELLIPSIS[:width]
    head = _fitting(text, (width - 1 + 1) // 2)
    tail = _fitting(text[::-1], width - 1 - cell_width(head))[::-1]
    return f"{head}{ELLIPSIS}{tail}"


def fold(parts: Sequence[str], width: int, *, indent: str = "", first: str = "", gap: str = " ") -> list[str]:
    """Parts beside one another, in lines of at most `width` columns. A part stays whole where a line has room for it, and a word always.

    The first line begins with `first`, those after it with `indent`. A word that is wider than the terminal has a line of its own.
    """
    lines: list[str] = []
    line, fresh = first, True  # fresh: it has no part yet
    for part in parts:
        joined = line + part if fresh else f"{line}{gap}{part}"
        if cell_width(joined) <= width:
            line, fresh = joined, False
            continue
        if line.strip():
            lines.append(line.rstrip())
        words = part.split(" ")
        if cell_width(indent + part) <= width or len(words) == 1:
            line = indent[: max(width - cell_width(part), 0)] + part
        else:
            *whole, line = fold(words, width, indent=indent, first=indent)
            lines += whole
        fresh = False
    return [*lines, line.rstrip()]


def _fitting(text: str, width: int) -> str:
    """The longest beginning of `text` in at most `width` columns."""
    used = 0
    for at, letter in enumerate(text):
        used += cell_width(letter)
        if used > width:
            return text[:at]
    return text


def make_plain(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Every column, as wide as it has to be."""
    widths = [max([cell_width(title), *(cell_width(row[at]) for row in rows)]) for at, title in enumerate(titles)]
    return Table([_line(row, widths, _right(rows, len(titles))) for row in (titles, *rows)])


def fit_table(shown: Sequence[TableColumn], rows: Sequence[Sequence[str]], width: int) -> Table:
    """As many columns as fit into `width`, by rank; the name comes first. A column without any value is left out, and not missed."""
    below: set[int] = set()
    able = {at for at, each in enumerate(shown) if each.below and any(row[at] != "-" for row in rows)}
    while True:
        made, whole = _fit(shown, rows, width, below)
        missing = able - whole - below
        if not missing:
            return made
        below.add(max(missing, key=lambda at: shown[at].rank))  # the least important first: the others may have room then


def _rank(shown: TableColumn, cells: Iterable[str]) -> int:
    """A column that has something to say comes before those that are asked for less."""
    return shown.rank if shown.pressing is None or all(cell in {"-", "0"} for cell in cells) else shown.pressing


def _fit(shown: Sequence[TableColumn], rows: Sequence[Sequence[str]], width: int, below: set[int]) -> tuple[Table, set[int]]:
    """The table, and its columns whose cells are all whole. The cells of the columns `below` stand below their lines."""
    right = _right(rows, len(shown))
    ranks = [_rank(each, (row[at] for row in rows)) for at, each in enumerate(shown)]
    order = sorted(range(len(shown)), key=lambda at: (ranks[at], at))
    name, *others = order
    others = [at for at in others if at not in below and ranks[at] < ELSEWHERE and any(row[at] != "-" for row in rows)]
    most = {at: width if shown[at].whole else MAX_CELL for at in others}
    widest = {at: max([cell_width(shown[at].title_for_people), *(min(cell_width(row[at]), most[at]) for row in rows)]) for at in others}
    longest = max([cell_width(shown[name].title_for_people), *(cell_width(row[name]) for row in rows)])
    name_width = min(longest, width, max(MIN_NAME, int(width * NAME_SHARE)))
    left = width - name_width
    kept: list[int] = []
    for at in others:
        if shown[at].whole:
            if longest > name_width:  # the longest has a line of its own anyway: so its column needs less
                given = min(max(widest[at] + len(GAP) - left, 0), max(name_width - MIN_NAME, 0))
                name_width -= given
                left += given
            for gone in _making_room([each for each in kept if ranks[each] > ESSENTIAL], widest, widest[at] + len(GAP) - left):
                kept.remove(gone)
                left += widest[gone] + len(GAP)
        if widest[at] + len(GAP) > left:
            room = max(left - len(GAP), 0)
            if right[at] or shown[at].whole or room < max(MIN_CELL, cell_width(shown[at].title_for_people)):
                continue
            widest[at] = room  # words may be shortened, figures not
        left -= widest[at] + len(GAP)
        kept.append(at)
    grown = min(longest, name_width + left)
    left -= grown - name_width
    name_width = grown
    for at in kept:  # by rank: what was to be shortened has what is left over
        more = min(max(cell_width(row[at]) for row in rows) - widest[at], left)
        if more > 0:
            widest[at] += more
            left -= more
    kept.sort()
    places = [name, *kept]
    widths = [name_width, *(widest[at] for at in kept)]
    sides = [False, *(right[at] for at in kept)]
    cut = any(cell_width(row[at]) > widest[at] for row in rows for at in kept)
    cut = cut or (not shown[name].whole and longest > width)
    lines = [_line([shown[at].title_for_people for at in places], widths, sides)]
    for row in rows:
        cells = [row[name], *(shorten(row[at], widest[at]) for at in kept)]
        lines += _row(cells, widths, sides, width, whole=shown[name].whole)
        for at in sorted(below):
            if row[at] != "-":
                lines += fold([f"{shown[at].title_for_people}:", *row[at].split(" ")], width, indent=BELOW, first=BELOW)
    whole = {at for at in kept if all(cell_width(row[at]) <= widest[at] for row in rows)}
    return Table(lines, len(others) - len(kept), cut), whole


def _making_room(kept: Sequence[int], widest: Mapping[int, int], missing: int) -> list[int]:
    """The columns, the least important first, that go where one needs `missing` columns of the terminal; none where all would not do."""
    gone = []
    for at in reversed(kept):
        if missing <= 0:
            break
        gone.append(at)
        missing -= widest[at] + len(GAP)
    return gone if missing <= 0 else []


def _row(cells: Sequence[str], widths: Sequence[int], sides: Sequence[bool], width: int, *, whole: bool) -> Iterator[str]:
    """One line; where the name does not fit into its column, a line for it alone before: folded if it is to be `whole`."""
    if cell_width(cells[0]) > widths[0]:
        yield from fold(cells[0].split(" "), width) if whole else [shorten(cells[0], width)]
        if len(cells) == 1:
            return
        cells = ["", *cells[1:]]
    yield _line(cells, widths, sides)


def _right(rows: Sequence[Sequence[str]], number: int) -> list[bool]:
    """Columns of numbers end at the right."""
    return [bool(rows) and all(_NUMBER.fullmatch(row[at]) or _FIGURE.fullmatch(row[at]) for row in rows) for at in range(number)]


def _line(cells: Sequence[str], widths: Sequence[int], sides: Sequence[bool]) -> str:
    return GAP.join(pad(text, width, right=side) for text, width, side in zip(cells, widths, sides, strict=True)).rstrip()
