"""A burst that must wait: in a lazy queue of RabbitMQ's own, or in the gateway's spool before that broker. On the same disk, in turns.

make bench-spool, or: PYTHONPATH=.:tests .venv/bin/python bench/spool_lazy_queue.py --rounds 3 --messages 1000000

Messages of 1 KiB from one publisher without confirms, which writes as fast as it is read. Once they go straight to a lazy queue of a
private RabbitMQ, which keeps them on disk; once through the gateway (the installed one, or SLUICE_COMMAND's) to a topic that may pass 1/s
with `action: spool`. A burst has come when all of it is in the queue, or held. Medians of the rounds: messages a second; memory of the
one that keeps it, broker or gateway, above that before the first round; and microseconds of CPU a message, of both together.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import pika
from kept import RESULTS, before, keep

from support.amqp.numbered_publisher import NumberedPublisher
from support.brokers.rabbitmq import RabbitMQ
from support.gateways import Gateway, amqp_listener, command, limit_path
from support.processes import processor_seconds, resident_bytes, tree, wait_until

SIZE = 1024
MIB = 1 << 20
QUEUE, TOPIC = "lazy", "spooled"
RULE = {"name": "bursts", "match": {"protocol": "amqp", "queue": TOPIC}, "limit": {"messages": "1/s"}, "action": "spool"}


class Turns:
    """The broker and the gateway before it, and a burst to either."""

    def __init__(self, broker: RabbitMQ, gateway: Gateway, messages: int) -> None:
        self.broker = broker
        self.gateway = gateway
        self.messages = messages
        self.looking = pika.BlockingConnection(pika.URLParameters(broker.url)).channel()

    def in_queue(self) -> int:
        return int(self.looking.queue_declare(QUEUE, passive=True).method.message_count)

    def held(self) -> int:
        return max((int(each["held_messages"]) for each in self.gateway.get("/v1/connections")["items"]), default=0)

    def _limit(self, change: dict[str, object]) -> None:
        assert self.gateway.put(limit_path("amqp", "/", "amq.default", TOPIC), change).status == 200

    def _memory(self) -> tuple[int, int]:
        """Bytes of the broker's processes, and of the gateway."""
        return sum(map(resident_bytes, tree(self.broker.pid))), self.gateway.resident_bytes()

    def _cpu(self) -> float:
        return sum(map(processor_seconds, [*tree(self.broker.pid), self.gateway.process.pid]))

    def burst(self, name: str, port: int, topic: str) -> dict[str, float]:
        """One burst of all messages to `topic` at `port`; it waits then."""
        self._limit({"mode": "enforce", "messages": "1/s"})
        base = self._memory()  # anew for each burst: the broker keeps some of what the one before has drained into it
        cpu = self._cpu()
        with NumberedPublisher(port) as publisher:
            began = time.monotonic()
            publisher.begin(self.messages, [topic], SIZE)
            waiting = self.in_queue if topic == QUEUE else self.held
            wait_until(lambda: waiting() >= self.messages - 100, within=600, what=f"all messages wait: {name}")
            elapsed = time.monotonic() - began
            cpu = self._cpu() - cpu
            keeper = 0 if topic == QUEUE else 1
            found = {
                f"{name}: messages/s": self.messages / elapsed,
                f"{name}: CPU us": cpu / self.messages * 1e6,
                f"{name}: MiB of memory": (self._memory()[keeper] - base[keeper]) / MIB,
            }
        self._limit({"mode": "off"})
        wait_until(lambda: not self.gateway.get("/v1/connections")["items"], within=600, what="what was spooled is through")
        self.looking.queue_purge(QUEUE)
        self.looking.queue_purge(TOPIC)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=1_000_000)
    options = parser.parse_args()
    facts = before(command())
    with (
        tempfile.TemporaryDirectory() as folder,
        RabbitMQ(Path(folder) / "rabbitmq") as broker,
        Gateway(Path(folder) / "gateway", [amqp_listener(f"127.0.0.1:{broker.port}")], [RULE]) as gateway,
    ):
        turns = Turns(broker, gateway, options.messages)
        turns.looking.queue_declare(QUEUE, durable=True, arguments={"x-queue-mode": "lazy"})
        turns.looking.queue_declare(TOPIC)
        rounds: list[dict[str, float]] = []
        for number in range(options.rounds):
            found = turns.burst("lazy queue", broker.port, QUEUE)
            found |= turns.burst("spool", gateway.port("rabbit"), TOPIC)
            rounds.append(found)
            print(f"round {number + 1}: {json.dumps({name: round(value, 1) for name, value in found.items()})}", flush=True)
    print("\nmedians")
    for name in rounds[0]:
        print(f"  {name:32} {statistics.median(each[name] for each in rounds):12,.1f}")
    keep(RESULTS / "spool-lazy-queue.json", facts, {"messages": options.messages, "rounds": rounds})


if __name__ == "__main__":
    main()
