"""Caps that follow their brokers: a broker's signs of load, reported to the judge a few times a second.

Three signs show that a broker is overloaded (`broker_flow.py`), and each has a name:

* `blocked`: an AMQP broker has sent `connection.blocked` and not yet `unblocked`, on any connection;
* its **busy answers** (RocketMQ; `protocols/rocketmq/busy.py` names them: `timeout_clean_queue`, ...), except the one that consumers read
  cold data, which fewer sends do not help;
* `slow_confirms`: publishes are confirmed SLOW_TIMES as slowly as in the long run. The long run is learnt: nothing is reported in the first
  LEARN_S, and the pace of a broker that is slow for good becomes its normal one after some minutes.

`limiter.fair_share.adaptive_cap` decides what a sign does to a cap. All this costs nothing while no rule has `adapt`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from common import log
from common.views.listeners import CapView
from gateway.protocols import PROTOCOLS
from gateway.protocols.protocol import BLOCKED, SLOW_CONFIRMS
from limiter.units import format_limit

if TYPE_CHECKING:
    from gateway.listeners.listener import Listener
    from gateway.session.broker_flow import BrokerFlow
    from limiter.decisions.caps import CapState
    from limiter.judge import Judge

SLOW_TIMES: Final = 5  # times the long run; above it confirms are slow: the same disk under its usual load varies by less; a guess
MIN_SLOW_S: Final = 0.02  # seconds; a confirm that takes less is not slow, however quick it was before: some fsyncs; a guess
MIN_SAMPLES: Final = 8  # confirms that are looked at together; a guess
LEARN_S: Final = 10.0  # seconds; before slowness is first reported; a guess
LONG_RUN_S: Final = 60.0  # seconds; how far back the long run goes; a guess
DOUBT: Final = 10  # times; so much more slowly the long run learns while confirms seem slow; a guess


class ConfirmPace:
    """How long confirms take, compared with the long run. Seconds."""

    __slots__ = ("_count", "_known_s", "_sum", "mean")

    def __init__(self) -> None:
        self._count = 0  # of the histogram, at the last look
        self._sum = 0.0
        self._known_s = 0.0  # how long there have been samples
        self.mean = 0.0  # in the long run; 0: not known

    def is_slow(self, count: int, total_s: float, elapsed_s: float) -> bool | None:
        """`count` confirms have taken `total_s` so far, `elapsed_s` since the last look that had an answer; None: too few since then."""
        new = count - self._count
        if new < MIN_SAMPLES:
            return None
        now = (total_s - self._sum) / new
        self._count = count
        self._sum = total_s
        if self.mean == 0:
            self.mean = now
            return False
        slow = now > SLOW_TIMES * self.mean and now > MIN_SLOW_S
        part = min(1.0, elapsed_s / LONG_RUN_S)
        self.mean += (now - self.mean) * (part / DOUBT if slow else part)
        self._known_s += elapsed_s
        return slow and self._known_s >= LEARN_S

    def __repr__(self) -> str:
        return f"<ConfirmPace {self.mean * 1e3:.3f} ms>"


class BrokerLoad:
    """One broker's signs of load since the last look."""

    __slots__ = ("_busy", "_looked_at", "_pace", "_reasons", "_slow", "flow")

    def __init__(self, flow: BrokerFlow, reasons: tuple[str, ...]) -> None:
        self.flow = flow
        self._reasons = reasons  # that count (`Protocol.adapt_reasons`)
        self._busy = dict(flow.busy)
        self._pace = ConfirmPace()
        self._looked_at = -1
        self._slow = False

    def reason(self, now: int) -> str:
        """The sign that it is overloaded; "" where there is none. `now` is monotonic nanoseconds."""
        flow = self.flow
        busy = {reason: count - self._busy.get(reason, 0) for reason, count in flow.busy.items() if reason in self._reasons}
        self._busy = dict(flow.busy)
        elapsed = 0.0 if self._looked_at < 0 else max(0.0, (now - self._looked_at) / 1e9)
        slow = self._pace.is_slow(sum(flow.confirm_latency.counts), flow.confirm_latency.sum, elapsed)
        if slow is not None or self._looked_at < 0:
            self._looked_at = now
        self._slow = bool(slow)
        if flow.blocked_now > 0:
            return BLOCKED
        if any(busy.values()):
            return max(busy, key=busy.__getitem__)
        return SLOW_CONFIRMS if self._slow else ""

    def __repr__(self) -> str:
        return f"<BrokerLoad blocked={self.flow.blocked_now} {self._pace}>"


class AdaptiveCaps:
    """Reports the brokers' signs of load to the judge, and logs what comes of them."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self._loads: dict[str, BrokerLoad] = {}
        self._generation = -1
        self._adapting = False  # whether any rule of that generation has a cap that adapts

    def tick(self, listening: Mapping[str, Listener], now: int) -> None:
        """A few times a second, on the loop's thread."""
        rules = self.judge.rules
        if rules.generation != self._generation:
            self._generation = rules.generation
            self._adapting = any(rule.limit.adapt is not None for rule in rules.rules)
        if not self._adapting:
            self._loads.clear()
            return
        for name, listener in listening.items():
            load = self._loads.get(name)
            if load is None or load.flow is not listener.config.flow:
                load = self._loads[name] = BrokerLoad(listener.config.flow, PROTOCOLS[listener.protocol].adapt_reasons)
            for event, state in self.judge.observe_broker_load(name, load.reason(now), now):
                level = logging.WARNING if event == "tightening" else logging.INFO
                log.event(
                    level, f"cap_{event}", listener=name, rule=state.rule, reason=state.reason or None, limit=format_limit(state.limit),
                    now=format_limit(state.now),
                )  # fmt: skip

    def __repr__(self) -> str:
        return f"<AdaptiveCaps {'adapting' if self._adapting else 'fixed'} {self._loads}>"


def describe(state: CapState, now: int) -> CapView:
    """A cap in `GET /v1/listeners`."""
    return CapView(
        rule=state.rule,
        limit=format_limit(state.limit),
        now=format_limit(state.now),
        part=state.permille / 1000,
        reason=state.reason or None,
        seconds=round((now - state.since) / 1e9, 3) if state.reason else None,
        tightened=dict(state.counts),
        topics=state.topics,
    )
