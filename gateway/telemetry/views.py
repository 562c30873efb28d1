"""Every view that a data plane has of its state: how it is made of one gateway, and how those of several processes become one.

This is the one place to add a view. A worker sends it in its report, the parent merges it, and where one process serves alone it is shown
as it was made (`control_plane/control_plane.py`). A route of the admin API that shows it names it in its `views`. Its type says how the
values of several processes become one (`common/views/view.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_origin

import msgspec

from common.views import view
from common.views.limits import OverLimitView
from common.views.listeners import ListenerView
from common.views.spool import SpooledTopicView, SpoolView
from common.views.status import StatusView
from common.views.topics import ClientView, TopicView
from gateway.clock import now_ns
from gateway.counting.hourly_demand import Reading, readings_of
from gateway.telemetry import collector, glance, spool, status

if TYPE_CHECKING:
    from gateway.telemetry.ports import ObservedGateway


class ViewSource(NamedTuple):
    """One view."""

    kind: Any  # a type, as msgspec decodes it
    of: Callable[[Any], Any]  # a gateway, as `telemetry.ports.Gateway` has it -> the view
    merged: Callable[[list[Any]], Any] | None = None  # those of several processes (perhaps none) -> one; None: as its type says
    counted: bool = False  # it shows what the accounts have counted: they are folded first
    rows: Callable[[Any], Iterator[list[Any]]] | None = None  # the same in slices, of a list that may be long
    lasting: bool = False  # reported once a second: what remains of a worker that is killed, and what is shown without asking


def merge(name: str, views: list[Any]) -> Any:
    """A view of several processes as one."""
    source = VIEWS[name]
    if source.merged is not None:
        return source.merged(views)
    if get_origin(source.kind) is list:
        return view.merge_all(views)
    return view.merge_processes(source.kind, views)


def _topics(gateway: ObservedGateway) -> list[TopicView]:
    return list(chain.from_iterable(status.topics(gateway)))


def _spooled_topics(gateway: ObservedGateway) -> Iterator[list[SpooledTopicView]]:
    return spool.topics(gateway.disk, now_ns())


def _demand(gateway: ObservedGateway) -> list[Reading]:
    gateway.accounts.fold(now_ns())
    return readings_of(gateway.accounts)


def _connections(gateway: ObservedGateway) -> dict[int, str]:
    return {number: session.listener_config.protocol for number, session in gateway.sweeper.sessions.items()}


def _union(views: list[dict[int, str]]) -> dict[int, str]:
    none: dict[int, str] = {}
    return reduce(lambda one, other: {**one, **other}, views, none)


VIEWS: Final = {
    "status": ViewSource(StatusView, status.of_process, lasting=True),
    "overhead": ViewSource(list[int], lambda gateway: list(gateway.overhead.counts), glance.add_counts, lasting=True),
    "listeners": ViewSource(list[ListenerView], status.listeners, lasting=True),
    "topics": ViewSource(list[TopicView], _topics, counted=True, lasting=True),
    "clients": ViewSource(list[ClientView], status.clients, counted=True),
    "connections": ViewSource(dict[int, str], _connections, _union),  # by number, their protocol; a page of them is described
    "spool": ViewSource(SpoolView, lambda gateway: spool.figures(gateway.disk)),
    "spooled_topics": ViewSource(
        list[SpooledTopicView], lambda gateway: list(chain.from_iterable(_spooled_topics(gateway))), rows=_spooled_topics
    ),
    "over": ViewSource(list[OverLimitView], lambda gateway: gateway.limit_events.over(), lasting=True),  # limits that are over now
    "metrics": ViewSource(str, lambda gateway: "".join(collector.metric_lines(gateway)), "".join, counted=True, lasting=True),
    "demand": ViewSource(list[Reading], _demand, list, counted=True),  # for the intraday raise, which keeps processes apart
}
COUNTED: Final = frozenset(name for name, source in VIEWS.items() if source.counted)
LASTING: Final = tuple(name for name, source in VIEWS.items() if source.lasting)
DECODERS: Final = {name: msgspec.msgpack.Decoder(source.kind) for name, source in VIEWS.items()}
