"""Everything passes: what RabbitMQ answers to a script of bytes is the same directly and through the gateway, frame by frame.

No client library takes part: libraries never say most of this. Each script is played twice against the same broker; what the client is
told must be equal channel by channel, except that an error the gateway finds itself has its own words for the same reply code.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pika
import pytest
from pamqp import commands

from support.amqp import frames as amqp
from support.brokers.queues import Queue, connect
from support.brokers.rabbitmq import RabbitMQ
from support.clients.raw_amqp import RawClient, opening, play
from support.clients.raw_scripts import EXCLUSIVE, OPEN, SCRIPTS, SELECT, declare, publish
from support.gateways import Gateway, amqp_listener
from support.processes import HANG_S, wait_until

pytestmark = pytest.mark.rabbitmq


RULES: list[dict[str, object]] = [
    {"name": "slow", "match": {"queue": "grown-slow", "operation": "consume"}, "limit": {"messages": "1/s", "burst": {"messages": 1}}},
]


@pytest.fixture(scope="module")
def gateway(rabbitmq: RabbitMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("gateway"), [amqp_listener(f"127.0.0.1:{rabbitmq.port}")], RULES) as running:
        yield running


AT_ONCE = ("wrong password", "EXTERNAL without a certificate", "frame_max without a limit")  # RabbitMQ takes 3 s to hang up then


def told_by_channel(frames: list[amqp.Frame]) -> dict[int, list[object]]:
    """What was told, channel by channel; of a connection.close the code only.

    An open connection that RabbitMQ ends without a word (a method it cannot decode crashes its reader) ends with a 320 behind the gateway.
    """
    channels: dict[int, list[object]] = {}
    for frame in frames:
        if frame.name == "Heartbeat":
            continue
        said: object = frame.raw
        if isinstance(frame.value, commands.Connection.Close):
            said = ("Connection.Close", frame.value.reply_code)
        channels.setdefault(frame.channel, []).append(said)
        if said != frame.raw:
            break  # a close-ok that crosses it, or not
    names = [frame.name for frame in frames]
    if "Connection.OpenOk" in names and not {"Connection.Close", "Connection.CloseOk"} & set(names):
        channels[0].append(("Connection.Close", 320))
    return channels


@pytest.fixture(scope="module", autouse=True)
def demonstrated_mechanism(rabbitmq: RabbitMQ) -> Iterator[None]:
    """RabbitMQ's own example of a mechanism with several rounds, switched on for these tests."""
    rabbitmq.control("eval", "application:set_env(rabbit, auth_mechanisms, ['PLAIN', 'AMQPLAIN', 'RABBIT-CR-DEMO']).")
    yield
    rabbitmq.control("eval", "application:set_env(rabbit, auth_mechanisms, ['PLAIN', 'AMQPLAIN']).")


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_same_is_told_directly_and_through_the_gateway(rabbitmq: RabbitMQ, gateway: Gateway, name: str) -> None:
    script = SCRIPTS[name]
    if name in AT_ONCE:
        with ThreadPoolExecutor(2) as pool:
            told = pool.map(lambda port: play(port, *script), (rabbitmq.port, gateway.port("rabbit")))
            # It hangs up, or answers the client's own close first: whichever comes first at the broker.
            direct, through = ([frame for frame in frames if frame.name != "Connection.CloseOk"] for frames in told)
    else:
        direct, through = (play(port, *script) for port in (rabbitmq.port, gateway.port("rabbit")))
    assert told_by_channel(through) == told_by_channel(direct)
    assert direct, "nothing was told"


def test_an_exclusive_queue_is_its_connections_alone_and_goes_with_it(rabbitmq: RabbitMQ, gateway: Gateway) -> None:
    """One upstream connection for each client: with a shared one, as pooling proxies have, the queue would outlive its client."""
    port = gateway.port("rabbit")
    first, second = RawClient(port), RawClient(port)
    first.say(OPEN + declare(b"passes-own", bits=EXCLUSIVE))
    first.wait_for("Queue.DeclareOk")
    second.say(OPEN + declare(b"passes-own", bits=EXCLUSIVE))
    second.wait_for("Channel.Close")
    [locked] = [frame.value for frame in second.told if isinstance(frame.value, commands.Channel.Close)]
    assert locked.reply_code == 405
    first.finish()
    second.say(amqp.method(1, commands.Channel.Open()) + declare(b"passes-own", bits=EXCLUSIVE))
    second.wait_for("Queue.DeclareOk")
    second.finish()


@pytest.mark.parametrize("how", ["rst", "fin"])
def test_a_client_cut_at_any_byte_of_a_publish_leaves_no_message(rabbitmq: RabbitMQ, gateway: Gateway, how: str) -> None:
    """F06: every offset of a three-frame publish, for real. Nothing partial, nothing extra, and the next publish is whole."""
    port = gateway.port("rabbit")
    name = f"cut-{how}"
    said = publish(name.encode(), b"whole or not at all", bits=1)
    with Queue(rabbitmq.url, name) as queue:
        for offset in range(len(said)):
            client = RawClient(port)
            client.say(opening(1) + said[:offset])
            client.wait_for("Channel.OpenOk")
            if how == "rst":
                client.reset()
            else:
                client.socket.shutdown(1)
                while client.read():
                    pass
                client.socket.close()
        assert queue.depth() == 0
        told = play(port, opening(1) + SELECT + said, "Basic.Ack")
        assert [frame.name for frame in told].count("Basic.Ack") == 1
        assert [body for _, body in queue.messages()] == [b"whole or not at all"]


@pytest.mark.parametrize(("agreed", "size"), [(131_072, 131_000), (4096, 20_000)])
@pytest.mark.parametrize("how", ["consumed", "under a limit", "got"])
def test_a_header_that_grew_above_frame_max_is_delivered(rabbitmq: RabbitMQ, gateway: Gateway, agreed: int, size: int, how: str) -> None:
    """Dead-lettering adds `x-death`. RabbitMQ sends such a header in one frame, and clients read it: no message may poison its queue."""
    name = "grown-slow" if how == "under a limit" else "grown"
    asks = commands.Basic.Get(queue=name, no_ack=True) if how == "got" else commands.Basic.Consume(queue=name, no_ack=True)
    with Queue(rabbitmq.url, name) as queue, contextlib.closing(connect(rabbitmq.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("grows", exclusive=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name})
        for body in (b"first", b"second"):
            channel.basic_publish("", "grows", body, pika.BasicProperties(headers={"trace": "x" * size}))
            method, _, _ = next(channel.consume("grows"))
            channel.basic_nack(method.delivery_tag, requeue=False)
        wait_until(lambda: queue.depth() == 2, within=HANG_S, what="both are dead-lettered")
        client = RawClient(gateway.port("rabbit"))
        client.say(opening(1, frame_max=agreed) + amqp.method(1, asks) * (2 if how == "got" else 1))
        client.wait_for("ContentBody", 2)
        told = client.finish()
    assert [frame.value.value for frame in told if frame.name == "ContentBody"] == [b"first", b"second"]
    assert min(len(frame.raw) for frame in told if frame.name == "ContentHeader") > agreed
