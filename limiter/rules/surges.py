"""Surges: what a topic that sends far more than its quota expects asks for now, from the demand of the last seconds.

A raise at the full hour comes too late for an opening day: at 2.5 times yesterday's peak a burst of ten seconds is used up in ten seconds.
So every LOOK_S seconds the demand since the last look is read (the totals are counted anyway), and a quota is raised beyond it::

    peak   = the larger of: the demand of the last ten seconds; DECAY x the peak before
    wanted = MARGIN x peak, and it moves only where it is STEP away from what is in force

What is refused counts up to what passed, second by second, so a quota grows threefold from look to look at most, and a client that sends
one message again and again raises it no further than hourly_raise_max and the cap. When the surge is over the raise falls by a fifth a
look, and is gone in a minute.

The naive way would need to know what the broker can take. It is known already: a cap (`per: listener`), measured or set, comes after the
quotas. While it has room the raise lets a surge through, and when it binds, topics share it as always, raised or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from limiter.rules.matching import group_text

if TYPE_CHECKING:
    from limiter.quota_snapshot import Quota
    from limiter.rules.hourly_raise import Demand
    from limiter.topics import TopicName

Place = tuple[str, str]  # protocol, topic or group as text

LOOK_S: Final = 10  # seconds between two looks; a burst is ten seconds of the rate, so it lasts that long at twice the rate
MARGIN: Final = 1.5  # times the peak; of 1.25, 1.5 and 2 (docs/design/quotas.md 8)
STEP: Final = 1.2  # times; every change of a limit makes all its keys match anew, so it moves by steps
DECAY: Final = 0.8  # of the peak, from look to look: a quarter is left after a minute
SLICE: Final = 256  # topics looked at in one go: 0.4 ms
GONE: Final = 0.05  # of a quota's rate: a peak below it is forgotten


def peak_after(before: float, mean: float, decay: float = DECAY) -> float:
    """The peak after a look that found `mean` per second."""
    return max(mean, decay * before)


def held_after(before: float, peak: float) -> float:
    """The rate that a surge of `peak` asks for, where it asked for `before` at the last look."""
    wanted = MARGIN * peak
    return before if before / STEP <= wanted <= before * STEP else wanted


class FollowedTopic(NamedTuple):
    """What is known of one topic, per second."""

    peak: float
    peak_bytes: float
    asked: float
    asked_bytes: float


NOTHING: Final = FollowedTopic(0.0, 0.0, 0.0, 0.0)


class Surges:
    """Peaks of the topics that have quotas, and what they ask for. Looks at each active topic once in LOOK_S."""

    def __init__(self) -> None:
        self.wanted: Demand = {}  # of those that ask for more than is published: messages and bytes per second
        self.changed = False  # by the last look
        self._followed: dict[Place, FollowedTopic] = {}
        self._quotas: Mapping[TopicName, Quota] | None = None
        self._by_text: dict[Place, Quota] = {}

    def look(self, means: Demand, quotas: Mapping[TopicName, Quota], seconds: float = LOOK_S) -> Iterator[None]:
        """Take the mean demand of the `seconds` since the last look, in slices; `changed` says then whether other rates are wanted now."""
        if quotas is not self._quotas:
            yield from self._know(quotas)
        decay = DECAY ** (seconds / LOOK_S)
        before, self._followed = self._followed, {}
        wanted = {}
        for number, place in enumerate({**before, **means}):
            if number % SLICE == SLICE - 1:
                yield
            quota = self._by_text.get(place)
            if quota is None:
                continue
            mean, last = means.get(place, (0.0, 0.0)), before.get(place, NOTHING)
            peak, peak_bytes = peak_after(last.peak, mean[0], decay), peak_after(last.peak_bytes, mean[1], decay)
            now = FollowedTopic(peak, peak_bytes, held_after(last.asked, peak), held_after(last.asked_bytes, peak_bytes))
            messages = 0.0 if quota.messages is None else quota.messages[0]
            size = 0.0 if quota.bytes is None else quota.bytes[0]
            if now.peak > GONE * messages or now.peak_bytes > GONE * size:
                self._followed[place] = now
            if 0 < messages < now.asked or 0 < size < now.asked_bytes:
                wanted[place] = (now.asked, now.asked_bytes)
        self.changed = wanted != self.wanted
        self.wanted = wanted

    def _know(self, quotas: Mapping[TopicName, Quota]) -> Iterator[None]:
        self._quotas = quotas
        self._by_text = {}
        for number, (name, quota) in enumerate(quotas.items()):
            if number % SLICE == SLICE - 1:
                yield
            self._by_text[name.protocol, name.text()] = quota
            if name.topic.endswith(b"#"):
                self._by_text[name.protocol, group_text(name)] = quota

    def follows(self) -> bool:
        """Whether any topic's peak is remembered: looks without demand change nothing where none is."""
        return bool(self._followed)

    def __repr__(self) -> str:
        return f"<Surges wanted={len(self.wanted)} followed={len(self._followed)}>"
