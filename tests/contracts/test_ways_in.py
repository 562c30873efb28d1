"""The table of ways in (`docs/reference/ways_in.py`) has every method and request code, and says of each what the gateway does with it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pamqp import base, commands

from gateway.pipeline.errors import ProtocolError
from gateway.pipeline.parts import REQUEST
from gateway.protocols.nameserver.requests import REGISTRATIONS
from limiter.limits import Limit, Rate
from limiter.operations import CONNECT, OF_TOPICS, OPEN, OPERATION_RECORDS, OPERATIONS, REQUEUE, Operation
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from support.amqp import frames as amqp
from support.brokers.rocketmq import JARS
from support.java import jars, tool
from support.rocketmq import frames as rocketmq
from support.wires.conversations import Talk

sys.path.append(str(Path(__file__).parents[2] / "docs" / "reference"))  # where tests run on what is installed, the root is not on the path

import ways_in

SHUT = Limit(messages=Rate(0))
RULES = [
    Rule(each, Match(operation=each), per="topic" if each in OF_TOPICS else "client", limit=SHUT, open_for_ns=0)
    for each in OPERATIONS
    if each != REQUEUE
]
AMQP = {name: way for way in (*ways_in.AMQP_CLIENTS, *ways_in.AMQP_BROKER) for name in way.names}
ROCKETMQ = {code: way for way in ways_in.ROCKETMQ for code in way.codes}
KINDS: dict[int, type[base.Frame]] = commands.INDEX_MAPPING  # every method of AMQP 0-9-1, and RabbitMQ's own
METHODS = {re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind.name).lower(): index for index, kind in KINDS.items()}
HANDSHAKE = {"connection.start-ok", "connection.secure-ok", "connection.tune-ok", "connection.open"}
CLIENTS = [name for way in ways_in.AMQP_CLIENTS for name in way.names if way.operation != REQUEUE and name not in HANDSHAKE]


def test_every_method_is_in_one_row() -> None:
    assert set(AMQP) == set(METHODS)
    assert len(AMQP) == sum(len(way.names) for way in (*ways_in.AMQP_CLIENTS, *ways_in.AMQP_BROKER))


@pytest.mark.rocketmq
def test_every_code_of_the_brokers_jar_is_in_one_row() -> None:
    """Read out of the very broker that the tests run."""
    listing = [
        tool("javap", "openjdk-17-jdk-headless"),
        "-constants",
        "-cp",
        f"{jars(JARS)}/*",
        "org.apache.rocketmq.remoting.protocol.RequestCode",
    ]
    said = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
    codes = {int(code): name for name, code in re.findall(r"static final int (\w+) = (\d+);", said)}
    assert len(codes) > 140
    table = {code: name for way in ways_in.ROCKETMQ for code, name in zip(way.codes, way.names, strict=True)}
    assert {code: name for code, name in codes.items() if table.get(code) != name} == {}
    assert len(table) == sum(len(way.codes) for way in ways_in.ROCKETMQ)


def test_every_operation_of_rules_is_in_the_table() -> None:
    ways = (*AMQP.values(), *ROCKETMQ.values())
    assert {way.operation for way in ways} | {way.also for way in ways} == {"", *OPERATIONS}


@pytest.mark.parametrize("operation", [each for each in OPERATION_RECORDS.values() if each.methods], ids=lambda each: each.name)
def test_an_operation_stands_for_the_methods_of_its_rows(operation: Operation) -> None:
    assert {name for name, way in AMQP.items() if operation.name in (way.operation, way.also)} == set(operation.methods)


@pytest.mark.parametrize("way", [*ways_in.AMQP_CLIENTS, *ways_in.AMQP_BROKER, *ways_in.ROCKETMQ], ids=lambda way: way.names[0])
def test_each_row_says_by_what_or_why_it_passes(way: ways_in.Way) -> None:
    assert way.counted
    assert bool(way.operation) <= (not way.by)
    assert way.operation or way.by or way.why


# ---- what the gateway does -----------------------------------------------------------------------------------------------


def judged(talk: Talk) -> list[str]:
    return [part.key.operation for part in talk.parts if part.kind == REQUEST and part.key is not None]


def connected(name: str) -> Talk:
    """A client that may say this next: all but to open a channel on channel 1."""
    opens = name == "channel.open"
    talk = Talk("amqp", *(rule for rule in RULES if rule.name != CONNECT and (opens or rule.name != OPEN)))
    greeting = amqp.greeting(channels=() if opens else (1,))
    talk.client(greeting)
    talk.broker(amqp.broker_opens())
    if not opens:
        talk.broker(amqp.opened(1))
    assert talk.to_broker == greeting  # HANDSHAKE
    talk.to_broker = talk.to_client = b""
    talk.parts.clear()
    return talk


def sent(name: str) -> bytes:
    """The method as a client may send it; zeros are arguments of every kind."""
    if name == "basic.publish":
        return amqp.publish(1, "q")
    if name == "basic.get":
        return amqp.method(1, commands.Basic.Get(queue="q"))
    channel = 0 if name.startswith("connection.") else 2 if name == "channel.open" else 1
    return amqp.raw_frame(1, channel, METHODS[name].to_bytes(4, "big") + bytes(40))


@pytest.mark.parametrize("name", CLIENTS)
def test_a_method_is_judged_where_its_row_says_so_and_passes_elsewhere(name: str) -> None:
    talk = connected(name)
    data = sent(name)
    talk.client(data)
    way = AMQP[name]
    if way.operation and way.judged:
        assert sorted(judged(talk)) == sorted(filter(None, (way.operation, way.also)))
        assert talk.to_broker == b""
    else:
        assert judged(talk) == []
        assert talk.to_broker == data


def test_who_connects_is_refused() -> None:
    talk = Talk("amqp", *RULES)
    opens = amqp.method(0, commands.Connection.Open())
    before = amqp.greeting().removesuffix(opens)
    talk.client(before)
    talk.broker(amqp.broker_opens().removesuffix(amqp.method(0, commands.Connection.OpenOk())))
    assert talk.to_broker == before
    talk.client(opens)
    with pytest.raises(ProtocolError) as caught:
        talk.wait(0)
    assert (judged(talk), caught.value.cause, talk.to_broker) == ([CONNECT], "connect_limit", before)


@pytest.mark.parametrize("name", [name for name, way in AMQP.items() if way.operation == REQUEUE])
def test_what_gives_a_delivery_back_waits(name: str) -> None:
    talk = Talk("amqp", Rule("requeues", Match(protocol="amqp", operation=REQUEUE), limit=SHUT))
    talk.client(amqp.greeting(channels=(1,)))
    talk.broker(amqp.broker_opens() + amqp.opened(1))
    talk.client(amqp.method(1, commands.Basic.Consume(queue="q", consumer_tag="c", nowait=True)))
    talk.broker(amqp.deliver(1, b"hello"))
    talk.to_broker = b""
    tag = (1).to_bytes(8, "big") if name in {"basic.nack", "basic.reject"} else b""
    bits = b"\x02" if name == "basic.nack" else b"\x01"  # requeue
    talk.client(amqp.raw_frame(1, 1, METHODS[name].to_bytes(4, "big") + tag + bits))
    assert talk.to_broker == b""


FIELDS = {"b": "t", "topic": "t", "a": "g", "group": "g", "producerGroup": "g", "consumerGroup": "g", "originTopic": "t", "queueId": "0"}


@pytest.mark.parametrize("code", ROCKETMQ)
def test_a_request_is_judged_where_its_row_says_so_and_passes_elsewhere(code: int) -> None:
    talk = Talk("rocketmq", *RULES, Rule(REQUEUE, Match(operation=REQUEUE), limit=SHUT))
    data = rocketmq.encode_request(code, FIELDS, b"x", opaque=7)
    talk.client(data)
    operation = ROCKETMQ[code].operation
    assert judged(talk) == ([operation] if operation else [])
    assert talk.to_broker == (b"" if operation else data)


@pytest.mark.parametrize("code", ROCKETMQ)
def test_a_name_servers_listener_refuses_what_its_row_says_and_nothing_else(code: int) -> None:
    talk = Talk("rocketmq-nameserver", *RULES)
    talk.client(rocketmq.encode_request(code, FIELDS, opaque=7))
    limited = ROCKETMQ[code].operation not in {"", *OF_TOPICS}
    assert (talk.to_broker == b"") == (code in REGISTRATIONS or limited)
    assert (code in REGISTRATIONS) == ("name" in ROCKETMQ[code].by)


@pytest.mark.parametrize("code", [9, 999, 30_000, 200_099])
def test_codes_in_no_row_pass(code: int) -> None:
    assert code not in ROCKETMQ
    talk = Talk("rocketmq", *RULES)
    data = rocketmq.encode_request(code, FIELDS, b"x", opaque=7)
    talk.client(data)
    assert talk.to_broker == data
