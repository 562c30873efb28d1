"""What waits in a spool, in every protocol: how long, in which order, and what is told of it. The disk does at once what it is told.

The toy has it all without a word of its own about waiting, but in the source tree's run only (tests/contracts/test_protocols.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pamqp import commands

from gateway.protocols import PROTOCOLS
from gateway.waiting.disk.waiting_disk import WaitingDisk
from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Match, Rule, RuleSet
from support.amqp import frames as amqp
from support.builds import build_of
from support.rocketmq import frames as rocketmq
from support.wires.conversations import SECOND, Talk

TOYS: tuple[str, ...] = ()
if build_of("gateway.pipeline.conversation")[0] != "compiled":
    from support.wires import toy_protocol

    TOYS = (toy_protocol.TOY.name,)

AGE = 10 * SECOND


def spools(messages: int = 1, *, drop_expired: bool = False, max_age_ns: int | None = AGE) -> Rule:
    limit = Limit(messages=Rate(messages), messages_burst=1 if messages else None)
    return Rule("slow", Match(), limit=limit, action="spool", open_for_ns=0, max_age_ns=max_age_ns, drop_expired=drop_expired)


class Client:
    """One that sends numbered messages to topics, on one AMQP channel with confirms or as one-way sends."""

    def __init__(self, protocol: str, disk: WaitingDisk, *rules: Rule) -> None:
        self.protocol, self.disk = protocol, disk
        self.talk = Talk(protocol, *rules, disk=disk)
        if protocol == "amqp":
            self.talk.client(amqp.greeting(channels=(1,), confirms=(1,)))
            self.talk.broker(amqp.broker_opens())
            self.talk.broker(amqp.opened(1))
        self.talk.to_broker = self.talk.to_client = b""

    def send(self, *numbers: int, topic: str = "orders", size: int = 500, ttl_ms: int | None = None) -> None:
        for number in numbers:
            body = number.to_bytes(4, "big") + bytes(size - 4)
            if self.protocol == "amqp":
                self.talk.client(amqp.publish(1, topic, body, expiration=None if ttl_ms is None else str(ttl_ms)))
            elif self.protocol in TOYS:
                self.talk.client(toy_protocol.publish(number, topic, body))
            else:
                self.talk.client(rocketmq.send(topic, body, opaque=number, one_way=True))

    def arrived(self) -> list[int]:
        """The numbers that have reached the broker since the last time."""
        data, self.talk.to_broker = self.talk.to_broker, b""
        if self.protocol == "amqp":
            bodies = [frame.value.value for frame in amqp.read(data) if frame.name == "ContentBody"]
        elif self.protocol in TOYS:
            return [int(found[1]) for found in toy_protocol.PUBLISH.finditer(data)]
        else:
            bodies = [frame[8 + int.from_bytes(frame[5:8], "big") :] for frame in rocketmq.split_frames(data)]
        return [int.from_bytes(body[:4], "big") for body in bodies]

    def wait(self, seconds: float) -> None:
        for _ in range(round(10 * seconds)):
            self.talk.work()
            self.talk.wait(SECOND // 10)
        self.talk.work()

    def waiting(self) -> tuple[int, int]:
        """Messages that wait, and those of them on the disk alone."""
        return self.disk.waiting.messages, self.disk.waiting.disk_messages


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[WaitingDisk]:
    found = WaitingDisk(tmp_path / "spool", 1 << 30, 1, threads=False, least=3_000, most=3_000)
    yield found
    found.close(1.0)


@pytest.fixture(params=["amqp", "rocketmq", *TOYS])
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    found: str = request.param
    if found in TOYS:
        monkeypatch.setitem(PROTOCOLS, found, toy_protocol.TOY)
    return found


def test_all_passes_at_the_limit_and_in_order_and_nothing_is_left(protocol: str, disk: WaitingDisk) -> None:
    client = Client(protocol, disk, spools(max_age_ns=None))
    client.send(*range(40))
    client.talk.work()
    assert client.arrived() == [0]
    budget = client.talk.conversation.budget
    assert budget.held_messages == client.waiting()[0] == 39
    assert client.waiting()[1] > 20
    assert budget.paged_bytes > 0
    assert budget.paged_queues == 1
    client.wait(5.05)
    assert client.arrived() == [1, 2, 3, 4, 5]
    client.send(40)
    client.wait(36)
    assert client.arrived() == list(range(6, 41))
    assert (budget.held_messages, budget.held_bytes, budget.paged_bytes, budget.paged_queues) == (0, 0, 0, 0)
    assert (client.waiting(), disk.used, disk.used_by) == ((0, 0), 0, {})


def test_what_waits_is_given_up_when_it_is_as_old_as_its_rule_allows_and_not_before(protocol: str, disk: WaitingDisk) -> None:
    """The first is held by the rule, those behind it wait unjudged; the last come three seconds later."""
    client = Client(protocol, disk, spools(0))
    client.send(*range(20))
    client.wait(3)
    client.send(*range(20, 23))
    client.wait(6.8)
    assert client.waiting()[0] == 23
    client.wait(1.6)  # a file at a time
    assert client.waiting()[0] == 3
    client.wait(1.4)
    assert client.waiting()[0] == 3
    client.wait(0.5)
    assert (client.waiting(), client.arrived(), client.talk.conversation.budget.held_messages) == ((0, 0), [], 0)
    if protocol == "amqp":
        assert sum(not each.acked for each in amqp.confirms(client.talk.to_client)) == 23
    elif protocol in TOYS:
        assert client.talk.to_client.count(b"BUSY") == 23
    else:
        assert client.talk.to_client == b"", "one-way sends are dropped"


def test_other_topics_pass_meanwhile_where_nothing_binds_them(protocol: str, disk: WaitingDisk) -> None:
    matches = {"amqp": Match(routing_key="orders"), "rocketmq": Match(topic="orders")}
    client = Client(protocol, disk, replace(spools(0), match=matches.get(protocol, Match())))
    client.send(1)
    client.send(2, topic="bills")
    client.wait(0.2)
    assert client.arrived() == ([2] if protocol == "rocketmq" else []), "a channel is one order, the toy's connection another"


def test_a_message_waits_no_longer_than_it_is_of_use_where_the_rule_says_so(disk: WaitingDisk) -> None:
    """Also one that waits behind others, and has not been judged."""
    client = Client("amqp", disk, spools(0, drop_expired=True))
    client.send(1, ttl_ms=2_000)
    client.send(2, ttl_ms=4_000)
    client.send(3)
    for seconds, left in ((1.9, 3), (0.3, 2), (1.7, 2), (0.3, 1), (5.7, 1), (0.3, 0)):
        client.wait(seconds)
        assert client.waiting()[0] == left


def test_limits_that_are_changed_hold_for_what_waits(protocol: str, disk: WaitingDisk) -> None:
    client = Client(protocol, disk, spools(0, max_age_ns=None))
    client.send(*range(30))
    client.wait(1)
    client.talk.judge.replace(RuleSet((spools(10, max_age_ns=None),)), client.talk.now)
    assert client.talk.conversation.lines.follows_limits()
    client.talk.conversation.renew_keys()
    client.talk.conversation.lines.limits_changed()
    client.wait(1)
    assert 8 <= len(client.arrived()) <= 12
    client.talk.judge.replace(RuleSet(()), client.talk.now)
    client.talk.conversation.renew_keys()
    client.talk.conversation.lines.limits_changed()
    client.wait(1)
    assert client.arrived()[-1] == 29
    assert client.waiting() == (0, 0)


def test_what_waits_of_a_client_that_is_gone_is_counted_as_given_up(protocol: str, disk: WaitingDisk) -> None:
    client = Client(protocol, disk, spools(0, max_age_ns=None))
    client.send(*range(30))
    client.talk.work()
    parts = client.talk.conversation.abandon()
    assert sum(part.count * part.messages for part in parts if part.key is not None) == 30
    assert {part.key.text.rpartition("/")[2] for part in parts if part.key is not None} == {"orders"}
    budget = client.talk.conversation.budget
    assert (client.waiting(), budget.held_messages, budget.held_bytes, budget.paged_bytes) == ((0, 0), 0, 0, 0)
    client.talk.work()
    assert (disk.used, client.talk.conversation.abandon()) == (0, [])


def test_a_send_that_wants_an_answer_or_is_too_large_to_wait_does_not_pass_by_what_waits(disk: WaitingDisk) -> None:
    client = Client("rocketmq", disk, spools(0))
    client.send(1, 2)
    client.talk.client(rocketmq.send("orders", b"asked", opaque=77))
    (answer,) = rocketmq.split_frames(client.talk.to_client)
    assert "[RateLimit]" in str(rocketmq.read_response(answer)["remark"])
    client.talk.client(rocketmq.send("bills", b"asked", opaque=78))
    assert len(rocketmq.split_frames(client.talk.to_client)) == 2, "its own limit, which nobody waits for"
    assert client.waiting()[0] == 2
    assert client.arrived() == []


def test_the_very_first_that_is_spooled_waits_as_all_others(protocol: str, disk: WaitingDisk) -> None:
    client = Client(protocol, disk, spools(0))
    client.send(1)
    assert client.waiting() == (1, 0)
    client.wait(3)
    client.send(2)
    client.wait(7.1)
    assert client.waiting() == (1, 0), "the second is as old later"
    client.wait(3)
    assert client.waiting() == (0, 0)
    assert client.arrived() == []


def test_nothing_passes_by_the_very_first_that_is_spooled(disk: WaitingDisk) -> None:
    client = Client("rocketmq", disk, spools(1))
    client.send(1, 2)
    client.talk.now += SECOND
    client.talk.client(rocketmq.send("orders", b"asked", opaque=77))
    (answer,) = rocketmq.split_frames(client.talk.to_client)
    assert "[RateLimit]" in str(rocketmq.read_response(answer)["remark"])
    assert client.arrived() == [1]


def test_a_send_that_is_judged_with_the_first_that_is_spooled_keeps_its_answer(disk: WaitingDisk) -> None:
    """It waits behind that in memory: a file does not say who waits for an answer."""
    limit = Limit(bytes=Rate(4_000), bytes_burst=4_000)
    client = Client("rocketmq", disk, Rule("slow", Match(), limit=limit, action="spool", open_for_ns=0, max_age_ns=None))
    large = [rocketmq.send("orders", bytes(3_500), opaque=opaque, one_way=True) for opaque in (1, 2)]
    client.talk.client(b"".join(large) + rocketmq.send("orders", (3).to_bytes(4, "big"), opaque=3))
    client.send(*range(4, 20))
    client.talk.work()
    assert client.waiting()[0] == 18
    assert client.waiting()[1] > 10
    client.wait(5)
    assert client.arrived() == [0, 0, *range(3, 20)]
    assert not client.talk.conversation.settled(), "the broker's answer is to come"
    client.talk.broker(rocketmq.response(3))
    assert client.talk.conversation.settled()


def test_what_blocks_its_client_does_so_when_its_turn_comes_and_not_for_good(disk: WaitingDisk) -> None:
    """Another rule than that which spools holds it; it waits behind what that one has spooled, and is written to the disk."""
    limit = Limit(messages=Rate(5), messages_burst=1)
    block = Rule("block", Match(routing_key="bills"), limit=limit, action="block", open_for_ns=0)
    client = Client("amqp", disk, replace(spools(5, max_age_ns=None), match=Match(routing_key="orders")), block)
    said = [amqp.publish(1, topic, bytes([number]) * 1_000) for topic in ("orders", "bills") for number in range(6)]
    client.talk.client(b"".join(said))
    budget = client.talk.conversation.budget
    assert (client.waiting()[0], budget.blocking) == (11, 0)
    client.wait(0.1)
    assert client.waiting()[1] > 5
    client.wait(1.2)
    assert (client.waiting()[0], budget.blocking) == (3, 1), "bills stand first now"
    client.wait(2)
    assert (client.waiting(), budget.blocking, client.talk.to_broker) == ((0, 0), 0, b"".join(said))


def test_a_frame_that_comes_in_pieces_is_not_parted_by_the_disk(disk: WaitingDisk) -> None:
    """As one of 400 kB does, which nobody holds until it is whole: it began to wait in memory, and there the rest of it goes."""
    talk = Talk("amqp", spools(1, max_age_ns=None), disk=disk)
    talk.client(amqp.greeting(channels=(1,), frame_max=1 << 20))
    talk.broker(amqp.broker_start() + amqp.method(0, commands.Connection.Tune(2047, 1 << 20, 60)))
    talk.broker(amqp.method(0, commands.Connection.OpenOk()) + amqp.opened(1))
    talk.to_broker = b""
    sizes = (100, 100, 400_000, 100)
    said = b"".join(amqp.publish(1, "orders", bytes([number]) * size, cut=1 << 19) for number, size in enumerate(sizes))
    for at in range(0, len(said), 90_000):
        talk.client(said[at : at + 90_000])
    for _ in range(45):
        talk.work()
        talk.wait(SECOND // 10)
    assert talk.to_broker == said
    assert disk.waiting.messages == 0


def test_what_comes_next_is_read_before_it_is_asked_for(disk: WaitingDisk) -> None:
    client = Client("amqp", disk, spools(10, max_age_ns=None))
    client.send(*range(60))
    seen = 0
    for _ in range(40):
        client.wait(0.1)
        (line,) = client.talk.conversation.lines.by_name.values()
        assert line.paged is not None
        if len(line.parts) > line.refill_at > 0 and line.paged.stored:
            seen += 1
            assert line.paged.read_ahead or line.paged.reading, "nothing waits for the disk when half of these are gone"
    assert seen > 5


def test_a_close_that_was_read_back_goes_on_once_when_the_broker_closes_as_well(disk: WaitingDisk) -> None:
    client = Client("amqp", disk, spools(1, max_age_ns=None))
    client.send(*range(12))
    client.talk.client(amqp.method(1, commands.Channel.Close(200, "", 0, 0)))
    for _ in range(12):
        client.wait(1)
        (line,) = client.talk.conversation.lines.by_name.values()
        if not line.pages():
            break
    assert len(line.parts) > 1, "it stands behind messages, in memory"
    client.arrived()
    client.talk.broker(amqp.method(1, commands.Channel.Close(504, "", 0, 0)))
    client.wait(1)
    assert [frame.name for frame in amqp.read(client.talk.to_broker)] == ["Channel.Close"]
