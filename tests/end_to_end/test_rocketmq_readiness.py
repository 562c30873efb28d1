"""A RocketMQ that hangs (SIGSTOP), as `test_readiness.py` has it of RabbitMQ (docs/design/reliability.md F21)."""

from __future__ import annotations

from functools import partial

import pytest

from support.brokers.name_servers import port_range
from support.brokers.rocketmq import RocketMQ
from support.gateways import StartGateway
from support.processes import LOOPBACK, seconds_until, wait_until
from support.readiness import changes, reasons


@pytest.mark.rocketmq
def test_a_rocketmq_broker_and_a_name_server_that_hang_are_not_ready_and_ready_again(
    rocketmq: RocketMQ, start_gateway: StartGateway
) -> None:
    """Without a PROXY header and with one: two gateways, while both hang once."""
    gateways = [
        start_gateway(
            [
                {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": f"{LOOPBACK}:{rocketmq.port}",
                 "send_proxy_protocol": sends},
                {"name": "names", "protocol": "rocketmq-nameserver", "bind": f"{LOOPBACK}:0", "upstream": rocketmq.name_server,
                 "send_proxy_protocol": sends, "broker_ports": "{}-{}".format(*port_range(4))},
            ],
            [],
        )
        for sends in ("none", "v2")
    ]  # fmt: skip
    rocketmq.pause()
    try:
        assert seconds_until(lambda: all(len(reasons(gateway)) == 2 for gateway in gateways), what="none is ready") < 10.0
        why = "it takes connections and did not answer a route that nobody has within 3.5 s"
        assert all(why in reason for gateway in gateways for reason in reasons(gateway))
    finally:
        rocketmq.resume()
    for gateway in gateways:
        wait_until(partial(gateway.answers, "/readyz"), within=30, what="both are ready again")
        assert sorted(changes(gateway, at_least=4)) == ["upstream_reachable"] * 2 + ["upstream_unreachable"] * 2
