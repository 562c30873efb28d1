"""`sluice status` is ten lines: what is wrong stands first, and nothing that is well takes more than its line."""

from __future__ import annotations

from typing import Any

import pytest

from cli.status_text import MOST_LINES, lines

STATUS: dict[str, Any] = {
    "name": "edge", "version": "1.0", "ready": True, "uptime_seconds": 483.9, "revision": 7, "connections": 6,
    "event_loop": {"lag_ms": 3.4},
    "memory": {"held_bytes": 2945252}, "memory_limit": {"size_bytes": 57028608, "limit_bytes": 25276059648},
    "state": {"live_changes_of_keys": 1, "live_changes_of_rules": 0, "next_expiry": "2026-11-21T21:53:41.670Z", "quotas": None},
}  # fmt: skip
LISTENERS = [{"name": "rabbit", "upstream": "10.0.0.1:5672", "upstream_reachable": True}]


def topic(name: str, state: str = "refused", **more: Any) -> dict[str, Any]:
    who = {"client": "10.1.0.9", "user": "billing", "client_share": 0.67}
    account = {"state": state, "since": "2026-11-29T21:23:35.000Z", **who, **more}
    return {
        "protocol": "amqp", "topic": f"%2F/bills/{name}", "received_per_second": 60.0,
        "refused_per_second": 30.0 if state == "refused" else 0, "waiting": 3900, "account": account,
        "limit": {"messages": "30/s", "mode": "enforce"},
    }  # fmt: skip


def test_a_calm_gateway_is_six_lines() -> None:
    assert lines(STATUS, [topic("calm", "within")], LISTENERS) == [
        "health    ready, up 8min 4s, edge 1.0, revision 7",
        "brokers   reachable (rabbit)",
        "load      6 connections, 2.81 MiB of messages held in memory, process 54.4 MiB of 23.5 GiB, loop 3.4ms late",
        "limits    no topic is over its limit",
        "changes   1 of limits, 0 of rules are changed live; the next ends 2026-11-21 21:53:41 UTC",
        "quotas    none are published",
    ]


def test_topics_over_their_limits_say_how_much_and_whose() -> None:
    found = lines(STATUS, [topic("bill"), topic("late", "waiting", last_waits_seconds=130.0), topic("none", "waiting")], LISTENERS)
    assert found[3:6] == [
        "limited   / bills bill: 60/s of 30/s, 30/s refused, 10.1.0.9 (billing) 67 %, since 21:23:35",
        "waiting   / bills late: 60/s of 30/s, 3.9k waiting for 2min 10s, 10.1.0.9 (billing) 67 %, since 21:23:35",
        "waiting   / bills none: 60/s of 30/s, 3.9k waiting without end, 10.1.0.9 (billing) 67 %, since 21:23:35",
    ]


def test_a_topic_without_a_limit_of_its_own_is_told_without_one() -> None:
    (told,) = lines(STATUS, [{**topic("bill"), "limit": None}], LISTENERS)[3:4]
    assert told == "limited   / bills bill: 60/s, 30/s refused, 10.1.0.9 (billing) 67 %, since 21:23:35"


def test_a_broker_that_blocks_publishers_says_why_and_since_when() -> None:
    told = {"broker_blocked_connections": 8, "broker_blocked_since": "2026-11-21T03:12:40.000Z", "broker_blocked_reason": "low on memory"}
    blocked = "rabbit: 10.0.0.1:5672 takes no messages"
    assert lines(STATUS, [], [{**LISTENERS[0], **told}])[1] == (
        f"brokers   {blocked}: low on memory, since 03:12:40 (connection.blocked on 8 connections)"
    )
    older = lines(STATUS, [], [{**LISTENERS[0], "broker_blocked_connections": 1}])
    assert older[1] == f"brokers   {blocked} (connection.blocked on 1 connection)", "of a gateway that is older"


def test_whatever_is_wrong_there_are_ten_lines_at_most() -> None:
    wrong = {
        **STATUS, "ready": False, "not_ready_because": ["no broker"], "warnings": ["one", "two", "three"], "needs_restart": ["admin.bind"],
        "fleet": {"name": "orders", "gateways": 3, "reachable": False, "reason": "timeout"},
        "spool": {"messages": 4000, "disk_messages": 3000, "used_bytes": 1 << 20, "size_bytes": 64 << 20},
    }  # fmt: skip
    away = [{**LISTENERS[0], "upstream_reachable": False, "upstream_error": "refused"}]
    found = lines(wrong, [topic(str(number)) for number in range(20)], away)
    assert len(found) == MOST_LINES
    assert found[1] == "warning   one (and 2 more: -o wide)"
    assert found[0].startswith("health    NOT READY: no broker, up")
    assert "brokers   rabbit: 10.0.0.1:5672 UNREACHABLE: refused" in found
    assert "restart   needed for admin.bind" in found
    assert "fleet     orders, 3 gateways share the limits, Redis UNREACHABLE: timeout" in found
    assert any(line.startswith("limited   more topics are") for line in found)


@pytest.mark.parametrize("wide", [False, True])
def test_the_counters_are_with_wide(sluice: Any, admin: Any, wide: bool) -> None:
    admin.answers["GET /v1/status"] = (200, {**STATUS, "event_loop": {"lag_ms": 3.4, "sweeps": 77}})
    ran = sluice("status", *(["-o", "wide"] if wide else []))
    assert ran.code == 0, ran.err
    assert ("event_loop.sweeps" in ran.out, "no topic is over its limit" in ran.out) == (wide, not wide)
