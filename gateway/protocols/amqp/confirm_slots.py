"""The publishes of one AMQP channel that hold slots until their confirm comes (`limiter/in_flight.py`).

By the broker's delivery tag, one entry for each, at most MAX_PUBLISHES_COUNTED: what is beyond holds no slot. On a channel without such a
limit nothing is kept and nothing is looked at. What a `multiple` confirms is found by counting from the tag up to which all was confirmed
before, so each tag is looked at once.
"""

from __future__ import annotations

from typing import Final

from limiter.algorithms.slots import ANSWERED, BUSY, FAILED, GIVEN_UP
from limiter.in_flight import Ending, Flight, end

MAX_PUBLISHES_COUNTED: Final = 65_536  # of one channel, 100 bytes each, with a broker that confirms nothing: a guess


class ConfirmSlots:
    """Publishes in flight, by tag; what has ended goes to `endings`."""

    __slots__ = ("_by_tag", "_endings", "_looked_up_to")

    def __init__(self, endings: list[Ending]) -> None:
        self._endings = endings
        self._by_tag: dict[int, Flight] = {}
        self._looked_up_to = 0  # every tag up to this one has been confirmed by a `multiple`

    def forward(self, flight: Flight, first: int) -> None:
        """The next publishes go to the broker, the first with the tag `first`."""
        count = min(flight.left, MAX_PUBLISHES_COUNTED - len(self._by_tag))
        for tag in range(first, first + count):
            self._by_tag[tag] = flight
        end(self._endings, flight, flight.left - count, GIVEN_UP)

    def confirm(self, tag: int, forwarded: int, *, multiple: bool, acked: bool) -> None:
        """The broker confirms `tag`, of `forwarded` publishes."""
        if tag > forwarded:
            return  # the broker's fault: `Confirms` raises
        outcome = ANSWERED if acked else FAILED
        if not multiple:
            self._end(tag, outcome)
            return
        for each in range(self._looked_up_to + 1, tag + 1):
            self._end(each, outcome)
        self._looked_up_to = max(self._looked_up_to, tag)

    def _end(self, tag: int, outcome: int) -> None:
        flight = self._by_tag.pop(tag, None)
        if flight is not None:
            end(self._endings, flight, 1, outcome)

    def lose(self) -> None:
        """The channel is closed: nothing will be confirmed."""
        for flight in self._by_tag.values():
            end(self._endings, flight, 1, GIVEN_UP)
        self._by_tag.clear()

    def report_busy(self) -> None:
        """The broker takes no more publishes for now."""
        met: list[Flight] = []
        for flight in self._by_tag.values():
            if not met or met[-1] is not flight:
                met.append(flight)
        self._endings.extend([Ending(flight, 0, BUSY) for flight in met])

    def __repr__(self) -> str:
        return f"<ConfirmSlots {len(self._by_tag)}>"
