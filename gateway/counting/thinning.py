"""A second of the access log with more lines than there is room for: which topics are dropped.

Whole topics, so that those that are there are complete. First go names that are not known (`known_names.py`), the last that came of them;
then the latest known. A topic with more than MAX_KEYS_OF_TOPIC is not spared because it is known: there the names of groups are made up.

100,000 keys take some 20 ms, and all messages would wait for so long; so it is done in slices.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from gateway.counting.access_log_lines import Second
from gateway.counting.known_names import KnownNames, name_of
from limiter.keys import Key

MAX_KEYS_OF_TOPIC: Final = 10_000  # in a second; a topic with more is dropped as if it were not known (a guess)
SLICE_KEYS: Final = 2048  # looked at in one go: some 0.3 ms


def thin_out(second: Second, known: KnownNames, room: int, room_unknown: int) -> Generator[None, None, bool]:
    """Drop the topics for which there is no room. False where there is too little: the second is to be lost as a whole.

    `room`: the keys that may be kept in all; `room_unknown`: of these, at most so many of topics that are not known.
    """
    keys = second.gathering.keys
    names: list[int] = []
    counts: dict[int, int] = {}
    for first in range(0, len(keys), SLICE_KEYS):
        for key in keys[first : first + SLICE_KEYS]:
            name = name_of(key)
            names.append(name)
            counts[name] = counts.get(name, 0) + 1
        yield
    ranked: list[tuple[int, int]] = []  # rank and name
    others: list[int] = []  # in the order in which they came: what has steady traffic is among the first
    topics = list(counts)
    for first in range(0, len(topics), SLICE_KEYS):
        for name in topics[first : first + SLICE_KEYS]:
            rank = known.rank(name)
            if rank < known.most and counts[name] <= MAX_KEYS_OF_TOPIC:
                ranked.append((rank, name))
            else:
                others.append(name)
        yield
    ranked.sort()
    kept = select_fitting([name for _, name in ranked], counts, room)
    used = sum([counts[name] for name in kept])
    if used * 2 < sum([counts[name] for _, name in ranked]):
        return False  # a topic that is not there seems idle: better no second than one without most of what goes on
    yield
    kept |= select_fitting(others, counts, min(room_unknown, room - used))
    at: list[int] = []
    dropped: set[Key] = set()
    for first in range(0, len(keys), SLICE_KEYS):
        for place in range(first, min(first + SLICE_KEYS, len(keys))):
            if names[place] in kept:
                at.append(place)
            else:
                dropped.add(keys[place])
        yield
    second.dropped = len(dropped)
    second.gathering.keep(at)
    return True


def select_fitting(names: list[int], counts: dict[int, int], room: int) -> set[int]:
    """Of the topics, the first ones whose keys there is room for."""
    kept: set[int] = set()
    for name in names:
        if room <= 0:
            break
        if counts[name] <= room:
            room -= counts[name]
            kept.add(name)
    return kept
