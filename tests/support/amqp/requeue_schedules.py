"""Schedules of a client that consumes, and of its broker, with a limit on what is requeued between them: what each tag is answered with.

The client acks, discards and requeues what it has got, one by one and by `multiple`, says tag 0 and basic.recover, publishes in pieces,
closes and opens channels, and now and then answers a tag a second time. The broker delivers, and keeps what is unsettled as RabbitMQ
does: an answer of `multiple` settles all up to its tag, one of an unknown tag costs the channel (406). It looks at every answer that
reaches it: was this said of this tag, by the client, and never before?
"""

from __future__ import annotations

from functools import cache
from random import Random

from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Match, Rule, RuleSet
from support.amqp import frames as amqp
from support.amqp.pretend_wire import (
    ACK,
    CLOSE,
    CLOSE_OK,
    DELIVER,
    NACK,
    OPEN,
    PUBLISH,
    SELECT,
    TX_SELECT,
    cut_frames,
    frame,
)
from support.wires.conversations import SECOND, Talk

REJECT, RECOVER, RECOVER_OK = b"\x00\x3c\x00\x5a", b"\x00\x3c\x00\x6e", b"\x00\x3c\x00\x6f"
CONSUME, COMMIT = b"\x00\x3c\x00\x14", b"\x00\x5a\x00\x14"
QUEUES = (b"jobs", b"mail", b"free")  # the last without a limit
LIMITED = (
    Rule("jobs", Match(queue="jobs", operation="requeue"), limit=Limit(messages=Rate(20), messages_burst=2), action="delay"),
    Rule("mail", Match(queue="mail", operation="requeue"), limit=Limit(messages=Rate(5), messages_burst=1), action="delay"),
    Rule("orders", Match(routing_key="orders"), limit=Limit(messages=Rate(20), messages_burst=2), action="block"),
)
PARKING = Rule("parked", Match(queue="jobs", operation="consume"), limit=Limit(messages=Rate(200), messages_burst=2))
PLAIN, CONFIRMS, TX = "plain", "confirms", "tx"
MANNERS = (PLAIN, CONFIRMS, TX)
ENOUGH = 3_600 * SECOND  # until all that waits has gone


@cache
def greeting() -> tuple[bytes, bytes]:
    return amqp.greeting(), amqp.broker_opens()


class Lane:
    """One channel in its present life, as both sides see it."""

    def __init__(self, manner: str) -> None:
        self.manner = manner
        self.tag = 0
        self.open: list[int] = []  # what the client has got and not answered
        self.said: dict[int, str] = {}  # by tag: what the client has answered
        self.unsettled: list[int] = []  # at the broker
        self.settled: dict[int, str] = {}  # by tag: what the broker was told
        self.body = b""  # of the client's message, what is still to come
        self.missing = 0  # bytes of a body that the broker waits for; -1: a header
        self.fouled = False  # the client has answered a tag twice
        self.closed = ""  # by whom
        self.recovering = 0  # basic.recovers that are not answered: what comes meanwhile is requeued as well


class Schedule:
    """One schedule. `answered`: tags that the broker was told of; `held`: the most that waited at once.

    `parks`: deliveries are limited as well, so that some are parked while the client answers others; then no channel is closed.
    """

    def __init__(self, random: Random, lanes: int, *, parks: bool = False) -> None:
        self.random = random
        self.parks = parks
        self.client_rest = b""
        self.parked = 0  # most deliveries that were
        self.talk = Talk("amqp")
        ours, theirs = greeting()
        self.talk.client(ours)
        self.talk.broker(theirs)
        self.lanes: dict[int, Lane] = {}
        self.unsent = b""
        self.rest = b""
        self.answered = 0
        self.held = 0
        for number in range(1, lanes + 1):
            self.open(number)
        self.say(b"")
        self.talk.judge.replace(self.rules(0))

    def rules(self, first: int) -> RuleSet:
        return RuleSet((*LIMITED[first:], *((PARKING,) if self.parks else ())))

    # ---- the client ------------------------------------------------------------------------------------------------

    def open(self, number: int) -> None:
        lane = self.lanes[number] = Lane(self.random.choice(MANNERS))
        self.unsent += frame(1, number, OPEN + b"\x00")
        if lane.manner != PLAIN:
            self.unsent += frame(1, number, SELECT + b"\x01" if lane.manner == CONFIRMS else TX_SELECT)
        for queue in QUEUES:
            named = bytes((len(queue),)) + queue
            self.unsent += frame(1, number, CONSUME + b"\x00\x00" + named + named + b"\x08" + bytes(4))

    def say(self, data: bytes) -> None:
        """Some of it in this read, perhaps all."""
        self.unsent += data
        if self.random.random() < 0.6:
            self.flush()

    def flush(self) -> None:
        data, self.unsent = self.unsent, b""
        if data:
            self.talk.client(data)
        self.hear()

    def answer(self, number: int, lane: Lane, kind: str, tag: int, *, multiple: bool) -> None:
        covered = [each for each in lane.open if each <= tag or tag == 0] if multiple else [tag]
        for each in covered:
            lane.said[each] = kind
            lane.open.remove(each)
        self.say(self.word(number, kind, tag, multiple=multiple))

    def word(self, number: int, kind: str, tag: int, *, multiple: bool) -> bytes:
        if kind == "requeue" and not multiple and self.random.random() < 0.5:
            return frame(1, number, REJECT + tag.to_bytes(8, "big") + b"\x01")
        bits = {"ack": 0, "discard": 0, "requeue": 2}[kind] | multiple
        return frame(1, number, (ACK if kind == "ack" else NACK) + tag.to_bytes(8, "big") + bytes((bits,)))

    def act(self) -> None:
        random = self.random
        number = random.choice(list(self.lanes))
        lane = self.lanes[number]
        whim = random.random()
        if lane.body:
            if whim < 0.5:
                return self.say(self.rest_of(lane))
            number, lane = random.choice(list(self.lanes.items()))
            if lane.body:
                return self.talk_waits()
        if lane.closed:
            return self.say(b"")
        if whim < 0.35:
            self.deliver(number, lane, random.randint(1, 4))
        elif whim < 0.80:
            self.settle(number, lane, whim)
        elif whim < 0.85:
            self.publish(number, lane)
        elif whim < 0.96:
            self.talk_waits()
        elif self.parks:
            self.talk_waits()
        elif whim < 0.975:
            lane.closed = "client"
            self.say(frame(1, number, CLOSE + b"\x00\xc8\x00\x00\x00\x00\x00"))
        elif whim < 0.985 and lane.said and not lane.recovering:
            self.say(self.foul(number, lane))
        elif whim < 0.99 and lane.missing == 0:
            self.close_by_broker(number, lane)
        else:
            self.talk.judge.replace(self.rules(random.randint(0, 2)))
        return None

    def settle(self, number: int, lane: Lane, whim: float) -> None:
        random = self.random
        if not lane.open:
            return
        kind = random.choice(("ack", "ack", "discard", "requeue", "requeue", "requeue"))
        if whim < 0.65:
            self.answer(number, lane, kind, random.choice(lane.open), multiple=False)
        elif whim < 0.76:
            self.answer(number, lane, kind, random.choice(lane.open), multiple=True)
        elif whim < 0.78 and lane.manner != TX:
            self.answer(number, lane, kind, 0, multiple=True)
        elif lane.manner == TX:
            self.say(frame(1, number, COMMIT))
        else:
            lane.said.update(dict.fromkeys(lane.open, "requeue"))
            lane.open = []
            lane.recovering += 1
            self.say(frame(1, number, RECOVER + b"\x01"))

    def foul(self, number: int, lane: Lane) -> bytes:
        """A tag is answered a second time: the broker's to judge."""
        tag = self.random.choice(list(lane.said))
        lane.fouled = True
        kind = self.random.choice(("ack", "discard", "requeue"))
        multiple = self.random.random() < 0.5 and not any(each < tag for each in lane.open)
        return self.word(number, kind, tag, multiple=multiple)

    def publish(self, number: int, lane: Lane) -> None:
        body = b"x" * 20
        lane.body = frame(3, number, body)
        header = frame(2, number, b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + b"\x00\x00")
        self.say(frame(1, number, PUBLISH + b"\x00\x00\x00\x06orders\x00") + header)

    def rest_of(self, lane: Lane) -> bytes:
        body, lane.body = lane.body, b""
        return body

    def talk_waits(self) -> None:
        self.flush()
        self.talk.wait(self.random.choice((1, 20, 100, 400)) * SECOND // 1000)
        self.hear()

    # ---- the broker ------------------------------------------------------------------------------------------------

    def deliver(self, number: int, lane: Lane, count: int) -> None:
        self.flush()  # the consumers are there
        if lane.closed or self.lanes.get(number) is not lane:
            return
        queue = self.random.choice(QUEUES)
        data = b""
        for _ in range(count):
            lane.tag += 1
            lane.unsettled.append(lane.tag)
            arguments = bytes((len(queue),)) + queue + lane.tag.to_bytes(8, "big") + b"\x00\x00\x01q"
            header = b"\x00\x3c\x00\x00" + (1).to_bytes(8, "big") + b"\x00\x00"
            data += frame(1, number, DELIVER + arguments) + frame(2, number, header) + frame(3, number, b"m")
        self.talk.broker(data)
        self.hear()

    def close_by_broker(self, number: int, lane: Lane) -> None:
        self.flush()
        if lane.closed or lane.missing:
            return
        self.end_by_broker(number, lane)

    def get(self) -> None:
        """What has come for the client."""
        data, self.talk.to_client = self.talk.to_client, b""
        frames, self.client_rest = cut_frames(self.client_rest + data)
        for kind, number, payload in frames:
            lane = self.lanes.get(number)
            if kind == 1 and payload[:4] == DELIVER and lane is not None:
                at = 5 + payload[4]
                tag = int.from_bytes(payload[at : at + 8], "big")
                if lane.recovering:
                    lane.said[tag] = "requeue"
                else:
                    lane.open.append(tag)
        self.parked = max(self.parked, self.talk.conversation.budget.parked_messages)

    def hear(self) -> None:
        """What has come from the gateway."""
        self.get()
        data, self.talk.to_broker = self.talk.to_broker, b""
        if data.startswith(b"AMQP"):
            data = data[8:]
        frames, self.rest = cut_frames(self.rest + data)
        self.held = max(self.held, self.talk.conversation.budget.held_polls)
        for kind, number, payload in frames:
            lane = self.lanes.get(number)
            if lane is not None:
                self.read(kind, number, payload, lane)

    def read(self, kind: int, number: int, payload: bytes, lane: Lane) -> None:
        method = payload[:4]
        if kind == 2:
            assert lane.missing == -1
            lane.missing = int.from_bytes(payload[4:12], "big")
            return
        if kind == 3:
            assert lane.missing > 0
            lane.missing -= len(payload)
            return
        assert lane.missing == 0, "a method within a message"
        if method == PUBLISH:
            lane.missing = -1
        elif method == OPEN:
            self.talk.broker(frame(1, number, b"\x00\x14\x00\x0b" + bytes(4)))
        elif method in (TX_SELECT, COMMIT):
            self.talk.broker(frame(1, number, method[:3] + bytes((method[3] + 1,))))
        elif method == CLOSE:
            self.talk.broker(frame(1, number, CLOSE_OK))
            if lane.closed != "broker":  # else its close-ok is to come
                self.open(number)
        elif method == CLOSE_OK:
            self.open(number)
        elif method in (ACK, NACK, REJECT) and lane.closed != "broker":
            self.settles(number, method, int.from_bytes(payload[4:12], "big"), payload[12], lane)
        elif method == RECOVER and lane.closed != "broker":
            lane.said.update(dict.fromkeys([tag for tag in lane.unsettled if tag not in lane.said and tag not in lane.open], "requeue"))
            self.apply(lane, list(lane.unsettled), "requeue")
            lane.recovering -= 1
            self.talk.broker(frame(1, number, RECOVER_OK))

    def settles(self, number: int, method: bytes, tag: int, bits: int, lane: Lane) -> None:
        multiple = method != REJECT and bool(bits & 1)
        requeue = bool(bits & 1) if method == REJECT else method == NACK and bool(bits & 2)
        kind = "ack" if method == ACK else "requeue" if requeue else "discard"
        if not (multiple and tag == 0) and tag not in lane.unsettled:
            assert lane.fouled, f"406: unknown delivery tag {tag}"
            self.end_by_broker(number, lane)
            return
        self.apply(lane, [each for each in lane.unsettled if tag in (0, each) or (multiple and each <= tag)], kind)

    def end_by_broker(self, number: int, lane: Lane) -> None:
        lane.closed = "broker"
        self.talk.broker(frame(1, number, CLOSE + b"\x01\x96\x00\x00\x00\x00\x00"))
        self.unsent += self.rest_of(lane) + frame(1, number, CLOSE_OK)  # it ends its message first

    def apply(self, lane: Lane, tags: list[int], kind: str) -> None:
        for tag in tags:
            assert lane.said.get(tag) == kind, f"tag {tag}: the client said {lane.said.get(tag)}, the broker hears {kind}"
            lane.unsettled.remove(tag)
            lane.settled[tag] = kind
            self.answered += 1

    # ---- the end ---------------------------------------------------------------------------------------------------

    def run(self, acts: int) -> int:
        for _ in range(acts):
            self.act()
        self.flush()
        for number, lane in list(self.lanes.items()):
            if lane.body and self.lanes[number] is lane:
                self.say(self.rest_of(lane))
        self.flush()
        self.talk.wait(ENOUGH)
        self.hear()
        self.flush()
        for lane in self.lanes.values():
            if not lane.closed and not lane.fouled:
                assert lane.settled == lane.said, (lane.said, lane.settled)
        budget = self.talk.conversation.budget
        assert (budget.held_bytes, budget.held_polls, budget.held_messages) == (0, 0, 0), budget
        return self.answered


def play(seed: int, lanes: int, acts: int, *, parks: bool = False) -> Schedule:
    schedule = Schedule(Random(seed), lanes, parks=parks)
    schedule.run(acts)
    return schedule
