"""The keys that an origin has used lately, found by the octets of a name where they lie.

The obvious way cuts the name out of what was read and asks a dictionary: two objects a message, and Python's hash of it. Here a hash over
the octets, in native integers, names one place of a table; what lies there is compared. A name that meets another's place is asked for the
obvious way and takes it. So a client that invents names whose hashes meet costs itself what all did before, and nobody else: the table is
its origin's. It grows while names displace each other, to MAX_PLACES at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i64

if TYPE_CHECKING:
    from limiter.keys import Key

MIN_PLACES: Final = 16  # a power of two, as the next; a guess
MAX_PLACES: Final = 1024  # 16 KB, beside the names; a guess
MAX_GROUPS: Final = 8  # of one origin; a guess
FACTOR: Final = 0x2C1B3C6D  # odd, and below 2**30: the product of it and 32 bits is a native integer


class RecentKeys:
    """Each key in the place that the hash of its name says."""

    __slots__ = ("_displaced", "_keys", "_mask", "_names")

    def __init__(self) -> None:
        self._mask: i64 = MIN_PLACES - 1
        self._names: list[bytes] = [b""] * MIN_PLACES
        self._keys: list[Key | None] = [None] * MIN_PLACES
        self._displaced: i64 = 0  # since it has grown

    def find(self, data: bytes, start: i64, end: i64) -> Key | None:
        """The key of the name `data[start:end]`, or None where it was not noted lately."""
        place: i64 = hash_octets(data, start, end) & self._mask
        name = self._names[place]
        size: i64 = end - start
        if len(name) != size:
            return None
        at: i64 = 0
        while at + 8 <= size:
            if read_i64_le(data, start + at) != read_i64_le(name, at):
                return None
            at += 8
        while at < size:
            if data[start + at] != name[at]:
                return None
            at += 1
        return self._keys[place]

    def note(self, name: bytes, key: Key) -> None:
        """`key` is what the name has; the next `find` knows it."""
        place: i64 = hash_octets(name, 0, len(name)) & self._mask
        if self._keys[place] is not None:
            self._displaced += 1
            if 4 * self._displaced > self._mask and self._mask < MAX_PLACES - 1:
                self._grow()
                place = hash_octets(name, 0, len(name)) & self._mask
        self._names[place] = name
        self._keys[place] = key

    def forget(self, name: bytes) -> None:
        """The key of `name` shall live no longer for having been used lately."""
        place: i64 = hash_octets(name, 0, len(name)) & self._mask
        if self._names[place] == name:
            self._names[place] = b""
            self._keys[place] = None

    def forget_key(self, name: bytes, key: Key) -> None:
        """As `forget`, where `key` is what `name` has."""
        if self.find(name, 0, len(name)) is key:
            self.forget(name)

    def _grow(self) -> None:
        names, keys = self._names, self._keys
        self._mask = 4 * (self._mask + 1) - 1
        self._displaced = 0
        self._names = [b""] * (self._mask + 1)
        self._keys = [None] * (self._mask + 1)
        for name, key in zip(names, keys, strict=True):
            if key is not None:
                place: i64 = hash_octets(name, 0, len(name)) & self._mask
                self._names[place] = name
                self._keys[place] = key

    def __repr__(self) -> str:
        return f"<RecentKeys {len(self._keys) - self._keys.count(None)}/{len(self._keys)}>"


def recent_of_group(key: Key) -> RecentKeys | None:
    """Those that are of the same origin, operation and group as `key`, by their topics; None: there are too many groups."""
    groups = key.origin.recent_groups
    place = key.operation, key.group or b""
    found = groups.get(place)
    if found is None and len(groups) < MAX_GROUPS:
        found = groups[place] = RecentKeys()
    return found


def hash_octets(data: bytes, start: i64, end: i64) -> i64:
    """32 bits of which the last depend on all octets."""
    found: i64 = end - start
    at: i64 = start
    while at + 4 <= end:
        found = (found ^ (i64(read_i32_le(data, at)) & 0xFFFF_FFFF)) * FACTOR
        found = (found ^ found >> 32) & 0xFFFF_FFFF
        at += 4
    while at < end:
        found = (found ^ data[at]) * FACTOR
        found = (found ^ found >> 32) & 0xFFFF_FFFF
        at += 1
    return found ^ found >> 15
