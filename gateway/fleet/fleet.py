"""A fleet: gateways that share one set of limits through Redis. What this gateway does for that, on a thread of its own.

::

      limiter's threads, event loop                 the fleet's thread, every ROUND_S                        Redis
        decide from what is in hand                   Judge.asks ──► what to ask for
        (`limiter.leases.leased_bucket`); nobody waits              RedisOwner.ask ───────────────────────────────►  one script per bucket,
                                                      Judge.granted ◄── slices ◄────────────────────   all in one round trip

The naive way is to ask Redis for every message: each then costs a round trip, and stands still when Redis does. Here the thread asks for
the next 50 to 100 ms of each bucket in use, and a decision never waits for it. Both touch only what is in hand, under the judge's lock.

**An outage** is any round without an answer, whatever the reason (`outages.REASONS`). From then on each gateway goes on with its
last share (`Lease.owner_lost`), and tries again after RETRY_S, twice as long each time, up to MAX_RETRY_S. An outage that outlasts one
round is logged once, and so is its end. A round that hangs (a resolver that does not answer, bytes that trickle in) is an outage too:
`watch`, called by the loop several times a second, sees it.

**What Redis has lost** is sent to it again: the level of each bucket at this gateway's last ask, and what came in since (`_begin`). Time
without Redis does not count, because then each gateway has used its share.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from common import log
from common.views.status import FleetView
from config.urls import shown_url
from gateway.counting.histogram import Histogram
from gateway.fleet.figures import FleetFigures, parse_figures
from gateway.fleet.outages import REASONS, OwnerGoneError
from gateway.fleet.presence import Belief, Presence
from gateway.fleet.redis_owner import ASKS_AT_ONCE, Ask, RedisOwner
from gateway.fleet.script import SEEN_S, rates_for, warm_up_us
from limiter.leases.lease import Lease
from limiter.limits import SECOND

if TYPE_CHECKING:
    from config import Settings
    from config.known_settings import FleetRedis
    from gateway.fleet.redis_owner import Identity, Slice
    from limiter.buckets.lease_ask import LeaseAsk
    from limiter.judge import Judge

ROUND_S: Final = 0.05  # docs/design/limiter.md 7: slices are for the next 50 to 100 ms
MAX_ASKS: Final = 1024  # buckets; of one round, some 40 ms of it (measured 2026-11); of more, see `some_of`
SHOW_NS: Final = SECOND  # how often a gateway shows itself; SEEN_S of the script is five times that
MAX_EARLY_SHOWS: Final = 4  # in SHOW_NS; each may read MOST_PROOFS proofs, which somebody else may have written; a guess
LOOKED_NS: Final = 10 * SECOND  # ns; after a look at the fleet its figures are read for so long
STALE_NS: Final = 3 * SECOND  # ns; figures that the loop has not renewed for so long are not told any more; a guess, below SEEN_S
TIDY_NS: Final = 60 * SECOND  # ns; as often they are read though nobody looks, which forgets gateways that are gone
RETRY_S: Final = 0.1  # seconds; before the first attempt in an outage; doubles; a guess
MAX_RETRY_S: Final = 1.0  # seconds; between two attempts: each costs one connection; a guess
HANGS_NS: Final = 250_000_000  # ns; beyond four time-outs (connect, show, two asks), after which a round counts as hanging; a guess
REMEMBERED_NS: Final = 10 * SECOND  # ns; for so long at least the level of a bucket is known that is not asked for any more; a guess
MAX_REMEMBERED: Final = 50_000  # buckets, twice; whose levels are known: 20 MB; a guess
MIN_OUTAGE: Final = 2  # rounds; without an answer, from which on an outage is logged; a guess
NO_RATES: Final = (0, 1, 0, 0, 1, 0)  # of an ask for places
LATENCY_BUCKETS: Final = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)  # seconds


class Fleet:
    """This gateway's part in a fleet. `start` begins its thread; tests call `round` instead."""

    def __init__(self, settings: FleetRedis, judge: Judge, member: str, owner: RedisOwner | None = None, workers: int = 1) -> None:
        """`member` tells this process from the others of its fleet. `judge` must not have judged yet.

        Where a gateway has several `workers`, each of them is a member.
        """
        self.name = settings.name
        self.url = shown_url(settings.url)
        self.owner = owner or RedisOwner(settings, member)
        self.lease = Lease(settings.gateways * workers, parted=True)
        self.asks = 0
        self.put_off = 0  # asks that had to wait for a later round
        self.failures = dict.fromkeys(REASONS, 0)
        self.latency = Histogram(LATENCY_BUCKETS)
        self.last_round_trip_s = 0.0
        self.reason = ""  # why there is no answer now; "": there is
        self.detail = ""
        self.figures = ""  # what this gateway tells the others of its traffic (`figures.py`); set by the loop, once a second
        self.figures_at = 0  # when: monotonic ns
        self._told: FleetFigures | None = None  # what all have told; None: not read, for nobody looks
        self._looked_at = -LOOKED_NS  # monotonic ns
        self._tidy_at = 0
        self._judge = judge
        self._timeout_ns = settings.timeout_ns
        self._failed = 0  # rounds in a row
        self._lost_at = 0  # monotonic ns; 0: Redis answers
        self._away_ns = 0  # time without Redis, of outages that are over
        self._begun_at = 0  # of the round under way; 0: none is
        self._show_at = 0
        self._early_shows = 0  # before it was time, because others had come or gone, until `_early_until`
        self._early_until = 0
        self._belief = Belief(settings.gateways * workers)
        self._left: dict[Identity, tuple[Slice, int]] = {}  # each bucket's last answer, and when, by a clock that stands still in outages
        self._left_before: dict[Identity, tuple[Slice, int]] = {}
        self._forget_at = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        judge.join_fleet(self.lease)
        self.lease.owner_lost(time.monotonic_ns())  # until Redis has answered

    # ---- on its own thread -----------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="fleet", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        rest_s = 0.0
        while not self._stop.wait(rest_s):
            started = time.monotonic_ns()
            try:
                rest_s = self.round(started)
            except Exception as error:  # a fault of ours must not end the thread: that would be an outage for ever
                self.lease.owner_lost(started)
                log.failure("fleet_failed", error)
                rest_s = MAX_RETRY_S
        with suppress(OwnerGoneError):  # the others will notice
            self.owner.share("", read=False)
            self.owner.show(leave=True)
        self.owner.close()

    def round(self, now: int) -> float:
        """Ask for all that is wanted, and hand out the answers. Returns the seconds to rest after that."""
        self._begun_at = now
        try:
            if self._lost_at != 0 or now >= self._show_at or self.lease.owner_lost_at != 0:
                self._count_gateways(self._timed_show(), now)
                self._show_at = now + SHOW_NS
                if now >= self._early_until:
                    self._early_shows, self._early_until = 0, now + SHOW_NS
                self._share(now)
            if self.lease.owner_lost_at != 0:
                self._found(now)
            self._ask(now)
            if self.owner.others_changed and self._early_shows < MAX_EARLY_SHOWS:
                self._early_shows += 1
                self._show_at = now  # the next round counts them
        except OwnerGoneError as error:
            return self._lose(error, now)
        finally:
            self._begun_at = 0
        took_s = (time.monotonic_ns() - now) / 1e9 if self._thread is not None else 0.0
        pause_s = ROUND_S * random.uniform(0.8, 1.2)  # noqa: S311  -- so that gateways do not ask in step
        return max(pause_s - took_s, took_s)  # at most half of one core, however much there is to ask

    def _count_gateways(self, presence: Presence, now: int) -> None:
        before = self._belief.strangers
        self._belief.take(presence, now, kept=self.owner.kept)
        self.lease.members, strangers = self._belief.gateways, self._belief.strangers
        if strangers and not before:
            log.event(
                logging.WARNING, "fleet_strangers", fleet=self.name, redis=self.url, gateways=self.lease.members, strangers=strangers,
                remedy="they do not count: give each gateway of the fleet the same secret_file, or find out who else writes to this Redis",
            )  # fmt: skip

    def _share(self, now: int) -> None:
        """Tell the others of this gateway's traffic, and read theirs while somebody looks. Not of a loop that hangs: it would be old."""
        if not self.figures or now - self.figures_at > STALE_NS:
            return
        looked = now - self._looked_at < LOOKED_NS
        answers = self.owner.share(self.figures, read=looked or now >= self._tidy_at)
        if now >= self._tidy_at:
            self._tidy_at = now + TIDY_NS
        self._told = parse_figures(answers, SEEN_S) if looked else None

    def _timed_show(self) -> Presence:
        started = time.perf_counter()
        members = self.owner.show()
        self._observe(time.perf_counter() - started)
        return members

    def _ask(self, now: int) -> None:
        wanted = self._judge.asks(self.lease, now)
        if len(wanted) > MAX_ASKS:
            wanted, put_off = some_of(wanted)
            self._judge.put_off(put_off, now)
            self.put_off += len(put_off)
        for first in range(0, len(wanted), ASKS_AT_ONCE):
            some = wanted[first : first + ASKS_AT_ONCE]
            asks = [self._ask_for(ask, now) for ask in some]
            started = time.perf_counter()
            slices = self.owner.ask(asks)
            self._observe(time.perf_counter() - started)
            self.asks += len(asks)
            granted = [
                (ask, got.messages, got.bytes if ask.rule.limit.concurrent is None else got.clock_us)
                for ask, got in zip(some, slices, strict=True)
                if max(ask.messages, ask.size) > 0
            ]
            self._judge.take_grants(granted, now)
            there = now - self._away_ns
            for ask, slice_ in zip(asks, slices, strict=True):
                if not ask.places:
                    self._left[ask.identity] = (slice_, there)
        if now >= self._forget_at or len(self._left) > MAX_REMEMBERED:
            self._forget_at = now + REMEMBERED_NS
            self._left_before, self._left = self._left, {}

    def _ask_for(self, ask: LeaseAsk, now: int) -> Ask:
        identity = ask.bucket.effective.identity
        limit, algorithm = ask.rule.limit, ask.rule.algorithm
        if limit.concurrent is not None:
            return Ask(identity, NO_RATES, ask.messages, ask.size, places=limit.concurrent)
        rates = rates_for(limit, algorithm, self.lease.members)
        warm_up = warm_up_us(limit, algorithm)
        return Ask(identity, rates, ask.messages, ask.size, self._begin(identity, rates, warm_up, now), warm_up)

    def _begin(self, identity: Identity, rates: tuple[int, int, int, int, int, int], warm_up: int, now: int) -> tuple[int, int] | None:
        """The highest level that the bucket can have by now, should Redis not know it; None: this gateway has not used it lately."""
        known = self._left.get(identity) or self._left_before.get(identity)
        if known is None:
            return None
        left, at = known
        elapsed_us = max(0, now - self._away_ns - at) // 1000
        messages = left.messages_left + elapsed_us * rates[0] // rates[1]
        size = left.bytes_left + elapsed_us * rates[3] // rates[4]
        return min(messages, rates[2] + warm_up * rates[0] // rates[1]), min(size, rates[5] + warm_up * rates[3] // rates[4])

    def _observe(self, seconds: float) -> None:
        self.last_round_trip_s = seconds
        self.latency.observe(seconds)

    # ---- outages ---------------------------------------------------------------------------------------------------

    def _lose(self, error: OwnerGoneError, now: int) -> float:
        self.failures[error.reason] += 1
        self._failed += 1
        self.reason, self.detail = error.reason, error.detail
        self.lease.owner_lost(now)
        self._belief.interrupt()
        if self._lost_at == 0:
            self._lost_at = now
        self._judge.asks(self.lease, now)  # nothing is asked now; idle buckets are taken off the list
        if self._failed == MIN_OUTAGE:
            log.event(
                logging.WARNING, "fleet_lost", fleet=self.name, redis=self.url, reason=error.reason, err=error.detail,
                gateways=self.lease.members, remedy="each gateway goes on with its last share of every limit; no message waits",
            )  # fmt: skip
        again_s = min(MAX_RETRY_S, RETRY_S * (1 << min(self._failed - 1, 10)))
        return again_s * random.uniform(0.8, 1.2)  # noqa: S311  -- so that gateways do not all come back at once

    def _found(self, now: int) -> None:
        if self._lost_at != 0:
            self._away_ns += max(0, now - self._lost_at)
        if self._failed >= MIN_OUTAGE:
            after_s = round((now - self._lost_at) / 1e9, 3)
            log.event(logging.INFO, "fleet_back", fleet=self.name, redis=self.url, gateways=self.lease.members, after_s=after_s)
        self._lost_at = self._failed = 0
        self.reason = self.detail = ""
        self.lease.owner_back()

    # ---- for the loop and operators --------------------------------------------------------------------------------

    def watch(self, now: int) -> None:
        """Called on the loop: a round that hangs is an outage, and so is a thread that has died."""
        begun_at = self._begun_at
        if begun_at != 0 and now - begun_at > 4 * self._timeout_ns + HANGS_NS and self.lease.owner_lost_at == 0:
            self.reason, self.detail = "timeout", "a round does not end"
            self.lease.owner_lost(now)

    def stop(self) -> None:
        """End the thread; a hanging one dies with the process."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(self._timeout_ns / 1e9 * 2 + 0.5)

    def describe(self, now: int) -> FleetView:
        """For `GET /v1/status`. `members`, `missing` and `sum` are null at the first look, and during an outage."""
        lost_at = self._lost_at
        self._looked_at = now
        told = self._told if self.reachable() else None
        return FleetView(
            name=self.name,
            redis=self.url,
            reachable=self.reachable(),
            gateways=self.lease.members,
            members=told and told.members,
            missing=told and told.missing,
            sum=told and told.sum(),
            reason=self.reason or None,
            detail=self.detail or None,
            outage_seconds=round((now - lost_at) / 1e9, 3) if lost_at else None,
            orphaned=self.orphaned(),
            asks=self.asks,
            put_off=self.put_off,
            failures=sum(self.failures.values()),
            round_trip_ms=round(self.last_round_trip_s * 1e3, 3),
        )

    def reachable(self) -> bool:
        return self.lease.owner_lost_at == 0

    def warning(self) -> str:
        """What an outage means, and what to look at."""
        why = f": {self.reason}, {self.detail.rstrip('.')}" if self.reason else " yet"
        return f"fleet: no answer from {self.url}{why}; limits hold by this gateway's last share ({self.orphaned()} in use)"

    def outage_ns(self, now: int) -> int:
        """How long this gateway was without Redis, the outage of now included."""
        lost_at = self._lost_at
        return self._away_ns + (max(0, now - lost_at) if lost_at else 0)

    def orphaned(self) -> int:
        """Buckets in use that go on with their last share."""
        return len(self.lease.active) if self.lease.owner_lost_at != 0 else 0

    def __repr__(self) -> str:
        state = f"without Redis ({self.reason})" if self.lease.owner_lost_at != 0 else f"{self.lease.members} gateways"
        return f"<Fleet {self.name!r} {state}, {self.asks} asks>"


def some_of(wanted: list[LeaseAsk]) -> tuple[list[LeaseAsk], list[LeaseAsk]]:
    """MAX_ASKS of them, and those that are put off: half have the greatest demand, the others have been put off most often."""
    by_demand = sorted(wanted, key=wish_of, reverse=True)
    asked, others = by_demand[: MAX_ASKS // 2], by_demand[MAX_ASKS // 2 :]
    others.sort(key=passed_over, reverse=True)
    asked += others[: MAX_ASKS - len(asked)]
    put_off = others[MAX_ASKS - MAX_ASKS // 2 :]
    for ask in asked:
        ask.lessee.passed_over = 0
    for ask in put_off:
        ask.lessee.passed_over += 1
    return asked, put_off


def wish_of(ask: LeaseAsk) -> int:
    """How much is wanted, roughly: a message counts as much as a kilobyte."""
    return max(ask.messages, ask.size >> 10)


def passed_over(ask: LeaseAsk) -> int:
    return ask.lessee.passed_over


def join_fleet(settings: Settings, judge: Judge, member: str) -> Fleet | None:
    """This process's part in a fleet, where its gateway is in one."""
    if settings.fleet is None:
        return None
    return Fleet(settings.fleet.redis, judge, member, workers=settings.gateway.workers)
