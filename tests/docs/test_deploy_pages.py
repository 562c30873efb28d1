"""The pages of docs/deploy: each block as the page shows it, on a machine that has neither Kubernetes nor systemd as its first process.

Stand-ins take what the real programs would take (support/readers.py); behind them runs a real gateway with the configuration shipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.brokers.stand_ins import rabbitmq as rabbitmq_stand_in
from support.busy_gateway import BusyGateway
from support.floods import AMQPFlood
from support.manifests import DEPLOY, config_files, documents, resources
from support.pages import ROOT, shown
from support.processes import LOOPBACK, free_ports, wait_until
from support.readers import HELM, KUBECTL, Reader


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[tuple[BusyGateway, Reader]]:
    """The gateway of deploy/kubernetes/client, its ConfigMap and Secret mounted in a folder; and somebody at a shell with kubectl."""
    mount = tmp_path / "pod"
    with rabbitmq_stand_in() as broker:
        gateway = BusyGateway(tmp_path / "other", broker.address, broker.address, [])
        port, probes = free_ports(2)
        places = {
            "/etc/sluice-tokens": str(mount),
            "/var/lib/sluice/state": str(gateway.directory / "state"), "127.0.0.1:5672": f"{LOOPBACK}:{port}",
            "127.0.0.1:9180": f"{LOOPBACK}:{gateway.admin_port}", "0.0.0.0:9181": f"{LOOPBACK}:{probes}",
            "rabbitmq.messaging.svc.cluster.local:5672": broker.address,
        }  # fmt: skip
        mount.mkdir()
        for name, text in config_files(documents(*resources(DEPLOY / "client"))).items():
            for theirs, ours in places.items():
                text = text.replace(theirs, ours)  # noqa: PLW2901
            (mount / name).write_text(text)
        gateway.config = mount / "sluice.yaml"
        environment = {"SLUICE_ADMIN": gateway.admin, "SLUICE_TOKEN_FILE": str(gateway.directory / "state" / "admin.token")}
        reader = Reader(tmp_path, {" deploy/": f" {ROOT}/deploy/"}, environment, {"kubectl": KUBECTL, "helm": HELM})
        reader.environment["SECRETS"] = str(mount)
        with gateway:
            yield gateway, reader


def test_kubernetes_from_nothing_to_a_limited_message(pod: tuple[BusyGateway, Reader]) -> None:
    gateway, reader = pod
    reader.run(shown("docs/deploy/kubernetes.md", "create secret generic"))
    assert "uptime" in reader.run(shown("docs/deploy/kubernetes.md", "kubectl apply -k"))
    with AMQPFlood(gateway.port("rabbit"), messages=100):
        said = reader.run(shown("docs/deploy/kubernetes.md", "limits get amqp"))
        assert "100/s" in said
        wait_until(lambda: gateway.refuses("amqp", "%2F/orders/order.created"), within=60, what="the topic is over its limit")
    gateway.process.wait_until(
        lambda: not any("token" in warning for warning in gateway.get("/v1/status")["warnings"]), within=30,
        what="the tokens, which came after the start",
    )  # fmt: skip


def test_helms_command_names_the_chart(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text("")
    Reader(tmp_path, {" deploy/": f" {ROOT}/deploy/"}, {}, {"helm": HELM}).run(shown("docs/deploy/kubernetes.md", "helm install"))
