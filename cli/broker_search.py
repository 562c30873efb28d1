"""Brokers on this host: its listening sockets are asked, in RabbitMQ's protocol and in RocketMQ's, and known by their answers."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.protocols.amqp import question as amqp
from gateway.protocols.question import MAX_ANSWER_BYTES, Question, WrongAnswerError
from gateway.protocols.rocketmq import question as rocketmq

TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
LISTENING: Final = "0A"  # state in these tables; include/net/tcp_states.h
USUAL_PORTS: Final = {"amqp": 5672, "rocketmq-nameserver": 9876, "rocketmq": 10911}
FIRST_PORT: Final = 1024  # services below are not asked: no broker listens there
MAX_SOCKETS: Final = 500  # sockets; asked at most
PATIENCE_S: Final = 1.0  # seconds; for one answer on this host


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker, or a name server, that has answered."""

    protocol: str  # as a listener's: amqp, rocketmq, rocketmq-nameserver
    host: str  # where it can be reached from here
    port: int
    everywhere: bool  # it listens on all addresses of the host, not on one
    product: str = ""  # RabbitMQ 3.13.7

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def listening_sockets(tables: Iterable[Path] = TABLES) -> list[tuple[str, int]]:
    """Addresses and ports that something listens on, by port; empty where the kernel does not tell."""
    found = set()
    for table in tables:
        with suppress(OSError):
            for line in table.read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == LISTENING:
                    host, _, port = words[1].partition(":")
                    found.add((decode_address(host), int(port, 16)))
    return sorted(found, key=lambda each: (each[1], each[0]))


def decode_address(text: str) -> str:
    """An address of these tables: 32-bit words, each in the byte order of the machine."""
    words = [struct.pack("=I", int(text[start : start + 8], 16)) for start in range(0, len(text), 8)]
    return socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, b"".join(words))


def brokers(sockets: list[tuple[str, int]]) -> list[Broker]:
    """The brokers among `sockets`, AMQP's first; each port once."""
    wanted: dict[int, tuple[str, bool]] = {}
    for host, port in sockets:
        if port >= FIRST_PORT:
            everywhere = host in {"0.0.0.0", "::"}  # noqa: S104  -- it is not bound here
            reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
            wanted.setdefault(port, (reached, everywhere))
    with ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(ask_broker, host, port, everywhere) for port, (host, everywhere) in list(wanted.items())[:MAX_SOCKETS]]
    found = [each for each in (one.result() for one in asked) if each is not None]
    order = list(USUAL_PORTS)
    return sorted(found, key=lambda each: (order.index(each.protocol), each.port != USUAL_PORTS[each.protocol], each.port))


def ask_broker(host: str, port: int, everywhere: bool) -> Broker | None:  # noqa: FBT001
    """What listens there, if it is a broker. Each question has a connection of its own."""
    product = amqp_product(host, port)
    if product is not None:
        return Broker("amqp", host, port, everywhere, product)
    protocol = remoting_protocol(host, port)
    return None if protocol is None else Broker(protocol, host, port, everywhere)


def amqp_product(host: str, port: int) -> str | None:
    """`RabbitMQ 3.13.7` of a broker that answers AMQP's header with connection.start; None of anything else."""
    answer = exchange(host, port, amqp.QUESTION)
    if answer[7:11] != amqp.START:
        return None
    from pamqp import commands, exceptions, frame

    try:
        _, _, start = frame.unmarshal(answer)
    except (exceptions.PAMQPException, ValueError, struct.error):
        return ""
    if not isinstance(start, commands.Connection.Start):
        return ""
    words = [str(start.server_properties.get(name, "")) for name in ("product", "version")] if start.server_properties else []
    return " ".join(word for word in words if word and word.isprintable())[:60]


def remoting_protocol(host: str, port: int) -> str | None:
    """`rocketmq-nameserver` or `rocketmq` of what answers a request of RocketMQ's; None of anything else."""
    code = rocketmq.answer_code(exchange(host, port, rocketmq.QUESTION))
    if code is None:
        return None
    return "rocketmq" if code == rocketmq.NOT_SUPPORTED else "rocketmq-nameserver"


def exchange(host: str, port: int, question: Question) -> bytes:
    """The answer to `question`; what came of it if it is none, or none within PATIENCE_S."""
    data = b""
    with suppress(OSError, WrongAnswerError), socket.create_connection((host, port), PATIENCE_S) as connection:
        connection.settimeout(PATIENCE_S)
        connection.sendall(question.send)
        while not question.answered(data) and len(data) < MAX_ANSWER_BYTES:
            received = connection.recv(4096)
            if not received:
                break
            data += received
    return data
