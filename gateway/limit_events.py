"""Log events of limits: `limit_reached` when a key goes over its limit, `limit_recovered` after (`contract.md` 8)."""

from __future__ import annotations

import logging
from typing import Final

from gateway import log
from gateway.sweep import now_ns
from limiter.keys import Key, Tally
from limiter.limits import Limit
from limiter.rules import Rule
from limiter.units import format_byte_rate, format_rate

FOR_EVER_NS: Final = 3_600_000_000_000  # an hour: a limit of 0 gives no time; the field is left out
RECOVERED_NS: Final = 2_000_000_000  # without a refusal for so long (a guess)
LINE_EVERY_NS: Final = 1_000_000_000

Place = tuple[str, str, str, str | None, str]  # protocol, topic, client, user, operation


def limit_text(limit: Limit) -> str:
    """A limit as people write it: `500/s, 10MiB/s`."""
    messages = [] if limit.messages is None else [format_rate(limit.messages)]
    return ", ".join(messages + ([] if limit.bytes is None else [format_byte_rate(limit.bytes)])) or "unlimited"


class Episode:
    """One key over its limit, since its first refusal."""

    __slots__ = ("delayed", "last_line_at", "last_refused_at", "listener", "refused", "rule")

    def __init__(self, listener: str, rule: Rule) -> None:
        self.listener = listener
        self.rule = rule
        self.refused = 0  # since the last line
        self.delayed = 0  # since the last line
        self.last_line_at = 0
        self.last_refused_at = 0


class LimitEvents:
    """At most one line a second and key, with the number refused since the line before."""

    def __init__(self) -> None:
        self._over: dict[Place, Episode] = {}

    def add(self, key: Key, tally: Tally) -> None:
        """An `Accounts` listener."""
        rule = tally.refused_by
        if rule is None:
            return
        now = now_ns()
        origin = key.origin
        place = (origin.protocol, key.text, origin.client, origin.user, key.operation)
        episode = self._over.setdefault(place, Episode(origin.listener, rule))
        episode.refused += tally.refused + tally.dropped
        episode.delayed += tally.delayed
        episode.last_refused_at = now
        if now - episode.last_line_at < LINE_EVERY_NS or not episode.refused + episode.delayed:
            return
        episode.last_line_at = now
        refused, episode.refused = episode.refused, 0
        delayed, episode.delayed = episode.delayed, 0
        wait = tally.retry_after_ns
        log.event(
            logging.WARNING, "limit_reached", listener=origin.listener, protocol=origin.protocol, topic=key.text, rule=rule.name,
            limit=limit_text(rule.limit), rate=tally.received, refused=refused, delayed=delayed,
            retry_after_ms=None if wait >= FOR_EVER_NS else round(wait / 1e6, 3), client=origin.client, user=origin.user,
            operation=key.operation,
        )  # fmt: skip

    def tick(self, now: int) -> None:
        """Once a second: keys without a refusal for RECOVERED_NS have recovered."""
        for place in [place for place, episode in self._over.items() if now - episode.last_refused_at > RECOVERED_NS]:
            episode = self._over.pop(place)
            protocol, topic, client, user, operation = place
            log.event(
                logging.INFO, "limit_recovered", listener=episode.listener, protocol=protocol, topic=topic, rule=episode.rule.name,
                limit=limit_text(episode.rule.limit), refused=episode.refused, client=client, user=user, operation=operation,
            )  # fmt: skip
