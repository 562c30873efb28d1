"""The limit that holds for each topic of a list, how much of it is used, and what it does: `limit`, `used`, `wait_ms` and `account` of
`GET /v1/topics`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio
from msgspec.structs import replace

from admin.http.slices import rest_if_due
from admin.store.state import format_time
from admin.views.limit_views import LimitText, limit_now, used_share
from admin.views.topic_account import LOOK_BACK_S, account_of, first_by_place
from common.views.topics import TopicLimitView, TopicView
from limiter.rules.subject import Subject
from limiter.topics import parse_topic

if TYPE_CHECKING:
    from admin.ports import OperatedGateway, TopicPlace
    from admin.store.store import Store
    from limiter.rules.rule_set import Effective, RuleSet

MOST_KNOWN: Final = 100_000  # topics; whose limits are remembered, before all are forgotten: 30 MB where so many move (a guess)


def topic_limit(rules: RuleSet, place: TopicPlace) -> Effective | None:
    """The limit per topic that is enforced for this topic, whoever sends to it; else one in shadow mode; None: no rule has one."""
    protocol, text, operation = place
    try:
        name = parse_topic(protocol, text)
    except ValueError:  # __other__, the sum of those that are not counted one by one
        return None
    subject = Subject(name, text, operation=operation)
    found = [effective for effective in rules.matched(subject) if effective.per == "topic" and effective.rule.mode != "off"]
    return min(found, key=lambda effective: effective.rule.mode != "enforce", default=None)


class LimitsByTopic:
    """Looks the limit of a topic up once, until the rules change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rules: RuleSet | None = None
        self._known: dict[TopicPlace, Effective | None] = {}

    def of(self, place: TopicPlace) -> Effective | None:
        """`topic_limit`, under the rules in force."""
        rules = self._store.rules()
        if rules is not self._rules or len(self._known) > MOST_KNOWN:
            self._rules, self._known = rules, {}
        if place not in self._known:
            self._known[place] = topic_limit(rules, place)
        return self._known[place]

    def __repr__(self) -> str:
        return f"<LimitsByTopic {len(self._known)}>"


async def used_shares(limits: LimitsByTopic, gateway: OperatedGateway, places: list[TopicPlace], now: int) -> dict[TopicPlace, float]:
    """`used` of the topics of which it is more than 0, for a tenth of what describing them costs."""
    messages = await gateway.topic_numbers("forwarded_per_second", places)
    sizes = await gateway.topic_numbers("bytes_per_second", places)
    found: dict[TopicPlace, float] = {}
    started = trio.current_time()
    for place in places:
        effective = limits.of(place)
        if effective is not None and not effective.rule.cost:
            limit = limit_now(effective, gateway.judge.state_of(effective.identity, now))
            share = used_share(limit, messages.get(place, 0.0), sizes.get(place, 0.0))
            if share:
                found[place] = share
        started = await rest_if_due(started)
    return found


async def next_waits(limits: LimitsByTopic, gateway: OperatedGateway, places: list[TopicPlace], now: int) -> dict[TopicPlace, float]:
    """Seconds that a message would wait that comes now, of topics where none waits before it, and where it is more than 0."""
    found: dict[TopicPlace, float] = {}
    started = trio.current_time()
    for place in places:
        effective = limits.of(place)
        if effective is not None and effective.rule.mode == "enforce":
            state = gateway.judge.state_of(effective.identity, now)
            if state is not None and state.wait_ns:
                found[place] = state.wait_ns / 1e9
        started = await rest_if_due(started)
    return found


async def with_limits(limits: LimitsByTopic, gateway: OperatedGateway, items: list[TopicView], now: int) -> list[TopicView]:
    """The items with `limit` (None: none), `used` (0 to 1, None: no rate to compare with) and `wait_ms` (None: not used yet) and `account`.

    `now`: monotonic ns.
    """
    found: list[TopicView] = []
    rules, over = gateway.judge.rules, first_by_place(gateway.over())
    started = trio.current_time()
    for item in items:
        effective, first = limits.of(item.key()), over.get(item.key())
        since = None if first is None else first.bouts_since
        received = gateway.received_lately(item.key(), LOOK_BACK_S) if item.waiting else ()
        if effective is None:
            account = account_of(item, None if first is None else rules.rule(first.rule), None, since, received)
            found.append(replace(item, limit=None, used=None, wait_ms=None, account=account))
        else:
            state = gateway.judge.state_of(effective.identity, now)
            limit = limit_now(effective, state)
            text = LimitText.of(limit)
            view = TopicLimitView(
                messages=text.messages,
                bytes=text.bytes,
                messages_per_second=text.messages_per_second,
                bytes_per_second=text.bytes_per_second,
                concurrent=text.concurrent,
                origin=effective.origin,
                rule=effective.rule.name,
                mode=effective.rule.mode,
                action=effective.rule.action,
                by=effective.by or None,
                at=format_time(effective.at) if effective.at else None,
                reason=effective.reason or None,
                expires=None if effective.expires_at is None else format_time(effective.expires_at),
            )
            wait_ms = None if state is None or effective.rule.mode != "enforce" else round(state.wait_ns / 1e6, 3)
            account = account_of(item, effective.rule, limit, since, received)
            used = None if effective.rule.cost else used_share(limit, item.forwarded_per_second, item.bytes_per_second)
            found.append(replace(item, limit=view, used=used, wait_ms=wait_ms, account=account))
        started = await rest_if_due(started)
    return found
