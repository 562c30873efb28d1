"""The events that an operator reads most, as sentences: limits that are reached and recovered, and live changes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from cli.names import quote_topic
from common import figures

Event = dict[str, Any]


def sentence(event: Event) -> str | None:
    """None of an event that has none, or whose fields are those of another version: its fields are shown."""
    words = SENTENCES.get(str(event.get("event")))
    try:
        return None if words is None else words(event)
    except (KeyError, TypeError, ValueError):
        return None


def subject(event: Event) -> str:
    """Whose limit it is: the topic's, or `client 10.0.0.7`."""
    if event["per"] == "topic":
        return quote_topic(event["protocol"], event["topic"])
    return f"{event['per']} {event.get('thing') or event['rule']}"


def describe_counts(event: Event) -> str:
    counts = [f"{event[name]:,} {word}" for name, word in (("refused", "refused"), ("delayed", "had to wait")) if event.get(name)]
    counts += [f"{event['waiting']:,} waiting now"] if event.get("waiting") else []
    return ", ".join(counts) or "nothing refused"


def culprit(event: Event) -> str:
    if not event.get("client"):
        return ""
    user = f" ({event['user']})" if event.get("user") else ""
    others = f", the worst of {event['clients']}" if event.get("clients", 1) > 1 else ""
    group = f", group {event['group']}" if event.get("group") else ""
    return f"; most of it by {event['client']}{user}{group}{others}"


def describe_reach(event: Event) -> str:
    seconds = event.get("seconds")
    long = f" in {figures.duration(float(seconds))}" if seconds else ""
    lines = f" (the sum of {event['lines']} lines)" if event.get("lines") else ""
    why = f", as {event['reason']}" if event.get("reason") else ""
    return (
        f"{subject(event)} is over its limit of {event['limit']}, rule {event['rule']}{why}: "
        f"{figures.rate(event['rate'])} came, {describe_counts(event)}{long}{lines}{culprit(event)}"
    )


def describe_recovery(event: Event) -> str:
    began, ended = (datetime.fromisoformat(str(event[name])) for name in ("since", "ts"))
    long = figures.duration(max(0.0, round((ended - began).total_seconds())))
    return f"{subject(event)} is within its limit of {event['limit']} again, after {long}: {describe_counts(event)}{culprit(event)}"


def describe_change(event: Event) -> str:
    targets = list(event["targets"])
    more = int(event.get("changes") or len(targets)) - len(targets)
    reason = f": {event['reason']}" if event.get("reason") else ""
    named = f"{', '.join(map(str, targets))}{f' and {more} more' if more > 0 else ''}"
    return f"{event['by']} ({event['role']}) {event['action']} {named}, revision {event['revision']}{reason}"


def others(event: Event) -> str:
    return f"{event['messages']:,} messages were over limits that have no line of their own; {event['remedy']}"


SENTENCES: Final[dict[str, Callable[[Event], str]]] = {
    "limit_reached": describe_reach,
    "limit_recovered": describe_recovery,
    "limits_reached": others,
    "changed": describe_change,
}
