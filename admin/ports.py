"""A running gateway as the admin API sees it. `control_plane/control_plane.py` implements it.

Admin never imports gateway.

All methods are called on trio's thread, between two sweeps of the event loop, so their results are consistent. Those that wait
(`reload`) also act in one step once the wait is over. Lists that may have thousands of items (`topics`, `describe_connections`) are made in
slices, with a turn of the event loop after each: each item is consistent, a long list is of several moments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from common.recent_events import RecentEvents
from common.views.connections import AnyConnection
from common.views.limits import OverLimitView
from common.views.listeners import ListenerView
from common.views.snapshot import SnapshotView
from common.views.spool import SpooledTopicView, SpoolView
from common.views.status import StatusView
from common.views.topics import TopicView
from limiter.judge import Judge
from limiter.rules.rule_set import RuleSet

JSONObject = dict[str, object]
TopicPlace = tuple[str, str, str]  # protocol, topic as text, operation
Sample = tuple[tuple[str, ...], float]  # of a metric: the values of its labels, and the number


class ReloadFailedError(Exception):
    """The configuration could not be put in force. `errors` are the messages, one per fault; `holds` is what is in force.

    `passing`: the fault is not the files', and another try may succeed.
    """

    def __init__(self, errors: list[str], *, passing: bool = False, holds: str = "the last good configuration stays in force") -> None:
        super().__init__("\n".join(errors))
        self.errors = errors
        self.passing = passing
        self.holds = holds


class OperatedGateway(Protocol):
    """A running gateway, as its operators see it."""

    @property
    def judge(self) -> Judge: ...

    @property
    def recent_events(self) -> RecentEvents: ...

    async def snapshot(self) -> SnapshotView:
        """The gateway at a glance, but for what `admin` adds: live changes, quotas, the topics' limits (`views/glance.py`)."""

    def status(self) -> StatusView:
        """The gateway as a whole."""

    def explain_unready(self) -> list[str]:
        """The reasons why the gateway is not ready to serve; empty when it is."""

    def has_begun(self) -> bool:
        """Whether clients are accepted, or were before a drain began."""

    def warnings(self) -> list[str]:
        """Conditions that need an operator although traffic is served: memory full, disk low."""

    def listeners(self) -> list[ListenerView]:
        """The listeners, with their real ports."""

    def connections(self) -> Mapping[int, str]:
        """The protocol of each connection, by its number. To describe a connection costs a hundred times as much."""

    async def describe_connections(self, numbers: Sequence[int]) -> list[AnyConnection]:
        """The connections of these numbers that are still open, in the same order.

        Of those of a worker that does not answer, only their number is known.
        """

    def close_connection(self, connection: int, reason: str) -> bool:
        """Close one connection in the way of its protocol, with the reason (may be ""); False when there is none of that id."""

    def spool(self) -> SpoolView:
        """The spool as a whole."""

    async def spooled_topics(self) -> list[SpooledTopicView]:
        """The topics that wait in the spool."""

    def over(self) -> list[OverLimitView]:
        """The limits that are over now."""

    def view(self, name: str) -> Any:
        """What `common/views` and `gateway/telemetry/views.py` have under this name, over all processes: a list of views, or one."""

    async def topic_places(self, protocol: str | None = None, text: str = "") -> list[list[TopicPlace]]:
        """Topics seen lately, in order, as lists one after the other; none is empty, and none changes.

        `protocol`: of this alone. `text`: those whose name has each of its words, in upper or lower case, as it stands in the API or as
        people read it.
        """

    async def topic_numbers(self, name: str, wanted: Sequence[TopicPlace] | None = None) -> dict[TopicPlace, float]:
        """One of the numbers of every topic seen lately, or of those `wanted`: what there is to sort by. Of those left out it is 0.

        `name` is a rate (`refused_per_second`), `waiting`, `shadow_refused`, `trouble`, or `moving` (not 0 where anything moves or waits).
        """

    async def topics(self, wanted: Collection[TopicPlace] | None = None) -> list[TopicView]:
        """Every topic seen lately, or those `wanted` of them in their order."""

    async def series_of(self, place: TopicPlace | None, *, day: bool, since: int = 0) -> JSONObject:
        """What happened to a topic's messages (None: to those of all topics) lately: each second of 15 minutes, or 10 seconds of a day.

        `step`, `start`, `end`, `known`, `missing` (numbers of workers that are not in it) and `points`: lists by field, None: not known.
        Only points from `since` on (seconds since 1970).
        """

    def received_lately(self, place: TopicPlace, seconds: int) -> list[float | None]:
        """Messages of a topic that arrived in each of the last `seconds`; an empty list where it has no series."""

    def metrics(self, others: Mapping[str, Iterable[Sample]]) -> Iterator[str]:
        """The Prometheus text exposition, `others` at its end, in pieces small enough to give the loop a turn in between.

        `others` are the caller's own metrics, by name; the gateway's table of metrics has them, with their labels.
        """

    async def reload(self, *, dry_run: bool = False) -> JSONObject:
        """Read the configuration again and put its rules in force (a dry run: nothing); returns what changes and what needs a restart.

        Raises ReloadFailedError.
        """

    def configuration(self) -> JSONObject:
        """The effective configuration, secrets redacted."""

    def origins(self) -> list[JSONObject]:
        """The effective configuration value by value: `path`, `value` and `origin` (`kind`: file, environment, flag or default)."""

    def log_level(self) -> str:
        """The level of the log that holds."""

    def configured_log_level(self) -> str: ...

    def set_log_level(self, level: str) -> None:
        """Write lines of this level and above from now on, until it is set again."""

    def enforce(self, rules: RuleSet) -> None:
        """Put `rules` in force for the next batch."""

    async def gather(self, views: Collection[str] | None) -> None:
        """Bring the views that an answer is made of up to date (`Route.views`), and what the judge counts of processes; None: nothing.

        Called before each answer; its time is bounded.
        """

    async def in_force(self) -> None:
        """Wait until the rules last enforced hold for every following batch; its time is bounded."""

    async def reloaded_everywhere(self) -> None:
        """Wait until what was reloaded last holds in all processes. Raises ReloadFailedError where one could not put it in force."""

    def drain(self) -> None:
        """Begin a graceful stop, as SIGTERM does."""
