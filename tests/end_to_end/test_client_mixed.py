"""A connection that publishes and consumes: what becomes of its acks while one of its publishes is held."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pika
import pytest

from support.brokers.queues import Queue, connect
from support.brokers.rabbitmq import RabbitMQ
from support.gateways import Gateway, StartGateway, amqp_listener
from support.processes import wait_until

pytestmark = pytest.mark.rabbitmq

ACTIONS = {"delay": "delay", "same-channel": "delay", "block": "block"}  # case: action; the second consumes on the channel it publishes on
RULES = [
    {
        "name": case,
        "match": {"protocol": "amqp", "queue": f"to-{case}"},
        "limit": {"messages": "8/min", "burst": {"messages": 1}},  # the second is held for 7.5 s
        "action": action,
        "max_delay": "8s",
    }
    for case, action in ACTIONS.items()
]


def take_then_publish(connection: pika.BlockingConnection, case: str) -> tuple[Any, int]:
    """Take a message and publish two, of which the second is held. Returns the channel and the tag of what is not acked yet."""
    consuming = connection.channel()
    publishing = consuming if case == "same-channel" else connection.channel()
    method, _, body = consuming.basic_get(f"work-{case}")
    assert body == b"work"
    for _ in range(2):
        publishing.basic_publish("", f"to-{case}", b"result")
    return consuming, method.delivery_tag


# In the broker itself, as `rabbitmqctl` may take longer to start than a publish is held: what each queue has unacked at the moment when the
# ack has passed the delayed publish.
WATCH = """
    Count = fun(Name) -> {{ok, Queue}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, Name)),
        proplists:get_value(messages_unacknowledged, rabbit_amqqueue:info(Queue, [messages_unacknowledged])) end,
    Counts = fun() -> [{{Name, Count(Name)}} || Name <- [<<"work-delay">>, <<"work-same-channel">>, <<"work-block">>]] end,
    Until = fun(Until, Wanted) -> Now = Counts(), case proplists:get_value(<<"work-delay">>, Now) of
        Wanted -> Now; _ -> timer:sleep(20), Until(Until, Wanted) end end,
    ok = file:write_file("{began}", <<>>), Until(Until, 1), ok = file:write_file("{taken}", <<>>), Until(Until, 0).
"""


def seen_by(watch: str) -> dict[str, int]:
    """Of what `WATCH` prints, the counts of each case."""
    counts = dict(re.findall(r'<<"work-([a-z-]+)">>,\s*(\d+)', watch))
    return {case: int(counts[case]) for case in ACTIONS}


def unacked(rabbitmq: RabbitMQ) -> dict[str, int]:
    """Messages given to each case's consumer and not acked, as the broker sees it."""
    lines = rabbitmq.control("list_queues", "name", "messages_unacknowledged", "--no-table-headers").splitlines()
    counts = dict(line.split() for line in lines)
    return {case: int(counts[f"work-{case}"]) for case in ACTIONS}


def test_acks_pass_a_delayed_publish_of_another_channel_but_neither_their_own_channels_nor_a_block(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, tmp_path: Path
) -> None:
    """An ack that overtook its channel's publish could cost both messages. `block` stops the connection, as RabbitMQ's alarms do."""
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], RULES)
    with ExitStack() as stack:
        direct = stack.enter_context(connect(rabbitmq.url)).channel()
        connections = [stack.enter_context(pika.BlockingConnection(pika.URLParameters(gateway.amqp_url()))) for _ in ACTIONS]
        work = [stack.enter_context(Queue(rabbitmq.url, f"work-{case}")) for case in ACTIONS]
        targets = [stack.enter_context(Queue(rabbitmq.url, f"to-{case}")) for case in ACTIONS]
        for queue in work:
            direct.basic_publish("", queue.name, b"work")
        wait_until(lambda: [queue.depth() for queue in work] == [1, 1, 1], within=5, what="there is work")
        began, seen = tmp_path / "began", tmp_path / "taken"
        watching = stack.enter_context(ThreadPoolExecutor()).submit(rabbitmq.control, "eval", WATCH.format(began=began, taken=seen))
        wait_until(began.exists, within=30, what="the broker to look on")
        taken = [take_then_publish(connection, case) for connection, case in zip(connections, ACTIONS, strict=True)]
        wait_until(lambda: [queue.depth() for queue in targets] == [1, 1, 1], within=6, what="the first of each has passed")
        wait_until(seen.exists, within=6, what="the broker to see what is taken")  # it looks now and then, and could miss it
        for channel, tag in taken:
            channel.basic_ack(tag)
            channel.connection.process_data_events(time_limit=0)
        assert seen_by(watching.result(30)) == {"delay": 0, "same-channel": 1, "block": 1}
        wait_until(lambda: [queue.depth() for queue in targets] == [2, 2, 2], within=30, what="the held ones arrive")
        wait_until(lambda: not any(unacked(rabbitmq).values()), within=5, what="the acks behind them arrive")
