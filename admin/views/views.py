"""Views: the answers of the API as types. OpenAPI is made from them, and only their members leave the gateway.

Those of limits and of rules have files of their own (`limit_views.py`, `rule_views.py`).
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from admin.store.journal import Change, Entry
from admin.store.state import PublishedQuotas
from admin.views.hindsight import WouldHaveRefused
from admin.views.limit_views import Level
from common.views.status import StatusView

ItemT = TypeVar("ItemT")


class TopicChange(msgspec.Struct, frozen=True):
    """The limits of one topic before and after a change; or of a client, a group, ..., which `topic` then names (`client 10.0.0.7`)."""

    protocol: str
    topic: str
    before: list[Level]
    after: list[Level]


class Preview(msgspec.Struct, frozen=True):
    """The answer of a dry run. `topics_affected` counts topics in use (and named) whose limit, its candidate, end or reason would differ.

    The first 100 are shown. `would_have_refused`: of a change of one topic's limit, what the new one would have refused in the last five
    minutes; null where the topic has no series (`GET /v1/series`), its limit's mode would be off, or something else is changed. `remarks`:
    sentences on limits among the changed that would not be enforced, keep a long burst, have no effect, or take the place of a lower one.
    """

    would_be_revision: int
    changes: list[Change]
    topics_affected: int
    topics: list[TopicChange]
    dry_run: bool = True
    would_have_refused: WouldHaveRefused | None = None
    remarks: list[str] = []


class QuotasPublished(msgspec.Struct, frozen=True):
    """The quotas published (or tried): their author and time, and how many topics have one; null: none any more.

    `remarks`: a sentence on published quotas that are not enforced, because their rules are not, and one on pinned quotas whose topics
    a rule holds lower.
    """

    published: PublishedQuotas | None
    revision: int
    remarks: list[str] = []


class RealisedTopic(msgspec.Struct, frozen=True):
    """Messages of one topic since the quotas were published: offered, and refused (dropped, delayed) of these."""

    protocol: str
    topic: str
    offered: int
    refused: int


class Realised(msgspec.Struct, frozen=True):
    """What quotas have refused, or would have, of the messages of their topics since `since`; `topics`: those refused most."""

    offered: int
    refused: int
    ratio: float
    since: str
    topics: list[RealisedTopic]


class QuotasStatus(msgspec.Struct, frozen=True):
    """The quotas in force (`published`) and those tried (`shadow`), what they refuse, and the seconds since the former were computed.
    `encodings`: how a body that is sent may be compressed (`Content-Encoding`)."""

    published: PublishedQuotas | None
    shadow: PublishedQuotas | None
    age_seconds: float | None
    realised: Realised | None
    would_refuse: Realised | None
    encodings: list[str]


class HistoryPage(msgspec.Struct, frozen=True):
    """Changes, the latest first. `revision` is the current one, `oldest` the first that is still kept."""

    items: list[Entry]
    next: str | None
    revision: int
    oldest: int | None


class HistoryEntry(msgspec.Struct, frozen=True):
    """One change, and the current revision."""

    entry: Entry
    revision: int


class LiveChanges(msgspec.Struct, frozen=True):
    """All live changes of limits and rules in their stored form, by target.

    `digest` is equal where two gateways have the same in force, whoever has changed it there and when.
    """

    changes: dict[str, dict[str, Any]]
    digest: str
    revision: int


class Page(msgspec.Struct, Generic[ItemT], frozen=True):
    """A page of a list: its items, the cursor of the next one, and how many there are in all."""

    items: list[ItemT]
    next: str | None
    total: int


class StoreView(msgspec.Struct, frozen=True):
    """The store of live changes."""

    revision: int
    live_changes_of_keys: int
    live_changes_of_rules: int
    unfit_changes_of_rules: dict[str, str]
    quotas: PublishedQuotas | None
    next_expiry: str | None
    write_failures: int
    read_only: str | None


class GatewayView(StatusView, frozen=True, kw_only=True):
    """The gateway as a whole, and the store of its live changes."""

    state: StoreView


class AuditPage(msgspec.Struct, frozen=True):
    """Journal lines of every outcome, the latest first."""

    items: list[Entry]
    next: str | None


class EventsPage(msgspec.Struct, frozen=True):
    """Events of the log, the latest last.

    `next` goes into `?after=` for those that follow, and `more` says whether there are some already. `gap`: some after `after` are not kept
    any more.
    """

    items: list[dict[str, Any]]
    next: str
    more: bool
    gap: bool


class LogLevelNow(msgspec.Struct, frozen=True):
    """The level of the log, and the configured one. `live`: it was set by a request; `until`: when the configured one returns."""

    level: str
    configured: str
    live: bool
    until: str | None


class Done(msgspec.Struct, frozen=True):
    """The action that was done."""

    done: str


class Live(msgspec.Struct, frozen=True):
    """The process is alive: its event loop took a turn in `turn_ms` milliseconds."""

    status: str
    turn_ms: float


class Started(msgspec.Struct, frozen=True):
    """Whether the gateway has begun to accept clients."""

    started: bool


class Ready(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether traffic is served. With a token also: the reasons why not, and conditions that need an operator all the same."""

    ready: bool
    reasons: list[str] = []
    warnings: list[str] = []
