"""Every view that a data plane has of its state: how it is made of one gateway, and how those of several processes become one.

This is the one place to add a view. A worker sends it in its report, the parent merges it, and where one process serves alone it is shown
as it was made (`gateway/control_plane.py`). A route of the admin API that shows it names it in its `views`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway.clock import now_ns
from gateway.counting.hourly_demand import readings_of
from gateway.telemetry import collector, glance, spool, status, summing

if TYPE_CHECKING:
    from gateway.telemetry.ports import Gateway

JSONObject = dict[str, Any]


class View(NamedTuple):
    """One view."""

    of: Callable[[Any], Any]  # a gateway, as `telemetry.ports.Gateway` has it -> what MessagePack can write
    merged: Callable[[list[Any]], Any]  # those of several processes (perhaps none) -> the same of all of them
    counted: bool = False  # it shows what the accounts have counted: they are folded first
    rows: Callable[[Any], Iterator[list[Any]]] | None = None  # the same in slices, of a list that may be long
    lasting: bool = False  # reported once a second: what remains of a worker that is killed, and what is shown without asking


def _topics(gateway: Gateway) -> list[JSONObject]:
    return list(chain.from_iterable(status.topics(gateway)))


def _spooled_topics(gateway: Gateway) -> Iterator[list[JSONObject]]:
    return spool.topics(gateway.disk, now_ns())


def _demand(gateway: Gateway) -> Any:
    gateway.accounts.fold(now_ns())
    return readings_of(gateway.accounts)


def _connections(gateway: Gateway) -> dict[int, str]:
    return {number: session.listener_config.protocol for number, session in gateway.sweeper.sessions.items()}


def _union(views: list[dict[int, str]]) -> dict[int, str]:
    none: dict[int, str] = {}
    return reduce(lambda one, other: {**one, **other}, views, none)


def _over(views: list[Collection[JSONObject]]) -> list[JSONObject]:
    return list(chain.from_iterable(views))


VIEWS: Final = {
    "status": View(status.of_process, summing.statuses, lasting=True),
    "overhead": View(lambda gateway: list(gateway.overhead.counts), glance.summed_counts, lasting=True),
    "listeners": View(status.listeners, summing.listeners, lasting=True),
    "topics": View(_topics, summing.topics, counted=True, lasting=True),
    "clients": View(status.clients, summing.clients, counted=True),
    "connections": View(_connections, _union),  # numbers and protocols; a page of them is described (`DataPlane.describe`)
    "spool": View(lambda gateway: spool.figures(gateway.disk), summing.spools),
    "spooled_topics": View(
        lambda gateway: list(chain.from_iterable(_spooled_topics(gateway))), summing.spooled_topics, rows=_spooled_topics
    ),
    "over": View(lambda gateway: gateway.limit_events.over(), _over, lasting=True),  # limits that are over now
    "metrics": View(lambda gateway: "".join(collector.metric_lines(gateway)), "".join, counted=True, lasting=True),  # merged by scrapes.py
    "demand": View(_demand, list, counted=True),  # once an hour, for the intraday raise, which keeps processes apart
}
COUNTED: Final = frozenset(name for name, view in VIEWS.items() if view.counted)
LASTING: Final = tuple(name for name, view in VIEWS.items() if view.lasting)
