"""Caps on connections of a gateway with several workers: they hold over all of them, also after one was killed and by a reload."""

from __future__ import annotations

import contextlib
import os
import signal
import socket

from support.brokers.stand_ins import rocketmq as rocketmq_stand_in
from support.gateways import Gateway, StartGateway
from support.processes import LOOPBACK, wait_until
from support.rocketmq.frames import send
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
