"""PROXY headers, in one process and in several: believed of the peers that the configuration names, or a reload, and of no others."""

from __future__ import annotations

import json
import socket

import pytest
import yaml

from gateway.transport import proxy_protocol
from gateway.transport.proxy_protocol import Ends
from support.amqp.frames import PROTOCOL_HEADER
from support.gateways import Gateway, StartGateway, amqp_listener
from support.processes import free_ports, wait_until

HEADER = proxy_protocol.write(Ends(("192.0.2.7", 4711), ("127.0.0.1", 5672)))
ADMITTED, REFUSED = "upstream_unreachable", "proxy_protocol"  # there is no broker


def closed(gateway: Gateway) -> dict[str, int]:
    (listener,) = gateway.get("/v1/listeners")["items"]
    return dict(listener["connections_closed"])


def comes_from(gateway: Gateway, source: str, cause: str) -> None:
    """A client connects from `source`, and is closed for this cause."""
    before = closed(gateway).get(cause, 0)
    with socket.create_connection(("127.0.0.1", gateway.port("rabbit")), timeout=10, source_address=(source, 0)) as client:
        client.sendall(HEADER + PROTOCOL_HEADER)
        wait_until(lambda: closed(gateway).get(cause, 0) == before + 1, within=30, what=f"{source}: {cause}")


@pytest.mark.parametrize("workers", [1, 2])
def test_whose_headers_are_believed_is_the_configurations_and_a_reloads(start_gateway: StartGateway, workers: int) -> None:
    listener = amqp_listener(f"127.0.0.1:{free_ports(1)[0]}", accept_proxy_protocol=True, trusted_proxies=["127.0.0.2", "10.0.0.0/8"])
    settings = {"name": "end-to-end", "state_directory": "state", "workers": workers}
    gateway: Gateway = start_gateway([listener], [], until="/livez", gateway=settings)
    comes_from(gateway, "127.0.0.2", ADMITTED)
    comes_from(gateway, "127.0.0.3", REFUSED)
    wait_until(lambda: "127.0.0.3 is not among trusted_proxies" in gateway.log(), within=30, what="the log names the peer")
    (line,) = [line for line in map(json.loads, gateway.log().splitlines()) if line.get("cause") == REFUSED]
    assert line["client"].startswith("127.0.0.3:")

    configuration = yaml.safe_load(gateway.config.read_text())
    configuration["listeners"][0]["trusted_proxies"] = ["127.0.0.3"]
    gateway.config.write_text(yaml.safe_dump(configuration))
    assert any("trusted_proxies" in change for change in gateway.request("POST", "/v1/config:reload").json["in_force"])
    comes_from(gateway, "127.0.0.3", ADMITTED)
    comes_from(gateway, "127.0.0.2", REFUSED)
