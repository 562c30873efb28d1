"""What a connection leaves: nothing that only the garbage collector would free, which looks at what is old once in a long while."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest
from pamqp import commands

from gateway.session.listener_config import ListenerConfig
from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Match, Rule
from support.amqp import frames as amqp
from support.amqp.link import Link
from support.rocketmq import frames as rocketmq
from support.wires.conversations import Ports
from support.wires.wires import Wires

SHUT = Limit(messages=Rate(0))
RULES = (
    Rule("publishes", Match(routing_key="held"), limit=SHUT, open_for_ns=0, action="block"),
    Rule("sends", Match(topic="held"), limit=SHUT, open_for_ns=0, action="delay", max_delay_ns=2_000_000_000),
    Rule("deliveries", Match(operation="consume"), limit=SHUT, open_for_ns=0),
    Rule("given back", Match(operation="requeue"), limit=SHUT, open_for_ns=0),
)
SHARED = {"Channel", "Heard", "Histogram"}  # an upstream knows the channel that it has heard of last


@pytest.fixture
def wires() -> Iterator[Wires]:
    with Wires(*RULES) as made:
        yield made


def publisher(wires: Wires) -> None:
    link = Link(wires, confirms=(1,))
    link.say(amqp.publish(1, "free") * 3 + amqp.publish(2, "held") * 3)
    link.answer(amqp.ack(1, 3, multiple=True))
    link.client.close()
    link.broker.close()


def consumer(wires: Wires) -> None:
    link = Link(wires)
    link.say(amqp.method(1, commands.Basic.Consume(queue="jobs", consumer_tag="c")))
    link.answer(amqp.method(1, commands.Basic.ConsumeOk("c")))
    link.answer(b"".join(amqp.deliver(1, b"x" * 100, tag=tag) for tag in range(1, 6)))
    link.say(amqp.method(1, commands.Basic.Nack(1, multiple=False, requeue=True)))
    link.broker.close()
    wires.run()
    link.client.close()


def bad_client(wires: Wires) -> None:
    link = Link(wires)
    link.say(amqp.publish(1, "free") + b"\x09" * 40)
    link.broker.close()
    link.client.close()


def producer(wires: Wires) -> None:
    client, broker = wires.connect("rocketmq")
    client.sendall(rocketmq.heartbeat(opaque=1) + rocketmq.send("orders", opaque=2) + rocketmq.send("held", opaque=3))
    client.sendall(rocketmq.pull(0, opaque=4) + rocketmq.pull(1, opaque=5))
    wires.run()
    broker.sendall(rocketmq.response(1) + rocketmq.response(2))
    wires.run()
    client.close()
    broker.close()


def name_server(wires: Wires) -> None:
    config = ListenerConfig("here", "rocketmq-nameserver", 1 << 24, 10_000_000_000)
    config.routes = Ports()
    client, broker = wires.connect("rocketmq-nameserver", config=config)
    client.sendall(rocketmq.encode_request(105, {"topic": "orders"}, opaque=1))
    wires.run()
    broker.close()
    client.close()


@pytest.mark.parametrize("talk", [publisher, consumer, bad_client, producer, name_server])
def test_an_ended_connection_leaves_no_garbage(wires: Wires, talk: Callable[[Wires], None]) -> None:
    def play() -> None:
        talk(wires)
        wires.run()
        wires.elapse(5)
        assert not wires.sweeper.sessions
        wires.ended.clear()

    play()
    gc.collect()
    gc.disable()
    try:
        play()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        ours = [type(each) for each in gc.garbage if type(each).__module__.removeprefix("sluice.").startswith(("gateway.", "limiter."))]
        left = {each.__name__ for each in ours}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert left <= SHARED
