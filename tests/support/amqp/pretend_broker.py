"""A pretend broker: confirms as RabbitMQ may (`rabbit_channel.erl` 3.10), and writes down what it said about whom before it says it.

It withholds confirms, gathers them into multiple acks and multiple nacks which never cover one that waits for another answer, confirms
single ones out of order, says the return of an unroutable mandatory publish before its ack, closes the channel over a publish (404) that
then has no tag and discards what comes behind until close-ok, and answers channel.close while closing. Beyond RabbitMQ it repeats
confirms now and then, which nobody may be told twice.
"""

from __future__ import annotations

from collections import deque
from random import Random

from support.amqp.pretend_wire import (
    ACK,
    CLOSE,
    CLOSE_OK,
    DELIVER,
    FATAL,
    NACK,
    OPEN,
    PUBLISH,
    REJECTED,
    RETURN,
    SELECT,
    TX_SELECT,
    UNROUTABLE,
    Side,
    cut_frames,
    frame,
)


class PretendBroker:
    """Frames it has written are in `out`; `truth` maps the identity of every publish it has to what it said: b"" nothing yet, ACK, NACK."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.truth: dict[bytes, bytes] = {}
        self.out: deque[bytes] = deque()
        self.rest = b""
        self.sides: dict[int, Side] = {}  # its open channels
        self.lives: dict[int, int] = {}
        self.lone = 0  # multiples said that cover one publish only
        self.unconfirmed = 0  # newest publishes of each channel that it does not confirm yet

    def read(self, data: bytes) -> None:
        frames, self.rest = cut_frames(self.rest + data)
        for kind, number, payload in frames:
            if number:
                self._reads(kind, number, payload)

    def _reads(self, kind: int, number: int, payload: bytes) -> None:
        side = self.sides.get(number)
        method = payload[:4]
        if side is None:
            assert kind == 1
            assert method == OPEN, f"{payload[:4]!r} on a channel that is not open"
            self.lives[number] = self.lives.get(number, 0) + 1
            self.sides[number] = Side(self.lives[number])
            self.out.append(frame(1, number, b"\x00\x14\x00\x0b\x00\x00\x00\x00"))
            return
        if side.follow(kind, payload, (PUBLISH,)):
            if side.missing == -1 and side.state == "open":
                self._received(number, side)
            return
        if method == CLOSE_OK:
            assert side.state == "closing", "close-ok without a close"
            del self.sides[number]
        elif method == CLOSE:
            self.out.append(frame(1, number, CLOSE_OK))
            if side.state == "open":
                del self.sides[number]
        elif side.state == "open":
            if method == ACK:
                self._in_order(side, int.from_bytes(payload[4:12], "big"))
            else:
                assert method in (SELECT, TX_SELECT), f"the broker reads {payload[:4]!r} on an open channel"
                side.confirms = side.confirms or method == SELECT
                if method == TX_SELECT or not payload[4]:
                    self.out.append(frame(1, number, method[:3] + b"\x0b"))
        else:
            assert method != OPEN, "504: second 'channel.open' seen"

    def _in_order(self, side: Side, said: int) -> None:
        assert said > side.said, f"{said} arrived after {side.said}"
        side.said = said
        side.arrived += 1

    def _received(self, number: int, side: Side) -> None:
        identity = side.content[1][:6]
        assert (identity[0], identity[1]) == (number, side.life)
        assert identity not in self.truth, "forwarded twice"
        self._in_order(side, int.from_bytes(identity[2:], "big"))
        exchange, mandatory = side.content[0][:1], side.content[0][1]
        if exchange == FATAL:
            side.state = "closing"
            side.outstanding.clear()
            self.out.append(frame(1, number, CLOSE + b"\x01\x94\x00\x00\x3c\x00\x28"))
            return
        self.truth[identity] = b""
        if exchange == UNROUTABLE and mandatory:
            self._sends_message(number, RETURN + b"\x01\x38\x00\x00\x00", identity)
        if side.confirms:
            side.count += 1
            side.outstanding[side.count] = identity + exchange

    def act(self) -> None:
        if not self.sides:
            return
        numbers = list(self.sides)
        number = numbers[int(self.random.random() * len(numbers))]
        side = self.sides[number]
        if side.state != "open":
            return
        whim = self.random.random()
        if whim < 0.1:
            self._sends_message(number, DELIVER + b"\x01c\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00", b"delivered" * 3)
        elif whim < 0.15 and side.count and len(side.outstanding) < side.count:
            done = min(side.outstanding, default=side.count + 1) - 1
            if done:  # said again: whoever believes it twice is wrong
                self.out.append(frame(1, number, ACK + done.to_bytes(8, "big") + bytes([whim < 0.12])))
        elif len(side.outstanding) > self.unconfirmed:
            self.confirm(number, side, single=whim < 0.5)

    def confirm(self, number: int, side: Side, *, single: bool) -> None:
        tags = list(side.outstanding)[: len(side.outstanding) - self.unconfirmed]
        if single:
            tag = tags[int(self.random.random() * len(tags))]
            covered = [tag]
        else:
            covered = []
            rejected = side.outstanding[tags[0]][6:] == REJECTED
            for tag in tags[: 1 + int(self.random.random() * len(tags))]:
                if (side.outstanding[tag][6:] == REJECTED) != rejected:
                    break
                covered.append(tag)
            tag = covered[-1]
            self.lone += len(covered) == 1
        word = b""
        for other in covered:
            marked = side.outstanding.pop(other)
            word = NACK if marked[6:] == REJECTED else ACK
            self.truth[marked[:6]] = word
        self.out.append(frame(1, number, word + tag.to_bytes(8, "big") + bytes([not single])))

    def _sends_message(self, number: int, method: bytes, body: bytes) -> None:
        self.out.append(frame(1, number, method))
        self.out.append(frame(2, number, b"\x00\x3c\x00\x00%b\x00\x00" % len(body).to_bytes(8, "big")))
        at = int(self.random.random() * len(body))
        self.out.append(frame(3, number, body[:at]))
        self.out.append(frame(3, number, body[at:]))
