"""What the other parts tell of a connection's subscriptions and of their deliveries. `windows.py` moves subscriptions by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.pipeline.parts import Part
    from gateway.protocols.amqp.channel import AmqpChannel
    from gateway.protocols.amqp.deliveries.subscription import Consumer, Subscription
    from limiter.keys import Key
    from limiter.reservation import Reservation


class SubscriptionMover:
    """Hears of them. Each method is described where it is written out, in `Windows`."""

    def begin(self, subscription: Subscription) -> bytes:
        raise NotImplementedError

    def begun(self, subscription: Subscription, consumer: Consumer) -> None:
        raise NotImplementedError

    def sought(self, subscription: Subscription, consumers: int) -> bool:
        raise NotImplementedError

    def ask_source(self, channel: AmqpChannel, consumer: Consumer) -> None:
        raise NotImplementedError

    def source_answered(self, consumer: Consumer, consumers: int) -> None:
        raise NotImplementedError

    def look_at(self, subscription: Subscription, due: int) -> None:
        raise NotImplementedError

    def left(self, subscription: Subscription, consumer: Consumer) -> None:
        raise NotImplementedError

    def end(self, subscription: Subscription) -> None:
        raise NotImplementedError

    def passes(self, channel: AmqpChannel, consumer: Consumer, part: Part) -> None:
        raise NotImplementedError

    def refused(self, consumer: Consumer | None, part: Part) -> None:
        raise NotImplementedError

    def take_back(self) -> None:
        raise NotImplementedError

    def judged(self, now: int) -> None:
        raise NotImplementedError

    def get_answered(self, key: Key, reservation: Reservation, messages: int, size: int) -> None:
        raise NotImplementedError
