"""The account of a topic: what its limit does to it now, since when, whose doing it is and what ends it.

Made once, here, beside the topic's limit (`topic_limits.py`). The page and the terminal say it in their words, which are the same four:
received, passed, waiting, refused.

The naive way shows what the limit says: "a message waits up to 1 s, then it is refused". A publisher without confirms cannot be told of a
refusal, so its messages wait without end, and the wait of the next message (`wait_ms`) is that of the first in the line, not of the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admin.store.state import format_time, parse_time
from common.views.topics import TopicAccountView

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from admin.ports import TopicPlace
    from common.views.limits import OverLimitView
    from common.views.topics import RefusedClientView, TopicView
    from limiter.limits import Limit
    from limiter.rules.rule import Rule

LOOK_BACK_S: Final = 900  # seconds; of the series, in which the first that waits is looked for
HELD_S: Final = 0.1  # seconds of the limit; less that waits is on its way, not held; a guess


def first_by_place(over: Iterable[OverLimitView]) -> dict[TopicPlace, OverLimitView]:
    """Of each topic that is over limits, of any level, the one that was reached first."""
    found: dict[TopicPlace, OverLimitView] = {}
    for facts in over:
        place = facts.protocol, facts.topic, facts.operation
        if place not in found or facts.bouts_since < found[place].bouts_since:
            found[place] = facts
    return found


def account_of(
    item: TopicView, rule: Rule | None, limit: Limit | None, since: float | None, received: Sequence[float | None]
) -> TopicAccountView:
    """`limit`: the topic's, as it is now; None: it has none, and `rule` is of another level, or not known.

    `received`: messages of each of the last seconds, the latest last.
    """
    pace = pace_of(item, rule, limit, since)
    waiting = item.waiting if is_held(item.waiting, pace) else 0
    state = "within"
    if item.refused_per_second > 0:
        state = "refused"
    elif rule is not None and rule.mode == "enforce" and waiting:
        state = "waiting"
    elif rule is not None and rule.mode == "shadow" and would_refuse(item) > 0:
        state = "would_refuse"
    began = [] if since is None else [since]
    began += [parse_time(each.over_since) for each in item.clients if each.over_since]
    last = waiting / pace if waiting and pace else None
    worst, share = culprit(item, state)
    return TopicAccountView(
        state=state,
        since=format_time(min(began)) if began and state != "within" else None,
        first_waited_seconds=first_waited(waiting, received) if waiting else None,
        last_waits_seconds=None if last is None else round(last, 3),
        client=None if worst is None else worst.client,
        user=None if worst is None else worst.user,
        group=None if worst is None else worst.group,
        client_share=share,
        would_refuse_per_second=round(would_refuse(item), 3) if state == "would_refuse" else 0.0,
        unrefused_because=reason_not_refused(item, rule, last) if state == "waiting" and rule is not None else None,
    )


def culprit(item: TopicView, state: str) -> tuple[RefusedClientView | None, float | None]:
    """Who has most of what is refused, or else of what waits, or would be refused, and which part of it."""
    number = {"refused": "refused_per_second", "waiting": "waiting", "would_refuse": "would_refuse_per_second"}.get(state)
    if number is None:
        return None, None
    worst = max(item.clients, key=lambda client: float(getattr(client, number)), default=None)
    if worst is None or not getattr(worst, number):
        return None, None
    whole = would_refuse(item) if state == "would_refuse" else getattr(item, number)
    return worst, round(min(1.0, getattr(worst, number) / whole), 4)


def would_refuse(item: TopicView) -> float:
    """Messages a second that a limit in mode shadow would refuse, of the clients that are listed."""
    return sum([client.would_refuse_per_second for client in item.clients])


def pace_of(item: TopicView, rule: Rule | None, limit: Limit | None, since: float | None) -> float | None:
    """Messages per second at which those that wait go on: the limit's; where it counts something else, as they do now, while it is over."""
    if rule is not None and rule.cost:
        return item.forwarded_per_second
    rate = None if limit is None or limit.messages is None else limit.messages.per_second
    if since is None or (limit is not None and limit.bytes is None and limit.concurrent is None):
        return rate
    return item.forwarded_per_second if rate is None else min(rate, item.forwarded_per_second or rate)


def is_held(waiting: int, rate: float | None) -> bool:
    """Whether so many wait for the limit, and are not just on their way."""
    return waiting > 0 and rate is not None and waiting >= HELD_S * rate


def first_waited(waiting: int, received: Sequence[float | None]) -> float | None:
    """Seconds: those in which the last `waiting` messages came, as what waits are the last that came; None: not within `received`."""
    left = float(waiting)
    for seconds, count in enumerate(reversed(received), 1):
        if count is None:
            return None
        left -= count
        if left <= 0:
            return float(seconds)
    return None


def reason_not_refused(item: TopicView, rule: Rule, last_s: float | None) -> str:
    if item.operation != "produce":
        return "requeue" if item.operation == "requeue" else "consume"
    if rule.action not in {"delay", "reject"}:
        return rule.action
    if rule.action == "delay" and last_s is not None and last_s * 1e9 <= rule.max_delay_ns:
        return "delay"
    return "no_confirms" if item.protocol == "amqp" else "one_way"
