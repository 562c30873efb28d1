"""What an operator does with messages in the spool, with a real RabbitMQ and with two workers."""

from __future__ import annotations

import base64
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pika
import pytest

from support.amqp.frames import greeting, publish
from support.amqp.numbered_consumer import take_all
from support.amqp.numbered_publisher import NumberedPublisher, number_of
from support.brokers import stand_ins
from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.gateways import Gateway, StartGateway, amqp_listener, limit_path
from support.pages import shown
from support.processes import LOOPBACK, wait_until

RATE = 200
KIB = 1024
RULES: list[dict[str, object]] = [
    {"name": "bursts", "match": {"protocol": "amqp", "routing_key": "burst*"}, "limit": {"messages": f"{RATE}/s"}, "action": "spool"}
]


def waiting(gateway: Gateway, queue: str) -> dict[str, Any]:
    topic = f"%2F/amq.default/{queue}"
    items = [item for item in gateway.get("/v1/spool")["items"] if item["topic"] == topic]
    return items[0] if items else {"messages": 0, "paused": None}


def key(queue: str) -> tuple[str, ...]:
    return "amqp", "/", "amq.default", queue


def audited(gateway: Gateway, verb: str) -> list[dict[str, Any]]:
    return [each for each in gateway.get("/v1/audit")["items"] if each["action"].endswith(f":{verb}")]


@pytest.mark.rabbitmq
def test_a_paused_topic_waits_and_goes_on_in_order(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], RULES)
    count = 10 * RATE
    with Queue(rabbitmq.url, "burst-paused") as queue, NumberedPublisher(gateway.port("rabbit"), confirms=True) as publisher:
        publisher.begin(count, [queue.name])
        publisher.wait_until_sent(count)
        wait_until(lambda: len(publisher.acked) > 0, within=30, what="some have passed")
        said = gateway.cli("spool", "pause", *key(queue.name), "--reason", "the consumer is down").stderr
        assert said == "amqp / amq.default burst-paused is paused until `sluice spool resume`\n"
        (connection,) = [each for each in gateway.get("/v1/connections")["items"] if each["held_messages"]]
        wait_until(lambda: len(publisher.acked) == queue.depth(), within=30, what="what has passed is acked")
        passed = queue.depth()
        publisher.begin(RATE, [queue.name])
        wait_until(lambda: waiting(gateway, queue.name)["messages"] > count - passed - 300, within=30, what="new ones wait behind")
        (connection,) = [each for each in gateway.get("/v1/connections")["items"] if each["held_messages"]]
        assert connection["bottleneck"] == "paused"
        wait_until(lambda: int(connection["held_messages"]) > 0, within=30, what="they wait")
        assert queue.depth() == passed, "nothing went on meanwhile"
        assert waiting(gateway, queue.name)["paused"]["reason"] == "the consumer is down"
        assert any("is paused until it is resumed" in each for each in gateway.get("/v1/status")["warnings"])
        gateway.cli("spool", "resume", *key(queue.name))
        wait_until(lambda: len(publisher.acked) > passed, within=30, what="they go on")
        assert gateway.put(limit_path(*key(queue.name)), {"mode": "off"}).status == 200  # the rest need not wait for its time
        wait_until(lambda: len(publisher.acked) == count + RATE, within=60, what="all is acked")
        assert [message.number for message in take_all(queue, count + RATE)] == list(range(count + RATE))
        assert publisher.nacked == set()
        (line,) = audited(gateway, "pause")
        assert (line["reason"], line["outcome"]) == ("the consumer is down", "done")


@pytest.mark.rabbitmq
def test_a_pause_ends_when_its_time_is_over_and_when_the_gateway_stops(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], RULES)
    with Queue(rabbitmq.url, "burst-timed") as queue, NumberedPublisher(gateway.port("rabbit")) as publisher:
        gateway.cli("spool", "pause", *key(queue.name), "--for", "2s", "--reason", "a test")
        publisher.begin(5, [queue.name])
        publisher.wait_until_sent(5)
        wait_until(lambda: queue.depth() == 5, within=30, what="the time is over")
        gateway.cli("spool", "pause", *key(queue.name), "--reason", "a test")
        publisher.begin(5, [queue.name])
        publisher.wait_until_sent(10)
        wait_until(lambda: sum(each["held_messages"] for each in gateway.get("/v1/connections")["items"]) == 5, within=30, what="they wait")
        gateway.stop(within=60)
        assert queue.depth() == 10, "a stop loses nothing that could go on"


@pytest.mark.rabbitmq
def test_what_is_discarded_is_nacked_or_dropped_and_told_with_its_number(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], RULES)
    count = 20_000
    with (
        Queue(rabbitmq.url, "burst-discarded") as queue,
        NumberedPublisher(gateway.port("rabbit"), confirms=True) as confirmed,
        NumberedPublisher(gateway.port("rabbit")) as plain,
    ):
        for publisher in (confirmed, plain):
            publisher.begin(count, [queue.name])
            publisher.wait_until_sent(count)
        wait_until(lambda: waiting(gateway, queue.name)["messages"] > count, within=30, what="they wait")
        gateway.cli("spool", "pause", *key(queue.name), "--reason", "so that the numbers hold still")
        preview = gateway.cli("spool", "discard", *key(queue.name), "--reason", "a test", "--dry-run").stderr
        assert "of 2 connections" in preview
        told = gateway.cli("spool", "discard", *key(queue.name), "--reason", "a test", "--yes", "-o", "json").stdout
        messages = int(told.partition('"messages": ')[2].partition(",")[0])
        wait_until(lambda: len(confirmed.acked) + len(confirmed.nacked) == count, within=60, what="all are answered")
        wait_until(lambda: waiting(gateway, queue.name)["messages"] == 0, within=30, what="nothing waits any more")
        topic = "%2F/amq.default/burst-discarded"
        wait_until(
            lambda: sum(gateway.messages_by_fate("amqp", topic)[fate] for fate in ("refused", "dropped")) == messages,
            within=30,
            what="what was given up is counted",
        )
        assert queue.depth() == 2 * count - messages
        gateway.cli("spool", "resume", *key(queue.name))
        confirmed.begin(1, [queue.name])
        wait_until(lambda: count in confirmed.acked, within=30, what="what comes later goes on")
        (line,) = audited(gateway, "discard")
        assert (line["detail"], line["reason"]) == (f"{messages} messages of 2 connections", "a test")
        assert gateway.get("/v1/spool")["spool"]["given_up"] == messages


@pytest.mark.rabbitmq
def test_what_is_drained_can_be_published_again_as_the_page_says(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], RULES)
    count = 10_000
    with Queue(rabbitmq.url, "burst-drained") as queue, NumberedPublisher(gateway.port("rabbit"), confirms=True) as publisher:
        publisher.begin(count, [queue.name])
        publisher.wait_until_sent(count)
        wait_until(lambda: waiting(gateway, queue.name)["messages"] > count // 2, within=30, what="they wait")
        words = ("spool", "drain", *key(queue.name), "--to", "out.jsonl", "--reason", "a test", "--yes", "--timeout", "60s")
        told = json.loads(gateway.cli(*words, "-o", "json").stdout)
        assert told["messages"] > count // 2
        wait_until(lambda: len(publisher.acked) + len(publisher.nacked) == count, within=60, what="all are answered")
        file = gateway.directory / "state" / "drained" / "out.jsonl"
        assert told["files"] == [str(file)]
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert [number_of(base64.b64decode(line["body_base64"]) if "body_base64" in line else line["body"].encode()) for line in lines] == (
            sorted(publisher.nacked)
        )
        assert len(publisher.nacked) == told["messages"]
        assert queue.depth() == len(publisher.acked)
        script = shown("docs/spooling.md", "import base64, json, pika").text
        script = script.replace("amqp://guest:guest@127.0.0.1:5672/%2F", rabbitmq.url).replace("orders.jsonl", str(file))
        script = script.replace("python3 ", f"{sys.executable} ", 1)
        ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120, check=False)
        assert ran.returncode == 0, ran.stderr
        assert sorted(message.number for message in take_all(queue, count)) == list(range(count))
        (line,) = audited(gateway, "drain")
        assert line["detail"] == f"{told['messages']} messages of 1 connections to {file}"
        again = gateway.cli(*words, check=False)
        assert again.returncode == 6, "a conflict"
        assert f"{file} is there already" in again.stderr
        assert "drain to another name" in again.stderr


@pytest.mark.rabbitmq
def test_the_commands_of_the_page_can_be_run(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    rule = {**RULES[0], "match": {"protocol": "amqp", "exchange": "orders"}, "limit": {"messages": "1/s"}}
    gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [rule], memory={"target": "1MiB"})
    parameters = pika.ConnectionParameters(LOOPBACK, gateway.port("rabbit"))
    with pika.BlockingConnection(parameters) as client:
        channel = client.channel()
        channel.exchange_declare("orders", "topic", auto_delete=True)

        def held() -> int:
            client.process_data_events()
            return sum(int(each["held_messages"]) for each in gateway.get("/v1/connections")["items"])

        for line in shown("docs/spooling.md", "sluice spool pause").text.splitlines():
            words = shlex.split(line)[1:]
            if held() < 100:
                for _ in range(3000):
                    channel.basic_publish("orders", "order.created", bytes(KIB))
                wait_until(lambda: held() > 2000, within=30, what="they wait")
            sure = ["--yes"] if words[1] in {"discard", "drain"} and "--dry-run" not in words else []
            assert gateway.cli(*words, *sure).returncode == 0, line
            if words[1] == "discard" and sure:
                wait_until(lambda: held() == 0, within=30, what="they are given up")
        assert [each["action"].rpartition(":")[2] for each in gateway.get("/v1/audit")["items"] if "/v1/spool/" in each["action"]] == (
            ["drain", "discard", "resume", "pause"]  # the dry run changes nothing
        )
        wait_until(lambda: held() == 0, within=30, what="nothing waits on")


def test_all_workers_pause_and_discard_and_a_new_one_pauses_too(tmp_path: Path) -> None:
    settings = {
        "gateway": {"name": "end-to-end", "state_directory": "state", "workers": 2},
        "memory": {"target": "1MiB"},
        "drain": {"timeout": "2s"},
    }
    rule = {**RULES[0], "match": {"protocol": "amqp"}, "limit": {"messages": "1/s"}}
    with stand_ins.rabbitmq() as rabbit:
        gateway = Gateway(tmp_path / "gateway", [amqp_listener(rabbit.address)], [rule], settings)
        gateway.start(within=120)
        clients: list[socket.socket] = []
        try:

            def workers() -> set[int]:
                return {each["worker"] for each in gateway.get("/v1/connections")["items"] if each["held_messages"]}

            def connect() -> bool:
                client = socket.create_connection((LOOPBACK, gateway.port("rabbit")))
                clients.append(client)
                client.sendall(greeting(channels=(1,), heartbeat=0) + b"".join(publish(1, "jobs", b"x" * (KIB + n)) for n in range(1000)))
                return len(workers()) == 2

            wait_until(connect, within=60, what="messages wait in both workers")
            gateway.cli("spool", "pause", *key("jobs"), "--reason", "a test")
            wait_until(lambda: waiting(gateway, "jobs")["messages"] > 100, within=30, what="they wait")
            before = waiting(gateway, "jobs")["messages"]
            connected = len([each for each in gateway.get("/v1/connections")["items"] if each["held_messages"]])
            found = gateway.request("POST", "/v1/spool/amqp/%2F/amq.default/jobs:discard?dry_run=1", {"reason": "a test"}).json
            assert (found["connections"], len(found["connection_ids"])) == (connected, connected)
            assert found["messages"] >= before
            victim = gateway.get("/v1/status")["workers"][0]["pid"]
            os.kill(victim, signal.SIGKILL)
            wait_until(
                lambda: gateway.get("/v1/status")["workers"][0]["pid"] not in {0, victim} and gateway.get("/v1/status")["ready"],
                within=60,
                what="another worker is in its place",
            )
            warnings = gateway.get("/v1/status")["warnings"]
            assert {each.partition(":")[0] for each in warnings if "is paused" in each} == {"worker 1", "worker 2"}
            wait_until(connect, within=60, what="messages wait in both workers again")
            drained = gateway.request("POST", "/v1/spool/amqp/%2F/amq.default/jobs:drain", {"to": "jobs.jsonl", "reason": "a test"}).json
            names = sorted(Path(file).name for file in drained["files"])
            assert names == ["jobs-w1.jsonl", "jobs-w2.jsonl"]
            assert sum(len(Path(file).read_text().splitlines()) for file in drained["files"]) == drained["messages"] > 0
            Path(drained["files"][0]).rename(gateway.directory / "moved.jsonl")  # one of them is there still
            again = gateway.request("POST", "/v1/spool/amqp/%2F/amq.default/jobs:drain", {"to": "jobs.jsonl", "reason": "a test"})
            assert (again.status, again.json["type"]) == (409, "urn:sluice:problem:file-exists")
            assert f"{drained['files'][1]} is there already" in again.json["detail"]
            assert not Path(drained["files"][0]).exists(), "no worker has drained"
            Path(gateway.directory / "moved.jsonl").rename(drained["files"][0])
            done = gateway.request("POST", "/v1/spool/amqp/%2F/amq.default/jobs:discard", {"reason": "a test"}).json
            assert done["messages"] <= drained["messages"]
            wait_until(lambda: waiting(gateway, "jobs")["messages"] == 0, within=30, what="it is given up")
            assert gateway.request("POST", "/v1/spool/amqp/%2F/amq.default/jobs:resume", {}).status == 200
            assert [each for each in gateway.get("/v1/status")["warnings"] if "is paused" in each] == []
        finally:
            for client in clients:
                client.close()
            gateway.stop(within=60)
