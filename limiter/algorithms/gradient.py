"""The gradient: the concurrency that the broker can take, found from its own latency.

`concurrency` needs a number, and the right one differs from broker to broker and from hour to hour: too low wastes the broker, too high
only fills its queues. But the broker tells. While it has capacity to spare, latency does not depend on how much is in flight; beyond
that, each further request waits in a queue, and latency rises. TCP Vegas found its window so; Netflix's Gradient2 does it for requests::

    gradient  = clamp(TOLERANCE * long / short, 0.5, 1)      short: mean latency of this window; long: what it is without a queue
    new limit = limit * gradient + sqrt(limit)               sqrt: some queue is wanted, or the limit could never grow
    limit    += (new limit - limit) * SMOOTHING              kept between `at_least` and `concurrent`

It moves only while the limit is in use (at least half of it in flight): a producer that sends little says nothing about what would be too
much. Where `long` comes from is what decides. Gradient2 smooths all latencies over minutes. Under a load that never ends the queue itself
is then smoothed into `long`, which lets the limit grow, which makes the queue longer: in the simulation latency is four times the
broker's own after a minute and goes on growing (`tests/limiter/algorithms/test_adaptive.py`). Here

* `long` follows a shorter latency within a few windows;
* it follows a longer one while the limit is not in use, for that queue is not ours; else hardly, or noise would pull it down for good;
* while the limit is in use and at rest, and latency above `long`, every PROBE_NS the limit is halved for one window (a **probe**), and
  `long` becomes what is measured then. If the queue was ours, it is gone with half the load and `long` is the broker's own latency; if
  the broker has become slower by itself, half the load has the same latency, and the limit may grow again. Costs under 1 % of the
  throughput. A broker that becomes four times slower costs some seconds of a low limit before that is believed.

**Cold start**: `start` requests (default 20); what the first window measures is `long`. From 20 to 200 takes about 10 s.
**Busy**: at a busy answer (RocketMQ) or `connection.blocked` (AMQP) the limit falls at once to 0.7 of itself, once for all that was
forwarded before: those answers are about a time that is over. Latencies of such requests are not used either.
**Nothing answers**: when requests are in flight and none was answered for SILENCE_NS, the limit falls to `at_least`; it grows again from
there with the answers. Slots of connections that end come back all the same, so it never stands still for good.
**Bounds**: never below `at_least`, never above `concurrent`, whatever is measured. At rest under endless load about 1.5 times what the
broker serves at once is in flight (and sqrt of it), so latency is at most about twice the broker's own. Of a broker that serves only a
few at once the sqrt, and `at_least`, are the larger part.
**Idle**: after STALE_NS without a request what was learned is old: `long` is measured anew, from `start` if the limit was below it.

The state is in floats: the limit is an estimate from noisy measurements, nothing is promised to the last digit, and nothing adds up over
time that could drift; what is in flight is counted in integers (`limiter.in_flight`).
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Final

from limiter.algorithms.base import JITTER_NS
from limiter.algorithms.slots import ANSWERED, ANY_NUMBER, BUSY, Slots, most_in_flight

if TYPE_CHECKING:
    from limiter.limits import Limit

TOLERANCE: Final = 1.5  # Gradient2's; so many times `long` may latency be before the limit falls
MIN_GRADIENT: Final = 0.5  # Gradient2's; the fastest fall per window
SMOOTHING: Final = 0.2  # Gradient2's; weight of a window's new limit
WINDOW_NS: Final = 100_000_000  # ns; short enough to follow a broker within a second; a guess
MIN_SAMPLES: Final = 10  # answers in a window at least, Gradient2's ...
MAX_WINDOW_NS: Final = 1_000_000_000  # ns; ... unless so much time has passed
FOLLOW_DOWN: Final = 0.1  # of the way per window, towards a shorter latency; half way in seven: lucky windows are not believed; a guess
FOLLOW_UP: Final = 0.1  # the same upwards, while the limit is not in use
DRIFT: Final = 0.02  # the same while it is in use and latency is within TOLERANCE; else only the luckiest windows would count; a guess
SETTLE: Final = 3  # latencies; the pause after a cut, for the quick answers come first and the slow ones are missing
PROBE_NS: Final = 5_000_000_000  # ns; one window in fifty; a guess
PROBE_PHASE_NS: Final = 1_000_000_000  # ns; so long after each full PROBE_NS a window may end after which a probe begins
AT_REST: Final = 0.02  # change per window within which the limit rests; while it falls, what half of it sees is not the broker's own
BUSY_FACTOR: Final = 0.7  # as TCP CUBIC's answer to a loss
SILENCE_NS: Final = 2_000_000_000  # ns; clients give a request up after 3 s (docs/design/limiter.md 4), and a fsync takes 0.2 s
STALE_NS: Final = 60_000_000_000  # ns, a minute; how long what was learned holds without a request; a guess

AT_LEAST: Final = 4  # requests, where the rule does not say; Gradient2: 20
START: Final = 20  # requests; Gradient2's


class Gradient:
    """Finds how many requests may be in flight. Knows no clock: it is told of every ending, and looked at with every request."""

    __slots__ = (
        "_at_least", "_ceiling", "_cut_at", "_limit", "_long_ns", "_probed_at", "_returns_to", "_samples", "_start", "_total_ns",
        "_window_at",
    )  # fmt: skip

    def __init__(self, limit: Limit, now: int) -> None:
        self._at_least = 0.0
        self._ceiling = 0.0
        self._start = 0.0
        self._set_bounds(limit)
        self._limit = self._start
        self._long_ns = 0.0  # 0: not known yet
        self._cut_at = now  # what was forwarded before says nothing about the limit that holds now
        self._window_at = -1  # when the window begins, or began; -1: SETTLE latencies after the next answer
        self._samples = 0
        self._total_ns = 0
        self._probed_at = now
        self._returns_to = 0.0  # the limit after the probe that is under way; 0: none is

    def most(self) -> int:
        """How many may be in flight now."""
        return int(self._limit)

    def look(self, slots: Slots, now: int) -> None:
        """What time alone changes: nothing answers, or nothing was asked for long."""
        quiet = now - slots.heard_at
        if quiet < -JITTER_NS:
            slots.heard_at = now  # the clock was set back: what is forwarded from now on is measured anew
            self._set(slots, max(self._limit, self._returns_to))
            self._begin(slots, now)
        elif slots.taken > 0:
            if quiet > SILENCE_NS and self._limit > self._at_least:
                self._set(slots, self._at_least)
                self._begin(slots, now)
        elif quiet > STALE_NS and (self._long_ns > 0 or self._limit < self._start):
            self._long_ns = 0.0
            self._set(slots, max(self._limit, self._start))
            self._begin(slots, now)

    def heard(self, slots: Slots, outcome: int, count: int, since: int, now: int) -> None:
        """The broker has answered `count` requests that were forwarded at `since`, or said that it is busy."""
        if since < self._cut_at:
            return
        if outcome == BUSY:
            self._set(slots, max(self._limit, self._returns_to) * BUSY_FACTOR)
            self._begin(slots, now)
        elif outcome == ANSWERED:
            latency = max(now - since, 0)
            if self._window_at < 0:
                self._window_at = now + SETTLE * max(latency, min(int(slots.latency_ns), MAX_WINDOW_NS))
            age = now - self._window_at
            if age < 0:
                return
            self._total_ns += latency * count
            self._samples += count
            if age >= WINDOW_NS and (self._samples >= MIN_SAMPLES or age >= MAX_WINDOW_NS):
                self._close_window(slots, now)

    def _close_window(self, slots: Slots, now: int) -> None:
        short = max(self._total_ns / self._samples, 1.0)
        in_use = slots.peak * 2 >= self._limit
        self._window_at = now
        self._samples = 0
        self._total_ns = 0
        slots.peak = slots.taken
        if self._returns_to > 0.0:
            self._long_ns = short
            self._set(slots, self._returns_to)
            self._begin(slots, now)
            return
        if self._long_ns == 0.0:
            self._long_ns = short
        elif short < self._long_ns:
            self._long_ns += (short - self._long_ns) * FOLLOW_DOWN
        elif not in_use:
            self._long_ns += (short - self._long_ns) * FOLLOW_UP
        elif short <= TOLERANCE * self._long_ns:
            self._long_ns += (short - self._long_ns) * DRIFT
        if not in_use:
            return
        before = self._limit
        gradient = max(MIN_GRADIENT, min(1.0, TOLERANCE * self._long_ns / short))
        self._set(slots, before + (before * gradient + sqrt(before) - before) * SMOOTHING)
        if short > self._long_ns and self._may_probe(slots, now) and abs(self._limit - before) <= AT_REST * before:
            self._probe(slots, now)

    def _may_probe(self, slots: Slots, now: int) -> bool:
        """Members that share a limit probe together, at each full PROBE_NS: then half of all of the queue goes."""
        if slots.lent == ANY_NUMBER:
            return now - self._probed_at >= PROBE_NS
        return now - self._probed_at >= PROBE_NS // 2 and (now + slots.clock_offset_ns) % PROBE_NS < PROBE_PHASE_NS

    def _probe(self, slots: Slots, now: int) -> None:
        kept = self._limit
        self._set(slots, kept / 2)
        self._begin(slots, now)
        self._returns_to = kept

    def _begin(self, slots: Slots, now: int) -> None:
        """A window of its own for what is forwarded from now on, once that is answered as it comes."""
        self._cut_at = now
        self._window_at = -1
        self._samples = 0
        self._total_ns = 0
        self._probed_at = now
        self._returns_to = 0.0
        slots.peak = slots.taken

    def _set(self, slots: Slots, limit: float) -> None:
        self._limit = max(self._at_least, min(limit, self._ceiling))
        slots.most = int(self._limit)

    def change(self, slots: Slots, limit: Limit) -> None:
        """Other bounds; what was found stays, within them."""
        self._set_bounds(limit)
        self._returns_to = min(self._returns_to, self._ceiling)
        self._set(slots, self._limit)

    def _set_bounds(self, limit: Limit) -> None:
        self._ceiling = float(most_in_flight(limit))
        self._at_least = min(float(AT_LEAST if limit.at_least is None else limit.at_least), self._ceiling)
        self._start = max(self._at_least, min(float(START if limit.start is None else limit.start), self._ceiling))

    def is_forgettable(self, slots: Slots, now: int) -> bool:
        """Whether one made anew would let no more pass than this one."""
        return self._limit >= self._start or now - slots.heard_at > STALE_NS

    def __repr__(self) -> str:
        state = "probing" if self._returns_to > 0.0 else "measuring"
        return f"<Gradient {state} {self._limit:.1f} of {self._at_least:g} to {self._ceiling:g}, long={self._long_ns / 1e6:.1f}ms>"
