"""The intraday raise in a replay: the raises of a gateway that has both switched on, by its own code, on the log's clock.

At each full hour and every ten seconds the demand since then is looked at, as `control_plane.hourly_raises` does. Where no line came
for a while the looks of that time are made up for, each at its own second, until nothing is raised any more.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from limiter.rules.hourly_raise import HourlyRaise
from limiter.rules.surges import LOOK_S, Surges

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from limiter.rules.rule_set import RuleSet

HOUR_S: Final = 3600
Place = tuple[str, str]  # protocol, topic or group as text


class DayRaise:
    """One contender's counted demand, and its rules as the demand raises them."""

    def __init__(self, rules: RuleSet, most: float) -> None:
        self._rules = rules
        self._most = most
        self._surges = Surges()
        self._means: Mapping[Place, tuple[float, float]] = {}
        self._hour: defaultdict[Place, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self._window: dict[Place, tuple[int, int]] = {}
        self._next = 0  # s, when the next look is due; 0: nothing was counted yet

    def count(self, place: Place, messages: tuple[int, int], size: tuple[int, int]) -> None:
        """Count a topic's second: (passed, refused) messages and bytes. Refused ones count up to the number of passed ones."""
        demand, demand_bytes = (passed + min(refused, passed) for passed, refused in (messages, size))
        before, before_bytes = self._window.get(place, (0, 0))
        self._window[place] = (before + demand, before_bytes + demand_bytes)

    def raise_until(self, now: int) -> Iterator[tuple[int, RuleSet]]:
        """The looks up to the second `now` that change anything: when, and the rules from then on."""
        if not self._next:
            self._next = now - now % LOOK_S + LOOK_S
        while self._next <= now:
            at, self._next = self._next, self._next + LOOK_S
            changed = self._look(at)
            if changed:
                yield at, self._rules.raised_by(HourlyRaise(self._means, self._most, self._surges.wanted))
            elif not self._window and not self._surges.follows() and not self._means:
                self._next = now - now % LOOK_S + LOOK_S

    def _look(self, at: int) -> bool:
        """Take the window that ends at the second `at`; whether other rates are wanted now."""
        window, self._window = self._window, {}
        for place, (messages, size) in window.items():
            known, known_bytes = self._hour[place]
            self._hour[place] = (known + messages, known_bytes + size)
        means = {place: (messages / LOOK_S, size / LOOK_S) for place, (messages, size) in window.items()}
        list(self._surges.look(means, self._rules.quotas))
        if at % HOUR_S:
            return self._surges.changed
        before, self._means = self._means, {place: (one / HOUR_S, other / HOUR_S) for place, (one, other) in self._hour.items()}
        self._hour.clear()
        return self._surges.changed or self._means != before

    def __repr__(self) -> str:
        return f"<DayRaise {self._surges} next={self._next}>"
