"""The limit that holds for each topic of a list, how much of it is used, and what it does: `limit`, `used`, `wait_ms` and `account` of
`GET /v1/topics`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio
from msgspec.structs import replace

from admin.http.slices import rest_after
from admin.store.state import format_time
from admin.views.limit_views import LimitText, used_share
from admin.views.topic_account import LOOK_BACK_S, account_of, first_by_place
from common.views.topics import TopicLimitView, TopicView
from limiter.rules.subject import Subject
from limiter.topics import parse_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from admin.ports import Gateway
    from limiter.rules.rule_set import Effective, RuleSet

SLICE_TOPICS: Final = 3  # topics; looked up between two turns of the event loop: 0.2 ms, where rules are many (measured 2026-11)


def topic_limit(rules: RuleSet, item: TopicView) -> Effective | None:
    """The limit per topic that is enforced for this topic, whoever sends to it; else one in shadow mode; None: no rule has one."""
    try:
        name = parse_topic(item.protocol, item.topic)
    except ValueError:  # __other__, the sum of those that are not counted one by one
        return None
    subject = Subject(name, item.topic, operation=item.operation)
    found = [effective for effective in rules.matched(subject) if effective.per == "topic" and effective.rule.mode != "off"]
    return min(found, key=lambda effective: effective.rule.mode != "enforce", default=None)


async def with_limits(
    limit_of: Callable[[TopicView], Effective | None], gateway: Gateway, items: list[TopicView], now: int
) -> list[TopicView]:
    """The items with `limit` (None: none), `used` (0 to 1, None: no rate to compare with) and `wait_ms` (None: not used yet) and `account`.

    `limit_of`: `topic_limit` under the rules in force. `now`: monotonic ns.
    """
    found: list[TopicView] = []
    rules, over = gateway.judge.rules, first_by_place(gateway.over())
    started = trio.current_time()
    for at, item in enumerate(items, 1):
        effective, first = limit_of(item), over.get(item.key())
        since = None if first is None else first.bouts_since
        received = gateway.received_lately(item.key(), LOOK_BACK_S) if item.waiting else ()
        if effective is None:
            account = account_of(item, None if first is None else rules.rule(first.rule), None, since, received)
            found.append(replace(item, limit=None, used=None, wait_ms=None, account=account))
        else:
            state = gateway.judge.state_of(effective.identity, now)
            limit = effective.rule.limit if state is None else state.cap_now or state.rate_now or effective.rule.limit
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
            used = None if effective.rule.cost else used_share(limit, item)
            found.append(replace(item, limit=view, used=used, wait_ms=wait_ms, account=account))
        if at % SLICE_TOPICS == 0:
            await rest_after(started)
            started = trio.current_time()
    return found
