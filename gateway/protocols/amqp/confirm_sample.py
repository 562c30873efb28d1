"""The one publish of a connection whose confirm is timed: at most one is under way, so that sampling costs nothing.

No clock here: the session notices when the state changes (`gateway/session/broker_flow.py`).
"""

from __future__ import annotations

from gateway.pipeline.reports import CONFIRMED, LOST, SAMPLED
from gateway.protocols.amqp.channel import AmqpChannel
from gateway.protocols.amqp.confirms import Confirms


class ConfirmSample:
    """Which publish it is: `tag`, the broker's, on `channel` while that counts with `confirms`."""

    __slots__ = ("channel", "confirms", "tag")

    def __init__(self) -> None:
        self.channel: AmqpChannel | None = None
        self.confirms: Confirms | None = None
        self.tag = 0

    def take(self, channel: AmqpChannel, count: int) -> int:
        """Sample the first of the `count` publishes just forwarded on `channel`: SAMPLED."""
        confirms = channel.confirms
        assert confirms is not None, "publishes are sampled where they are confirmed"
        self.channel = channel
        self.confirms = confirms
        self.tag = confirms.forwarded - count + 1
        return SAMPLED

    def look(self) -> int:
        """SAMPLED, CONFIRMED, or LOST because its channel was closed."""
        channel = self.channel
        confirms = self.confirms
        if channel is None or confirms is None or channel.is_closed_by_broker() or channel.confirms is not confirms:
            return LOST
        return CONFIRMED if confirms.low >= self.tag else SAMPLED

    def __repr__(self) -> str:
        return f"<ConfirmSample tag={self.tag} of {self.channel}>"
