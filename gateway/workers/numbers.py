"""What a worker calls its levels towards the parent, and what it tells of them: their counters, and those of their candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.workers.wire import Met
from limiter.buckets.ledger import IN_USE, OVERFLOW, Level
from limiter.leases.leased_bucket import Sliced

if TYPE_CHECKING:
    from gateway.workers.wire import Outbox
    from limiter.keys import Key, Tally

STAYING: Final = (IN_USE, OVERFLOW)

# Bucket; admitted, their bytes, over the limit, held, refused, shadow refused (all since it was made); last refused, breaker open until
# (monotonic ns); how full, in millionths, where this worker's is all there is or a part that is divided, else -1.
Counts = tuple[int, int, int, int, int, int, int, int, int, int]
# Bucket; what its candidate would have admitted and refused, since when, and of which clients.
Tried = tuple[int, int, int, int, dict[str, int]]


class Numbers:
    """What this worker calls its levels towards the parent."""

    def __init__(self) -> None:
        self.by_level: dict[Level, int] = {}
        self.levels: dict[int, Level] = {}
        self.changed: dict[Level, None] = {}  # whose counters may differ from what was told last
        self._last = 0
        self._leaving: set[int] = set()  # had been let go when that was looked for last

    def of(self, level: Level, outbox: Outbox) -> int:
        """The level's number; the parent is told at its first use."""
        number = self.by_level.get(level)
        if number is None:
            self._last += 1
            number = self.by_level[level] = self._last
            self.levels[number] = level
            outbox.put(introduction(number, level))
        return number

    def note(self, key: Key, tally: Tally) -> None:
        """An `Accounts` listener."""
        del tally
        for level in key.levels:
            self.changed[level] = None

    def counts(self, outbox: Outbox, now: int) -> list[Counts]:
        """The counters of all levels that were used since this was called before."""
        changed, self.changed = self.changed, {}
        return [
            (
                self.of(level, outbox), level.admitted, level.admitted_bytes, level.over_limit, level.held, level.refused,
                level.shadow_refused, level.last_refused_at, level.breaker.open_until,
                -1 if isinstance(level.bucket, Sliced) else round(1e6 * level.bucket.fill(now)),
            )
            for level in changed
        ]  # fmt: skip

    def tried(self, outbox: Outbox) -> list[Tried]:
        """What their candidates have counted, of those of them that have one. Asked before `counts`."""
        found: list[Tried] = []
        for level in self.changed:
            if level.candidate is not None:
                counts = level.candidate.counts
                found.append((self.of(level, outbox), counts.admitted, counts.refused, counts.since, dict(counts.clients)))
        return found

    def forget(self) -> list[int]:
        """The numbers of levels that the ledger has let go, as it had when this was called before; they are no longer known here either.

        Not at once: what was let go comes back where something in flight still holds it, and its counters go on.
        """
        gone = {number for number, level in self.levels.items() if level.state not in STAYING and level not in self.changed}
        forgotten = sorted(gone & self._leaving)
        self._leaving = gone.difference(forgotten)
        for number in forgotten:
            self.by_level.pop(self.levels.pop(number))
        return forgotten

    def __repr__(self) -> str:
        return f"<Numbers of {len(self.levels)} levels, {len(self.changed)} changed>"


def introduction(number: int, level: Level) -> Met:
    subject = level.subject
    name = subject.name
    group = None if subject.group is None else subject.group.encode()
    return Met(
        number, level.effective.identity, name.protocol, name.vhost, name.exchange, name.topic, subject.text, subject.listener,
        subject.client, subject.user, group, subject.operation, subject.connection, level.state == OVERFLOW,
    )  # fmt: skip
