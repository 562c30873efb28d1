"""Where batches are judged (`limiter.inline`): on the limiter's threads alone, or on the event loop where the judge is trusted."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Any

import pytest

from support.brokers.stand_ins import rocketmq as rocketmq_stand_in
from support.gateways import Gateway, StartGateway
from support.processes import HANG_S, LOOPBACK, wait_until
from support.rocketmq.frames import read_response, send
from support.wires.receiving import receive_frame

ALLOWED = 500
CLIENTS = 4
EACH = 300
REFUSED = 215
RULE = {
    "name": "orders", "match": {"protocol": "rocketmq"}, "per": "topic", "limit": {"messages": "1/min", "burst": {"messages": ALLOWED}},
    "breaker": {"open_for": "0s"},
}  # fmt: skip


def answers(client: socket.socket, count: int) -> list[dict[str, Any]]:
    return [read_response(receive_frame(client)) for _ in range(count)]


@pytest.mark.parametrize("workers", [1, 2])
def test_with_never_every_batch_goes_over_the_threads_until_a_reload_says_otherwise(start_gateway: StartGateway, workers: int) -> None:
    with rocketmq_stand_in() as broker, ExitStack() as stack:
        gateway: Gateway = start_gateway(
            [{"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": broker.address}],
            [RULE],
            gateway={"name": "inline", "state_directory": "state", "workers": workers},
            limiter={"inline": "never"},
        )

        def status() -> dict[str, Any]:
            found: dict[str, Any] = gateway.get("/v1/status")["limiter"]
            return found

        clients = [
            stack.enter_context(socket.create_connection((LOOPBACK, gateway.port("rocket")), timeout=HANG_S)) for _ in range(CLIENTS)
        ]
        for client in clients:
            for number in range(EACH):
                client.sendall(send("orders", opaque=number))  # a write each: many batches
        codes = []
        for client in clients:
            found = answers(client, EACH)
            codes += [each["code"] for each in found]
            passed = [each["opaque"] for each in found if each["code"] == 0]
            assert passed == sorted(passed), "in order"
        most = ALLOWED + 1  # with what the limit grants in less than a minute; of several workers one may be left with what it has leased
        assert codes.count(0) in ({ALLOWED, most} if workers == 1 else range(1, most + 1))
        assert set(codes) == {0, REFUSED}
        if workers > 1:  # what the parent shows is a second old
            wait_until(lambda: status()["batches"].get("queued", 0) > 0, within=30, what="the workers' counts")
        told = status()
        assert (told["threads"], told["inline"], told["batches"]["inline"], told["batches"]["bypassed"]) == (workers, "never", 0, 0)
        assert told["batches"]["queued"] > 0
        assert "never" in gateway.cli("status", "-o", "wide").stdout
        ways = {x.labels["way"]: x.value for x in gateway.samples() if x.name == "sluice_limiter_batches_total"}
        assert ways["inline"] == 0
        assert ways["queued"] >= told["batches"]["queued"]

        text = gateway.config.read_text()
        assert "never" in text
        gateway.config.write_text(text.replace("never", "trusted"))
        assert "limiter.inline" in gateway.cli("reload").stdout

        def judged_on_the_loop() -> bool:
            for client in clients:
                client.sendall(send("other", opaque=1))
                answers(client, 1)
            return bool(status()["batches"]["inline"])

        wait_until(judged_on_the_loop, within=30, what="the judge to be trusted")
        wait_until(lambda: status()["inline"] == "trusted", within=30, what="the status to say so")
