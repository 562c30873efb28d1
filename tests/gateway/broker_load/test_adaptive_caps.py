"""AdaptiveCaps that follow their brokers: what a broker shows of its load becomes a word, a tighter cap, a line in the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import to_builtins

from admin.views.limit_views import usage_of
from control_plane.standalone import Standalone
from gateway.broker_load.adaptive_caps import LEARN_S, MIN_SAMPLES, AdaptiveCaps, BrokerLoad, ConfirmPace, describe
from gateway.clock import now_ns
from gateway.lifecycle import periodic_tasks
from gateway.protocols import PROTOCOLS
from gateway.session.broker_flow import BrokerFlow
from limiter.limits import Adapt
from limiter.rules.rule_set import RuleSet
from limiter.topics import rocketmq_topic
from support.idle_standalone import idle, written
from support.models.asking import SECOND, Limit, Rate, Rule, ask, judge_of, key_of

BEGIN = 5 * SECOND
REASONS = (*PROTOCOLS["amqp"].adapt_reasons, *PROTOCOLS["rocketmq"].adapt_reasons)
TICK = SECOND // 4


def cap(adapt: Adapt | None = Adapt()) -> Rule:  # noqa: B008  -- immutable
    return Rule("cap", per="listener", limit=Limit(messages=Rate(1000), adapt=adapt))


def confirm(flow: BrokerFlow, seconds: float, times: int = MIN_SAMPLES) -> None:
    for _ in range(times):
        flow.confirm_latency.observe(seconds)


# ---- what it shows -----------------------------------------------------------------------------------------------------


def test_a_broker_without_a_sign_of_load_is_not_overloaded() -> None:
    load = BrokerLoad(BrokerFlow(), REASONS)
    assert [load.reason(BEGIN + tick * TICK) for tick in range(3)] == ["", "", ""]


def test_a_blocked_connection_counts_for_as_long_as_it_is() -> None:
    flow = BrokerFlow()
    load = BrokerLoad(flow, REASONS)
    said = []
    for tick, blocked in enumerate((0, 1, 2, 1, 0)):
        flow.blocked_now = blocked
        said.append(load.reason(BEGIN + tick * TICK))
    assert said == ["", "blocked", "blocked", "blocked", ""]


def test_busy_answers_count_once_and_the_commonest_gives_its_name() -> None:
    flow = BrokerFlow()
    flow.busy = {"overload": 7}
    load = BrokerLoad(flow, REASONS)
    said = [load.reason(BEGIN)]
    flow.busy = {"overload": 9, "timeout_clean_queue": 3}
    said.append(load.reason(BEGIN + TICK))
    said.append(load.reason(BEGIN + 2 * TICK))
    assert said == ["", "timeout_clean_queue", ""]


def test_consumers_that_read_cold_data_are_no_reason_to_send_less() -> None:
    flow = BrokerFlow()
    load = BrokerLoad(flow, REASONS)
    flow.busy = {"cold_data": 9}
    assert load.reason(BEGIN) == ""


def slow_after(quick: float, slow: float, seconds: int = 60) -> list[int]:
    """The ticks of a minute of quick confirms and 5 s of slow ones at which they are said to be slow, counted from the first slow one."""
    flow = BrokerFlow()
    load = BrokerLoad(flow, REASONS)
    said = []
    first = seconds * 4
    for tick in range(first + 20):
        confirm(flow, quick if tick < first else slow)
        if load.reason(BEGIN + tick * TICK) == "slow_confirms":
            said.append(tick - first)
    return said


def test_confirms_that_take_five_times_as_long_as_in_the_long_run_are_slow() -> None:
    assert slow_after(0.01, 0.1) == list(range(20))


@pytest.mark.parametrize(("quick", "slow"), [(0.01, 0.04), (0.0002, 0.015), (0.1, 0.1)])
def test_confirms_that_vary_or_are_quick_anyway_are_not_slow(quick: float, slow: float) -> None:
    assert slow_after(quick, slow) == []


def test_slowness_is_not_reported_before_the_usual_pace_is_known() -> None:
    assert slow_after(0.01, 0.1, seconds=int(LEARN_S) - 6) == []


def test_few_confirms_are_no_sign() -> None:
    pace = ConfirmPace()
    assert pace.is_slow(MIN_SAMPLES - 1, 1.0, 1.0) is None
    assert pace.is_slow(MIN_SAMPLES, 1.0, 1.0) is False


def test_a_broker_that_is_slow_for_good_is_not_overloaded() -> None:
    pace = ConfirmPace()
    count, total = 0, 0.0
    said = []
    for second in range(2400):
        count, total = count + MIN_SAMPLES, total + MIN_SAMPLES * (0.01 if second < 60 else 0.1)
        said.append(pace.is_slow(count, total, 1.0))
    assert said[60:120] == [True] * 60
    assert said[-1] is False


# ---- what comes of it --------------------------------------------------------------------------------------------------


class Gate:
    """A judge whose cap of listener `l` is in use, a broker, and the ticks."""

    def __init__(self, *rules: Rule) -> None:
        self.judge = judge_of(*rules)
        ask(self.judge, key_of(self.judge, "a"), BEGIN)
        self.flow = BrokerFlow()
        self.caps = AdaptiveCaps(self.judge)
        self.listening = cast(Any, {"l": SimpleNamespace(protocol="amqp", config=SimpleNamespace(flow=self.flow))})
        self.now = BEGIN

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.now += TICK
            self.caps.tick(self.listening, self.now)

    def cap(self) -> dict[str, object]:
        (state,) = self.judge.caps("l", self.now)
        found: dict[str, object] = to_builtins(describe(state, self.now))
        return found


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, dict[str, Any]]]:
    return [(record.levelname, record.getMessage(), cast(Any, record).fields) for record in caplog.records]


def test_the_cap_is_tightened_and_recovers_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate(cap())
    with caplog.at_level(logging.INFO):
        gate.tick()
        gate.flow.blocked_now = 1
        gate.tick(5)
        assert gate.cap() == {
            "rule": "cap", "limit": "1000/s", "now": "640/s", "part": 0.64, "reason": "blocked", "seconds": 1.0,
            "tightened": {"blocked": 2}, "topics": 1,
        }  # fmt: skip
        gate.flow.blocked_now = 0
        gate.tick(40)
    assert (gate.cap()["now"], gate.cap()["reason"], gate.cap()["seconds"]) == ("1000/s", None, None)
    tightening, recovered = events(caplog)
    assert tightening[:2] == ("WARNING", "cap_tightening")
    assert tightening[2].items() >= {"listener": "l", "rule": "cap", "reason": "blocked", "limit": "1000/s", "now": "800/s"}.items()
    assert recovered[:2] == ("INFO", "cap_recovered")
    assert recovered[2].items() >= {"listener": "l", "rule": "cap", "limit": "1000/s", "now": "1000/s"}.items()


def test_a_cap_that_does_not_adapt_stays_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate(cap(None))
    gate.flow.blocked_now = 1
    with caplog.at_level(logging.INFO):
        gate.tick(8)
    assert gate.cap()["now"] == "1000/s"
    assert events(caplog) == []


def test_a_reload_that_takes_adapt_away_makes_the_cap_whole() -> None:
    gate = Gate(cap())
    gate.flow.blocked_now = 1
    gate.tick(8)
    gate.judge.replace(RuleSet((cap(None),)), gate.now)
    gate.tick()
    assert gate.cap()["now"] == "1000/s"


def test_signs_of_load_before_a_rule_adapts_do_not_count() -> None:
    gate = Gate(cap(None))
    gate.flow.busy = {"overload": 3}
    gate.tick()
    gate.judge.replace(RuleSet((cap(),)), gate.now)
    gate.tick(2)
    assert gate.cap()["now"] == "1000/s"


# ---- in a whole gateway ------------------------------------------------------------------------------------------------

CONFIGURATION = """
gateway: {state_directory: state}
access_log: off
limiter: {threads: 0}
listeners:
  - {name: rocket, protocol: rocketmq, bind: 127.0.0.1:0, upstream: 127.0.0.1:1}
rules:
  - {name: broker, match: {listener: rocket}, per: listener, limit: {messages: 1000/s, bytes: 1MiB/s}, adapt: {floor: 50%, tighten: 60%}}
  - {name: orders, match: {topic: orders}, protected: true}
"""


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    """One that is not running: the tests take its turns. Its cap is in use."""
    with idle(written(tmp_path, CONFIGURATION)) as made:
        origin = made.judge.origin("rocketmq", "rocket", "10.0.0.7", None)
        ask(made.judge, made.judge.key(origin, b"orders", rocketmq_topic(b"orders")), now_ns())
        yield made


def test_a_busy_answer_of_the_broker_shows_everywhere_after_the_next_tick(standalone: Standalone) -> None:
    standalone.gateway.listening["rocket"].config.flow.busy["overload"] = 0
    periodic_tasks.tick(standalone.gateway)
    standalone.gateway.listening["rocket"].config.flow.busy["overload"] = 3
    periodic_tasks.tick(standalone.gateway)
    lines = "".join(standalone.metrics({}))
    assert 'sluice_cap_rate{listener="rocket",rule="broker",dimension="messages"} 500\n' in lines
    assert 'sluice_cap_rate{listener="rocket",rule="broker",dimension="bytes"} 524288\n' in lines
    assert 'sluice_cap_tightened_total{listener="rocket",rule="broker",reason="overload"} 1\n' in lines
    assert 'sluice_cap_tightened_total{listener="rocket",rule="broker",reason="timeout_clean_queue"} 0\n' in lines
    assert "cold_data" not in "".join(line for line in lines.splitlines() if "sluice_cap" in line)
    (listener,) = standalone.listeners()
    (cap,) = listener.caps
    assert (cap.limit, cap.now, cap.reason) == ("1000/s, 1MiB/s", "500/s, 512KiB/s", "overload")
    (state,) = [state for state in standalone.judge.states(now_ns()) if state.per == "listener"]
    usage = usage_of(state, None, lambda _: 0.0)
    assert usage.cap_now is not None
    assert (usage.cap_now.messages, usage.cap_reason) == ("500/s", "overload")


def test_a_refusal_beyond_a_share_has_a_reason_of_its_own(standalone: Standalone) -> None:
    totals = standalone.gateway.accounts.totals("rocketmq", "orders")
    totals.received, totals.refused, totals.refused_share = 12, 10, 7
    lines = "".join(standalone.metrics({}))
    series = 'sluice_messages_refused_total{protocol="rocketmq",topic="orders",operation="produce",reason='
    assert f'{series}"limit"}} 3\n{series}"share"}} 7\n' in lines
