"""RocketMQ brokers that are killed beneath the gateway at random moments, against a ledger on both sides.

`SLUICE_KILLS` says how many: `make chaos` has 100. `SLUICE_SEED` repeats a run's choices.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from gateway.protocols.rocketmq.refusals import FLOW_CONTROL
from support.brokers.name_servers import read_frame
from support.brokers.rocketmq import RocketMQ
from support.gateways import Gateway, StartGateway
from support.processes import HANG_S, LOOPBACK, wait_until
from support.rocketmq.frames import read_response, send
from support.rocketmq.stored_messages import pull

pytestmark = pytest.mark.rocketmq

KILLS = int(os.environ.get("SLUICE_KILLS", "2"))
SEED = int(os.environ.get("SLUICE_SEED", str(random.randrange(1 << 32))))
ACTIONS = ("spool", "delay", "block", "reject")
MOST = 400  # sends of a client
TOPICS = {action: f"killed-{action}" for action in ACTIONS}
RULES: list[dict[str, object]] = [
    {
        "name": action,
        "match": {"protocol": "rocketmq", "topic": topic},
        "limit": {"messages": "100/s", "burst": {"messages": 10}},  # most of a client's messages wait, or are refused
        "action": action,
    }
    for action, topic in TOPICS.items()
]
OK = 0
FOUND = 0  # PULL's code for "here they are"


class Client:
    """A producer of one connection, and its ledger. Every other send of it is one-way."""

    def __init__(self, kill: int, action: str, dice: random.Random) -> None:
        self.topic = TOPICS[action]
        self.bodies = [f"{kill}-{number}".encode() for number in range(dice.randrange(50, MOST))]
        self.answers: dict[bytes, int] = {}  # by body
        self.written = 0
        self.piece = dice.randrange(1, 40)  # sends at once

    def run(self, address: str, port: int) -> None:
        """Send all, and read until the connection ends."""
        with socket.create_connection((address, port), timeout=HANG_S) as sock:
            writing = threading.Thread(target=self._write, args=(sock,))
            writing.start()
            with suppress(ConnectionError):
                while answer := read_frame(sock):
                    header = read_response(answer)
                    self.answers[self.bodies[int(str(header["opaque"])) // 4]] = int(str(header["code"]))
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            writing.join()

    def _write(self, sock: socket.socket) -> None:
        frames = [send(self.topic, body, opaque=4 * at, one_way=at % 2 == 1) for at, body in enumerate(self.bodies)]  # all to queue 0
        with suppress(OSError):
            for first in range(0, len(frames), self.piece):
                sock.sendall(b"".join(frames[first : first + self.piece]))
                self.written = first + self.piece

    def confirmed(self) -> set[bytes]:
        return {body for body, code in self.answers.items() if code == OK}

    def wrong(self, stored: list[bytes]) -> list[str]:
        """What is not as the broker alone would have it: of sends that wait for no answer, its threads may store a later one first."""
        own = [body for body in stored if body in set(self.bodies)]
        numbers = [int(body.partition(b"-")[2]) for body in own]
        refused = {body for body, code in self.answers.items() if code != OK}
        strange = set(self.answers.values()) - {OK, FLOW_CONTROL}
        faults = {
            "stored twice": len(own) - len(set(own)),
            "answered and not stored": len(self.confirmed() - set(own)),
            "refused and stored": sum(body in refused for body in own),
            f"answers {strange}": len(strange),
            "stored and never sent": sum(number >= self.written + self.piece for number in numbers),
        }
        return [f"{self.topic}: {count} {fault}" for fault, count in faults.items() if count]


def read_queue(port: int, topic: str, offset: int) -> tuple[list[bytes], int]:
    """The bodies in queue 0 of `topic` from `offset` on, asked of the broker itself, and the offset behind them."""
    bodies: list[bytes] = []
    with socket.create_connection((LOOPBACK, port), timeout=HANG_S) as sock:
        while True:
            sock.sendall(pull(topic, offset=offset, suspend_ms=0, sys_flag=4))
            answer = read_frame(sock)
            header = read_response(answer)
            if header["code"] != FOUND:
                return bodies, offset
            fields = header["extFields"]
            assert isinstance(fields, dict)
            offset = int(fields["nextBeginOffset"])
            at = 8 + (struct.unpack_from(">I", answer, 4)[0] & 0xFFFFFF)
            while at < len(answer):
                size = struct.unpack_from(">I", answer, at)[0]
                (length,) = struct.unpack_from(">I", answer, at + 84)
                bodies.append(answer[at + 88 : at + 88 + length])
                at += size


def read_until_there(port: int, client: Client, offset: int) -> tuple[list[bytes], int]:
    """The same once all that was answered is there: a broker that has just started fills its queues beside serving. Or when it hangs."""
    found: list[bytes] = []

    def there() -> bool:
        nonlocal offset
        bodies, offset = read_queue(port, client.topic, offset)
        found.extend(bodies)
        return client.confirmed() <= set(found)

    with suppress(TimeoutError):  # then `wrong` says so
        wait_until(there, within=HANG_S, what="all that was answered", every=0.5)
    return found, offset


def any_answered(clients: dict[str, Client]) -> bool:
    return any(client.answers for client in clients.values())


def test_a_broker_killed_at_random_moments_has_all_that_the_gateway_has_answered(tmp_path: Path, start_gateway: StartGateway) -> None:
    dice = random.Random(SEED)
    faults: list[str] = []
    offsets = dict.fromkeys(ACTIONS, 0)
    with RocketMQ(tmp_path / "mortal") as mortal:
        mortal.create_topics(*(f"{topic}:1" for topic in TOPICS.values()))
        gateway: Gateway = start_gateway(mortal.listeners, RULES)
        for kill in range(KILLS):
            wait_until(lambda: gateway.answers("/readyz"), within=60, what="the gateway to be ready")
            clients = {action: Client(kill, action, dice) for action in ACTIONS}
            acting = [threading.Thread(target=client.run, args=(mortal.advertised, mortal.port)) for client in clients.values()]
            for each in acting:
                each.start()
            wait_until(partial(any_answered, clients), within=60, what="a send to be answered")
            time.sleep(dice.uniform(0, 1.5))  # any moment after that will do
            mortal.kill()
            for each in acting:
                each.join(HANG_S)
                assert not each.is_alive(), "a client is not told that its connection has ended"
            wait_until(lambda: gateway.get("/v1/status")["connections"] == 0, within=60, what="the sessions to end")
            wait_until(lambda: gateway.get("/v1/spool")["spool"]["used_bytes"] == 0, within=60, what="nothing to wait on disk")
            mortal.start_broker()
            for action, client in clients.items():
                bodies, offsets[action] = read_until_there(mortal.port, client, offsets[action])
                faults += [f"kill {kill}: {fault}" for fault in client.wrong(bodies)]
    assert not faults, f"SLUICE_SEED={SEED}\n" + "\n".join(faults)
