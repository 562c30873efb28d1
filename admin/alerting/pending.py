"""What one receiver has not been told yet: the latest state of each alert.

The naive way queues messages, which grow without end while the receiver is away, and then tells it of what is long over. Here an alert that
fires and recovers meanwhile is one entry: resolved, with its beginning and its end. Entries come in the order of their last change.

It is bounded: as many alerts fire at once as `Webhooks` takes, and of those that are resolved and untold the oldest go beyond MAX_RESOLVED.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from admin.alerting.alerts import Alert, Key

MAX_PER_POST: Final = 64  # alerts; in one post, some 100 kB; a guess
MAX_RESOLVED: Final = 1000  # alerts; resolved, and waiting for a receiver that is away; a guess


class AlertBatch(NamedTuple):
    """The alerts of one post."""

    taken: dict[Key, tuple[Alert, bool]]  # of what is pending; with whether it was resolved
    alerts: list[Alert]
    truncated: int  # firing ones that found no room


class Pending:
    """The alerts whose state a receiver does not know. On the loop's thread only."""

    def __init__(self) -> None:
        self.dropped = 0  # resolved alerts that the receiver will not be told of
        self._changed: dict[Key, tuple[Alert, bool]] = {}  # with whether it is resolved
        self._resolved = 0  # of them

    def __len__(self) -> int:
        return len(self._changed)

    def put(self, alert: Alert) -> None:
        """The alert has begun or ended."""
        self._take_off(alert.key)
        resolved = alert.ends_at is not None
        self._changed[alert.key] = alert, resolved
        self._resolved += resolved
        if self._resolved > MAX_RESOLVED:
            self._take_off(next(key for key, (_, ended) in self._changed.items() if ended))
            self.dropped += 1

    def repeat(self, firing: Mapping[Key, Alert]) -> None:
        """Tell again all that is firing, after what has changed."""
        for alert in firing.values():
            if alert.key not in self._changed:
                self.put(alert)

    def inherit(self, other: Pending) -> None:
        """Take over what `other` has not told."""
        for alert, _ in other._changed.values():
            self.put(alert)

    def batch(self, firing: Mapping[Key, Alert]) -> AlertBatch:
        """What has changed first, and with it as much of what goes on firing as there is room for."""
        taken = dict(list(self._changed.items())[:MAX_PER_POST])
        alerts = [alert for alert, _ in taken.values()]
        others = [alert for key, alert in firing.items() if key not in taken]
        room = MAX_PER_POST - len(alerts)
        return AlertBatch(taken, alerts + others[:room], max(0, len(others) - room))

    def told(self, batch: AlertBatch) -> None:
        """The receiver knows these. What has changed since the batch was made stays."""
        for key, state in batch.taken.items():
            if self._changed.get(key) == state:
                self._take_off(key)

    def _take_off(self, key: Key) -> None:
        found = self._changed.pop(key, None)
        if found is not None:
            self._resolved -= found[1]

    def __repr__(self) -> str:
        return f"<Pending {len(self._changed)} alerts, {self._resolved} of them resolved>"
