"""Repeated events: a limit that goes on being reached says so once a minute, worker and bucket, which buries everything else.

The first line of an episode is shown; what repeats it is one line, the last one, with how many it stands for. Nothing is summed across a
change of the limit: the lines before it and those after it are of different limits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import unquote

from limiter.operations import HELD_OPERATIONS

Event = dict[str, Any]
REPEATED: Final = "limit_reached"  # the one event that is told again and again while something lasts
EPISODE: Final = ("since", "protocol", "per", "rule", "thing")  # what one episode's lines have in common
IN_FORCE: Final = ("limit", "origin", "place")  # what a line says of its limit; another one begins where any of these differs
SUMMED: Final = ("refused", "delayed")  # messages since the line before
STANDS_FOR: Final = "lines"  # the field of a line that stands for several: how many

Episode = tuple[object, ...]


def episode_of(event: Event) -> Episode | None:
    """What an event repeats; None for one that stands for itself. A bucket without a name is that of its topic."""
    if event.get("event") != REPEATED:
        return None
    return (*map(event.get, EPISODE), None if event.get("thing") else event.get("topic"))


def changes_limit(change: Event, of: Event) -> bool:
    """Whether an event tells of a change after which the limit of the line `of` may be another one."""
    kind = change.get("event")
    if kind == "changed":
        targets = change.get("targets") or []
        return len(targets) < int(change.get("changes") or 0) or any(_names(str(target), of) for target in targets)
    if kind in {"quotas_raised", "quotas_returned"}:
        return str(of.get("origin")).startswith("quota")
    return kind == "reloaded" and bool(change.get("in_force"))


def _names(target: str, of: Event) -> bool:
    """Whether a target of a change, `limits/amqp/%2F/orders/created` or `rules/orders`, is that of the line's limit."""
    kind, _, rest = target.partition("/")
    if kind in {"rules", "live-rules"}:
        return unquote(rest) == of.get("rule")
    if kind == "limits":
        first, _, behind = rest.partition("/")
        name = (behind if first in HELD_OPERATIONS else rest).partition("/")[2]
        return not {name, unquote(name)}.isdisjoint({of.get("topic"), of.get("thing")})
    return kind == "quotas" and str(of.get("origin")).startswith("quota")


def is_same_limit(one: Event, other: Event) -> bool:
    return all(one.get(name) == other.get(name) for name in IN_FORCE)


def fold_repeats(events: Iterable[Event]) -> list[Event]:
    """The first event of each episode, and for those that repeat it one: in the place of the last, with their sum."""
    shown: dict[int, Event] = {}
    known: dict[Episode, tuple[int, Event, Event | None]] = {}  # episode -> the place of its last line, that line, and what is summed there
    for at, event in enumerate(events):
        episode = episode_of(event)
        if episode is None:
            shown[at] = event
            known = {each: told for each, told in known.items() if not changes_limit(event, told[1])}
        elif episode not in known or not is_same_limit(known[episode][1], event):
            shown[at] = event
            known[episode] = at, event, None
        else:
            before, _, sum_of_them = known[episode]
            if sum_of_them is not None:
                del shown[before]
            shown[at] = together(sum_of_them, event)
            known[episode] = at, event, shown[at]
    return [shown[at] for at in sorted(shown)]


def together(before: Event | None, event: Event) -> Event:
    """`event` as the line that stands for itself and for `before`."""
    if before is None:
        return event
    summed: Event = {name: int(before.get(name) or 0) + int(event.get(name) or 0) for name in SUMMED if name in event}
    return {**event, **summed, STANDS_FOR: int(before.get(STANDS_FOR) or 1) + 1}
