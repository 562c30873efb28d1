"""What a snapshot says beside topics (`gateway/telemetry/glance.py`)."""

from __future__ import annotations

from typing import Any

from common.views.limits import OverLimitView
from common.views.listeners import ListenerView, SeatsView
from common.views.snapshot import OverheadView
from common.views.view import merge_all
from gateway.telemetry.glance import MOST_OVER, WINDOW, RecentOverhead, over_limits, shorten


def over(thing: str, rate: float, since: float = 100.0, client: str = "10.0.0.7", **more: Any) -> OverLimitView:
    found: dict[str, Any] = {
        "per": "topic", "thing": thing, "rule": "all", "operation": "produce", "protocol": "rocketmq", "since": since, "rate": rate,
        "refused": int(10 * rate), "delayed": 0, "client": client, "client_over": {client: int(rate)}, "waiting": int(rate), **more,
    }  # fmt: skip
    return OverLimitView(**found)


def test_limits_that_are_over_are_added_up_over_workers_the_worst_first() -> None:
    found = over_limits(merge_all([[over("a", 5.0, 100.0), over("b", 9.0, waiting=None)], [over("a", 7.0, 90.0, "10.0.0.8")]]))
    assert [(each.thing, each.rate, each.refused, each.waiting, each.since, each.client) for each in found] == [
        ("a", 12.0, 120, 12, 90.0, "10.0.0.8"),
        ("b", 9.0, 90, None, 100.0, "10.0.0.7"),
    ]
    assert len(over_limits(merge_all([[over("a", 1.0)], [over("a", 1.0, protocol="amqp")]]))) == 2
    assert over_limits([]) == []


def test_no_more_of_them_are_shown_than_anybody_reads() -> None:
    found = over_limits([over(f"t{number}", float(number)) for number in range(500)])
    assert [each.thing for each in found] == [f"t{number}" for number in range(499, 499 - MOST_OVER, -1)]


def test_the_time_added_is_that_of_the_last_seconds() -> None:
    recent = RecentOverhead((0.001, 0.01, 0.1))
    assert recent.look([5, 5, 5, 5], 1.0) is None, "before the first look: that may be long ago"
    assert recent.look([103, 6, 6, 5], 2.0) == OverheadView(p50=1.0, p99=10.0)
    for at in range(WINDOW):
        recent.look([103, 6, 6, 5], 3.0 + at)
    assert recent.look([103, 6, 6, 5], 13.0) is None, "nothing since"
    assert recent.look([103, 6, 6, 12], 14.0) == OverheadView(p50=100.0, p99=100.0), "above the last bound: that bound"
    assert recent.look([0, 0, 0, 0], 15.0) is None, "a worker has ended, and its counts with it"
    assert recent.look([999, 0, 0, 0], 3600.0) is None, "nobody has looked for an hour"


def test_a_listener_in_short() -> None:
    (found,) = shorten([ListenerView(name="rabbit", protocol="amqp", seats=SeatsView(taken=1, most=2))])
    assert (found.name, found.seats, hasattr(found, "caps")) == ("rabbit", SeatsView(taken=1, most=2), False)
