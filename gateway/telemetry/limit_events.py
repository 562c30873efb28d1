"""Log events of limits: `limit_reached` while a bucket is over its limit, `limit_recovered` after (`docs/design/contract.md` 8).

The naive way writes a line per refusal: a flood of messages becomes a flood of lines. Here each bucket over its limit has one episode,
whatever topics and clients draw from it. It has a line when it begins, and then at most one in AGAIN_NS, with the sums since. (A line a
second were 90 MB a day of two topics.)

`per` and `thing` name the bucket; `rule`, `place` and `origin` say where its limit comes from. `seconds` are those since the line before
(of the first, since the last tick), and `rate` is what was offered to the bucket in them, in messages per second. `refused` counts the
messages that the limit cost: refused, dropped, or lost with the channel or connection that was closed for it. `delayed` counts those that
it made wait. Both are counted since the line before; in `limit_recovered`, since the episode began. `waiting` are a topic's messages that
wait now.

`since` is when the episode began; `bouts_since`, when the first of those began that followed each other within BOUTS_NS. A flood that takes
breath for three seconds is over its limit "since just now" otherwise, whatever has been refused before. A rule for several operations has
one bucket for all of them, and so one episode. What a rule of `operation: requeue` limits may come as a publish (RocketMQ's send-backs),
and is called `requeue` all the same.

`client` is the address that was over the limit most since the line before, `client_refused` the messages that it lost by that, and
`clients` the number of addresses over the limit (MAX_CLIENTS at most are told apart). `topic`, `group`, `user`, `listener` and `operation`
are those of that client's last message over the limit. `group` is the consumer group for a retry topic, otherwise RocketMQ's producer
group. `retry_after_ms` is the wait of the last message over the limit. `consumer` is the tag of the AMQP consumer whose requeue was over it
last.

A client that makes up names can drive any number of buckets over their limits. MAX_EPISODES of them have lines of their own at a time. One
line in AGAIN_NS (`limits_reached`) counts the messages over the limits of all others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Final

from common import log
from common.views.limits import OverLimitView
from gateway.counting.accounts import Place, TopicTotals
from gateway.telemetry.refused_clients import group_of
from limiter.buckets.bucket import OVERFLOW, Bucket
from limiter.decisions.caps import is_cap
from limiter.keys import Key, Tally
from limiter.limits import SECOND, Limit
from limiter.operations import REQUEUE
from limiter.units import format_limit

MAX_RETRY_AFTER_NS: Final = 3_600_000_000_000  # ns; a longer wait is none (a limit of 0), and the field is left out; a guess
MAX_CLIENTS: Final = 1000  # addresses; told apart in one bucket and second; a guess
MAX_EPISODES: Final = 1000  # buckets; over their limits with lines of their own; a guess: more lines a second than anybody reads
MAX_NAME_CHARS: Final = 1000  # characters; of a name in `describe_over`; RocketMQ's topics have 255 at most, but clients make them up
RECOVERED_NS: Final = 2_000_000_000  # ns; without a refusal, until a bucket has recovered; a guess
AGAIN_NS: Final = 60_000_000_000  # ns; between two lines of one episode: docs/design/contract.md 8
BOUTS_NS: Final = 60_000_000_000  # ns; between two episodes of one flood; a guess
TICK_NS: Final = 500_000_000  # ns; by which a tick may be early or late

EpisodeKey = tuple[str, str, str, str, str]  # the bucket's identity, and its operation; nothing: it has several
JSONObject = dict[str, object]


def episode_key(bucket: Bucket) -> EpisodeKey:
    """The identity of a bucket, which a change of its rule does not change. The keys that share a rule's overflow bucket are one."""
    operations = bucket.rule.match.operations()
    operation = operations[0] if len(operations) == 1 else ""
    if bucket.state == OVERFLOW:
        return bucket.effective.per, bucket.rule.name, "", "", operation
    return (*bucket.effective.identity, operation)


def operation_of(bucket: Bucket, key: Key) -> str:
    """What of a key the bucket limits: its operation, or that it gives back what it publishes, which the rule alone says."""
    operations = bucket.rule.match.operations()
    if key.operation in operations:
        return key.operation
    return REQUEUE if REQUEUE in operations else operations[0]


class Culprit:
    """One client over a limit, since the line before."""

    __slots__ = ("key", "over", "refused")

    def __init__(self, key: Key) -> None:
        self.key = key  # of its last message over the limit
        self.over = 0  # messages refused, dropped or held
        self.refused = 0  # messages refused or dropped

    def __repr__(self) -> str:
        return f"<Culprit {self.key.origin.client} over={self.over} refused={self.refused}>"


class Episode:
    """One bucket over its limit, since the first message that was."""

    __slots__ = (
        "began", "bouts_since", "bucket", "client_over", "clients", "clients_over", "delayed", "last_over_at", "limit", "limit_words",
        "offered", "over", "over_now", "over_of_all", "rate", "reason", "refused", "retry_after_ns", "told_at", "told_delayed",
        "told_refused", "worst",
    )  # fmt: skip

    def __init__(self, bucket: Bucket, key: Key) -> None:
        self.began = self.bouts_since = time.time()
        self.reason: str | None = "share" if is_cap(bucket) else None  # of its last refusal; None: the limit alone
        self.bucket = bucket
        self.clients: dict[str, Culprit] = {}  # by address, since the line before; MAX_CLIENTS at most
        self.worst = Culprit(key)  # since the line before; just after it, of that line
        self.client_over = 0  # messages of `worst` over the limit since the line before; just after it, those of that line
        self.over_of_all = 0  # the same of all `clients`
        self.delayed = 0  # messages, since it began
        self.refused = 0  # messages, since it began
        self.retry_after_ns = 0
        self.over_now = True  # a message was over it since the last tick
        self.last_over_at = 0  # monotonic ns; the last tick before which one was
        self.limit: Limit | None = None  # that of `limit_words`
        self.limit_words = ""
        self.told_at = 0  # monotonic ns; of the last line; 0: none yet
        self.told_delayed = 0  # of `delayed`, what lines have told
        self.told_refused = 0  # the same of `refused`
        self.offered = 0  # messages, since the line before
        self.over = 0  # messages over the limit of all `clients`, since the line before
        self.rate = 0  # messages per second offered, of the last second
        self.clients_over = 0  # addresses over the limit since the line before; just after it, those of that line

    def blame(self, key: Key, tally: Tally) -> None:
        """Count what one client's key had over the limit, if anything."""
        refused = tally.refused + tally.dropped
        over = refused + tally.delayed
        if over == 0:
            if self.worst.over == 0:  # what waits is no message: the last that does is the worst
                self.worst = Culprit(key)
            return
        self.over += over
        address = key.origin.client
        culprit = self.clients.get(address)
        if culprit is None:
            if len(self.clients) >= MAX_CLIENTS:
                return
            culprit = self.clients[address] = Culprit(key)
        culprit.key = key
        culprit.refused += refused
        culprit.over += over

    def limit_text(self) -> str:
        """The limit as people write it. To write it takes 50 µs, so it is kept until it is another one."""
        limit = self.bucket.rule.limit
        if limit is not self.limit:
            self.limit = limit
            self.limit_words = format_limit(limit)
        return self.limit_words

    def find_worst(self) -> None:
        """`worst` becomes the client that was over the limit most since the line before."""
        if self.clients:
            self.worst = max(self.clients.values(), key=lambda culprit: culprit.over)
            self.client_over, self.over_of_all = self.worst.over, self.over
            self.clients_over = len(self.clients)

    def end_line(self, now: int) -> None:
        """What is counted from now on is of the next line."""
        self.told_at, self.told_delayed, self.told_refused = now, self.delayed, self.refused
        self.clients = {}
        self.offered = self.over = 0


class LimitEvents:
    """Every bucket over its limit, with at most one line in AGAIN_NS for each."""

    def __init__(self, topics: Mapping[Place, TopicTotals] | None = None) -> None:
        """`topics`: those of the accounts, which know what waits of each."""
        self._topics = {} if topics is None else topics
        self._over: dict[EpisodeKey, Episode] = {}
        self._recovered: dict[EpisodeKey, tuple[float, int]] = {}  # bouts_since, and when it recovered: monotonic ns; MAX_EPISODES at most
        self._offered: dict[Bucket, int] = {}  # messages, since the last tick
        self._others = 0  # messages over the limits of buckets without an episode, since the last line of theirs
        self._others_told_at = 0  # monotonic ns; 0: never
        self._ticked_at = 0

    def add(self, key: Key, tally: Tally) -> None:
        """An observer of `Accounts`: what one key counted since it was folded last."""
        refused_by = tally.refused_by
        over = tally.refused + tally.dropped + tally.delayed
        for bucket in key.buckets:
            self._offered[bucket] = self._offered.get(bucket, 0) + tally.received
            if (over or refused_by is not None) and bucket.has_unreported():  # else it is somebody else who was over it
                episode = self._note(bucket, key)
                if refused_by is None and episode is not None:  # it waited for the limit and gave up
                    episode.blame(key, tally)
        if refused_by is not None:
            if key.operation not in refused_by.rule.match.operations():  # none of its own buckets, but what it gives back draws from it
                self._offered[refused_by] = self._offered.get(refused_by, 0) + tally.received
            episode = self._note(refused_by, key)
            if episode is None:
                self._others += over
                return
            episode.retry_after_ns = tally.retry_after_ns
            episode.reason = reason_of(tally, refused_by)
            episode.blame(key, tally)

    def _note(self, bucket: Bucket, key: Key) -> Episode | None:
        """The episode of a bucket over its limit; None where there are MAX_EPISODES already."""
        identity = episode_key(bucket)
        episode = self._over.get(identity)
        if episode is None:
            if len(self._over) >= MAX_EPISODES:
                return None
            episode = self._over[identity] = Episode(bucket, key)
            episode.bouts_since, _ = self._recovered.pop(identity, (episode.began, 0))
        episode.bucket = bucket  # the same, or one made anew for the same thing
        episode.over_now = True
        return episode

    def tick(self, now: int) -> None:
        """Once a second: log what is new. A bucket without a refusal for RECOVERED_NS has recovered, once nothing of it is still held."""
        elapsed = max(now - self._ticked_at, 1) if self._ticked_at else SECOND
        for identity, episode in list(self._over.items()):
            delayed, refused = episode.bucket.take_unreported()
            episode.delayed += delayed
            episode.refused += refused
            offered = self._offered.get(episode.bucket, 0)
            episode.offered += offered
            episode.rate = round(offered * SECOND / elapsed)
            if episode.over_now:
                episode.over_now, episode.last_over_at = False, now
            episode.find_worst()
            new = episode.delayed - episode.told_delayed, episode.refused - episode.told_refused
            if any(new) and (not episode.told_at or now - episode.told_at > AGAIN_NS - TICK_NS):
                self._tell(episode, *new, now, elapsed)
            if now - episode.last_over_at > RECOVERED_NS + (episode.retry_after_ns if self._count_waiting(episode) else 0):
                del self._over[identity]
                if episode.told_at:
                    if len(self._recovered) < MAX_EPISODES:
                        self._recovered[identity] = episode.bouts_since, now
                    log_limit_event(
                        logging.INFO, "limit_recovered", episode, refused=episode.refused, delayed=episode.delayed,
                        clients=episode.clients_over, client_refused=episode.worst.refused,
                    )  # fmt: skip
        if self._others and (not self._others_told_at or now - self._others_told_at > AGAIN_NS - TICK_NS):
            remedy = f"{MAX_EPISODES} other limits have lines of their own; see the access log, or sluice limits list"
            log.event(logging.WARNING, "limits_reached", messages=self._others, remedy=remedy)
            self._others, self._others_told_at = 0, now
        for identity in [each for each, (_, at) in self._recovered.items() if now - at > BOUTS_NS]:
            del self._recovered[identity]
        self._offered.clear()
        self._ticked_at = now

    def _tell(self, episode: Episode, delayed: int, refused: int, now: int, elapsed: int) -> None:
        """`limit_reached`, with what is new since the line before."""
        wait = episode.retry_after_ns
        since = now - episode.told_at if episode.told_at else elapsed
        log_limit_event(
            logging.WARNING, "limit_reached", episode, seconds=round(since / SECOND, 1), rate=round(episode.offered * SECOND / since),
            refused=refused, delayed=delayed, waiting=self._count_waiting(episode),
            retry_after_ms=None if wait >= MAX_RETRY_AFTER_NS else round(wait / 1e6, 3),
            clients=episode.clients_over, client_refused=episode.worst.refused,
        )  # fmt: skip
        episode.end_line(now)

    def _count_waiting(self, episode: Episode) -> int | None:
        """Messages of the bucket's topic that wait now; None: it is no topic's."""
        key = episode.worst.key
        if episode.bucket.effective.per != "topic":
            return None
        totals = self._topics.get((key.origin.protocol, key.text, key.operation))
        return 0 if totals is None else totals.waiting

    def over(self) -> list[OverLimitView]:
        """Every limit that has reached (`limit_reached`) and not recovered, as `admin/alerting/alerts.py` reads it."""
        return [describe_over(episode, self._count_waiting(episode)) for episode in self._over.values() if episode.told_at]


def describe_over(episode: Episode, waiting: int | None) -> OverLimitView:
    """One bucket over its limit: which one, its limit, what it cost since it began, and the client that was over it most."""
    bucket, key = episode.bucket, episode.worst.key
    origin = key.origin
    match = bucket.rule.match
    return OverLimitView(
        per=bucket.effective.per, thing=bucket.thing()[:MAX_NAME_CHARS], rule=bucket.rule.name, operation=operation_of(bucket, key),
        operations=match.text_of("operation") if len(match.operations()) > 1 else "",
        place=bucket.rule.place, origin=bucket.effective.origin, limit=episode.limit_text(),
        since=episode.began, bouts_since=episode.bouts_since, rate=episode.rate, refused=episode.refused, delayed=episode.delayed,
        protocol=origin.protocol, topic=key.text[:MAX_NAME_CHARS], listener=origin.listener,
        client=origin.client, user=(origin.user or "")[:MAX_NAME_CHARS], group=(group_of(key) or "")[:MAX_NAME_CHARS],
        client_refused=episode.worst.refused, clients=episode.clients_over, waiting=waiting,
        client_over={origin.client: episode.client_over}, over=episode.over_of_all,
    ).settled()  # fmt: skip


def reason_of(tally: Tally, bucket: Bucket) -> str | None:
    """Why messages were refused, as `sluice_messages_refused_total` has it; None: they were over the limit."""
    if tally.refused_copies or tally.refused_size:
        return "copies" if tally.refused_copies else "size"
    return "share" if is_cap(bucket) else None


def log_limit_event(level: int, event: str, episode: Episode, **counts: float | None) -> None:
    """Write the line of an event: the bucket, its limit, `counts`, and the client that was over it most."""
    bucket, key = episode.bucket, episode.worst.key
    origin = key.origin
    log.event(
        level, event, listener=origin.listener, protocol=origin.protocol, topic=key.text, group=group_of(key), per=bucket.effective.per,
        thing=bucket.thing(), rule=bucket.rule.name, place=bucket.rule.place or None, origin=bucket.effective.origin,
        limit=episode.limit_text(), reason=episode.reason, since=log.moment(episode.began), **counts,
        client=origin.client, user=origin.user, consumer=key.consumer or None, operation=operation_of(bucket, key),
    )  # fmt: skip
