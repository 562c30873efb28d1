"""The ring of recent events: what it takes from the log, how it numbers, what it forgets."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import msgspec
import pytest

from common import log, recent_events
from common.recent_events import MAX_EVENTS, MAX_LIST, MAX_PER_SECOND, MAX_TEXT, RecentEvents


@pytest.fixture
def level() -> Iterator[None]:
    before = log.logger.level
    log.logger.setLevel(logging.INFO)
    yield
    log.logger.setLevel(before)


@pytest.fixture
def ring(level: None) -> Iterator[RecentEvents]:
    del level
    with RecentEvents("b00t") as made:
        yield made


def add(ring: RecentEvents, kind: str, **fields: object) -> None:
    ring.add({"ts": "", "level": "info", "event": kind, **fields})


def test_what_is_logged_is_kept_with_its_fields_and_a_number(ring: RecentEvents) -> None:
    log.event(logging.INFO, "started", after_ms=7, workers=None)
    log.event(logging.WARNING, "state_warning", detail="x")
    first, second = ring.after(0)
    assert {key: first[key] for key in ("id", "level", "event", "after_ms")} == {
        "id": "b00t-1", "level": "info", "event": "started", "after_ms": 7,
    }  # fmt: skip
    assert "workers" not in first
    assert (second["id"], second["level"]) == ("b00t-2", "warning")
    assert [event["id"] for event in ring.after(1)] == ["b00t-2"]
    assert ring.after(2) == []


def test_lines_below_info_are_not_kept(ring: RecentEvents) -> None:
    log.logger.setLevel(logging.DEBUG)
    log.event(logging.DEBUG, "connection_closed", cause="client")
    assert ring.last == 0


def test_it_takes_what_the_level_of_the_log_keeps_from_being_written(monkeypatch: pytest.MonkeyPatch, level: None) -> None:
    written = StringIO()
    handler = log.QueueHandler(written, "json", {})
    monkeypatch.setattr(log.logger, "handlers", [handler])
    log.set_level(handler, "warning")
    with RecentEvents("b00t") as ring:
        log.event(logging.INFO, "started", after_ms=1)
        log.event(logging.WARNING, "state_warning", detail="x")
    handler.close()
    assert [event["event"] for event in ring.after(0)] == ["started", "state_warning"]
    assert "started" not in written.getvalue()
    assert "state_warning" in written.getvalue()


def test_a_flood_of_one_kind_in_one_second_is_thinned_out_and_counted() -> None:
    ring = RecentEvents("b00t")

    def happen(kind: str, created: float) -> None:
        record = logging.LogRecord("sluice", logging.WARNING, "", 0, kind, None, None)
        record.created = created
        ring.handle(record)

    for _ in range(MAX_PER_SECOND + 30):
        happen("state_warning", 1000.5)
    happen("started", 1000.5)
    assert Counter(str(event["event"]) for event in ring.after(0)) == {"state_warning": MAX_PER_SECOND, "started": 1}
    happen("state_warning", 1001.5)
    assert (ring.after(0)[-1]["suppressed"], ring.after(0)[-1]["ts"]) == (30, "1970-01-01T00:16:41.500Z")


def test_every_limit_that_is_reached_or_recovers_is_kept(ring: RecentEvents) -> None:
    """Of 100 limits that recovered in one second `sluice why` had 80 limited for ever after it: 20 a second were kept, as written."""
    for level, kind in ((logging.WARNING, "limit_reached"), (logging.INFO, "limit_recovered")):
        for number in range(5 * MAX_PER_SECOND):
            log.event(level, kind, topic=f"topic-{number}")
    kept = Counter(str(event["event"]) for event in ring.after(0))
    assert kept == {"limit_reached": 5 * MAX_PER_SECOND, "limit_recovered": 5 * MAX_PER_SECOND}
    assert not any("suppressed" in event for event in ring.after(0))


def test_half_of_a_surrogate_pair_is_no_end_of_what_shows_events(ring: RecentEvents) -> None:
    """A broker cut an emoji in its remark: every `GET /v1/events` was answered 500 until 2,000 events had come."""
    log.event(logging.WARNING, "backlog_unknown", err="no group \ud83d", topic=["\udc4d"])
    (event,) = ring.after(0)
    assert msgspec.json.encode(event)
    assert (event["err"], event["topic"]) == ("no group ?", ["?"])


def test_a_flood_of_one_kind_does_not_push_the_others_out() -> None:
    ring = RecentEvents("b00t")
    add(ring, "rare")
    for number in range(3 * MAX_EVENTS):
        add(ring, "common", number=number)
    add(ring, "rare")
    kept = ring.after(0)
    assert len(kept) == MAX_EVENTS
    assert [event["id"] for event in kept if event["event"] == "rare"] == ["b00t-1", f"b00t-{3 * MAX_EVENTS + 2}"]
    assert kept[1]["id"] == f"b00t-{ring.forgotten + 1}", "the oldest of the most frequent go first"


def test_a_fault_is_kept_without_its_traceback(ring: RecentEvents) -> None:
    try:
        raise ValueError("something private")
    except ValueError as error:
        log.failure("admin_connection_failed", error)
    assert ring.after(0)[0]["err"] == "ValueError; the log has the traceback"


def test_fields_are_bounded(ring: RecentEvents) -> None:
    log.event(logging.INFO, "reloaded", in_force=["x" * 5000] * 200, needs_restart=[Path("/a")])
    kept = ring.after(0)[0]
    in_force = kept["in_force"]
    assert isinstance(in_force, list)
    assert len(in_force) == MAX_LIST + 1
    assert len(in_force[0]) == MAX_TEXT + 3
    assert in_force[-1] == "and 150 more"
    assert kept["needs_restart"] == ["/a"]


def test_a_worker_hands_over_what_is_new(ring: RecentEvents) -> None:
    add(ring, "one")
    add(ring, "two")
    assert [event["event"] for event in ring.take_new()] == ["one", "two"]
    assert ring.take_new() == []
    add(ring, "three")
    new = ring.take_new()
    parents = RecentEvents("parent")
    for event in new:
        parents.add({**event, "worker": 2})
    assert parents.after(0) == [{"id": "parent-1", "ts": "", "level": "info", "event": "three", "worker": 2}]


def test_the_ring_of_a_parent_has_room_for_the_limits_of_all_its_workers() -> None:
    """600 limits over at four workers were 2,400 lines a minute: of some that were over, nothing was known."""
    ring = RecentEvents("b00t", 4)
    for at in range(2 * 4 * 600):
        add(ring, "limit_reached", minute=at // 2400, thing=f"t{at % 600}", worker=at // 600 % 4)
    assert len([event for event in ring.after(0) if event["minute"] == 1]) == 2400


def test_threads_may_add_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_events, "MAX_EVENTS", 100)
    ring = RecentEvents("b00t")

    def many() -> None:
        for number in range(500):
            add(ring, f"kind{number % 7}")

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = ring.after(0)
    assert (ring.last, len(kept)) == (2000, 100)
    assert len({event["id"] for event in kept}) == 100


def test_nothing_is_taken_any_more_after_the_end(level: None) -> None:
    with RecentEvents("b00t") as ring:
        pass
    log.event(logging.INFO, "started", after_ms=1)
    assert ring.last == 0
