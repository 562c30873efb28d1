"""Schedules of channel closes: a client, the gateway and a broker that close channels whenever they like, in an order of chance.

Four queues of bytes lie between the three, and each step moves one of them or lets one side say something, so that every order of
events can happen. Client and broker keep to the specification, check that the other does, and answer as the real ones do: the broker as
RabbitMQ 3.10 (rabbit_channel.erl, rabbit_reader.erl), where a second channel.open is a 504 and a method within a message a 505.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from pamqp import commands

from support.amqp import frames as amqp
from support.wires.conversations import SECOND, Talk, rule

CHANNELS = (1, 2, 3)
MAX_FRAMES = 1 << 30  # no bound
ROUNDS = 1000  # enough for everything that is held to pass, one message a second
CLOSED, OPENING, OPEN, CLOSING = "closed", "opening", "open", "closing"


@dataclass
class Side:
    """One channel as its client or its broker sees it."""

    state: str = CLOSED
    left: int = 0  # of the content that is being received; -1: its header is to come
    confirms: bool = False
    published: int = 0  # since the channel was opened
    confirmed: int = 0
    body: bytes = b""  # of the message that is being received
    messages: list[bytes] = field(default_factory=list)


def content_step(side: Side, frame: amqp.Frame) -> None:
    """Check that `frame` may stand here within a message, or between two."""
    if frame.name == "ContentHeader":
        assert side.left == -1, "a content header without a message"
        side.left = frame.value.body_size
    elif frame.name == "ContentBody":
        assert side.left > 0, "a body frame without a message"
        side.left -= len(frame.raw) - 8
    else:
        assert side.left == 0, f"505: {frame.name} within a message"
        if frame.name in {"Basic.Publish", "Basic.Deliver"}:
            side.left = -1


def whole_frames(data: bytes, most: int = MAX_FRAMES) -> int:
    """How many bytes of `data` are whole frames, `most` of them at most."""
    at = 0
    while at + 7 <= len(data) and most > 0:
        most -= 1
        stop = at + 8 + int.from_bytes(data[at + 3 : at + 7], "big")
        if stop > len(data):
            break
        at = stop
    return at


class CloseSchedule:
    """One schedule. `seed` decides everything; `look`, if there is one, is called after each step of the gateway."""

    def __init__(self, seed: int, action: str, look: Callable[[Talk], None] | None = None) -> None:
        self.look = look
        self.random = Random(seed)
        self.talk = Talk("amqp", rule(action, messages=1, burst=1, fallback="close", max_delay_ns=SECOND // 2))
        self.talk.client(amqp.greeting())
        self.talk.broker(amqp.broker_opens())
        self.talk.to_broker = self.talk.to_client = b""
        self.client = {number: Side() for number in CHANNELS}
        self.broker = {number: Side() for number in CHANNELS}
        self.from_client = self.from_broker = b""  # said and not read by the gateway yet
        self.number = 0
        self.closes = 0  # by the gateway
        self.crossings = 0  # of its closes with one by the client or the broker
        self.sent: dict[int, list[bytes]] = {number: [] for number in CHANNELS}

    def run(self, steps: int) -> None:
        self.play(steps)
        self.finish()

    def play(self, steps: int) -> None:
        moves = (
            self.client_speaks, self.client_speaks, self.client_reads, self.broker_speaks, self.broker_reads,
            self.gateway_hears_client, self.gateway_hears_client, self.gateway_hears_broker, self.time_passes,
        )  # fmt: skip
        for _ in range(steps):
            self.random.choice(moves)()

    def finish(self) -> None:
        """Let everybody read to the end: then nobody waits for anything, and every number can be opened again."""
        self.settle_down()
        states = {side.state for side in self.client.values()}
        assert states <= {OPEN, CLOSED}, f"somebody waits for an answer for ever: {self.client}"
        for number, side in self.client.items():
            assert side.state == self.broker[number].state, f"channel {number}: {side} and {self.broker[number]}"
            if side.state == CLOSED:
                self.open(number)
        self.talk.now += 60 * SECOND
        self.settle_down()
        assert all(side.state == OPEN for side in [*self.client.values(), *self.broker.values()])
        assert self.talk.holds_nothing()
        for number in CHANNELS:
            got = self.broker[number].messages
            assert got == [message for message in self.sent[number] if message in got], "changed, doubled or out of order"

    def settle_down(self) -> None:
        quiet = 0
        for _ in range(ROUNDS):
            if quiet == 3:
                return
            before = (len(self.talk.to_client), len(self.talk.to_broker), len(self.from_client), len(self.from_broker))
            self.hear_client(len(self.from_client))
            self.hear_broker(len(self.from_broker))
            while self.client_reads() or self.broker_reads():
                pass
            self.wait(SECOND)
            after = (len(self.talk.to_client), len(self.talk.to_broker), len(self.from_client), len(self.from_broker))
            quiet = quiet + 1 if before == after == (0, 0, 0, 0) and not self.talk.conversation.budget.held_bytes else 0
        raise AssertionError(f"they never come to rest: {self.talk.conversation}")

    # ---- the gateway between them ------------------------------------------------------------------------------------

    def gateway_hears_client(self) -> None:
        self.hear_client(self.random.choice((1, 20, 100, 400, 5000)))

    def hear_client(self, size: int) -> None:
        for piece in self.pieces(self.from_client, size):
            data, self.from_client = self.from_client[:piece], self.from_client[piece:]
            self.talk.client(data)
            self.looked()

    def gateway_hears_broker(self) -> None:
        self.hear_broker(self.random.choice((1, 20, 100, 5000)))

    def hear_broker(self, size: int) -> None:
        for piece in self.pieces(self.from_broker, size):
            data, self.from_broker = self.from_broker[:piece], self.from_broker[piece:]
            self.talk.broker(data)
            self.looked()
            self.wait(0)

    def pieces(self, data: bytes, size: int) -> list[int]:
        """In how many bytes at a time the first `size` of `data` are heard: frame by frame where somebody looks, else at once."""
        if self.look is None:
            return [size] if data else []
        found: list[int] = []
        while sum(found) < min(size, len(data)):
            found.append(whole_frames(data[sum(found) :], 1))
        return found

    def time_passes(self) -> None:
        self.wait(self.random.choice((1, 100, 300)) * 1_000_000)

    def wait(self, nanoseconds: int) -> None:
        self.talk.wait(nanoseconds)
        self.looked()

    def looked(self) -> None:
        if self.look is not None:
            self.look(self.talk)

    # ---- the client --------------------------------------------------------------------------------------------------

    def client_speaks(self) -> None:
        number = self.random.choice(CHANNELS)
        side = self.client[number]
        if side.state == CLOSED:
            self.open(number)
        elif side.state == OPEN:
            what = self.random.random()
            if what < 0.75:
                self.publish(number)
            elif what < 0.9:
                self.from_client += amqp.ack(number, 1)
            else:
                side.state = CLOSING
                self.from_client += amqp.method(number, commands.Channel.Close(200, "bye", 0, 0))

    def open(self, number: int) -> None:
        side = self.client[number] = Side(OPENING)
        self.from_client += amqp.method(number, commands.Channel.Open())
        side.confirms = self.random.random() < 0.3

    def publish(self, number: int) -> None:
        self.number += 1
        side = self.client[number]
        if side.confirms and side.published == 0:
            self.from_client += amqp.method(number, commands.Confirm.Select(nowait=True))
        side.published += 1
        body = (b"%06d" % self.number).ljust(self.random.choice((6, 6, 50, 9000)), b".")
        message = amqp.publish(number, self.random.choice(("free", "orders")), body, cut=4000)
        self.sent[number].append(body)
        self.from_client += message

    def client_reads(self) -> bool:
        """One frame."""
        if not whole_frames(self.talk.to_client):
            return False
        first = 8 + int.from_bytes(self.talk.to_client[3:7], "big")
        (frame,) = amqp.read(self.talk.to_client[:first])
        self.talk.to_client = self.talk.to_client[first:]
        side = self.client[frame.channel]
        assert side.state != CLOSED, f"{frame.name} on channel {frame.channel}, which is closed"
        content_step(side, frame)
        if frame.name == "Channel.Close":
            if frame.value.reply_code == 506:
                self.closes += 1
            self.from_client += amqp.method(frame.channel, commands.Channel.CloseOk())
            self.crossings += side.state == CLOSING
            if side.state != CLOSING:
                side.state = CLOSED
        elif frame.name == "Channel.CloseOk":
            assert side.state == CLOSING, "channel.close-ok for nothing"
            side.state = CLOSED
        elif frame.name == "Channel.OpenOk":
            assert side.state in {OPENING, CLOSING}, "channel.open-ok for nothing"
            side.state = OPEN if side.state == OPENING else side.state
        elif frame.name in {"Basic.Ack", "Basic.Nack"}:
            assert frame.value.delivery_tag <= side.published, "a confirm for what this channel has not published"
        return True

    # ---- the broker --------------------------------------------------------------------------------------------------

    def broker_speaks(self) -> None:
        number = self.random.choice(CHANNELS)
        side = self.broker[number]
        if side.state != OPEN:
            return
        what = self.random.random()
        if what < 0.6:
            self.from_broker += amqp.deliver(number, b"d" * self.random.choice((0, 10, 6000)), cut=2500)
        elif what < 0.8 and side.confirms and side.confirmed < side.published:
            side.confirmed = side.published
            self.from_broker += amqp.ack(number, side.published, multiple=True)
        elif what > 0.9:
            side.state = CLOSING
            self.from_broker += amqp.method(number, commands.Channel.Close(404, "NOT_FOUND", 60, 40))

    def broker_reads(self) -> bool:
        """One frame."""
        if not whole_frames(self.talk.to_broker):
            return False
        first = 8 + int.from_bytes(self.talk.to_broker[3:7], "big")
        (frame,) = amqp.read(self.talk.to_broker[:first])
        self.talk.to_broker = self.talk.to_broker[first:]
        side = self.broker[frame.channel]
        if frame.name == "Channel.Open":
            assert side.state == CLOSED, "504: second 'channel.open' seen"
            self.broker[frame.channel] = Side(OPEN, messages=side.messages)
            self.from_broker += amqp.method(frame.channel, commands.Channel.OpenOk())
            return True
        assert side.state != CLOSED, f"504: expected 'channel.open', got {frame.name}"
        content_step(side, frame)
        if frame.name == "Channel.Close":
            self.from_broker += amqp.method(frame.channel, commands.Channel.CloseOk())
            self.crossings += side.state == CLOSING
            if side.state == OPEN:
                side.state = CLOSED
        elif frame.name == "Channel.CloseOk":
            assert side.state == CLOSING, "channel.close-ok for nothing"
            side.state = CLOSED
        elif side.state == OPEN:
            self.take(side, frame)
        return True

    def take(self, side: Side, frame: amqp.Frame) -> None:
        if frame.name == "Confirm.Select":
            side.confirms = True
        elif frame.name == "Basic.Publish":
            side.published += 1
            side.body = b""
        elif frame.name == "ContentBody":
            side.body += frame.raw[7:-1]
            if side.left == 0:
                side.messages.append(side.body)
