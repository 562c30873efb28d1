"""Load on the admin port does not reach messages: none is stopped by a flood of requests, stalled readers, half requests and streams, and
none waits long behind them.

Compared is the processor time that the gateway spends from when a message is sent until its answer is here (`support/isolation.py`), in
units of what a message costs in the calm, the median. Windows with and without load follow each other on one gateway.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from support.admin.load import STREAMS, Loading
from support.gateways import Gateway
from support.isolation import percentile, window
from support.processes import LOOPBACK, wait_until
from support.rocketmq import frames
from support.tls import Authority

RULES = [{"name": "all", "match": {"protocol": "rocketmq"}, "per": "topic", "limit": {"messages": "100000/s"}}]
TOPICS = 600
SENDS = 300
ROUNDS = 6  # of a window without load and one with it
MOST_ROUNDS = 10  # where a thousand streams take longer to ask for
PER_WINDOW = 100  # messages
CALM_RATE = 100  # messages a second
RATE = 25  # the same beside the load, which takes a while to be all there
MOST = {50: 20, 90: 70, 99: 300}  # units, by percentile: twice what was measured beside other work, where requests queue up


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


class Senders:
    """Connections on which messages are sent in turn, so that each worker has some; `pids` are the processes that they come through."""

    def __init__(self, stack: ExitStack, port: int, pids: list[int], count: int = 4) -> None:
        self._clients = [(stack.enter_context(socket.create_connection((LOOPBACK, port), timeout=60)), bytearray()) for _ in range(count)]
        self._pids = pids
        self._sent = 0

    def send(self, topic: str) -> None:
        client, held = self._clients[self._sent % len(self._clients)]
        self._sent += 1
        assert send(client, held, topic, self._sent) == 0

    def window(self, rate: float) -> list[float]:
        """Send at a steady rate; what each message cost."""
        return window(self._pids, lambda number: self.send(f"topic-{number % TOPICS}"), PER_WINDOW, rate)


def is_at_rest(gateway: Gateway) -> bool:
    """Whether no connection to the admin port is left but this one."""
    found = {sample.name: sample.value for sample in gateway.samples()}
    return found["sluice_admin_connections_active"] <= 1 and found["sluice_admin_streams"] == 0


def streams_asked_for(done: Counter[str]) -> int:
    """Those that did not get so far for want of a place among TLS handshakes are asked for, too."""
    return done["stalled /v1/stream"] + done["stalled: no connection"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "protected"),
    [
        pytest.param(1, False, id="plain"),
        pytest.param(1, True, id="tls", marks=pytest.mark.long),
        pytest.param(2, False, id="workers", marks=pytest.mark.long),
    ],
)
def test_load_on_the_admin_port_does_not_reach_the_latency_of_messages(
    tmp_path: Path, broker: Broker, record_property: Callable[[str, object], None], workers: int, protected: bool
) -> None:
    listener = {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": f"{LOOPBACK}:{broker.port}"}
    gateway = Gateway(
        tmp_path / "gateway", [listener], RULES, {"gateway": {"name": "end-to-end", "state_directory": "state", "workers": workers}}
    )
    authority = Authority(tmp_path / "ca")
    if protected:
        certificate, key = authority.issue("admin", "localhost", LOOPBACK)
        gateway.protect_admin(certificate, key, ssl.create_default_context(cafile=authority.file))
    calm: list[float] = []
    loaded: list[float] = []
    with gateway, ExitStack() as stack:
        pids = [each["pid"] for each in gateway.get("/v1/status")["workers"]] if workers > 1 else [gateway.process.pid]
        senders = Senders(stack, gateway.port("rocket"), pids)
        for number in range(TOPICS):
            senders.send(f"topic-{number}")
        load = stack.enter_context(Loading(gateway.admin_port, gateway.token, authority.file if protected else None))
        for number in range(MOST_ROUNDS):
            if number >= ROUNDS and streams_asked_for(load.done) >= STREAMS:
                break
            calm += senders.window(CALM_RATE)
            with load.under_way():
                loaded += senders.window(RATE)
            wait_until(lambda: is_at_rest(gateway), within=60, what="the load is over for the gateway, too")
        assert gateway.request("GET", "/livez", authorised=False).status == 200
    unit = percentile(calm, 50)
    found = {each: percentile(loaded, each) / unit for each in MOST}
    told = f"{1e6 * unit:.0f} µs in the calm, with load {', '.join(f'p{each} {times:.1f} times' for each, times in found.items())}"
    record_property("remark", f"{told}; {dict(load.done)}")
    assert not {"stalled /v1/stream", "stalled /v1/topics", "read 200", "change 200", "forged 401", "half"} - load.done.keys(), load
    assert load.done["forged 200"] == 0
    assert all(found[each] <= MOST[each] for each in MOST), told
