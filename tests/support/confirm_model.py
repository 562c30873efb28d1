"""A pretend client and a pretend broker with a conversation between them: what confirms may be promised, played at random.

A **schedule** is one connection's life: some dozen random acts of the client, the broker, the judge and the network, then everything that
is under way is let come to its end. The truth is kept by identity, not by count: each publish carries in its body who it is, the broker
writes down what it said about whom before it says it, and the client compares.

The broker behaves as RabbitMQ may (`rabbit_channel.erl` 3.10): it withholds confirms, gathers them into multiple acks and multiple nacks
which never cover one that waits for another answer, confirms single ones out of order, says the return of an unroutable mandatory
publish before its ack, closes the channel over a publish (404) that then has no tag and discards what comes behind until close-ok, and
answers channel.close while closing. Beyond RabbitMQ it repeats confirms now and then, which nobody may be told twice.

Written for speed (100,000 schedules are a test): frames are built from templates and read by hand, not by pamqp; `run` raises
AssertionError.
"""

from __future__ import annotations

from collections import Counter, deque
from random import Random
from typing import TYPE_CHECKING

from gateway.conversation import REFUSED, UNABLE, Circumstances
from gateway.messages import NEVER, REQUEST
from gateway.protocols import PROTOCOLS
from limiter.judge import Judge
from limiter.rules import RuleSet
from support import amqp
from support.conversations import rule

if TYPE_CHECKING:
    from gateway.messages import Part

RULE = rule()
JUDGE = Judge(RuleSet(()))
FRAME_MAX = 8192
GREETING = amqp.greeting(frame_max=FRAME_MAX)
OPENING = amqp.broker_start() + amqp.raw_frame(1, 0, b"\x00\x0a\x00\x29\x00")  # start, open-ok

OPEN, CLOSE, CLOSE_OK = b"\x00\x14\x00\x0a", b"\x00\x14\x00\x28", b"\x00\x14\x00\x29"
PUBLISH, RETURN, DELIVER = b"\x00\x3c\x00\x28", b"\x00\x3c\x00\x32", b"\x00\x3c\x00\x3c"
ACK, NACK = b"\x00\x3c\x00\x50", b"\x00\x3c\x00\x78"
SELECT, TX_SELECT = b"\x00\x55\x00\x0a", b"\x00\x5a\x00\x0a"
ANSWERS = frozenset({b"\x00\x14\x00\x0b", b"\x00\x55\x00\x0b", b"\x00\x5a\x00\x0b"})  # open-ok, select-ok of both
HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"

TAKEN, REJECTED, UNROUTABLE, FATAL = b"t", b"r", b"u", b"k"  # exchanges: what the broker does with a publish to them
LARGE = 5000  # bytes of body: more than the gateway waits for, so such a publish is judged by its header


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return b"%c\x00%c%b%b\xce" % (kind, channel, len(payload).to_bytes(4, "big"), payload)


def cut_frames(data: bytes) -> tuple[list[tuple[int, int, bytes]], bytes]:
    """All whole frames of `data` as (type, channel, payload), and the rest."""
    found = []
    at, end = 0, len(data)
    while end - at >= 8:
        stop = at + 8 + int.from_bytes(data[at + 3 : at + 7], "big")
        if stop > end:
            break
        assert data[stop - 1] == 0xCE
        found.append((data[at], data[at + 2], data[at + 7 : stop - 1]))
        at = stop
    return found, data[at:]


class Side:
    """One channel in its present life, as one side sees it."""

    def __init__(self, life: int) -> None:
        self.life = life
        self.state = "open"  # open, closing (said close, awaits close-ok), closed
        self.confirms = False
        self.tx = False
        self.count = 0  # publishes since confirm.select: the last delivery tag
        self.outstanding: dict[int, bytes] = {}  # tag: identity, in order
        self.said = 0  # client: the last number given; broker: the last number received
        self.arrived = 0  # broker: numbers received
        self.content: list[bytes] = []  # exchange and bits, then the body, of a message coming in
        self.missing = -1  # body bytes of it; -1: no message, -2: its header
        self.refused = 0  # client: publishes the judge refused on this life
        self.dropped = 0  # client: publishes swallowed without a word, where nobody was promised one
        self.nacked = 0  # client: publishes nacked that the broker never had


class Schedule:
    """One connection. `run` plays `acts` acts on `channels` channels and brings everything to its end."""

    def __init__(self, random: Random, channels: int, acts: int) -> None:
        self.random = random
        self.numbers = range(1, channels + 1)
        self.acts = acts
        self.conversation = PROTOCOLS["amqp"](Circumstances(JUDGE, "here", "10.0.0.7", 4, 1 << 20, 1 << 20))
        self.now = 1_000
        self.kindness = random.choice((0.2, 0.5, 0.8))  # how often the judge lets pass
        self.careless = random.random() < 0.3  # bytes are cut anywhere rather than sent as written
        self.client = {number: Side(0) for number in self.numbers}
        self.broker: dict[int, Side] = {}
        self.lives: Counter[int] = Counter()
        for side in self.client.values():
            side.state = "closed"
        self.to_decode = b""  # what the gateway has read of the client and not decoded
        self.batch: list[Part] = []  # decoded, with the judge
        self.from_client: deque[bytes] = deque()  # frames the client has written
        self.from_broker: deque[bytes] = deque()
        self.broker_in = b""
        self.client_in = b""
        self.truth: dict[bytes, bytes] = {}  # what the broker said about each identity; b"" nothing yet
        self.refused: set[bytes] = set()  # nacked without the broker's word: never to reach it
        self.returned: set[bytes] = set()
        self.mandatory: set[bytes] = set()
        self.lone = 0  # multiples of the broker's that covered one publish only
        self.publishes = 0

    # ---- the network -----------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Returns the number of publishes."""
        self._decode(GREETING)
        self._relay(OPENING)
        random = self.random.random
        for _ in range(self.acts):
            act = random()
            if act < 0.45:
                self._client_acts()
                if random() < 0.5:
                    continue
                self._carry_up()
            elif act < 0.65:
                self._broker_acts()
                if random() < 0.5:
                    continue
                self._carry_down()
            elif act < 0.8:
                self._carry_up()
            elif act < 0.9:
                self._carry_down()
            else:
                self.now += 3
                self._take_due()
        self._finish()
        return self.publishes

    def _piece(self, queue: deque[bytes]) -> bytes:
        """Some of what was written: frame by frame, or cut anywhere."""
        if not queue:
            return b""
        if not self.careless:
            pieces = [queue.popleft() for _ in range(min(len(queue), 1 + int(self.random.random() * 12)))]
            return b"".join(pieces)
        data = queue.popleft()
        if queue and self.random.random() < 0.5:
            data += queue.popleft()
        size = 1 + int(self.random.random() * len(data))
        if size < len(data):
            queue.appendleft(data[size:])
        return data[:size]

    def _carry_up(self) -> None:
        if self.batch:
            self._settle()
        else:
            self._decode(self._piece(self.from_client))

    def _decode(self, data: bytes) -> None:
        conversation = self.conversation
        self.to_decode += data
        if not self.to_decode or len(self.to_decode) < conversation.need:
            return
        room = 1 + int(self.random.random() * 8)
        position = conversation.decode(self.to_decode, 0, room, self.batch)
        self.to_decode = self.to_decode[position:]
        if self.random.random() < 0.8:
            self._settle()

    def _carry_down(self) -> None:
        data = self._piece(self.from_broker)
        if data:
            self._relay(data)

    def _relay(self, data: bytes) -> None:
        out: list[bytes] = []
        self.conversation.relay(data, out)
        self._flush(b"".join(out))

    def _flush(self, said: bytes = b"") -> None:
        conversation = self.conversation
        said += conversation.take_replies()
        if said:
            frames, self.client_in = cut_frames(self.client_in + said)
            for kind, number, payload in frames:
                self._client_reads(kind, number, payload)
        if conversation.onward:
            data = self.broker_in + b"".join([part.data[part.start : part.end] for part in conversation.onward])
            conversation.onward = []
            frames, self.broker_in = cut_frames(data[8:] if data.startswith(b"AMQP") else data)
            for kind, number, payload in frames:
                if number:
                    self._broker_reads(kind, number, payload)
        conversation.abandoned = []

    # ---- the judge -------------------------------------------------------------------------------------------------

    def _take_due(self) -> None:
        if not self.batch and self.conversation.next_due <= self.now:
            self.batch = self.conversation.take_due(self.now, 1 + int(self.random.random() * 8))
            self._settle()

    def _settle(self) -> None:
        """Random verdicts, settled as `gateway.handlers.rate_limit` and the actions do."""
        conversation = self.conversation
        random = self.random.random
        batch = self.batch
        self.batch = []
        for part in batch:
            if part.kind != REQUEST or part.paid:
                conversation.admit(part)
                continue
            part.passed = part.count if random() < self.kindness else int(random() * part.count)
            if part.passed >= part.count:
                conversation.admit(part)
                continue
            if part.passed:
                passed = part.passed
                head = conversation.split(part, passed)
                head.passed = passed
                part.passed = 0
                conversation.admit(head)
            part.rule = RULE
            part.wait_ns = 5
            self._turn_round(part, random())
        self._flush()

    def _turn_round(self, part: Part, whim: float) -> None:
        conversation = self.conversation
        due = self.now + 1 + int(whim * 10)
        if whim < 0.3 and conversation.hold(part, due):
            return
        count = part.count
        outcome = conversation.refuse(part, self.now)
        if outcome == REFUSED:
            self.client[part.lane].refused += count
        elif outcome == UNABLE:
            if whim < 0.4 and conversation.drop(part):
                self.client[part.lane].dropped += count
                return
            assert conversation.hold(part, due), "neither refused nor held"

    # ---- the client ------------------------------------------------------------------------------------------------

    def _client_acts(self) -> None:
        number = 1 + int(self.random.random() * len(self.numbers))
        frames = self._client_says(number)
        if len(self.numbers) > 1 and self.random.random() < 0.2:  # two threads write on two channels of one connection
            other = self._client_says(1 + number % len(self.numbers))
            while frames and other:
                self.from_client.append(frames.pop(0) if self.random.random() < 0.5 else other.pop(0))
            frames += other
        self.from_client.extend(frames)

    def _client_says(self, number: int) -> list[bytes]:
        side = self.client[number]
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
        if whim < 0.98:
            return [HEARTBEAT]
        side.state = "closing"
        return [frame(1, number, CLOSE + b"\x00\xc8\x00\x00\x00\x00\x00")]

    def _open(self, number: int) -> list[bytes]:
        self.lives[number] += 1
        side = self.client[number] = Side(self.lives[number])
        frames = [frame(1, number, OPEN + b"\x00")]
        whim = self.random.random()
        if whim < 0.3:
            frames += self._publish(number, side)  # before the select: has no tag
        if whim < 0.8:
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
        exchange = TAKEN if whim < 0.7 else REJECTED if whim < 0.85 else UNROUTABLE if whim < 0.98 else FATAL
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

    def _client_reads(self, kind: int, number: int, payload: bytes) -> None:
        if number == 0:
            return
        side = self.client[number]
        assert side.state != "closed", "the client hears of a channel that is closed"
        if self._content(kind, side, payload, (RETURN, DELIVER)):
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
            self.from_client.append(frame(1, number, CLOSE_OK))
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
            self.lone -= 1
            assert self.lone >= 0, "a multiple with nothing else outstanding below it"
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

    # ---- the broker ------------------------------------------------------------------------------------------------

    def _content(self, kind: int, side: Side, payload: bytes, starts: tuple[bytes, ...]) -> bool:
        """Follow the messages of a channel: True while `payload` belongs to one."""
        if kind == 1:
            assert side.missing == -1, "a method within a message"
            if payload[:4] not in starts:
                return False
            side.content = [b"r" if payload[:4] == RETURN else payload[7:8] + payload[-1:] if payload[:4] == PUBLISH else b"", b""]
            side.missing = -2
        elif kind == 2:
            assert side.missing == -2, "a header without its method"
            side.missing = int.from_bytes(payload[4:12], "big") or -1
        else:
            assert kind == 3
            assert side.missing >= len(payload), "more body than was announced"
            side.content[1] += payload
            side.missing -= len(payload)
            side.missing = side.missing or -1
        return True

    def _broker_reads(self, kind: int, number: int, payload: bytes) -> None:
        side = self.broker.get(number)
        method = payload[:4]
        if side is None:
            assert kind == 1
            assert method == OPEN, f"{payload[:4]!r} on a channel that is not open"
            self.broker[number] = Side(self.client[number].life)
            self.from_broker.append(frame(1, number, b"\x00\x14\x00\x0b\x00\x00\x00\x00"))
            return
        if self._content(kind, side, payload, (PUBLISH,)):
            if side.missing == -1 and side.state == "open":
                self._received(number, side)
            return
        if method == CLOSE_OK:
            assert side.state == "closing", "close-ok without a close"
            del self.broker[number]
        elif method == CLOSE:
            self.from_broker.append(frame(1, number, CLOSE_OK))
            if side.state == "open":
                del self.broker[number]
        elif side.state == "open":
            if method == ACK:
                self._in_order(side, int.from_bytes(payload[4:12], "big"))
            else:
                assert method in (SELECT, TX_SELECT), f"the broker reads {payload[:4]!r} on an open channel"
                side.confirms = side.confirms or method == SELECT
                if method == TX_SELECT or not payload[4]:
                    self.from_broker.append(frame(1, number, method[:3] + b"\x0b"))
        else:
            assert method != OPEN, "504: second 'channel.open' seen"

    def _in_order(self, side: Side, said: int) -> None:
        assert said > side.said, f"{said} arrived after {side.said}"
        side.said = said
        side.arrived += 1

    def _received(self, number: int, side: Side) -> None:
        identity = side.content[1][:6]
        assert (identity[0], identity[1]) == (number, side.life)
        assert identity not in self.refused, "refused, and forwarded all the same"
        assert identity not in self.truth, "forwarded twice"
        self._in_order(side, int.from_bytes(identity[2:], "big"))
        exchange, mandatory = side.content[0][:1], side.content[0][1]
        if exchange == FATAL:
            side.state = "closing"
            side.outstanding.clear()
            self.from_broker.append(frame(1, number, CLOSE + b"\x01\x94\x00\x00\x3c\x00\x28"))
            return
        self.truth[identity] = b""
        if exchange == UNROUTABLE and mandatory:
            self._sends_message(number, RETURN + b"\x01\x38\x00\x00\x00", identity)
        if side.confirms:
            side.count += 1
            side.outstanding[side.count] = identity + exchange

    def _broker_acts(self) -> None:
        if not self.broker:
            return
        numbers = list(self.broker)
        number = numbers[int(self.random.random() * len(numbers))]
        side = self.broker[number]
        if side.state != "open":
            return
        whim = self.random.random()
        if whim < 0.1:
            self._sends_message(number, DELIVER + b"\x01c\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00", b"delivered" * 3)
        elif whim < 0.15 and side.count and len(side.outstanding) < side.count:
            done = min(side.outstanding, default=side.count + 1) - 1
            if done:  # said again: whoever believes it twice is wrong
                self.from_broker.append(frame(1, number, ACK + done.to_bytes(8, "big") + bytes([whim < 0.12])))
        elif side.outstanding:
            self._confirm(number, side, single=whim < 0.5)

    def _confirm(self, number: int, side: Side, *, single: bool) -> None:
        tags = list(side.outstanding)
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
        self.from_broker.append(frame(1, number, word + tag.to_bytes(8, "big") + bytes([not single])))

    def _sends_message(self, number: int, method: bytes, body: bytes) -> None:
        self.from_broker.append(frame(1, number, method))
        self.from_broker.append(frame(2, number, b"\x00\x3c\x00\x00%b\x00\x00" % len(body).to_bytes(8, "big")))
        at = int(self.random.random() * len(body))
        self.from_broker.append(frame(3, number, body[:at]))
        self.from_broker.append(frame(3, number, body[at:]))

    # ---- the end ---------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Everything under way arrives, everything the broker has is confirmed: nobody may be left waiting."""
        self.careless = False
        conversation = self.conversation
        for rounds in range(10_000):
            while self.from_client or self.batch or len(self.to_decode) >= conversation.need:
                self._carry_up()
            while self.from_broker:
                self._carry_down()
            if rounds == 20:
                self.kindness = 1.0
            self.now += 5
            self._take_due()
            for number, side in self.broker.items():
                if side.outstanding and side.state == "open":
                    self._confirm(number, side, single=self.random.random() < 0.3)
            if self.from_broker or self.from_client or self.batch or conversation.next_due < NEVER:
                continue
            if not any(side.outstanding for side in self.broker.values()):
                break
        self._check_end()

    def _check_end(self) -> None:
        conversation = self.conversation
        assert self.to_decode == self.broker_in == self.client_in == b"", "something stays within a frame"
        assert (conversation.held_bytes, conversation.held_messages, conversation.reply_bytes) == (0, 0, 0), "something is held for ever"
        assert (conversation.next_due, conversation.frame_left) == (NEVER, 0)
        for number, side in self.client.items():
            assert side.missing == -1
            if side.state == "open":
                assert side.outstanding == {}, f"channel {number}: never confirmed: {list(side.outstanding)}"
                assert side.nacked == side.refused, f"channel {number}: {side.refused} refused, {side.nacked} nacked"
                lost = side.said - self.broker[number].arrived - side.refused - side.dropped
                assert lost == 0, f"channel {number}: {lost} publishes or acks never arrived"
            else:
                assert number not in self.broker, "closed for the client, open for the broker"
        assert conversation.settled()


def play(seed: int, channels: int, acts: int) -> int:
    """Play one schedule; the number of its publishes. A failing one is played again by the same three numbers."""
    return Schedule(Random(seed), channels, acts).run()
