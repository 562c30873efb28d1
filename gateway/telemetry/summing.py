"""Adds up the views of several workers: topics, clients, listeners, spools and access logs as `GET /v1/...` shows them.

Each view is a list of objects or one object, as `telemetry/status.py` has made it in a worker. Counts are added, other values are chosen
by name (`views.py` says which function merges which view). `workers/scrapes.py` does the same for metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from functools import reduce
from itertools import chain
from operator import itemgetter
from typing import Any, Final

from gateway.telemetry.refused_clients import MAX_CLIENTS_SHOWN

JSONObject = dict[str, Any]

MAX_NUMBERS_PER_SLICE: Final = 300  # topics; of which one number is summed between two turns of the event loop; a guess
MOVING: Final = ("received_per_second", "forwarded_per_second", "waiting")
RATES: Final = tuple(f"{what}_per_second{window}" for what in ("received", "forwarded", "refused", "bytes") for window in ("", "_1s"))


def add(one: Any, other: Any) -> Any:
    """Two counts, or two objects of counts, as one. A value that is no number stays as in the first."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: add(one.get(key, 0), other.get(key, 0)) for key in (*one, *(key for key in other if key not in one))}
    if isinstance(one, bool) or isinstance(other, bool) or not isinstance(one, int | float) or not isinstance(other, int | float):
        return one if one is not None and one != 0 else other
    return round(one + other, 3) if isinstance(one, float) or isinstance(other, float) else one + other


def place(item: JSONObject) -> tuple[str, str, str]:
    """What a topic's object is about: protocol, topic as text, operation."""
    return item["protocol"], item["topic"], item["operation"]


def by_place(
    views: Iterable[Iterable[JSONObject]], place_of: Callable[[JSONObject], Any], merged: Callable[[JSONObject, JSONObject], JSONObject]
) -> list[JSONObject]:
    """One object of all that are about the same, in the order in which they come."""
    found: dict[Any, JSONObject] = {}
    for item in chain.from_iterable(views):
        where = place_of(item)
        known = found.get(where)
        found[where] = item if known is None else merged(known, item)
    return list(found.values())


def topics(views: list[list[JSONObject]]) -> list[JSONObject]:
    """One object per topic and operation."""
    return by_place(views, place, topic)


def in_slices(items: Sequence[JSONObject], wanted: Collection[tuple[str, str, str]] | None) -> Iterator[list[JSONObject]]:
    """The topics of a view, or those `wanted` of them."""
    places = None if wanted is None else frozenset(wanted)
    for first in range(0, len(items), MAX_NUMBERS_PER_SLICE):
        some = items[first : first + MAX_NUMBERS_PER_SLICE]
        yield list(some) if places is None else [item for item in some if place(item) in places]


def topic_numbers(items: Sequence[JSONObject], name: str | None) -> Generator[None, None, dict[tuple[str, str, str], float]]:
    """Each topic of a view with one of its numbers (`admin.ports.Gateway.topic_numbers`), in slices."""
    names = MOVING if name == "moving" else () if name is None else (name,)
    found: dict[tuple[str, str, str], float] = {}
    for first in range(0, len(items), MAX_NUMBERS_PER_SLICE):
        for item in items[first : first + MAX_NUMBERS_PER_SLICE]:
            found[place(item)] = sum([item[each] for each in names], 0.0)
        yield
    return found


def topic(one: JSONObject, other: JSONObject) -> JSONObject:
    clients = by_place([one["clients"], other["clients"]], itemgetter("client"), add)
    worst = sorted(clients, key=lambda client: (-client["refused_per_second"], -client["refused"], client["client"]))
    return {
        **add(one, other),
        **{name: one[name] for name in ("protocol", "topic", "operation", "group")},
        "wait_p99_ms": max((each["wait_p99_ms"] for each in (one, other) if each.get("wait_p99_ms") is not None), default=None),
        "idle_seconds": min(one["idle_seconds"], other["idle_seconds"]),
        "clients": worst[:MAX_CLIENTS_SHOWN],
    }


def clients(views: list[list[JSONObject]]) -> list[JSONObject]:
    """One object per client: of an address and user at a listener."""
    return by_place(views, itemgetter("protocol", "listener", "client", "user"), client)


def client(one: JSONObject, other: JSONObject) -> JSONObject:
    """The worst topic is that of the worker where more is over a limit now, or else was over it last."""
    first, second = sorted((one, other), key=lambda item: (-item["refused_per_second"] - item["delayed_per_second"], item["idle_seconds"]))
    return {
        **add(first, second),
        "idle_seconds": min(one["idle_seconds"], other["idle_seconds"]),
        **{name: [*first[name], *(each for each in second[name] if each not in first[name])] for name in ("names", "libraries")},
    }


def ended(view: list[JSONObject]) -> list[JSONObject]:
    """The topics of a worker that has ended: its counts without its rates. Messages that waited there are lost, so they are abandoned."""
    found = []
    for item in view:
        rates: JSONObject = dict.fromkeys((*RATES, "waiting"), 0)
        found.append({**item, **rates, "wait_p99_ms": None, "abandoned": item["abandoned"] + item["waiting"], "clients": []})
    return found


SETTINGS: Final = ("max_connections", "max_connections_per_address", "max_connections_per_user")  # numbers that are settings, not counts


def listeners(views: list[list[JSONObject]]) -> list[JSONObject]:
    """One object per listener. Its broker can be reached where all workers reach it."""
    return by_place(views, itemgetter("name"), listener)


def listener(one: JSONObject, other: JSONObject) -> JSONObject:
    reached = [each["upstream_reachable"] for each in (one, other)]
    added = add(one, other)
    most = one.get("max_connections")  # holds over all workers
    if most is not None and "seats" in added and added["seats"]["most"] is not None:
        added["seats"] = {**added["seats"], "most": min(most, added["seats"]["most"])}
    return {
        **added,
        **{name: one[name] for name in SETTINGS if name in one},
        "caps": [*one.get("caps", ()), *other.get("caps", ())],  # each worker has its own part of a cap
        "upstream_reachable": False if False in reached else None if None in reached else True,
        "upstream_error": one["upstream_error"] or other["upstream_error"],
        "upstream_reason": one["upstream_reason"] or other["upstream_reason"],
        "upstreams": by_place([one["upstreams"], other["upstreams"]], itemgetter("address"), upstream),
    }


STATES: Final = ("down", "held", "untried", "up")  # of an address, the worst first


def upstream(one: JSONObject, other: JSONObject) -> JSONObject:
    """One of a listener's addresses, in the worst of the workers' states. It is the preferred one where it is that of the first worker."""
    worst = min(one, other, key=lambda item: STATES.index(item["state"]))
    return {**worst, "preferred": one["preferred"], "connections": one["connections"] + other["connections"]}


def spools(views: Iterable[JSONObject]) -> JSONObject:
    """The spool's figures: where one worker cannot write its part, that is said for all. {} of none."""
    none: JSONObject = {}
    return reduce(add, views, none)


def spooled_topics(views: Iterable[list[JSONObject]]) -> list[JSONObject]:
    """One object per topic that waits; the wait is the longest of any worker."""
    return by_place(views, itemgetter("protocol", "topic"), spooled_topic)


def spooled_topic(one: JSONObject, other: JSONObject) -> JSONObject:
    return {**add(one, other), "waiting_seconds": max(one["waiting_seconds"], other["waiting_seconds"])}


def statuses(views: list[JSONObject]) -> JSONObject:
    """The states of several processes as one. Limits are added up where each process has its own; warnings say whose they are."""
    loops = [each["event_loop"] for each in views]
    logs = [each["access_log"] for each in views if each["access_log"] is not None]
    none: JSONObject = {}
    return {
        "connections": sum(each["connections"] for each in views),
        "event_loop": {
            "sweeps": sum(each["sweeps"] for each in loops),
            "submissions": sum(each["submissions"] for each in loops),
            "lag_ms": max((each["lag_ms"] for each in loops), default=0.0),
        },
        "limiter": reduce(add, [each["limiter"] for each in views], none),
        "fleet": reduce(fleet, [each["fleet"] for each in views], None),
        "memory_full": any(each["memory_full"] for each in views),
        "memory": reduce(add, [each["memory"] for each in views], none),
        "memory_limit": max((each["memory_limit"] for each in views), key=nearest_its_limit, default=None),
        "spool": spools([each["spool"] for each in views]) or None,
        "access_log": access_logs(logs) if logs else None,
        "limits": reduce(add, [each["limits"] for each in views], none),
    }


def fleet(one: JSONObject | None, other: JSONObject | None) -> JSONObject | None:
    """A gateway's part in its fleet, over its workers, which are all members: what the first knows of the others, and the worst outage."""
    if one is None or other is None:
        return one or other
    worse = max(one, other, key=lambda part: part["outage_seconds"] or 0.0)
    counts = {name: one[name] + other[name] for name in ("orphaned", "asks", "put_off", "failures")}
    of_outage = {name: worse[name] for name in ("reason", "detail", "outage_seconds")}
    slower = max(one["round_trip_ms"], other["round_trip_ms"])
    return {**one, **of_outage, **counts, "reachable": one["reachable"] and other["reachable"], "round_trip_ms": slower}


def nearest_its_limit(memory: JSONObject) -> tuple[int, float]:
    """What sorts the processes' memory: the one that takes most steps last."""
    return memory["step"], memory["size_bytes"] / (memory["limit_bytes"] or float("inf"))


def access_logs(views: list[JSONObject]) -> JSONObject:
    """The states of the access logs, which are all on one disk."""
    return {
        "lost_lines": sum(view["lost_lines"] for view in views),
        "failed_writes": sum(view["failed_writes"] for view in views),
        "disk_low": any(view["disk_low"] for view in views),
        "free_bytes": min((view["free_bytes"] for view in views if view["free_bytes"] is not None), default=None),
    }
