"""Log events of limits: `limit_reached` when a bucket is over its limit, `limit_recovered` after (`contract.md` 8).

One episode per bucket, whatever topics and clients draw from it: `per` and `thing` say whose it is. `topic`, `client`, `user`, `listener`
and `retry_after_ms` are those of the last message that was over the limit. `rate` is what the bucket was offered, in messages per second,
since the tick before. `refused` counts the messages that this limit cost (told so, dropped, or their channel or connection closed for it),
`delayed` those that it made wait; both since the line before, in `limit_recovered` since the first line.
"""

from __future__ import annotations

import logging
from typing import Final

from gateway import log
from gateway.sweep import now_ns
from limiter.keys import Key, Tally
from limiter.ledger import OVERFLOW, Level
from limiter.limits import SECOND, Limit
from limiter.units import format_byte_rate, format_rate

FOR_EVER_NS: Final = 3_600_000_000_000  # an hour: a limit of 0 gives no time; the field is left out
RECOVERED_NS: Final = 2_000_000_000  # without a refusal for so long (a guess)

Place = tuple[str, str, str, str, str]  # the bucket's identity, and the operation


def limit_text(limit: Limit) -> str:
    """A limit as people write it: `500/s, 10MiB/s`."""
    messages = [] if limit.messages is None else [format_rate(limit.messages)]
    return ", ".join(messages + ([] if limit.bytes is None else [format_byte_rate(limit.bytes)])) or "unlimited"


def place_of(level: Level, operation: str) -> Place:
    """Which bucket, also after a change of its rule; all that share an overflow bucket of a rule are one."""
    if level.state == OVERFLOW:
        return level.effective.per, level.rule.name, "", "", operation
    return (*level.effective.identity, operation)


class Episode:
    """One bucket over its limit, since the first message that was."""

    __slots__ = ("delayed", "key", "last_over_at", "level", "refused", "retry_after_ns")

    def __init__(self, level: Level, key: Key) -> None:
        self.level = level
        self.key = key  # of the last message over the limit
        self.delayed = 0  # messages, since it began
        self.refused = 0  # messages, since it began
        self.retry_after_ns = 0
        self.last_over_at = 0  # monotonic ns


class LimitEvents:
    """At most one line a second and bucket."""

    def __init__(self) -> None:
        self._over: dict[Place, Episode] = {}
        self._offered: dict[Level, int] = {}  # messages, since the last tick
        self._ticked_at = 0

    def add(self, key: Key, tally: Tally) -> None:
        """An `Accounts` listener."""
        for level in key.levels:
            self._offered[level] = self._offered.get(level, 0) + tally.received
            if level.has_news():
                self._note(level, key)
        if tally.refused_by is not None:
            self._note(tally.refused_by, key).retry_after_ns = tally.retry_after_ns

    def _note(self, level: Level, key: Key) -> Episode:
        episode = self._over.setdefault(place_of(level, key.operation), Episode(level, key))
        episode.level = level  # the same, or one made anew for the same thing
        episode.key = key
        episode.last_over_at = now_ns()
        return episode

    def tick(self, now: int) -> None:
        """Once a second: what is new is said; buckets without a refusal for RECOVERED_NS have recovered."""
        elapsed = max(now - self._ticked_at, 1) if self._ticked_at else SECOND
        for place, episode in list(self._over.items()):
            delayed, refused = episode.level.take_news()
            episode.delayed += delayed
            episode.refused += refused
            wait = episode.retry_after_ns
            if delayed or refused:
                say(
                    logging.WARNING, "limit_reached", episode, rate=round(self._offered.get(episode.level, 0) * SECOND / elapsed),
                    refused=refused, delayed=delayed, retry_after_ms=None if wait >= FOR_EVER_NS else round(wait / 1e6, 3),
                )  # fmt: skip
            if now - episode.last_over_at > RECOVERED_NS:
                del self._over[place]
                say(logging.INFO, "limit_recovered", episode, refused=episode.refused, delayed=episode.delayed)
        self._offered.clear()
        self._ticked_at = now


def say(level: int, event: str, episode: Episode, **counts: float | None) -> None:
    """Write the line of an event: whose bucket, which limit, `counts`, and who met it last."""
    bucket, key = episode.level, episode.key
    origin = key.origin
    log.event(
        level, event, listener=origin.listener, protocol=origin.protocol, topic=key.text, per=bucket.effective.per, thing=bucket.thing(),
        rule=bucket.rule.name, limit=limit_text(bucket.rule.limit), **counts, client=origin.client, user=origin.user,
        operation=key.operation,
    )  # fmt: skip
