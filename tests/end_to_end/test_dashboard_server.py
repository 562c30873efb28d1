"""What the dashboard is served with, by a real gateway in one process and by two workers: sign in, charts, stream, a reload, a restart."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.brokers.stand_ins import rocketmq as rocketmq_stand_in
from support.gateways import Gateway
from support.processes import HANG_S, LOOPBACK, wait_until
from support.rocketmq.frames import read_response, send
from support.wires.receiving import receive_frame

CLIENTS = 8  # the kernel spreads them over the workers
EACH = 50
LIMIT = {"name": "all", "match": {"protocol": "rocketmq"}, "per": "topic", "limit": {"messages": "1000000/s"}}
HERE = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture(scope="module", params=[1, 2], ids=["one process", "two workers"])
def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with ExitStack() as running:
        broker = running.enter_context(rocketmq_stand_in())
        listener = {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": broker.address}
        settings = {"gateway": {"name": "charts", "state_directory": "state", "workers": request.param}}
        yield running.enter_context(Gateway(tmp_path_factory.mktemp("charts"), [listener], [LIMIT], settings))


class Browser:
    """A browser without a page: it keeps the cookie."""

    def __init__(self, gateway: Gateway) -> None:
        self._where = urlsplit(gateway.admin)
        self.cookie = ""

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(str(self._where.hostname), self._where.port, timeout=HANG_S)

    def begin(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Any = None, **headers: str
    ) -> http.client.HTTPResponse:
        known = {"Cookie": self.cookie} if self.cookie else {}
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {**known, **({"Content-Type": "application/json"} if body else {}), **headers})
        return connection.getresponse()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        with closing(self.connect()) as connection:
            answer = self.begin(connection, method, path, body, **headers)
            data = answer.read()
        set_cookie = answer.getheader("Set-Cookie")
        if set_cookie is not None:
            self.cookie = set_cookie.partition(";")[0]
        return answer.status, json.loads(data) if data and "json" in str(answer.getheader("Content-Type")) else data

    def sign_in(self, gateway: Gateway) -> None:
        status, who = self.ask("POST", "/v1/session", {"token": gateway.token}, **HERE)
        assert (status, who["role"], who["gateway"]) == (200, "admin", "charts")


def send_all(gateway: Gateway) -> None:
    """EACH messages of each of CLIENTS clients, answered."""
    with ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection((LOOPBACK, gateway.port("rocket")), timeout=HANG_S)) for _ in range(CLIENTS)
        ]
        for client in clients:
            client.sendall(b"".join(send("orders", opaque=number) for number in range(EACH)))
        for client in clients:
            for _ in range(EACH):
                assert read_response(receive_frame(client))["code"] == 0


def test_an_operator_signs_in_sees_the_traffic_and_changes_a_limit(gateway: Gateway) -> None:
    browser = Browser(gateway)
    status, page = browser.ask("GET", "/t/rocketmq/orders")
    assert (status, b"<!doctype html>" in page.lower()) == (200, True)
    assert browser.ask("GET", "/v1/session")[0] == 401
    browser.sign_in(gateway)

    def begun() -> bool:
        total = browser.ask("GET", "/v1/series")[1]
        return bool(total["end"] > total["start"])

    wait_until(begun, within=60, what="the first second, which is a part of one, is over")
    send_all(gateway)
    series = "/v1/series?protocol=rocketmq&topic=orders"

    def seen() -> float:
        points = browser.ask("GET", series)[1]["points"]
        return sum(count or 0 for count in points["received"])

    sent = CLIENTS * EACH
    wait_until(
        lambda: abs(seen() - sent) <= 0.1 * sent, within=60, what="the messages are in the series of their topic, summed over the workers"
    )
    total = browser.ask("GET", "/v1/series")[1]
    assert abs(sum(count or 0 for count in total["points"]["forwarded"]) - sent) <= 0.1 * sent
    assert total["missing"] == []
    assert browser.ask("GET", series)[1]["points"]["limit"][-1] == 1_000_000

    path = "/v1/limits/rocketmq/orders"
    status, preview = browser.ask("PUT", f"{path}?dry_run=1", {"messages": "0/s"}, **HERE)
    assert status == 200
    assert abs(preview["would_have_refused"]["messages"] - sent) <= 0.1 * sent
    assert browser.ask("PUT", f"{path}?force=1", {"messages": "7/s"})[0] == 403, "a change without a word about its origin"
    assert browser.ask("PUT", f"{path}?force=1", {"messages": "7/s", "reason": "incident 12"}, **HERE)[0] == 200

    def limit_drawn() -> bool:
        found = browser.ask("GET", series)[1]
        return found["points"]["limit"][-1] == 7 and [mark["reason"] for mark in found["marks"]] == ["incident 12"]

    wait_until(limit_drawn, within=60, what="the new limit and its mark are in the series")


def test_the_stream_reads_a_cookie_and_ends_with_the_session(gateway: Gateway) -> None:
    browser = Browser(gateway)
    browser.sign_in(gateway)
    with closing(browser.connect()) as connection:
        stream = browser.begin(connection, "GET", "/v1/stream")
        assert stream.status == 200
        assert any(line.startswith(b"event: snapshot") for line in iter(stream.readline, b""))
        assert browser.ask("DELETE", "/v1/session", **HERE)[0] == 204
        assert b"event: end" in stream.read()


def test_charts_are_turned_off_by_a_reload(gateway: Gateway) -> None:
    """Last: it has none from then on."""
    browser = Browser(gateway)
    browser.sign_in(gateway)
    wait_until(lambda: browser.ask("GET", "/v1/series")[1]["known"], within=60, what="a first second is over")
    text = gateway.config.read_text()
    assert "admin:" in text
    gateway.config.write_text(text.replace("admin:", "admin:\n  series_topics: 0", 1))
    status, answer = browser.ask("POST", "/v1/config:reload", **HERE)
    assert (status, answer["needs_restart"]) == (200, [])
    found = browser.ask("GET", "/v1/series")[1]
    assert (found["known"], found["points"]["received"]) == (False, [])
