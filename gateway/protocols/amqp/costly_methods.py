"""Methods that cost the broker more than a message: they declare, bind, delete, purge and open, and a rule may limit them by such words.

10,000 declares take RabbitMQ 4.3 four minutes, and no rule for messages sees one. So each is a request of its operation where a rule looks
at that. One that is over its limit waits in its place on its channel, with all that is behind it (`CostlyMethod`), and is never refused:
its client waits for `declare-ok`, which comes late, as of a busy broker. So a topology that a client declares anew after a restart of its
broker is declared in order, only slower.

They are limited by who says them, not by what they name: names are what such clients have too many of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pipeline.parts import REQUEST, Part
from gateway.protocols.amqp.frames import (
    CHANNEL_OPEN,
    EXCHANGE_BIND,
    EXCHANGE_DECLARE,
    EXCHANGE_DELETE,
    EXCHANGE_UNBIND,
    QUEUE_BIND,
    QUEUE_DECLARE,
    QUEUE_DELETE,
    QUEUE_PURGE,
    QUEUE_UNBIND,
)
from limiter.operations import BIND, DECLARE, DELETE, OPEN, PURGE
from limiter.topics import amqp_topic

if TYPE_CHECKING:
    from limiter.judge import Judge
    from limiter.keys import Key, Origin

OPERATION_OF: Final[dict[int, str]] = {
    QUEUE_DECLARE: DECLARE, EXCHANGE_DECLARE: DECLARE,
    QUEUE_BIND: BIND, QUEUE_UNBIND: BIND, EXCHANGE_BIND: BIND, EXCHANGE_UNBIND: BIND,
    QUEUE_DELETE: DELETE, EXCHANGE_DELETE: DELETE,
    QUEUE_PURGE: PURGE,
    CHANNEL_OPEN: OPEN,
}  # fmt: skip


class CostlyMethod(Part):
    """A method that is judged, and waits in its channel's line. It may stand for `count` things at once (`requeues.py`); of several for one
    frame, only the last brings it."""


class CostlyMethods:
    """Those of one connection."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.keys: dict[str, Key] = {}  # by operation

    def ask(self, method: int, channel_id: int, origin: Origin | None, data: bytes, pos: int, stop: int) -> Part | None:
        """The method `data[pos:stop]`, one of OPERATION_OF, as a request; None: nothing limits it."""
        if origin is None or origin.vhost is None:
            return None
        operation = OPERATION_OF[method]
        if not self.judge.rules.may_limit(operation):  # a key more would make each publish look for its own
            return None
        key = self.keys.get(operation)
        if key is None or key.origin is not origin:
            raw = b"\xfd" + operation.encode()  # no publish has such: its exchange would be 253 bytes long
            key = self.keys[operation] = self.judge.key(origin, raw, amqp_topic(origin.vhost, b"", b""), None, operation, told_apart=True)
        if not self.judge.limited(key):
            return None
        return CostlyMethod(REQUEST, channel_id, data, pos, stop, key, 1, 1, 0)

    def __repr__(self) -> str:
        return f"<CostlyMethods {list(self.keys)}>"
