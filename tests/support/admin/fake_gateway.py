"""A gateway for tests of the control plane: the real judge, and everything else as the test says."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import Any, Final

import msgspec

from admin.access import Access
from admin.app import Admin
from admin.authentication.auth import TokenError
from admin.http.slices import in_steps
from admin.ports import ReloadFailedError
from admin.series_store import SeriesStore
from common.recent_events import RecentEvents
from common.views.connections import AnyConnection, ConnectionView
from common.views.limits import OverLimitView
from common.views.listeners import ListenerView
from common.views.snapshot import SnapshotView
from common.views.spool import SpooledTopicView, SpoolView
from common.views.status import FleetView, LimitsInUseView, StatusView
from common.views.topics import ClientView, TopicView
from control_plane.workers.topic_lists import ListedTopics, TopicList
from gateway.lifecycle.scheduling import compute_cooperatively
from gateway.telemetry import exposition
from gateway.telemetry.topic_limits import messages_limit
from limiter.judge import Judge
from limiter.keys import Origin
from limiter.request import Request
from limiter.rules.rule_set import RuleSet
from limiter.topics import TopicName

UNKNOWN: Final = {"listener": "", "protocol": ""}  # of a connection, where a test does not say them


class Numbered(SnapshotView, frozen=True, kw_only=True):
    """A snapshot that says how many there were."""

    number: int = 0


class SeenTopics(TopicList):
    def __init__(self, items: list[TopicView]) -> None:
        self._items = items

    def items(self) -> list[TopicView]:
        return self._items


class FakeGateway:
    """Implements `admin.ports.OperatedGateway`. Remembers what it was told."""

    def __init__(self, rules: RuleSet, max_keys: int = 1000) -> None:
        self._judge = Judge(rules, max_keys)
        self.name = "fake"
        self.fleet: dict[str, object] | None = None
        self.uptime_s = 1e9
        self.enforced: list[RuleSet] = []
        self.not_ready: list[str] = []
        self.worries: list[str] = []
        self.open_connections: list[dict[str, object]] = []
        self.described: list[list[int]] = []  # numbers of connections, for each time that it was asked
        self.closed: list[int] = []
        self.close_reasons: list[str] = []
        self.seen_topics: list[dict[str, object]] = []
        self.seen_clients: list[dict[str, object]] = []
        self.over_limits: list[dict[str, object]] = []
        self.spooled: list[dict[str, object]] = []
        self.topics_asked: list[int | None] = []  # how many topics each call of `topics` asked for; None: all
        self.reload_errors: list[str] = []
        self.reloads = 0
        self.drains = 0
        self.gathered: list[Collection[str] | None] = []  # views that answers asked for
        self.waits = 0  # for changes to be in force
        self.metric_pieces: list[str] = [*exposition.single("sluice_buffer_bytes", 1)]
        self.recent_events = RecentEvents("fake")
        self.level = "info"
        self.snapshots = 0  # made
        self.broken = False  # status() raises
        self.begun = True
        self.admin: Admin | None = None  # what a reload changes, and to what
        self.access = Access()
        self.series = SeriesStore(100, messages_limit)
        self.missing_workers: list[int] = []
        self._origin: Origin = self._judge.origin("rocketmq", "rocket", "127.0.0.1", None)

    @property
    def judge(self) -> Judge:
        return self._judge

    def flood(self, name: TopicName, messages: int, now: int, size: int = 100, operation: str = "produce") -> int:
        """Ask the judge for `messages` messages at once; how many passed, the rest is refused."""
        key = self._judge.key(self._origin, f"{operation} {name.text()}".encode(), name, None, operation)
        request = Request(key, messages, 1, size)
        self._judge.decide([request], now)
        if request.bucket is not None:
            request.bucket.refused += messages - request.passed  # as `gateway.pipeline.actions.counting` counts what it has settled
        return request.passed

    def status(self) -> StatusView:
        if self.broken:
            raise RuntimeError("the fake gateway is broken")
        return StatusView(
            name=self.name,
            version="0.0.0",
            ready=not self.not_ready,
            fleet=None if self.fleet is None else msgspec.convert(self.fleet, FleetView),
            uptime_seconds=self.uptime_s,
            limits=LimitsInUseView(**self._judge.usage()),
        )

    def has_begun(self) -> bool:
        return self.begun

    def warnings(self) -> list[str]:
        return self.worries

    def explain_unready(self) -> list[str]:
        return self.not_ready

    def listeners(self) -> list[ListenerView]:
        return [ListenerView(name="rocket", protocol="rocketmq", bind="127.0.0.1:10911")]

    def connections(self) -> dict[int, str]:
        return {number_of(item): str(item.get("protocol")) for item in self.open_connections}

    async def describe_connections(self, numbers: Sequence[int]) -> list[AnyConnection]:
        self.described.append(list(numbers))
        by_number = {number_of(item): msgspec.convert({**UNKNOWN, **item}, ConnectionView) for item in self.open_connections}
        return [by_number[number] for number in numbers if number in by_number]

    def close_connection(self, connection: int, reason: str) -> bool:
        self.closed.append(connection)
        self.close_reasons.append(reason)
        before = len(self.open_connections)
        self.open_connections = [item for item in self.open_connections if item["id"] != connection]
        return len(self.open_connections) < before

    def spool(self) -> SpoolView:
        return SpoolView(messages=sum(int(str(item["messages"])) for item in self.spooled), topics=len(self.spooled))

    async def spooled_topics(self) -> list[SpooledTopicView]:
        return msgspec.convert(self.spooled, list[SpooledTopicView])

    def over(self) -> list[OverLimitView]:
        return msgspec.convert(self.over_limits, list[OverLimitView])

    def view(self, name: str) -> Any:
        assert name == "clients"
        return msgspec.convert(self.seen_clients, list[ClientView])

    async def topic_places(self, protocol: str | None = None, text: str = "") -> list[list[tuple[str, str, str]]]:
        listed = ListedTopics()
        await in_steps(listed.take([self._topics()]))
        return await in_steps(listed.index.find(protocol, text))

    async def topic_numbers(self, name: str, wanted: Sequence[tuple[str, str, str]] | None = None) -> dict[tuple[str, str, str], float]:
        return await compute_cooperatively(SeenTopics(self._topics()).topic_numbers(name, wanted))

    async def topics(self, wanted: Collection[tuple[str, str, str]] | None = None) -> list[TopicView]:
        self.topics_asked.append(None if wanted is None else len(wanted))
        by_place = {item.key(): item for item in self._topics()}
        return list(by_place.values()) if wanted is None else [by_place[place] for place in wanted if place in by_place]

    def _topics(self) -> list[TopicView]:
        return msgspec.convert(self.seen_topics, list[TopicView])

    async def series_of(self, place: tuple[str, str, str] | None, *, day: bool, since: int = 0) -> dict[str, object]:
        return {**await compute_cooperatively(self.series.read(place, day=day, since=since)), "missing": self.missing_workers}

    def received_lately(self, place: tuple[str, str, str], seconds: int) -> list[float | None]:
        return self.series.received(place, seconds)

    async def snapshot(self) -> SnapshotView:
        self.snapshots += 1
        if self.broken:
            raise RuntimeError("the fake gateway is broken")
        return Numbered(name=self.name, ready=not self.not_ready, number=self.snapshots, topics=self._topics())

    def metrics(self, others: exposition.Samples) -> Iterator[str]:
        return chain(self.metric_pieces, exposition.families(others))

    async def reload(self, *, dry_run: bool = False) -> dict[str, object]:
        if self.reload_errors:
            raise ReloadFailedError(self.reload_errors)
        if self.admin is not None:
            try:
                commit = self.admin.prepare(self.access)
            except TokenError as error:
                raise ReloadFailedError([str(error)]) from error
            if not dry_run:
                commit()
        self.reloads += not dry_run
        return {"changed": [], "needs_restart": []}

    def configuration(self) -> dict[str, object]:
        return {"version": 1, "admin": {"bind": "127.0.0.1:9180"}}

    def origins(self) -> list[dict[str, object]]:
        at = {"kind": "file", "file": "sluice.yaml", "line": 3, "column": 7}
        return [{"path": "version", "value": 1, "origin": {"kind": "default"}}, {"path": "log.level", "value": "info", "origin": at}]

    def log_level(self) -> str:
        return self.level

    def configured_log_level(self) -> str:
        return "info"

    def set_log_level(self, level: str) -> None:
        self.level = level

    def enforce(self, rules: RuleSet) -> None:
        self.enforced.append(rules)
        self._judge.replace(rules)

    async def gather(self, views: Collection[str] | None) -> None:
        self.gathered.append(views)

    async def in_force(self) -> None:
        self.waits += 1

    async def reloaded_everywhere(self) -> None:
        await self.in_force()

    def drain(self) -> None:
        self.drains += 1

    def __repr__(self) -> str:
        return f"<FakeGateway enforced={len(self.enforced)}>"


def place_of(item: dict[str, object]) -> tuple[str, str, str]:
    return str(item["protocol"]), str(item["topic"]), str(item.get("operation", "produce"))


def number_of(connection: dict[str, object]) -> int:
    number = connection["id"]
    assert isinstance(number, int)
    return number
