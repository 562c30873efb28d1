"""Where each setting was written: the path of a setting, as `rules[17].match.topic`, and the place in a file.

A file may have 10,000 rules with ten settings each. As a dictionary of paths they took 4 kB a rule for as long as the gateway ran. So what
is within an item of a list is folded once the item is read: items with the same settings share the tuple of their paths, and each has the
places as bytes. It looks like a dictionary all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from struct import pack
from typing import Final

from config.problems import SourceLocation

PATH_END: Final = re.compile(r"[.\[]|$")
PLACE_BYTES: Final = 8  # line and column, 4 each: a file has 4 MiB at most


class SettingOrigins(Mapping[str, SourceLocation]):
    """Path of a setting -> where it was written. What was not written is not here."""

    def __init__(self) -> None:
        self._plain: dict[str, SourceLocation] = {}
        self._folded: dict[str, tuple[str, tuple[str, ...], bytes]] = {}  # path of an item -> file, the rest of each path, places
        self._shapes: dict[tuple[str, ...], tuple[str, ...]] = {}

    def merged(self, new: SettingOrigins, moved: Mapping[str, str]) -> SettingOrigins:
        """These, but all at and within each path in `moved` comes from `new`, where that path may be another. No two lie in one another."""
        made = SettingOrigins()
        self._put_into(made, dict.fromkeys(moved), others=True)
        new._put_into(made, {there: here for here, there in moved.items()}, others=False)
        return made

    def _put_into(self, made: SettingOrigins, moved: Mapping[str, str | None], *, others: bool) -> None:
        """Put what is within a path in `moved` under the path that it has there (None: nowhere), and `others` as they are."""

        def path_in(path: str) -> str | None:
            top = next((outer for outer in containing(path) if outer in moved), None)
            if top is None:
                return path if others else None
            to = moved[top]
            return None if to is None else to + path[len(top) :]

        in_part = {outer for top in moved for outer in containing(top) if outer != top}
        opened: dict[str, SourceLocation] = {}
        for item, folded in self._folded.items():
            to = path_in(item)
            if item in in_part or (to is not None and not to.endswith("]")):  # only items of lists are looked for folded
                opened |= {inner: self[inner] for inner in (item + rest for rest in folded[1])}
            elif to is not None:
                made._folded[to] = folded
        for path, location in (opened | self._plain).items():
            if (to := path_in(path)) is not None:
                made._plain[to] = location

    @property
    def mark(self) -> int:
        """What `fold` wants: where the item begins that is read now."""
        return len(self._plain)

    def fold(self, item: str, mark: int) -> None:
        """All that was put here since `mark` is at and within `item`."""
        found = [self._plain.popitem() for _ in range(len(self._plain) - mark)]
        found.reverse()
        file, cut = found[0][1].file if found else "", len(item)
        shape, places = [], []
        for path, (written, line, column) in found:
            if written != file or not line or not path.startswith(item):
                break
            shape.append(path[cut:])
            places.append(line << 32 | column)
        if not found or item in self._folded or len(places) < len(found):
            self._plain.update(found)
            return
        paths = tuple(shape)
        self._folded[item] = (file, self._shapes.setdefault(paths, paths), pack(f">{len(places)}Q", *places))

    def _within(self, path: str) -> tuple[str, int] | None:
        """The folded item that has `path`, and its number there."""
        end = path.rfind("]")
        while end > 0:
            item = path[: end + 1]
            found = self._folded.get(item)
            if found is not None and (rest := path[end + 1 :]) in found[1]:
                return item, found[1].index(rest)
            end = path.rfind("]", 0, end)
        return None

    def __getitem__(self, path: str) -> SourceLocation:
        found = self._plain.get(path)
        if found is not None:
            return found
        within = self._within(path)
        if within is None:
            raise KeyError(path)
        file, _, places = self._folded[within[0]]
        at = within[1] * PLACE_BYTES
        return SourceLocation(file, int.from_bytes(places[at : at + 4], "big"), int.from_bytes(places[at + 4 : at + 8], "big"))

    def __setitem__(self, path: str, location: SourceLocation) -> None:
        self._plain[path] = location

    def __iter__(self) -> Iterator[str]:
        yield from self._plain
        for item, (_, shape, _) in self._folded.items():
            yield from (path for rest in shape if (path := item + rest) not in self._plain)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<SettingOrigins of {len(self)} settings>"


def containing(path: str) -> list[str]:
    """A path and those that it lies within, the outermost first."""
    return [path[: each.start()] for each in PATH_END.finditer(path)]
