"""Load on the admin port does not stop messages: a flood of requests, stalled readers, half requests and streams, all at once, untimed."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from support.gateways import Gateway
from support.processes import LOOPBACK
from support.rocketmq import frames

RULES = [{"name": "all", "match": {"protocol": "rocketmq"}, "per": "topic", "limit": {"messages": "100000/s"}}]
TOPICS = 600
SENDS = 300


def take(client: socket.socket, held: bytearray) -> bytes:
    """The next whole frame."""
    while len(held) < 4 or len(held) < 4 + int.from_bytes(held[:4]):
        data = client.recv(1 << 16)
        if not data:
            raise EOFError
        held += data
    size = 4 + int.from_bytes(held[:4])
    found = bytes(held[:size])
    del held[:size]
    return found


class Broker:
    """Answers every request with success."""

    def __init__(self) -> None:
        self.listening = socket.create_server((LOOPBACK, 0))
        self.port: int = self.listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        held = bytearray()
        with client, suppress(OSError, EOFError):
            while True:
                asked = take(client, held)
                size = int.from_bytes(asked[4:8]) & 0xFFFFFF
                opaque = json.loads(asked[8 : 8 + size])["opaque"]
                client.sendall(frames.response(opaque))


@pytest.fixture
def broker() -> Iterator[Broker]:
    made = Broker()
    yield made
    made.listening.close()


def send(client: socket.socket, held: bytearray, topic: str, opaque: int) -> int:
    """Send one message and wait for its answer; the answer's code."""
    client.sendall(frames.send(topic, opaque=opaque))
    answer = take(client, held)
    size = int.from_bytes(answer[4:8]) & 0xFFFFFF
    header = json.loads(answer[8 : 8 + size])
    assert header["opaque"] == opaque
    return int(header["code"])


def test_messages_go_on_under_a_flood_of_the_admin_port(tmp_path: Path, broker: Broker) -> None:
    listener = {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": f"{LOOPBACK}:{broker.port}"}
    over = threading.Event()
    answered: list[int] = []
    with Gateway(tmp_path / "gateway", [listener], RULES) as gateway, ExitStack() as stack:
        client = stack.enter_context(socket.create_connection((LOOPBACK, gateway.port("rocket")), timeout=60))
        held = bytearray()
        for number in range(TOPICS):
            assert send(client, held, f"topic-{number}", number) == 0

        def again(what: Callable[[int], int]) -> None:
            number = 0
            while not over.is_set():
                with suppress(OSError):
                    answered.append(what(number))
                number += 1

        def change(number: int) -> int:
            return gateway.request("PUT", f"/v1/limits/rocketmq/topic-{number % TOPICS}?force=1", {"messages": "100000/s"}).status

        floods: list[Callable[[int], int]] = [
            lambda _: gateway.request("GET", "/v1/topics?limit=500&sort=rate").status,
            lambda _: gateway.request("GET", "/v1/limits?limit=500").status,
            lambda _: gateway.request("GET", "/v1/status", authorised=False).status,
            change,
        ]
        stalled = f"GET /v1/stream?topics=200 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {gateway.token}\r\n\r\n".encode()
        for sent in [stalled] * 80 + [b"GET /livez HT"] * 80:
            other = stack.enter_context(socket.create_connection((LOOPBACK, gateway.admin_port), timeout=10))
            other.sendall(sent)
        threads = [threading.Thread(target=again, args=(what,)) for what in floods]
        for thread in threads:
            thread.start()
        try:
            codes = {send(client, held, f"topic-{number % TOPICS}", number) for number in range(SENDS)}
        finally:
            over.set()
            for thread in threads:
                thread.join()
        assert codes == {0}
        assert {status for status in answered if status < 500} >= {200, 401}
        assert gateway.request("GET", "/livez", authorised=False).status == 200
        fates = gateway.messages_by_fate("rocketmq", "topic-0")
        assert fates["received"] == fates["forwarded"] > 0
        assert gateway.get("/v1/audit:verify")["ok"]
