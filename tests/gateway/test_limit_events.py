"""`limit_reached` and `limit_recovered`: when, how often, with which fields."""

from __future__ import annotations

import logging

import pytest

from gateway.limit_events import LINE_EVERY_NS, RECOVERED_NS, LimitEvents
from gateway.sweep import now_ns
from limiter.keys import Key, Origin, Tally, amqp_topic
from limiter.limits import NEVER, Limit, Rate
from limiter.rules import Rule

RULE = Rule("orders", limit=Limit(messages=Rate(500), bytes=Rate(10 << 20)))
KEY = Key(Origin("amqp", "rabbit", "10.0.0.7", "shop", b"/"), amqp_topic(b"/", b"orders", b"created"), None, "produce")


def tally(refused: int = 0, delayed: int = 0, retry_after_ns: int = 1_500_000) -> Tally:
    made = Tally()
    made.received = 700
    made.refused = refused
    made.delayed = delayed
    made.refused_by = RULE
    made.retry_after_ns = retry_after_ns
    return made


def fields(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, object]]]:
    return [(record.getMessage(), record.fields) for record in caplog.records]  # type: ignore[attr-defined]


@pytest.fixture
def events(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> LimitEvents:
    monkeypatch.setattr(logging.getLogger("sluice"), "propagate", True)
    caplog.set_level(logging.INFO, logger="sluice")
    return LimitEvents()


def test_the_first_refusal_is_said_at_once_and_names_everything(events: LimitEvents, caplog: pytest.LogCaptureFixture) -> None:
    events.add(KEY, tally(refused=200))
    assert fields(caplog) == [
        (
            "limit_reached",
            {
                "listener": "rabbit", "protocol": "amqp", "topic": "%2F/orders/created", "rule": "orders", "limit": "500/s, 10MiB/s",
                "rate": 700, "refused": 200, "delayed": 0, "retry_after_ms": 1.5, "client": "10.0.0.7", "user": "shop",
                "operation": "produce",
            },
        )
    ]  # fmt: skip


def test_at_most_one_line_a_second_and_none_for_what_only_waits_on(events: LimitEvents, caplog: pytest.LogCaptureFixture) -> None:
    events.add(KEY, tally(delayed=5))
    for _ in range(10):
        events.add(KEY, tally(refused=3))
        events.add(KEY, tally())
    assert len(caplog.records) == 1


def test_a_limit_of_nothing_gives_no_time(events: LimitEvents, caplog: pytest.LogCaptureFixture) -> None:
    events.add(KEY, tally(refused=1, retry_after_ns=NEVER))
    assert "retry_after_ms" not in fields(caplog)[0][1]


def test_recovery_is_said_once_with_what_was_refused_since_the_last_line(events: LimitEvents, caplog: pytest.LogCaptureFixture) -> None:
    events.add(KEY, tally(refused=1))
    events.add(KEY, tally(refused=30))
    events.tick(now_ns() + LINE_EVERY_NS)
    assert len(caplog.records) == 1
    events.tick(now_ns() + RECOVERED_NS + 1_000_000_000)
    events.tick(now_ns() + 2 * RECOVERED_NS)
    name, said = fields(caplog)[-1]
    assert (name, said["refused"], said["rule"], said["listener"], len(caplog.records)) == ("limit_recovered", 30, "orders", "rabbit", 2)
