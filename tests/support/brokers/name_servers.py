"""A pretend name server, and pretend brokers, for a gateway in a process of its own: routes are what the test says they are."""

from __future__ import annotations

import json
import random
import socket
import socketserver
import ssl
import struct
import threading
from contextlib import suppress

from gateway.protocols.rocketmq.question import TOPIC
from support.processes import HANG_S, LOOPBACK, is_free
from support.rocketmq.frames import Value, encode_request, read_response, response


def port_range(count: int) -> tuple[int, int]:
    """The first and the last of `count` ports in a row that nobody listens on, nor on the two below, the first brokers' VIP ports; all
    are below those the kernel gives to outgoing connections."""
    for _ in range(200):
        first = random.randrange(20_000, 30_000)
        if all(is_free(LOOPBACK, first + step) for step in range(-2, count)):
            return first, first + count - 1
    raise RuntimeError(f"no {count} free ports in a row between 20000 and 30000")


def read_frame(sock: socket.socket) -> bytes:
    """One whole frame; b"" at the end."""
    data = b""
    need = 4
    while len(data) < need:
        more = sock.recv(need - len(data))
        if not more:
            return b""
        data += more
        if len(data) == 4:
            need += struct.unpack(">I", data)[0]
    return data


class Server:
    """Answers each frame with what `reply(header)` says, on a port of loopback. Use in a with statement."""

    def __init__(self, port: int = 0) -> None:
        self.requests: list[dict[str, object]] = []  # headers
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with suppress(OSError):
                    while request := read_frame(self.request):
                        header = read_response(request)
                        outer.requests.append(header)
                        self.request.sendall(outer.reply(header))

        class Sockets(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

        self._sockets = Sockets((LOOPBACK, port), Handler)
        self._thread = threading.Thread(target=self._sockets.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def port(self) -> int:
        port: int = self._sockets.server_address[1]
        return port

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def codes(self) -> list[object]:
        """What clients have asked for; the gateway's own question, whether this lives, is not among it."""
        return [header["code"] for header in list(self.requests) if TOPIC not in str(header.get("extFields"))]

    def reply(self, header: dict[str, object]) -> bytes:
        opaque = header["opaque"]
        assert isinstance(opaque, int)
        return response(opaque)

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._sockets.shutdown()
        self._thread.join(5)
        self._sockets.server_close()


class NameServer(Server):
    """Has one topic, on these brokers: (name, id) -> address."""

    def __init__(self, brokers: dict[tuple[str, int], str]) -> None:
        super().__init__()
        self.brokers = brokers

    def reply(self, header: dict[str, object]) -> bytes:
        opaque = header["opaque"]
        assert isinstance(opaque, int)
        if header["code"] != 105:
            return response(opaque)
        names = sorted({name for name, _ in self.brokers})
        datas = ",".join(f'{{"brokerAddrs":{{{self._addresses(name)}}},"brokerName":"{name}","cluster":"c"}}' for name in names)
        return response(opaque, body=f'{{"brokerDatas":[{datas}],"queueDatas":[]}}'.encode())

    def _addresses(self, name: str) -> str:
        return ",".join(f'{number}:"{address}"' for (own, number), address in sorted(self.brokers.items()) if own == name)


class Asker:
    """A client of a name server or a broker: one connection; with `tls` that is TLS, whatever the certificate."""

    def __init__(self, port: int, *, tls: bool = False) -> None:
        self.sock = socket.create_connection((LOOPBACK, port), timeout=HANG_S)
        self._opaque = 0
        if tls:
            trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
            self.sock = trusting.wrap_socket(self.sock)

    def ask(self, code: int, body: bytes = b"", topic: str = "orders", **fields: Value) -> tuple[dict[str, object], bytes]:
        """The header and the body of the answer."""
        self._opaque += 1
        self.sock.sendall(encode_request(code, {"topic": topic, **fields}, body, opaque=self._opaque))
        answer = read_frame(self.sock)
        assert answer, "the connection was closed instead of an answer"
        header = read_response(answer)
        assert header["opaque"] == self._opaque
        return header, answer[8 + int.from_bytes(answer[5:8], "big") :]

    def route(self) -> dict[tuple[str, int], str]:
        """(name, id) -> address, of the one topic's brokers."""
        header, body = self.ask(105)
        assert header["code"] == 0, header
        bare = json.loads(body.replace(b"{0:", b'{"0":').replace(b",1:", b',"1":').replace(b"{1:", b'{"1":'))
        return {
            (str(data["brokerName"]), int(number)): str(address)
            for data in bare["brokerDatas"]
            for number, address in data["brokerAddrs"].items()
        }

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()


def through(address: str) -> dict[str, object]:
    """The answer to a heartbeat sent to `address`."""
    with Asker(int(address.rpartition(":")[2])) as client:
        return client.ask(34)[0]
