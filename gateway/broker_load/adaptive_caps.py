"""Caps that follow their brokers: what a broker shows of its load, told to the judge a few times a second.

Three things show that a broker has too much to do (`broker_flow.py`), and each has a name:

* `blocked`: an AMQP broker has said `connection.blocked` and not yet `unblocked`, on any connection;
* its **busy answers** (RocketMQ; `protocols/rocketmq/busy.py` names them: `timeout_clean_queue`, ...), but for the one that consumers read
  cold data, which fewer sends do not help;
* `slow_confirms`: publishes are confirmed SLOW_TIMES as slowly as in the long run. What that is, is learnt: nothing is said in the first
  LEARN_S, and a broker that is slow for good is taken for what it is after some minutes.

What comes of it is `limiter.fair_share.adaptive_cap`'s. Costs nothing while no rule has `adapt`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from gateway import log
from gateway.protocols import PROTOCOLS
from gateway.protocols.protocol import BLOCKED, SLOW_CONFIRMS
from limiter.units import format_limit

if TYPE_CHECKING:
    from gateway.listeners.listener import Listener
    from gateway.session.broker_flow import BrokerFlow
    from limiter.decisions.caps import CapState
    from limiter.judge import Judge

SLOW_TIMES: Final = 5  # a guess: the same disk under its usual load varies by less
LEAST_SLOW_S: Final = 0.02  # what takes less is not slow, however quick it was before (a guess: some fsyncs)
SAMPLES: Final = 8  # confirms that are looked at together, at least
LEARN_S: Final = 10.0  # before the first word of slowness
LONG_S: Final = 60.0  # how far back the long run goes
DOUBT: Final = 10  # while it seems slow, the long run learns so many times more slowly


class ConfirmPace:
    """How long confirms take, against the long run. Seconds."""

    __slots__ = ("_count", "_known_s", "_sum", "mean")

    def __init__(self) -> None:
        self._count = 0  # of the histogram, at the last look
        self._sum = 0.0
        self._known_s = 0.0  # how long there have been samples
        self.mean = 0.0  # in the long run; 0: not known

    def is_slow(self, count: int, total_s: float, elapsed_s: float) -> bool | None:
        """`count` confirms have taken `total_s` so far, `elapsed_s` since the last look that had an answer; None: too few since then."""
        new = count - self._count
        if new < SAMPLES:
            return None
        now = (total_s - self._sum) / new
        self._count = count
        self._sum = total_s
        if self.mean == 0:
            self.mean = now
            return False
        slow = now > SLOW_TIMES * self.mean and now > LEAST_SLOW_S
        part = min(1.0, elapsed_s / LONG_S)
        self.mean += (now - self.mean) * (part / DOUBT if slow else part)
        self._known_s += elapsed_s
        return slow and self._known_s >= LEARN_S

    def __repr__(self) -> str:
        return f"<ConfirmPace {self.mean * 1e3:.3f} ms>"


class BrokerLoad:
    """One broker's: what it has shown since the last look."""

    __slots__ = ("_busy", "_looked_at", "_pace", "_reasons", "_slow", "flow")

    def __init__(self, flow: BrokerFlow, reasons: tuple[str, ...]) -> None:
        self.flow = flow
        self._reasons = reasons  # that count (`Protocol.adapt_reasons`)
        self._busy = dict(flow.busy)
        self._pace = ConfirmPace()
        self._looked_at = -1
        self._slow = False

    def reason(self, now: int) -> str:
        """Why it seems to have too much to do; "" where it does not. `now` is monotonic nanoseconds."""
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
    """Tells the judge what the brokers show, and the log what comes of it."""

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


def describe(state: CapState, now: int) -> dict[str, object]:
    """A cap in `GET /v1/listeners`."""
    return {
        "rule": state.rule,
        "limit": format_limit(state.limit),
        "now": format_limit(state.now),
        "part": state.permille / 1000,
        "reason": state.reason or None,
        "seconds": round((now - state.since) / 1e9, 3) if state.reason else None,
        "tightened": dict(state.counts),
        "topics": state.topics,
    }
