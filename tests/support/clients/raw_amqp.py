"""A client that says exactly the bytes it is given to a real broker, and keeps everything it is told."""

from __future__ import annotations

import socket
import struct
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from itertools import count

from pamqp import commands

from support.amqp import frames as amqp
from support.processes import HANG_S, LOOPBACK

Step = bytes | str  # what to say, or the name of a frame to wait for

PLACEHOLDER = b"passes"  # in scripts: replaced by a name that is new each time, and put back into what is told
NUMBERS = count()

CLOSE = amqp.method(0, commands.Connection.Close(200, "bye", 0, 0))


def opening(
    *channels: int,
    mechanism: str = "PLAIN",
    response: str = "\0guest\0guest",
    vhost: str = "/",
    channel_max: int = 2047,
    frame_max: int = 131072,
    heartbeat: int = 0,
) -> bytes:
    """Everything up to open channels, to be said in one segment."""
    pieces = [
        amqp.PROTOCOL_HEADER,
        amqp.method(0, commands.Connection.StartOk({"capabilities": {"consumer_cancel_notify": True}}, mechanism, response, "en_US")),
        amqp.method(0, commands.Connection.TuneOk(channel_max, frame_max, heartbeat)),
        amqp.method(0, commands.Connection.Open(vhost)),
        *(amqp.method(channel, commands.Channel.Open()) for channel in channels),
    ]
    return b"".join(pieces)


class RawClient:
    """One connection. Answers channel.close and connection.close with their close-ok, as every client does, and nothing else."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((LOOPBACK, port), timeout=HANG_S)
        self.told: list[amqp.Frame] = []
        self.ended = False
        self._rest = b""

    def say(self, data: bytes) -> None:
        with suppress(OSError):  # it may have been told its error already
            self.socket.sendall(data)

    def read(self) -> bool:
        """One read; False at the end. ConnectionError behind that: whoever waits for something would wait for ever."""
        if self.ended:
            raise ConnectionError(f"the connection has ended, and was told: {[frame.name for frame in self.told]}")
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        if not data:
            self.ended = True
            return False
        data = self._rest + data
        at = 0
        while len(data) - at >= 8:
            if data.startswith(b"AMQP", at):  # the broker's own protocol header
                self.told.append(amqp.Frame(0, "ProtocolHeader", None, data[at : at + 8]))
                at += 8
                continue
            stop = at + 8 + int.from_bytes(data[at + 3 : at + 7], "big")
            if stop > len(data):
                break
            self._hear(amqp.read_raw(data[at:stop]))
            at = stop
        self._rest = data[at:]
        return True

    def _hear(self, frame: amqp.Frame) -> None:
        self.told.append(frame)
        if frame.name == "Channel.Close":
            self.say(amqp.method(frame.channel, commands.Channel.CloseOk()))
        elif frame.name == "Connection.Close":
            self.say(amqp.method(0, commands.Connection.CloseOk()))

    def count(self, name: str) -> int:
        return len([frame for frame in self.told if frame.name == name])

    def wait_for(self, name: str, count: int = 1) -> None:
        """Read until `count` such frames have come. AssertionError: the connection has ended before that."""
        while self.count(name) < count:
            assert self.read(), f"ended before {count} {name}: {[frame.name for frame in self.told]}"

    def finish(self) -> list[amqp.Frame]:
        """Close the connection where nobody has, and read until that is answered (RabbitMQ then waits for the client's FIN): all told."""
        if not self.count("Connection.Close"):
            self.say(CLOSE)
        while not (self.ended or self.count("Connection.CloseOk") or self.count("Connection.Close")):
            self.read()
        self.socket.close()
        return self.told

    def reset(self) -> None:
        """RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def play(port: int, *steps: Step) -> list[amqp.Frame]:
    """Say and wait, step by step; then close. Everything told."""
    client = RawClient(port)
    name = b"p%05d" % next(NUMBERS)
    waited: Counter[str] = Counter()
    for step in steps:
        if isinstance(step, bytes):
            client.say(step.replace(PLACEHOLDER, name))
            continue
        waited[step] += 1
        while client.count(step) < waited[step] and not client.ended:
            client.read()
    return [replace(frame, raw=frame.raw.replace(name, PLACEHOLDER)) for frame in client.finish()]
