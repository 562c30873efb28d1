"""Stand-ins for brokers: they accept every client and every message, keep none, and answer as the real ones do when all is well.

For tests of what people see of a gateway, which need traffic and no broker. `python -m support.brokers.stand_ins` says the ports of both
and serves until it is ended.
"""

from __future__ import annotations

import contextlib
import functools
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator

from pamqp import base, commands, constants, frame
from pamqp.common import FieldTable

from support.amqp.frames import deliver
from support.processes import LOOPBACK
from support.rocketmq.frames import response
from support.rocketmq.stored_messages import found, stored
from support.wires.receiving import receive_exactly

HEAD = struct.Struct("!BHI")  # of an AMQP frame: type, channel, size
PUBLISH = struct.pack("!HH", 60, 40)  # basic.publish, as a method frame begins with it
PULL_MESSAGE = 11  # a remoting request's code
ONE_WAY = 2  # bit of a remoting header's flag


class StandIn:
    """Listens on a free port of loopback; a thread for each client. A context manager."""

    def __init__(self, serve: Callable[[socket.socket], None], port: int = 0) -> None:
        self._serve = serve
        self._listening = socket.create_server((LOOPBACK, port))
        self.port: int = self._listening.getsockname()[1]
        self._clients: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self._clients.append(client)
            thread = threading.Thread(target=self._one, args=(client,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _one(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            self._serve(client)

    def tell(self, data: bytes) -> None:
        """Send `data` to all that are connected."""
        for client in self._clients:
            with contextlib.suppress(OSError):  # it has gone
                client.sendall(data)

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # which wakes the thread in accept
        self._listening.close()
        for client in self._clients:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)


def rabbitmq(port: int = 0, *, delivers: bool = False) -> StandIn:
    """Takes publishes and confirms them; knows no queues but those that are declared, and delivers nothing.

    With `delivers`, each consumer gets a message at once and another one after each ack.
    """
    return StandIn(functools.partial(serve_amqp, delivers=delivers), port)


def rocketmq(port: int = 0, *, delivers: bool = False) -> StandIn:
    """Takes every request for a success. With `delivers`, each pull finds one message."""
    return StandIn(functools.partial(serve_remoting, delivers=delivers), port)


def _frames(client: socket.socket, head: int, size_of: Callable[[bytes], int]) -> Iterator[bytes]:
    """Whole frames as they come; `size_of` reads a frame's size in bytes from its first `head`."""
    data = b""
    while received := client.recv(65536):
        data += received
        at = 0
        while len(data) >= at + head and len(data) >= at + (size := size_of(data[at : at + head])):
            yield data[at : at + size]
            at += size
        data = data[at:]


def serve_amqp(client: socket.socket, *, delivers: bool = False) -> None:
    if receive_exactly(client, 8)[:4] != b"AMQP":
        return

    def say(channel: int, what: base.Frame) -> None:
        client.sendall(frame.marshal(what, channel))

    capabilities: FieldTable = {"publisher_confirms": True, "basic.nack": True, "connection.blocked": True, "consumer_cancel_notify": True}
    say(0, commands.Connection.Start(0, 9, {"product": "RabbitMQ", "capabilities": capabilities}, "PLAIN", "en_US"))
    published: dict[int, int] = {}  # channels with confirms -> publishes
    tag = "consumer"  # of the last consumer; that which the client has chosen
    delivered: dict[int, int] = {}  # channels with a consumer -> deliveries
    answers: dict[type, Callable[[], base.Frame]] = {
        commands.Connection.StartOk: lambda: commands.Connection.Tune(2047, 131072, 0),
        commands.Connection.Open: commands.Connection.OpenOk,
        commands.Connection.Close: commands.Connection.CloseOk,
        commands.Channel.Open: commands.Channel.OpenOk,
        commands.Channel.Close: commands.Channel.CloseOk,
        commands.Exchange.Declare: commands.Exchange.DeclareOk,
        commands.Queue.Declare: lambda: commands.Queue.DeclareOk("queue", 0, 0),
        commands.Queue.Bind: commands.Queue.BindOk,
        commands.Basic.Qos: commands.Basic.QosOk,
        commands.Basic.Consume: lambda: commands.Basic.ConsumeOk(tag),
        commands.Basic.Cancel: lambda: commands.Basic.CancelOk(tag),
        commands.Confirm.Select: commands.Confirm.SelectOk,
    }
    for one in _frames(client, 7, lambda head: 8 + int(HEAD.unpack(head)[2])):
        kind, channel, _ = HEAD.unpack_from(one)
        if kind != constants.FRAME_METHOD:
            continue
        if one.startswith(PUBLISH, HEAD.size):  # not decoded: some tests send a million
            if channel in published:
                published[channel] += 1
                say(channel, commands.Basic.Ack(published[channel]))
            continue
        method = frame.unmarshal(one)[2]
        if isinstance(method, commands.Confirm.Select):
            published[channel] = 0
        if isinstance(method, commands.Basic.Consume):
            tag = method.consumer_tag or tag
        answer = answers.get(type(method))
        if answer is not None:
            say(channel, answer())
        if isinstance(method, commands.Connection.Close):
            return
        if delivers and isinstance(method, commands.Basic.Consume | commands.Basic.Ack):
            delivered[channel] = delivered.get(channel, 0) + 1
            client.sendall(deliver(channel, b"x", tag=delivered[channel], consumer_tag=tag))


def serve_remoting(client: socket.socket, *, delivers: bool = False) -> None:
    for one in _frames(client, 4, lambda head: 4 + int(struct.unpack("!I", head)[0])):
        header = json.loads(one[8 : 8 + (struct.unpack_from("!I", one, 4)[0] & 0xFFFFFF)])
        if delivers and header["code"] == PULL_MESSAGE:
            client.sendall(found(header["opaque"], stored(topic=header["extFields"]["topic"])))
        elif not header.get("flag", 0) & ONE_WAY:
            client.sendall(response(header["opaque"]))


def main() -> None:
    with rabbitmq() as rabbit, rocketmq() as rocket:
        print(json.dumps({"amqp": rabbit.port, "rocketmq": rocket.port}), flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
