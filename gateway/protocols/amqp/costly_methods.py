"""Methods that cost the broker more than a message: they declare, bind, delete, purge and open, fetch and connect, and a rule may limit
them by such words.

10,000 declares take RabbitMQ 4.3 four minutes, and no rule for messages sees one. So each is a request of its operation where a rule looks
at that. One that is over its limit waits in its place on its channel, with all that is behind it (`CostlyMethod`), and is never refused:
its client waits for `declare-ok`, which comes late, as of a busy broker. So a topology that a client declares anew after a restart of its
broker is declared in order, only slower.

Two are a little different:

* `basic.get` costs when it is asked, for nobody knows yet whether its queue is empty, and gets its cost back when it has brought a message
  (`refund_get`), which counts as consumed. Charged after, any number that is asked at once would pass, and be owed for hours by all who
  share the limit.
* `connection.open` comes before the client is let in, and brokers do not wait for it as long as for a method of an open channel (RabbitMQ:
  10 s for the whole handshake). So it waits as the rule's action says, up to `max_delay`, and is then refused: its connection is closed as
  by a broker that has as many as it takes (530). It is judged when the broker knows who it is, or anybody could use up the limit of a user
  whose name he knows.

They are limited by who says them, not by what they name: names are what such clients have too many of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pipeline.empties import NO_ENTRIES, put
from gateway.pipeline.parts import REQUEST, Part
from gateway.protocols.amqp.costly_method import CostlyMethod
from gateway.protocols.amqp.frames import (
    BASIC_GET,
    CHANNEL_OPEN,
    CONNECTION_OPEN,
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
from limiter.operations import BIND, CONNECT, DECLARE, DELETE, GET, OPEN, PURGE
from limiter.request import Request
from limiter.reservation import Refund
from limiter.topics import amqp_topic

if TYPE_CHECKING:
    from gateway.protocols.amqp.deliveries.parking_lot import ParkingLot
    from limiter.judge import Judge
    from limiter.keys import Key, Origin

OPERATION_OF: Final[dict[int, str]] = {
    QUEUE_DECLARE: DECLARE, EXCHANGE_DECLARE: DECLARE,
    QUEUE_BIND: BIND, QUEUE_UNBIND: BIND, EXCHANGE_BIND: BIND, EXCHANGE_UNBIND: BIND,
    QUEUE_DELETE: DELETE, EXCHANGE_DELETE: DELETE,
    QUEUE_PURGE: PURGE,
    CHANNEL_OPEN: OPEN,
    BASIC_GET: GET,
    CONNECTION_OPEN: CONNECT,
}  # fmt: skip


class CostlyMethods:
    """Those of one connection."""

    def __init__(self, judge: Judge, lot: ParkingLot) -> None:
        self.judge = judge
        self.lot = lot
        self.keys: dict[str, Key] = NO_ENTRIES  # by operation

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
            key = self.judge.key(origin, raw, amqp_topic(origin.vhost, b"", b""), None, operation, told_apart=True)
            self.keys = put(self.keys, operation, key)
        if not self.judge.is_limited(key):
            return None
        return CostlyMethod(REQUEST, channel_id, data, pos, stop, key, 1, 1, 0)

    def refund_get(self) -> None:
        """A basic.get of the client's has brought a message."""
        key = self.keys.get(GET)
        if key is None or not self.judge.rules.may_limit(GET) or not self.judge.is_limited(key):
            return
        refunded = Request(key, 1, 1, 0)
        refunded.reservation = Refund()
        self.judge.owe(refunded)

    def __repr__(self) -> str:
        return f"<CostlyMethods {list(self.keys)}>"
