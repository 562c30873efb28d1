"""Repeated events: a limit that is reached says so once a second and bucket, which buries everything else.

The first line of an episode is shown; what repeats it is one line, the last one, with how many it stands for.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

Event = dict[str, Any]
REPEATED: Final = "limit_reached"  # the one event that is told again and again while something lasts
EPISODE: Final = ("since", "protocol", "operation", "per", "rule", "thing")  # what one episode's lines have in common
SUMMED: Final = ("refused", "delayed")  # messages since the line before
STANDS_FOR: Final = "lines"  # the field of a line that stands for several: how many
AGAIN_S: Final = 60.0  # seconds; an episode that goes on is told again after so long, when events are followed


def episode_of(event: Event) -> tuple[object, ...] | None:
    """What an event repeats; None for one that stands for itself. A bucket without a name is that of its topic."""
    if event.get("event") != REPEATED:
        return None
    return (*map(event.get, EPISODE), None if event.get("thing") else event.get("topic"))


def folded(events: Iterable[Event]) -> list[Event]:
    """The first event of each episode, and for those that repeat it one: in the place of the last, with their sum."""
    shown: dict[int, Event] = {}
    known: dict[tuple[object, ...], tuple[int, Event | None]] = {}  # episode -> the place of its last line, and what is summed there
    for at, event in enumerate(events):
        episode = episode_of(event)
        if episode is None:
            shown[at] = event
        elif episode not in known:
            shown[at] = event
            known[episode] = at, None
        else:
            before, sum_of_them = known[episode]
            if sum_of_them is not None:
                del shown[before]
            shown[at] = together(sum_of_them, event)
            known[episode] = at, shown[at]
    return [shown[at] for at in sorted(shown)]


def together(before: Event | None, event: Event) -> Event:
    """`event` as the line that stands for itself and for `before`."""
    if before is None:
        return event
    summed: Event = {name: int(before.get(name) or 0) + int(event.get(name) or 0) for name in SUMMED if name in event}
    return {**event, **summed, STANDS_FOR: int(before.get(STANDS_FOR) or 1) + 1}


class Following:
    """What is shown of events that are followed: the first of each episode, then one a minute for those in between."""

    def __init__(self) -> None:
        self._told: dict[tuple[object, ...], tuple[float, Event | None]] = {}  # episode -> when it was told last, and what has not been

    def show(self, event: Event) -> Event | None:
        """The event to be shown now, if any."""
        episode = episode_of(event)
        if episode is None:
            return event
        at = _seconds(event)
        if episode not in self._told:
            self._told = {each: told for each, told in self._told.items() if at - told[0] < 2 * AGAIN_S}  # others have ended
            self._told[episode] = at, None
            return event
        told_at, waiting = self._told[episode]
        event = together(waiting, event)
        if at - told_at < AGAIN_S:
            self._told[episode] = told_at, event
            return None
        self._told[episode] = at, None
        return event


def _seconds(event: Event) -> float:
    try:
        return datetime.fromisoformat(str(event.get("ts"))).timestamp()
    except ValueError:
        return 0.0
