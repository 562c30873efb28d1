"""A clock that was wrong for a while removes no live change for good."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from admin.store.changes import Author
from admin.store.clock_steps import BELIEVE_S, STEP_S, ClockSteps
from admin.store.state import StoredOverride, format_time
from admin.store.state_directory import AHEAD_S
from admin.store.store import DOUBT_S, Store
from support.admin.admin_client import RULES, Clock

KEY = "limits/rocketmq/orders"
HOUR = 3600.0
RIGHT = 1_795_000_000.0


class Time:
    """The machine's: seconds pass on both clocks, and one of them is set."""

    def __init__(self, ahead: float = 0.0) -> None:
        self.wall = Clock(RIGHT + ahead)
        self.steady = Clock(1000.0)

    def passes(self, seconds: float) -> None:
        self.wall.now += seconds
        self.steady.now += seconds


def opened(folder: Path, time: Time) -> Store:
    return Store.open(folder, RULES, time.wall, steady=time.steady)


async def limit(store: Store, ends: float) -> None:
    stored = StoredOverride(messages="1/s", expires=format_time(ends))
    await store.change(lambda: ([(KEY, stored)], None), Author("tester"), "test")


async def tick(store: Store) -> tuple[bool, bool]:
    """Whether the change holds, and whether it is kept."""
    store._doubt_until = 0.0  # the next look is due
    store.lapse()
    assert await store.remove_expired() == ""
    return bool(store.rules().overrides), KEY in store.state.keys


def events(caplog: pytest.LogCaptureFixture) -> list[float]:
    return [vars(record)["fields"]["by_s"] for record in caplog.records if record.getMessage() == "clock_set"]


async def test_an_end_that_the_clock_comes_to_by_running_is_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    time = Time()
    store = opened(tmp_path, time)
    await limit(store, RIGHT + 60)
    time.passes(59)
    assert await tick(store) == (True, True)
    time.passes(2)
    assert await tick(store) == (False, False)
    entry = (await store.entries([2]))[0]
    assert (entry.action, entry.by, entry.changes[0].before is not None) == ("expiry", "sluice", True)
    assert events(caplog) == []
    store.close()


async def test_a_clock_that_is_an_hour_ahead_for_a_while_ends_nothing_for_good(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    time = Time()
    store = opened(tmp_path, time)
    await limit(store, RIGHT + HOUR / 2)
    time.wall.now += HOUR
    assert await tick(store) == (False, True)
    time.passes(BELIEVE_S - 1)
    assert await tick(store) == (False, True)
    time.wall.now -= HOUR
    assert await tick(store) == (True, True)
    assert events(caplog) == [HOUR, -HOUR]
    time.passes(HOUR / 2)
    assert await tick(store) == (False, False)
    store.close()


async def test_a_start_with_a_clock_that_is_ahead_ends_nothing_for_good(tmp_path: Path) -> None:
    store = opened(tmp_path, Time())
    await limit(store, RIGHT + HOUR / 2)
    store.close()
    time = Time(ahead=HOUR)
    store = opened(tmp_path, time)
    assert await tick(store) == (False, True)
    time.passes(60)
    time.wall.now -= HOUR
    assert await tick(store) == (True, True)
    store.close()


async def test_what_ended_while_the_gateway_was_away_goes_when_the_clock_has_stood_by_it(tmp_path: Path) -> None:
    store = opened(tmp_path, Time())
    await limit(store, RIGHT + HOUR / 2)
    store.close()
    time = Time(ahead=HOUR)
    store = opened(tmp_path, time)
    assert await tick(store) == (False, True)
    time.passes(BELIEVE_S + 1)
    assert await tick(store) == (False, False)
    store.close()


async def test_what_is_doubted_is_looked_at_again_now_and_then_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(tmp_path, Time())
    await limit(store, RIGHT + 60)
    store.close()
    store = opened(tmp_path, Time(ahead=HOUR))
    looks: list[float] = []

    def doubt(end: float) -> bool:
        looks.append(end)
        return False

    monkeypatch.setattr(store._steps, "believes", doubt)
    for _ in range(10):
        assert await store.remove_expired() == ""
    assert len(looks) == 1
    assert DOUBT_S < BELIEVE_S
    store.close()


@pytest.mark.parametrize("line", ["a change", "a refusal"])
async def test_a_history_out_of_the_future_is_told(tmp_path: Path, line: str) -> None:
    store = opened(tmp_path, Time(ahead=HOUR))
    if line == "a change":
        await limit(store, RIGHT + 2 * HOUR)
    else:
        assert await store.note(Author("tester"), "test", "refused")
    store.close()
    store = opened(tmp_path, Time())
    (warning,) = store.warnings
    assert "3600 s after now: the clock was ahead then, or is behind now" in warning
    store.close()
    store = opened(tmp_path, Time(ahead=HOUR - AHEAD_S))
    assert store.warnings == [], "that much two clocks may differ"
    store.close()


def test_a_clock_that_is_slewed_is_not_set() -> None:
    time = Time()
    steps = ClockSteps(time.wall, time.steady)
    for _ in range(20_000):  # 5,000 s at NTP's most
        time.passes(0.25)
        time.wall.now += 0.25 * 500e-6
        assert steps.look() == 0.0
    time.wall.now += STEP_S * 1.5
    assert steps.look() == pytest.approx(STEP_S * 1.5, abs=1e-3)
    assert steps.look() == 0.0
