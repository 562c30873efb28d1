"""The keys that an origin has used lately, found by the octets of a name where they lie.

The obvious way cuts the name out of what was read and asks a dictionary: two objects a message, and Python's hash of it. Here a hash over
the octets, in native integers, names four neighbouring places of a table; where one of them has that hash, its name is compared. A name
that finds no place free is asked for the obvious way, and the oldest of the four goes. The table grows while names displace each other and
fill a quarter of it. So a client that invents names whose hashes meet costs itself what all did before, no more memory, and nobody else:
the table is its origin's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.vecs import vec
from mypy_extensions import i64

from common.octets import are_equal, hash_octets

if TYPE_CHECKING:
    from limiter.keys import Key

MIN_PLACES: Final = 16  # a power of two, as the next; a guess
MAX_PLACES: Final = 1 << 17  # 4 MB, beside the names, which are then 32,000 at least; a guess
WAYS: Final = 4  # places that a name may have
MAX_GROUPS: Final = 8  # of one origin; a guess


class RecentKeys:
    """Each key in one of the places that the hash of its name says."""

    __slots__ = ("_displaced", "_mask", "_used", "hashes", "keys", "names", "numbers")

    def __init__(self, places: int = MIN_PLACES) -> None:
        self._clear(places)

    def _clear(self, places: int) -> None:
        self._mask: i64 = places - WAYS  # of the first of a name's places
        self.hashes = vec[i64]([-1] * places)  # -1: the place is free
        self.names: list[bytes] = [b""] * places
        self.keys: list[Key | None] = [None] * places
        self.numbers = vec[i64]([0] * places)  # by `limiter.scanned_columns`: its turn << 16 | number of the key's sum then
        self._used: i64 = 0  # places
        self._displaced: i64 = 0  # since it has grown

    def find(self, data: bytes, start: i64, end: i64) -> Key | None:
        """The key of the name `data[start:end]`, or None where it was not noted lately."""
        wanted: i64 = hash_octets(data, start, end)
        place: i64 = find_place(self.hashes, self.names, wanted, wanted & self._mask, data, start, end)
        return None if place < 0 else self.keys[place]

    def _place(self, wanted: i64, name: bytes) -> i64:
        """Where `name` is, whose hash is `wanted`; -1: nowhere."""
        return find_place(self.hashes, self.names, wanted, wanted & self._mask, name, 0, len(name))

    def note(self, name: bytes, key: Key) -> None:
        """`key` is what the name has; the next `find` knows it."""
        size: i64 = len(name)
        wanted: i64 = hash_octets(name, 0, size)
        place: i64 = self._place(wanted, name)
        if place < 0:
            place = wanted & self._mask
            last: i64 = place + WAYS - 1
            while place < last and self.hashes[place] >= 0:
                place += 1
            if self.hashes[place] < 0:
                self._used += 1
            else:
                self._displaced += 1
                place = wanted & self._mask
                while place < last:  # the first is the oldest
                    self._move(place + 1, place)
                    place += 1
        hashes = self.hashes
        hashes[place] = wanted
        self.names[place] = name
        self.keys[place] = key
        numbers = self.numbers
        numbers[place] = 0
        places: i64 = len(self.keys)
        if 4 * self._displaced >= places and 4 * self._used >= places and places < MAX_PLACES:
            self._grow()

    def _move(self, source: i64, place: i64) -> None:
        hashes = self.hashes
        hashes[place] = hashes[source]
        self.names[place] = self.names[source]
        self.keys[place] = self.keys[source]
        numbers = self.numbers
        numbers[place] = numbers[source]

    def forget(self, name: bytes) -> None:
        """The key of `name` shall live no longer for having been used lately."""
        place: i64 = self._place(hash_octets(name, 0, len(name)), name)
        if place >= 0:
            hashes = self.hashes
            hashes[place] = -1
            self.names[place] = b""
            self.keys[place] = None
            self._used -= 1

    def forget_key(self, name: bytes, key: Key) -> None:
        """As `forget`, where `key` is what `name` has."""
        if self.find(name, 0, len(name)) is key:
            self.forget(name)

    def _grow(self) -> None:
        names, keys = self.names, self.keys
        self._clear(2 * len(keys))
        for name, key in zip(names, keys, strict=True):
            if key is not None:
                self.note(name, key)
        self._displaced = 0

    def __repr__(self) -> str:
        return f"<RecentKeys {self._used}/{len(self.keys)}>"


def recent_of_group(key: Key) -> RecentKeys | None:
    """Those that are of the same origin, operation and group as `key`, by their topics; None: there are too many groups."""
    groups = key.origin.recent_groups
    place = key.operation, key.group or b""
    found = groups.get(place)
    if found is None and len(groups) < MAX_GROUPS:
        found = groups[place] = RecentKeys()
    return found


# ---- also in C (`recent_keys.c`) ------------------------------------------------------------------------------------


def find_place(hashes: vec[i64], names: list[bytes], wanted: i64, first: i64, data: bytes, start: i64, end: i64) -> i64:
    """In which of the WAYS places from `first` on the name `data[start:end]` is, whose hash is `wanted`; -1: in none."""
    place: i64 = first
    while place < first + WAYS:
        if hashes[place] == wanted:
            name = names[place]
            if len(name) == end - start and are_equal(name, 0, data, start, end - start):
                return place
        place += 1
    return -1
