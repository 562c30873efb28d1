"""The intraday raise at work: full hours of a wall clock that the test moves, settings that change, quotas published within the hour."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.counting.hourly_demand import Reading
from gateway.lifecycle.hourly_raises import MIN_OBSERVED_NS, HourlyRaises, Sources
from limiter.limits import Limit, Rate
from limiter.quota_snapshot import Quota
from limiter.rules.hourly_raise import HourlyRaise
from limiter.rules.rule_set import Match, Rule, RuleSet
from limiter.topics import TopicName, rocketmq_topic

ORDERS = rocketmq_topic(b"orders")
RULES = (Rule("all", Match(protocol="rocketmq"), limit=Limit(messages=Rate(1))),)
SECOND = 1_000_000_000


def quotas(rate: float = 10, hourly: float | None = 3.0) -> dict[TopicName, Quota]:
    return {ORDERS: Quota("rocketmq", "orders", messages=(rate, 100), hourly_messages=hourly)}


class Machine:
    """A gateway's store, counters and clocks."""

    def __init__(self, hourly_raise: str = "on", at: float = 1_795_003_200 + 60.0) -> None:
        self.settings = SimpleNamespace(hourly_raise=hourly_raise, hourly_raise_max=4)
        self.wall = at
        self.monotonic = 7 * SECOND
        self.total = 0
        self.quotas = quotas()
        self.hourly: HourlyRaise | None = None
        self.changes = 0
        self.raises = HourlyRaises(self, lambda: cast(Any, self.settings), self.read, lambda: self.wall, lambda: self.monotonic)

    # the store
    def rules(self) -> RuleSet:
        return RuleSet(RULES, quotas=self.quotas, hourly=self.hourly)

    def raise_quotas(self, hourly: HourlyRaise | None, raised: int) -> None:
        self.hourly = hourly
        self.raised = raised
        self.changes += 1

    # the counters
    async def read(self) -> Sources:
        reading: Reading = ("rocketmq", "orders", self.total, 0)
        return {"": [reading] if self.total else []}

    async def pass_time(self, seconds: float, per_second: float = 0.0) -> tuple[str, float]:
        """Let time pass with such traffic; origin and rate of the limit after that."""
        self.wall += seconds
        self.monotonic += int(seconds * SECOND)
        self.total += int(seconds * per_second)
        await self.raises.look()
        (effective,) = self.rules().effective(ORDERS)
        assert effective.limit.messages is not None
        return effective.origin, effective.limit.messages.per_second


async def test_a_quota_is_raised_at_the_full_hour_and_back_when_the_demand_is_gone() -> None:
    machine = Machine()
    await machine.pass_time(0)
    assert await machine.pass_time(3538, 8.0) == ("quota", 10)  # two seconds to
    assert await machine.pass_time(2, 8.0) == ("quota+hour", 24)
    assert await machine.pass_time(3599, 2.0) == ("quota+hour", 24)
    assert await machine.pass_time(1, 2.0) == ("quota", 10), "3 x 2/s is below what was published"
    assert await machine.pass_time(3600, 100.0) == ("quota+hour", 40), "four times at most"
    assert await machine.pass_time(3600) == ("quota", 10)


async def test_what_passes_before_the_first_look_counts() -> None:
    machine = Machine()
    machine.total = 30_000
    assert await machine.pass_time(3600) == ("quota+hour", 25)


async def test_off_is_the_default_and_off_again_ends_it_at_once() -> None:
    machine = Machine(hourly_raise="off")
    await machine.pass_time(0)
    assert await machine.pass_time(7200, 8.0) == ("quota", 10)
    assert machine.changes == 0
    machine.settings.hourly_raise = "on"
    await machine.pass_time(1)
    assert await machine.pass_time(3600, 5.0) == ("quota+hour", 15), "what was counted before it was on is not of this hour"
    machine.settings.hourly_raise = "off"
    assert await machine.pass_time(1) == ("quota", 10)


async def test_a_gateway_that_starts_shortly_before_the_hour_waits_until_it_knows_enough() -> None:
    machine = Machine(at=1_795_003_200 + 3300.0)  # five minutes to
    await machine.pass_time(0)
    assert await machine.pass_time(300, 8.0) == ("quota", 10)
    assert await machine.pass_time(MIN_OBSERVED_NS / SECOND - 300, 8.0) == ("quota+hour", 24)
    assert await machine.pass_time(3300, 5.0) == ("quota+hour", 15), "and then at each full hour"


async def test_a_wall_clock_that_jumps_costs_no_more_than_an_early_look() -> None:
    machine = Machine()
    await machine.pass_time(0)
    await machine.pass_time(1800, 8.0)
    machine.wall += 7200
    assert await machine.pass_time(1, 8.0) == ("quota+hour", 24)
    machine.wall -= 7200
    assert await machine.pass_time(1, 8.0) == ("quota+hour", 24)


async def test_quotas_published_within_the_hour_are_raised_by_its_demand() -> None:
    machine = Machine()
    await machine.pass_time(0)
    await machine.pass_time(3600, 8.0)
    machine.quotas = quotas(rate=20, hourly=2.0)
    assert await machine.pass_time(1) == ("quota", 20)
    assert machine.raised == 0
    machine.quotas = quotas(rate=20, hourly=4.0)
    assert await machine.pass_time(1) == ("quota+hour", 32)
    assert machine.raised == 1


async def test_a_changed_bound_holds_at_once() -> None:
    machine = Machine()
    await machine.pass_time(0)
    await machine.pass_time(3600, 8.0)
    machine.settings.hourly_raise_max = 2
    assert await machine.pass_time(1) == ("quota+hour", 20)


async def test_a_quota_without_a_factor_is_never_raised() -> None:
    machine = Machine()
    machine.quotas = quotas(hourly=None)
    await machine.pass_time(0)
    assert await machine.pass_time(3600, 100.0) == ("quota", 10)


async def test_the_log_tells_what_is_raised_most_and_when_nothing_is_any_more(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "sluice")
    machine = Machine()
    await machine.pass_time(0)
    for per_second in (8.0, 0.0, 0.0):
        await machine.pass_time(3600, per_second)
    told = [cast(Any, record).fields for record in caplog.records if record.getMessage() == "quotas_raised"]
    assert [(line["raised"], line["of"], line["observed_s"], line.get("topic"), line.get("factor")) for line in told] == [
        (1, 1, 3600, "orders", 2.4),
        (0, 1, 3600, None, None),
    ]
    assert [line["hour"] for line in told] == ["2026-11-18T13:00:00+00:00", "2026-11-18T14:00:00+00:00"]
