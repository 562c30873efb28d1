"""Brokers on this host: its listening sockets are asked, in RabbitMQ's protocol and in RocketMQ's, and known by their answers."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
LISTENING: Final = "0A"  # state in these tables; include/net/tcp_states.h
USUAL_PORTS: Final = {"amqp": 5672, "rocketmq-nameserver": 9876, "rocketmq": 10911}
FIRST_PORT: Final = 1024  # services below are not asked: no broker listens there
MAX_SOCKETS: Final = 500  # sockets; asked at most
PATIENCE_S: Final = 1.0  # seconds; for one answer on this host
MAX_ANSWER: Final = 64 << 10  # bytes; read of an answer

AMQP_HEADER: Final = b"AMQP\x00\x00\x09\x01"
START: Final = b"\x00\x0a\x00\x0a"  # class and method of connection.start
ROUTE: Final = 105  # GET_ROUTEINFO_BY_TOPIC: a name server answers it, a broker does not know it
NOT_SUPPORTED: Final = 3  # REQUEST_CODE_NOT_SUPPORTED
RESPONSE: Final = 1  # bit of the flag

Whole = Callable[[bytes], bool]


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
                    found.add((decoded(host), int(port, 16)))
    return sorted(found, key=lambda each: (each[1], each[0]))


def decoded(text: str) -> str:
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
        asked = [pool.submit(asked_broker, host, port, everywhere) for port, (host, everywhere) in list(wanted.items())[:MAX_SOCKETS]]
    found = [each for each in (one.result() for one in asked) if each is not None]
    order = list(USUAL_PORTS)
    return sorted(found, key=lambda each: (order.index(each.protocol), each.port != USUAL_PORTS[each.protocol], each.port))


def asked_broker(host: str, port: int, everywhere: bool) -> Broker | None:  # noqa: FBT001
    """What listens there, if it is a broker. Each question has a connection of its own."""
    product = amqp_product(host, port)
    if product is not None:
        return Broker("amqp", host, port, everywhere, product)
    protocol = remoting_protocol(host, port)
    return None if protocol is None else Broker(protocol, host, port, everywhere)


def amqp_product(host: str, port: int) -> str | None:
    """`RabbitMQ 3.13.7` of a broker that answers AMQP's header with connection.start; None of anything else."""
    answer = exchange(host, port, AMQP_HEADER, lambda data: len(data) >= 7 and len(data) >= 8 + struct.unpack_from("!I", data, 3)[0])
    if answer[:3] != b"\x01\x00\x00" or answer[7:11] != START:
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
    fields = {"topic": "sluice-init-looks-for-a-broker"}
    header = json.dumps({"code": ROUTE, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": 1, "version": 317}).encode()
    question = struct.pack("!II", 4 + len(header), len(header)) + header
    answer = exchange(host, port, question, lambda data: len(data) >= 4 and len(data) >= 4 + struct.unpack_from("!I", data)[0])
    try:
        length = struct.unpack_from("!I", answer, 4)[0] & 0xFFFFFF
        said = json.loads(answer[8 : 8 + length])
    except (ValueError, struct.error):
        return None
    if not isinstance(said, dict) or said.get("opaque") != 1 or not int(said.get("flag", 0)) & RESPONSE:
        return None
    return "rocketmq" if said.get("code") == NOT_SUPPORTED else "rocketmq-nameserver"


def exchange(host: str, port: int, question: bytes, whole: Whole) -> bytes:
    """The answer to `question` once it is `whole`; what came until then if it never is."""
    data = b""
    with suppress(OSError, struct.error), socket.create_connection((host, port), PATIENCE_S) as connection:
        connection.settimeout(PATIENCE_S)
        connection.sendall(question)
        while not whole(data) and len(data) < MAX_ANSWER:
            received = connection.recv(4096)
            if not received:
                break
            data += received
    return data
