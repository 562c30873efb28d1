"""The intraday raise at work: full hours of a wall clock that the test moves, settings that change, quotas published within the hour."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from control_plane.hourly_raises import MIN_OBSERVED_NS, HourlyRaises, Sources
from gateway.counting.hourly_demand import Reading
from limiter.judge import Judge
from limiter.limits import Limit, Rate
from limiter.quota_snapshot import Quota
from limiter.request import Request
from limiter.rules.hourly_raise import HourlyRaise
from limiter.rules.rule_set import Match, Rule, RuleSet
from limiter.rules.surges import MARGIN
from limiter.topics import TopicName, rocketmq_topic

ORDERS = rocketmq_topic(b"orders")
RULES = (Rule("all", Match(protocol="rocketmq"), limit=Limit(messages=Rate(1))),)
SECOND = 1_000_000_000


def quotas(rate: float = 10, hourly: float | None = 3.0) -> dict[TopicName, Quota]:
    return {ORDERS: Quota("rocketmq", "orders", messages=(rate, 100), hourly_messages=hourly)}


class Machine:
    """A gateway's store, counters and clocks."""

    def __init__(self, hourly_raise: str = "on", at: float = 1_795_003_200 + 60.0, surge_raise: str = "off") -> None:
        self.settings = SimpleNamespace(hourly_raise=hourly_raise, hourly_raise_max=4, surge_raise=surge_raise)
        self.wall = at
        self.monotonic = 7 * SECOND
        self.total = 0
        self.quotas = quotas()
        self.hourly: HourlyRaise | None = None
        self.changes = 0
        self.raises = HourlyRaises(cast(Any, self), lambda: cast(Any, self.settings), self.read, lambda: self.wall, lambda: self.monotonic)

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
        (effective,) = [each for each in self.rules().effective(ORDERS) if each.per == "topic"]
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


class Day(Machine):
    """The same with a judge, second by second: a client sends so much, and what is refused is lost."""

    def __init__(self, *rules: Rule) -> None:
        super().__init__(hourly_raise="off", surge_raise="on")
        self.all_rules = rules or RULES
        self.judge = Judge(self.rules())
        self.refused = 0

    def rules(self) -> RuleSet:
        return RuleSet(self.all_rules, quotas=self.quotas, hourly=self.hourly)

    async def send(self, per_second: int, seconds: int) -> tuple[int, str]:
        """How many were refused of what was sent in so many seconds, and the quota's origin after that."""
        origin = self.judge.origin("rocketmq", "one", "10.0.0.7", None)
        before = self.refused
        for _ in range(seconds):
            request = Request(self.judge.key(origin, b"orders", ORDERS), per_second, 1, 10)
            self.judge.decide([request], self.monotonic)
            away = per_second - request.passed
            self.refused += away
            self.total += request.passed + min(away, request.passed)  # as `TopicTotals.tick` counts demand
            changes = self.changes
            await self.pass_time(1)
            if self.changes != changes:
                self.judge.replace(self.rules(), self.monotonic)
        return self.refused - before, (await self.pass_time(0))[0]


async def test_a_surge_of_an_opening_day_is_refused_less_than_a_hundredth_and_is_over_a_minute_later() -> None:
    """The quota was yesterday's peak: nothing in it knows that 2.5 times as much comes today, for twenty minutes."""
    day = Day()
    assert await day.send(6, 60) == (0, "quota")
    refused, origin = await day.send(25, 1200)
    assert 0 < refused <= 0.01 * 25 * 1200
    assert origin == "quota+hour"
    assert await day.send(6, 70) == (0, "quota")


async def test_without_the_raise_more_than_half_of_it_is_refused() -> None:
    day = Day()
    day.settings.surge_raise = "off"
    assert (await day.send(25, 120))[0] > 0.5 * 25 * 120 - 100


async def test_a_surge_goes_no_further_than_the_cap_and_the_ceiling() -> None:
    cap = Rule("cap", Match(protocol="rocketmq"), per="listener", limit=Limit(messages=Rate(12)))
    roof = Rule("roof", Match(protocol="rocketmq"), limit=Limit(messages=Rate(12)), ceiling=True)
    for rules in ((*RULES, cap), (roof,)):
        day = Day(*rules)
        refused, origin = await day.send(25, 300)
        assert 25 * 300 - refused == pytest.approx(12 * 300, rel=0.09)  # one of a burst of twelve stays for larger messages
        assert origin == "quota+hour"


async def test_a_storm_of_one_message_sent_again_and_again_raises_a_quota_by_steps_only() -> None:
    day = Day()
    await day.send(5000, 10)
    assert day.hourly is not None
    (first,) = day.hourly.surges.values()
    assert first[0] <= MARGIN * 2 * (10 + 100 / 10)  # the rate and the burst, and what was refused once more


async def test_hour_and_surges_go_on_side_by_side_and_each_ends_by_itself() -> None:
    machine = Machine(surge_raise="on")
    await machine.pass_time(0)
    for _ in range(353):
        await machine.pass_time(10, 6.0)
    assert await machine.pass_time(10, 6.0) == ("quota+hour", 18), "the full hour: 3 x 6/s"
    assert await machine.pass_time(10, 16.0) == ("quota+hour", 24), "a surge: 1.5 x 16/s"
    machine.settings.surge_raise = "off"
    assert await machine.pass_time(1, 0.0) == ("quota+hour", 18)
    machine.settings.hourly_raise, machine.settings.surge_raise = "off", "on"
    assert await machine.pass_time(1, 0.0) == ("quota", 10)
    await machine.pass_time(10, 16.0)
    machine.settings.surge_raise = "off"
    assert await machine.pass_time(1, 0.0) == ("quota", 10)
    assert machine.hourly is None


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
