"""A retry storm on RocketMQ: consumers of one group that send everything back, as raw CONSUMER_SEND_MSG_BACK frames (code 36).

Open loop, as the real thing is: whoever fails on every message does not wait for the broker before it fails on the next. What a message
costs the broker is the size of the original, which it reads and writes again into `%RETRY%group`.
"""

from __future__ import annotations

import json
import math
import re
import selectors
import socket
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from support.rocketmq.frames import encode_request, send

SEND_BACK: Final = 36
SYSTEM_BUSY: Final = 2
FLOW_CONTROL: Final = 215
BUSY_AT_MOST: Final = 1000  # answers in turn
DELAY_LEVEL: Final = 18  # two hours: what is sent back does not come again while somebody watches
FIRST: Final = 1_000_000_000  # opaque numbers of one width: a frame is made by putting its own into a template
TICK_S: Final = 0.005
CALMING_S: Final = 10.0  # after its end: how long at most until everything is answered

CODE: Final = re.compile(rb'"code":(\d+)')
OPAQUE: Final = re.compile(rb'"opaque": *(\d+)')
WAIT: Final = re.compile(rb"need wait:(\d+)microsecs")

Address = tuple[str, int]


def original(broker: Address, topic: str, size: int) -> int:
    """Send one message of `size` bytes; returns its offset in the commit log, which is how a send-back names it."""
    with socket.create_connection(broker, timeout=10) as connection:
        for _ in range(BUSY_AT_MOST):
            connection.sendall(send(topic, b"x" * size))
            header = json.loads(_answer(connection))
            if header["code"] != SYSTEM_BUSY:  # a broker with its own defaults sheds what waits for 0.2 s, as on a machine that stumbles
                break
            time.sleep(TICK_S)
    if header["code"] != 0:
        raise RuntimeError(f"the original was not stored: {header}")
    return int(header["extFields"]["msgId"][-16:], 16)  # address and port, then the offset


def send_back(group: str, offset: int, topic: str) -> bytes:
    names = {"group": group, "offset": offset, "originTopic": topic, "delayLevel": DELAY_LEVEL, "maxReconsumeTimes": 16}
    fields = {name: str(value) for name, value in names.items()}
    return encode_request(SEND_BACK, fields | {"unitMode": "false", "bname": "broker-a"}, opaque=FIRST)


def _answer(connection: socket.socket) -> bytes:
    """The header of the next answer."""
    data = b""
    while len(data) < 8 or len(data) < 4 + struct.unpack_from(">I", data)[0]:
        if not (more := connection.recv(65536)):
            raise ConnectionError("closed within a frame")
        data += more
    return data[8 : 8 + (struct.unpack_from(">I", data, 4)[0] & 0xFFFFFF)]


class Answer(NamedTuple):
    """What became of one send-back. Times are monotonic seconds; the wait is the one that a refusal names."""

    asked: float
    came: float
    code: int
    wait_us: int | None


@dataclass
class Second:
    """One second of a storm, by when things happened: a send when it was sent, an answer when it came."""

    sent: int = 0
    codes: Counter[int] = field(default_factory=Counter)


class Consumer:
    """One client of the group: a connection from an address of its own."""

    def __init__(self, broker: Address, client: str) -> None:
        self.client = client
        self.socket = socket.create_connection(broker, timeout=10, source_address=(client, 0))
        self.socket.setblocking(False)
        self.unsent = bytearray()
        self.unread = bytearray()
        self.asked: dict[int, float] = {}  # opaque: when; those without an answer

    def write(self) -> None:
        try:
            while self.unsent:
                del self.unsent[: self.socket.send(self.unsent)]
        except BlockingIOError:
            pass

    def read(self) -> list[bytes]:
        """The headers of all answers that are here."""
        try:
            if not (data := self.socket.recv(1 << 18)):
                raise ConnectionError(f"the connection of {self.client} was closed")
        except BlockingIOError:
            return []
        self.unread += data
        headers = []
        at = 0
        while len(self.unread) >= at + 8:
            length, word = struct.unpack_from(">II", self.unread, at)
            if len(self.unread) < at + 4 + length:
                break
            headers.append(bytes(self.unread[at + 8 : at + 8 + (word & 0xFFFFFF)]))
            at += 4 + length
        del self.unread[:at]
        return headers


class Storm:
    """`rate` send-backs a second, dealt to `clients` (addresses) by their shares, until it is stopped.

    A context manager, left when all is answered.
    """

    def __init__(self, broker: Address, group: str, offset: int, topic: str, *, rate: int, clients: dict[str, int]) -> None:
        self.group = group
        self.rate = rate
        self.sent = 0
        self.answers: list[Answer] = []
        self.seconds: dict[int, Second] = {}  # by the wall clock
        self._consumers = {client: Consumer(broker, client) for client in clients}
        self._deal = [client for client, share in clients.items() for _ in range(share)]
        self._before, self._after = send_back(group, offset, topic).split(b"%d" % FIRST)
        self._stopping = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="storm", daemon=True)

    @property
    def unanswered(self) -> int:
        return sum(len(consumer.asked) for consumer in self._consumers.values())

    @property
    def codes(self) -> Counter[int]:
        return Counter(answer.code for answer in self.answers)

    def __enter__(self) -> Storm:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(2 * CALMING_S)
        for consumer in self._consumers.values():
            consumer.socket.close()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            with selectors.DefaultSelector() as selector:
                for consumer in self._consumers.values():
                    selector.register(consumer.socket, selectors.EVENT_READ, consumer)
                self._blow(selector)
        except Exception as error:  # told to whoever leaves the storm
            self._failure = error

    def _blow(self, selector: selectors.BaseSelector) -> None:
        started = time.monotonic()
        ending = math.inf
        while (now := time.monotonic()) < ending + CALMING_S and (ending == math.inf or self.unanswered):
            if self._stopping.is_set():
                ending = min(ending, now)
            second = self.seconds.setdefault(int(time.time()), Second())
            while ending == math.inf and self.sent < (now - started) * self.rate:
                consumer = self._consumers[self._deal[self.sent % len(self._deal)]]
                opaque = FIRST + self.sent
                consumer.unsent += b"%s%d%s" % (self._before, opaque, self._after)
                consumer.asked[opaque] = now
                self.sent += 1
                second.sent += 1
            for consumer in self._consumers.values():
                consumer.write()
            for ready, _ in selector.select(TICK_S):
                self._note(ready.data, second)

    def _note(self, consumer: Consumer, second: Second) -> None:
        came = time.monotonic()
        for header in consumer.read():
            code, opaque = CODE.search(header), OPAQUE.search(header)
            if code is None or opaque is None:
                raise ValueError(f"an answer without code or opaque: {header!r}")
            wait = WAIT.search(header)
            asked = consumer.asked.pop(int(opaque[1]))
            self.answers.append(Answer(asked, came, int(code[1]), None if wait is None else int(wait[1])))
            second.codes[int(code[1])] += 1

    def __repr__(self) -> str:
        return f"<Storm {self.group} sent={self.sent} codes={dict(self.codes)}>"
