"""Columns: to client, broker and operators a session that mixes publishes of several topics (`MixedPublishes`) is one that cuts them.

Two data planes of the same rules and clock get the same bytes in the same pieces. What each side receives, the accounts, the judge's counts
and the levels of all limits are the same after each piece.
"""

from __future__ import annotations

import socket
import tracemalloc
from random import Random, seed
from typing import TYPE_CHECKING

import pytest
from pamqp import commands

from limiter.limits import SECOND, Limit, LimitChange, Rate
from limiter.rules.rule_set import Match, Rule
from support.amqp import frames as amqp
from support.rocketmq import frames as rocketmq
from support.wires.conversations import Talk
from support.wires.wires import Wires

if TYPE_CHECKING:
    from gateway.pipeline.parts import Part

TOPICS = [f"shop.orders.{number}.created" for number in range(12)]
GREETING = amqp.greeting(channels=(1, 2), confirms=(1,), heartbeat=0)
PLAIN = Rule("topics", limit=Limit(messages=Rate(10**8), bytes=Rate(10**12)))
FEW = Rule("topics", limit=Limit(messages=Rate(40), bytes=Rate(60_000)), open_for_ns=0)
CLIENT = Rule("client", per="client", limit=Limit(messages=Rate(150)), open_for_ns=0)
SHUT = (
    Rule("shut", Match(routing_key=TOPICS[1]), limit=Limit(messages=Rate(0))),
    Rule("shut-topic", Match(topic=TOPICS[1].replace(".", "_")), limit=Limit(messages=Rate(0))),
)
RULES: dict[str, tuple[Rule, ...]] = {
    "none": (),
    "wide": (PLAIN,),
    "levels": (PLAIN, *(Rule(per, per=per, limit=Limit(messages=Rate(10**6))) for per in ("client", "user", "listener"))),
    "reject": (FEW, CLIENT),
    "shut": (PLAIN, *SHUT, Rule("client", per="client", limit=Limit(bytes=Rate(40_000)), open_for_ns=SECOND // 50)),
    "drop": (Rule("topics", limit=Limit(messages=Rate(60)), open_for_ns=0, action="drop"), *SHUT),
    "spool": (Rule("topics", limit=Limit(messages=Rate(60)), open_for_ns=0, action="spool", max_age_ns=SECOND), *SHUT),
    "breaker": (Rule("topics", limit=Limit(messages=Rate(40)), open_for_ns=SECOND // 2),),
    "cap": (Rule("cap", per="listener", limit=Limit(messages=Rate(300), bytes=Rate(200_000))),),
    "protected": (
        Rule("mine", Match(routing_key=TOPICS[0]), limit=Limit(messages=Rate(50)), protected=True),
        Rule("cap", per="listener", limit=Limit(messages=Rate(200))),
    ),
    "delay": (Rule("topics", limit=Limit(messages=Rate(60)), open_for_ns=0, action="delay", max_delay_ns=SECOND // 4),),
    "block": (Rule("client", per="client", limit=Limit(messages=Rate(100)), open_for_ns=0, action="block"),),
    "shadow": (PLAIN, Rule("tried", per="client", limit=Limit(messages=Rate(50)), mode="shadow")),
    "candidate": (Rule("topics", limit=Limit(messages=Rate(10**6)), candidate=LimitChange(messages=Rate(20))),),
    "in flight": (Rule("user", per="user", limit=Limit(concurrent=60), algorithm="concurrency", open_for_ns=0),),
    "sizes": (Rule("topics", limit=Limit(messages=Rate(10**6)), max_message_size=1500),),
    "close": (Rule("topics", limit=Limit(messages=Rate(100)), open_for_ns=0, action="close"),),
}


class Clocked(Wires):
    """With a clock that stands until it is set."""

    at = 1000 * SECOND

    def now(self) -> int:
        return self.at


class Side:
    """One of the two data planes, its client and its broker."""

    def __init__(self, protocol: str, rules: tuple[Rule, ...], *, mixes: bool) -> None:
        self.wires = Clocked(*rules)
        self.client, self.broker = self.wires.connect(protocol)
        self.session = self.wires.session()
        self.client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        if protocol == "amqp":
            self.session.conversation.client_stream.publishes.mixing.mixes = mixes  # type: ignore[attr-defined]
            self.give(self.client, GREETING)
            self.give(self.broker, amqp.broker_opens())
            self.give(
                self.broker, amqp.opened(1, 2)
            )  # behind the client's channel.opens: replies of the gateway's own go to it from now on
        else:
            self.session.conversation.frames.mixing.mixes = mixes  # type: ignore[attr-defined]
        self.wires.received(self.client)
        self.wires.received(self.broker)

    def give(self, end: object, data: bytes) -> None:
        """Send `data` in one write, and let all come of it that comes of it now."""
        end.sendall(data)  # type: ignore[attr-defined]
        quiet = 0
        while quiet < 3:
            quiet = 0 if self.wires.sweeper.sweep(self.wires.now()) else quiet + 1

    def sight(self) -> dict[str, object]:
        """All that anybody can see."""
        wires = self.wires
        wires.accounts.fold(wires.now())
        totals = {
            place: {name: getattr(each, name) for name in dir(each) if isinstance(getattr(each, name, None), int)}
            for place, each in wires.accounts.topics.items()
        }
        states = [
            (s.per, s.thing, s.fill, s.wait_ns, s.breaker, s.admitted, s.admitted_bytes, s.over_limit) for s in wires.judge.states(wires.at)
        ]
        budget = self.session.budget
        return {
            "to the broker": wires.received(self.broker),
            "to the client": wires.received(self.client),
            "totals": totals,
            "checks": wires.judge.checks(),
            "candidates": {name: str(counts) for name, counts in wires.judge.candidates(wires.at).items()},
            "in flight": wires.judge.in_flight(),
            "states": sorted(states, key=repr),
            "held": (budget.held_messages, budget.held_bytes, budget.blocking, budget.next_due),
            "credit": (self.session.decode.credit.credit, self.session.forward.credit.credit),
            "ended": [(str(session.cause), str(error)) for session, error in wires.ended],
            "state": self.session.state,
        }


class Pair:
    """Both, given the same."""

    def __init__(self, *rules: Rule, protocol: str = "amqp") -> None:
        self.sides = (Side(protocol, rules, mixes=False), Side(protocol, rules, mixes=True))

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        for side in self.sides:
            side.wires.__exit__(None, None, None)

    def give(self, data: bytes, later_ns: int = 0, *, broker: bool = False) -> dict[str, object]:
        seen = []
        for side in self.sides:
            seed(7)  # what waits is asked again at moments that are shuffled
            side.wires.at += later_ns
            if side.session.state == 4:
                seen.append(side.sight())
                continue
            side.give(side.broker if broker else side.client, data)
            seen.append(side.sight())
        assert seen[0] == seen[1]
        return seen[1]


def traffic(random: Random, count: int) -> bytes:
    """Publishes in a row, most of them on one channel, with what else clients say in between."""
    said = []
    for _ in range(count):
        chance = random.random()
        channel = 2 if random.random() < 0.1 else 1
        topic = TOPICS[min(int(random.expovariate(0.4)), len(TOPICS) - 1)]
        size = random.choice((0, 1, 50, random.randrange(2000), random.randrange(2000)))
        if chance < 0.02:
            said.append(amqp.HEARTBEAT)
        elif chance < 0.04:
            said.append(amqp.method(channel, commands.Basic.Ack(1)))
        elif chance < 0.06:
            said.append(amqp.publish(channel, topic, b"x" * 5000))
        elif chance < 0.08:
            said.append(amqp.publish(channel, topic, b"y" * 900, cut=300))
        else:
            said.append(
                amqp.publish(
                    channel,
                    topic,
                    b"z" * size,
                    exchange=random.choice(("", "amq.topic")),
                    mandatory=chance < 0.1,
                    message_id=str(random.random()) if chance > 0.5 else None,
                    persistent=chance > 0.8,
                )
            )
    return b"".join(said)


def sends(random: Random, count: int) -> bytes:
    """The same of RocketMQ: sends that are answered and such that are not, batches, send-backs, heartbeats, polls."""
    said = []
    for number in range(count):
        chance = random.random()
        topic = TOPICS[min(int(random.expovariate(0.4)), len(TOPICS) - 1)].replace(".", "_")
        body = b"z" * random.choice((0, 1, 50, 50, random.randrange(2000)))
        one_way = chance > 0.9 or (count > 100 and number % 40 > 20)
        if chance < 0.02:
            said.append(rocketmq.heartbeat(opaque=number))
        elif chance < 0.04:
            said.append(rocketmq.send_back(opaque=number))
        elif chance < 0.06:
            said.append(rocketmq.send(topic, rocketmq.batch_body(body, body), batch=True, opaque=number, one_way=one_way))
        elif chance < 0.08:
            said.append(rocketmq.pull(opaque=number))
        elif chance < 0.1:
            said.append(rocketmq.send(f"%RETRY%{topic}", body, opaque=number, one_way=one_way))
        elif chance < 0.12:
            said.append(rocketmq.send(topic, body, binary=True, opaque=number, one_way=one_way))
        else:
            group = "some" if chance < 0.3 else "producers"
            said.append(rocketmq.send(topic, body, opaque=number, group=group, one_way=one_way))
    return b"".join(said)


def pieces(random: Random, data: bytes) -> list[bytes]:
    """`data` in writes of any size, now and then of few bytes."""
    found, at = [], 0
    while at < len(data):
        size = random.choice((random.randrange(1, 40), random.randrange(1, 3000), random.randrange(1, 60_000)))
        found.append(data[at : at + size])
        at += size
    return found


@pytest.mark.parametrize("name", RULES)
def test_what_is_mixed_goes_the_way_of_what_is_cut(name: str) -> None:
    """In random pieces, while the clock goes on and the broker confirms or closes a channel."""
    for number in range(6):
        random = Random(f"{name} {number}")
        with Pair(*RULES[name]) as pair:
            confirmed = 0
            for piece in pieces(random, traffic(random, random.choice((30, 300)))):
                pair.give(piece, random.choice((0, 0, SECOND // 1000, SECOND // 30, SECOND)))
                if random.random() < 0.3:
                    forwarded = pair.sides[1].session.conversation.channels[1].confirms.forwarded  # type: ignore[attr-defined]
                    if forwarded > confirmed:
                        confirmed = random.randint(confirmed + 1, forwarded)
                        pair.give(amqp.ack(1, confirmed, multiple=True), broker=True)
                elif random.random() < 0.01:
                    pair.give(amqp.method(2, commands.Channel.Close(404, "gone", 60, 40)), broker=True)
                    break
            for _ in range(20):
                pair.give(b"", SECOND // 10)


@pytest.mark.parametrize("name", [name for name in RULES if name != "close"])
def test_rocketmqs_sends_that_are_mixed_go_the_way_of_those_that_are_cut(name: str) -> None:
    for number in range(4):
        random = Random(f"{name} {number}")
        with Pair(*RULES[name], protocol="rocketmq") as pair:
            for piece in pieces(random, sends(random, random.choice((40, 400)))):
                pair.give(piece, random.choice((0, 0, SECOND // 1000, SECOND // 30, SECOND)))
                if random.random() < 0.3:
                    pair.give(rocketmq.response(random.randrange(400)), broker=True)
            for _ in range(20):
                pair.give(b"", SECOND // 10)


def test_byte_by_byte() -> None:
    said = b"".join(amqp.publish(1, TOPICS[number % 3], b"z" * (number % 5)) for number in range(8))
    with Pair(Rule("topics", limit=Limit(messages=Rate(2)), open_for_ns=0)) as pair:
        for octet in said:
            pair.give(bytes((octet,)))


def test_what_passes_is_not_cut_and_what_was_cut_is_not_mixed_for_a_while() -> None:
    """A cap that refuses cuts, since its shares follow the order of messages."""
    talk = Talk("amqp", Rule("cap", per="listener", limit=Limit(messages=Rate(36))), mixes=True)
    talk.client(GREETING)
    talk.broker(amqp.broker_opens() + amqp.opened(1, 2))
    ways = ""
    for _ in range(18):
        talk.parts.clear()
        talk.client(b"".join(amqp.publish(1, topic, topic.encode()) for topic in TOPICS[:4]))
        mixed = [part.pieces is None for part in talk.parts if part.columns is not None]
        ways += "." if not mixed else "m" if mixed[0] else "c"
    assert ways == "mmmmmmmmmc....c..."
    assert len(talk.to_broker) == len(GREETING) + 9 * len(b"".join(amqp.publish(1, topic, topic.encode()) for topic in TOPICS[:4]))


def talk_on_two_channels(*, mixes: bool) -> Talk:
    talk = Talk("amqp", mixes=mixes)
    talk.client(GREETING)
    talk.broker(amqp.broker_opens() + amqp.opened(1, 2))
    return talk


def in_turns(turn: int) -> bytes:
    """Publishes of two channels, `turn` unlike ones of each in turn; not quite a whole read."""
    of_one = [[amqp.publish(channel, topic, b"") for topic in TOPICS[:turn]] for channel in (1, 2)]
    return b"".join(each for turns in of_one for each in turns) * (480 // turn // 2)


def read(talk: Talk, said: bytes) -> list[Part]:
    parts: list[Part] = []
    assert talk.conversation.decode(said, 0, 512, parts)
    return parts


@pytest.mark.parametrize("turn", [1, 2, 3])
def test_few_in_turns_with_those_of_another_channel_go_as_parts(turn: int) -> None:
    """To mix them takes longer, and more memory. It shows in the first ones, since what comes next is not looked at."""
    talk = talk_on_two_channels(mixes=True)
    read(talk, in_turns(turn))
    assert [part.columns for part in read(talk, in_turns(turn))] == [None] * 480


@pytest.mark.parametrize("turn", [4, 12])
def test_more_in_turns_are_mixed_and_begin_with_parts_after_few_only(turn: int) -> None:
    talk = talk_on_two_channels(mixes=True)
    assert [part.count for part in read(talk, in_turns(turn))] == [turn] * (480 // turn)
    few = b"".join(amqp.publish(2, topic, b"") for topic in TOPICS[:2])
    many = b"".join(amqp.publish(1, topic, b"") for topic in TOPICS)
    parts = read(talk, few + many + many)
    assert [part.count for part in parts] == [2, 1, 1, 22]
    assert [part.count for part in read(talk, many)] == [12]
    assert b"".join(part.data[part.start : part.end] for part in parts) == few + many + many
    assert [piece.size for piece in parts[-1].cut()] == [0] * 22


def test_what_is_mixed_takes_less_memory_than_parts() -> None:
    """For runs of four, the shortest; it is with the judge, or in its queue, until it has its verdict."""
    taken = []
    for mixes in (False, True):
        talk = talk_on_two_channels(mixes=mixes)
        said = in_turns(4)
        read(talk, said)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            parts = read(talk, said)
            taken.append(tracemalloc.get_traced_memory()[0] - before)
        finally:
            tracemalloc.stop()
        assert len(parts) == (120 if mixes else 480)
    assert taken[1] < taken[0]


@pytest.mark.parametrize("topics", [1, 2, 50, 400])
def test_sends_of_any_number_of_topics_are_one_part_a_read(topics: int) -> None:
    """Whether their keys were noted lately or must be looked up, and with one topic, which shows no other."""
    talk = Talk("rocketmq", mixes=True)
    said = b"".join(rocketmq.send(f"topic-{number % topics}", b"z" * (number % 7), opaque=number, one_way=True) for number in range(500))
    for _ in range(3):
        parts = read(talk, said)
    assert [part.count for part in parts] == [500]
    assert b"".join(part.data[part.start : part.end] for part in parts) == said
