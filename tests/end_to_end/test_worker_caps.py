"""What clients meet at the door of a gateway with several workers, as at one process: caps, a rate, and changes of limits by a console."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time

from support.brokers.stand_ins import rocketmq as rocketmq_stand_in
from support.gateways import Gateway, StartGateway, limit_path
from support.processes import LOOPBACK, wait_until
from support.rocketmq.frames import encode_request, send
from support.wires.receiving import receive_frame

WORKERS = 2
MOST = 20
PER_ADDRESS = 5


class Clients:
    """Connections to one port, each from an address of its own if told so; those that were let in are kept."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.admitted: list[socket.socket] = []
        self.refused = 0

    def connect(self, source: str = LOOPBACK) -> bool:
        """Whether it is let in: a send is answered."""
        client = socket.create_connection((LOOPBACK, self.port), timeout=30, source_address=(source, 0))
        if alive(client):
            self.admitted.append(client)
            return True
        client.close()
        self.refused += 1
        return False

    def keep_living(self) -> None:
        dead = [client for client in self.admitted if not alive(client)]
        for client in dead:
            self.admitted.remove(client)
            client.close()

    def close(self) -> None:
        for client in self.admitted:
            client.close()
        self.admitted.clear()


def alive(client: socket.socket) -> bool:
    try:
        client.sendall(send("orders", opaque=1))
        return len(receive_frame(client)) > 4
    except ConnectionError:
        return False


def test_caps_hold_over_all_workers(start_gateway: StartGateway) -> None:
    with rocketmq_stand_in() as broker, contextlib.ExitStack() as stack:
        listener = {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": broker.address}
        caps = {"max_connections": MOST, "max_connections_per_address": PER_ADDRESS}
        gateway: Gateway = start_gateway(
            [{**listener, **caps}], [], gateway={"name": "caps", "state_directory": "state", "workers": WORKERS}
        )
        clients = Clients(gateway.port("rocket"))
        stack.callback(clients.close)

        def fill() -> None:
            """Each of ten addresses wants twice as many as one may have; all of them want five times as many as there are."""
            for _ in range(2 * PER_ADDRESS):
                for number in range(10):
                    clients.connect(f"127.0.1.{number + 1}")

        def by_address() -> list[int]:
            sources = [client.getsockname()[0] for client in clients.admitted]
            return sorted(sources.count(source) for source in set(sources))

        for _ in range(3 * PER_ADDRESS):
            clients.connect("127.0.1.1")
        assert by_address() == [PER_ADDRESS]
        fill()
        assert len(clients.admitted) == MOST
        assert max(by_address()) == PER_ADDRESS
        workers = {item["worker"] for item in gateway.get("/v1/connections")["items"]}
        assert len(workers) > 1, "they are not one worker's"
        wait_until(lambda: gateway.get("/v1/listeners")["items"][0]["seats"] == {"taken": MOST, "most": MOST}, within=30, what="the sums")

        victim = gateway.get("/v1/status")["workers"][0]
        os.kill(victim["pid"], signal.SIGKILL)
        wait_until(lambda: gateway.get("/v1/status")["workers"][0]["pid"] not in (0, victim["pid"]), within=20, what="another worker")
        wait_until(lambda: gateway.answers("/readyz"), within=20, what="it to serve")
        clients.keep_living()
        assert len(clients.admitted) < MOST
        fill()
        assert len(clients.admitted) == MOST, "its connections count no more, those of the others do"

        text = gateway.config.read_text()
        gateway.config.write_text(text.replace(f"max_connections: {MOST}", f"max_connections: {MOST + 5}"))
        assert "max_connections" in gateway.cli("reload").stdout
        fill()
        assert len(clients.admitted) == MOST + 5


def test_a_rate_of_new_connections_holds_over_all_workers(start_gateway: StartGateway) -> None:
    with rocketmq_stand_in() as broker, contextlib.ExitStack() as stack:
        listener = {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": broker.address}
        gateway: Gateway = start_gateway(
            [{**listener, "max_connection_rate": "10/min"}], [], gateway={"name": "rate", "state_directory": "state", "workers": WORKERS}
        )
        clients = Clients(gateway.port("rocket"))
        stack.callback(clients.close)
        began = time.monotonic()
        for number in range(60):
            clients.connect(f"127.0.1.{number + 1}")
        passed_s = time.monotonic() - began
        assert 1 <= len(clients.admitted) <= 1 + passed_s / 6 + 1, "one at first, then one every six seconds"
        workers = {worker["worker"]: worker["connections"] for worker in gateway.get("/v1/status")["workers"]}
        assert len(workers) == WORKERS
        (shown,) = gateway.get("/v1/listeners")["items"]
        assert shown["connections_refused"]["max_connection_rate"] == clients.refused
        gateway.config.write_text(gateway.config.read_text().replace("10/min", "1000/s"))
        assert "max_connection_rate" in gateway.cli("reload").stdout
        wait_until(lambda: clients.connect("127.0.2.1"), within=30, what="the new rate")
        time.sleep(0.1)  # of the new rate, a hundred connections
        assert all(clients.connect(f"127.0.2.{number + 2}") for number in range(20))


def test_a_console_changes_a_limit_through_any_worker(start_gateway: StartGateway) -> None:
    with rocketmq_stand_in() as broker, contextlib.ExitStack() as stack:
        listener = {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": broker.address}
        remote = {"allow": ["127.0.0.0/8"], "access_keys": ["mqcloud"]}
        gateway: Gateway = start_gateway(
            [{**listener, "remote_admin": remote}], [], gateway={"name": "console", "state_directory": "state", "workers": WORKERS}
        )
        clients = Clients(gateway.port("rocket"))
        stack.callback(clients.close)
        for number in range(10):
            assert clients.connect(f"127.0.1.{number + 1}")
        assert {item["worker"] for item in gateway.get("/v1/connections")["items"]} == {1, 2}, "they are not one worker's"
        for number, client in enumerate(clients.admitted):
            fields = {"topic": "orders", "topicLimitQps": str(100.0 + number), "AccessKey": "mqcloud"}
            client.sendall(encode_request(9003, fields, opaque=7))
            header = json.loads(receive_frame(client)[8:].decode())
            assert (header["code"], header["opaque"]) == (0, 7), header
            level = gateway.get(limit_path("rocketmq", "orders"))["levels"][0]
            assert (level["limit"]["messages"], level["by"]) == (f"{100 + number}/s", "remote-admin mqcloud"), (
                "answered when it is in force"
            )
        last = clients.admitted[-1]
        last.sendall(encode_request(9003, {"topic": "orders", "topicLimitQps": "1.0"}, opaque=8))
        assert json.loads(receive_frame(last)[8:].decode())["code"] == 16, "without an access key it is refused"
        last.sendall(encode_request(9002, {"AccessKey": "mqcloud"}, opaque=9))
        answer = receive_frame(last)
        length = int.from_bytes(answer[4:8], "big") & 0xFFFFFF
        limits = json.loads(answer[8 + length :])["topicRateLimitList"]
        assert [(each["topic"], each["limitQps"]) for each in limits] == [("orders", 109.0)]
