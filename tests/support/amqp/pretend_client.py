"""A pretend AMQP client: publishes at random, takes every confirm at its word and complains like the strictest of the real ones."""

from __future__ import annotations

from collections import Counter, deque
from random import Random

from support.amqp.pretend_wire import (
    ACK,
    ANSWERS,
    CLOSE,
    CLOSE_OK,
    DELIVER,
    FATAL,
    HEARTBEAT,
    NACK,
    OPEN,
    PUBLISH,
    REJECTED,
    RETURN,
    SELECT,
    TAKEN,
    TX_SELECT,
    UNROUTABLE,
    Side,
    cut_frames,
    frame,
)

LARGE = 5000  # bytes of body: more than the gateway waits for, so such a publish is judged by its header


class PretendClient:
    """Frames it has written are in `out`; `truth` is the broker's: what it said about each identity."""

    def __init__(self, random: Random, channels: int, truth: dict[bytes, bytes], *, long_lived: bool = False) -> None:
        self.random = random
        self.long_lived = long_lived  # its channels ask for confirms, and are closed by nobody
        self.numbers = range(1, channels + 1)
        self.truth = truth
        self.out: deque[bytes] = deque()
        self.rest = b""
        self.sides = {number: Side(0) for number in self.numbers}
        for side in self.sides.values():
            side.state = "closed"
        self.lives: Counter[int] = Counter()
        self.refused: set[bytes] = set()  # nacked without the broker's word: never to reach it
        self.returned: set[bytes] = set()
        self.mandatory: set[bytes] = set()
        self.lone = 0  # multiples read that covered one publish only
        self.publishes = 0

    def read(self, data: bytes) -> None:
        frames, self.rest = cut_frames(self.rest + data)
        for kind, number, payload in frames:
            if number:
                self._reads(kind, number, payload)

    def act(self) -> None:
        number = 1 + int(self.random.random() * len(self.numbers))
        frames = self._says(number)
        if len(self.numbers) > 1 and self.random.random() < 0.2:  # two threads write on two channels of one connection
            other = self._says(1 + number % len(self.numbers))
            while frames and other:
                self.out.append(frames.pop(0) if self.random.random() < 0.5 else other.pop(0))
            frames += other
        self.out.extend(frames)

    def _says(self, number: int) -> list[bytes]:
        side = self.sides[number]
        whim = self.random.random()
        if side.state == "closing":
            return [HEARTBEAT]
        if side.state == "closed":
            return self._open(number)
        if whim < 0.8:
            frames: list[bytes] = []
            for _ in range(1 + int(self.random.random() * 4)):
                frames += self._publish(number, side)
            return frames
        if whim < 0.9:
            side.said += 1
            return [frame(1, number, ACK + side.said.to_bytes(8, "big") + b"\x00")]  # an ack of a delivery, in its place
        if whim < 0.95 and side.confirms:
            return [frame(1, number, SELECT + bytes([self.random.random() < 0.5]))]  # again: changes nothing
        if whim < 0.98 or self.long_lived:
            return [HEARTBEAT]
        side.state = "closing"
        return [frame(1, number, CLOSE + b"\x00\xc8\x00\x00\x00\x00\x00")]

    def _open(self, number: int) -> list[bytes]:
        self.lives[number] += 1
        side = self.sides[number] = Side(self.lives[number])
        frames = [frame(1, number, OPEN + b"\x00")]
        whim = self.random.random()
        if whim < 0.3:
            frames += self._publish(number, side)  # before the select: has no tag
        if whim < 0.8 or self.long_lived:
            side.confirms = True
            frames.append(frame(1, number, SELECT + bytes([self.random.random() < 0.5])))
            if self.random.random() < 0.5:
                frames += self._publish(number, side)  # pipelined with it
        elif whim < 0.9:
            side.tx = True
            frames.append(frame(1, number, TX_SELECT))
        return frames

    def _publish(self, number: int, side: Side) -> list[bytes]:
        random = self.random.random
        whim = random()
        exchange = TAKEN if whim < 0.7 else REJECTED if whim < 0.85 else UNROUTABLE if whim < 0.98 or self.long_lived else FATAL
        mandatory = random() < 0.3
        side.said += 1
        self.publishes += 1
        identity = b"%c%c%b" % (number, side.life, side.said.to_bytes(4, "big"))
        if side.confirms:
            side.count += 1
            side.outstanding[side.count] = identity
        if mandatory:
            self.mandatory.add(identity)
        routing_key = b"ab"[: 1 + int(random() * 2)]
        method = PUBLISH + b"\x00\x00\x01%b%c%b%c" % (exchange, len(routing_key), routing_key, mandatory)
        body = identity if random() < 0.9 else identity.ljust(LARGE, b"\xce")
        frames = [frame(1, number, method), frame(2, number, b"\x00\x3c\x00\x00%b\x00\x00" % len(body).to_bytes(8, "big"))]
        if random() < 0.8:
            frames.append(frame(3, number, body))
            return [b"".join(frames)] if random() < 0.8 else frames
        at = 1 + int(random() * (len(body) - 1))
        return [*frames, frame(3, number, body[:at]), frame(3, number, b""), frame(3, number, body[at:])]

    def _reads(self, kind: int, number: int, payload: bytes) -> None:
        side = self.sides[number]
        assert side.state != "closed", "the client hears of a channel that is closed"
        if side.follow(kind, payload, (RETURN, DELIVER)):
            if side.missing == -1 and side.content[0]:
                identity = side.content[1][:6]
                assert identity in self.mandatory, "returned, but nobody asked for that"
                assert identity not in self.returned, "returned twice"
                self.returned.add(identity)
            return
        method = payload[:4]
        if method in (ACK, NACK):
            self._confirmed(side, int.from_bytes(payload[4:12], "big"), multiple=payload[12] & 1 == 1, word=method)
        elif method == CLOSE:
            side.outstanding.clear()
            self.out.append(frame(1, number, CLOSE_OK))
            if side.state == "open":
                side.state = "closed"
        elif method == CLOSE_OK:
            assert side.state == "closing", "close-ok without a close"
            side.state = "closed"
        else:
            assert method in ANSWERS, f"the client reads {payload!r}"

    def _confirmed(self, side: Side, tag: int, *, multiple: bool, word: bytes) -> None:
        outstanding = side.outstanding
        assert side.confirms, "a confirm on a channel that did not ask for any"
        assert tag in outstanding, f"a confirm for {tag}, which is not outstanding"
        tags = [other for other in outstanding if other <= tag] if multiple else [tag]
        if multiple and len(tags) == 1:
            self.lone += 1
        for other in tags:
            identity = outstanding.pop(other)
            said = self.truth.get(identity)
            if said is None:
                assert word == NACK, f"publish {other} was acked, and the broker never had it"
                assert not multiple, "a multiple that covers a refused publish"
                assert identity in self.returned or identity not in self.mandatory, "a mandatory publish was nacked without a return before"
                self.refused.add(identity)
                side.nacked += 1
            else:
                assert said == word, f"publish {other}: the client reads {word!r}, the broker said {said!r}"
