"""The pages of docs/deploy: each block as the page shows it, on a machine that has neither Kubernetes nor systemd as its first process.

Stand-ins take what the real programs would take (support/readers.py); behind them runs a real gateway with the configuration shipped.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.brokers.stand_ins import rabbitmq as rabbitmq_stand_in
from support.busy_gateway import BusyGateway
from support.floods import AMQPFlood
from support.gateways import command
from support.manifests import DEPLOY, config_files, documents, resources
from support.pages import ROOT, blocks, shown
from support.pods import pod_of, wait_for_tokens
from support.processes import HANG_S, LOOPBACK, accepts, free_ports, wait_until
from support.readers import DEPLOY_FOLDER, HELM, SYSTEMCTL, Reader

pytestmark = pytest.mark.slow  # a gateway for each page


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[tuple[BusyGateway, Reader]]:
    """The pod of deploy/kubernetes/client."""
    with rabbitmq_stand_in() as broker, pod_of(config_files(documents(*resources(DEPLOY / "client"))), broker.address, tmp_path) as made:
        yield made


def test_kubernetes_from_nothing_to_a_limited_message(pod: tuple[BusyGateway, Reader]) -> None:
    gateway, reader = pod
    reader.run(shown("docs/deploy/kubernetes.md", "create secret generic"))
    assert "ready, up " in reader.run(shown("docs/deploy/kubernetes.md", "kubectl apply -k"))
    with AMQPFlood(gateway.port("rabbit"), messages=100):
        said = reader.run(shown("docs/deploy/kubernetes.md", "limits get amqp"))
        assert "100/s" in said
        wait_until(lambda: gateway.refuses("amqp", "%2F/orders/order.created"), within=60, what="the topic is over its limit")
    wait_for_tokens(gateway)
    reader.run(shown("docs/deploy/kubernetes.md", "get secret"))
    assert reader.outputs[-1] == Path(reader.environment["SECRETS"], "operators").read_text().strip()


def test_helms_command_names_the_chart(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text("")
    Reader(tmp_path, {" deploy/": f" {DEPLOY_FOLDER}"}, {}, {"helm": HELM}).run(shown("docs/deploy/kubernetes.md", "helm install"))


def test_systemd_from_nothing_to_a_limit(tmp_path: Path) -> None:
    """Its folders lie in the test's own; `pip` and `systemctl` stand in. The gateway then runs with the configuration that came of it.

    The units themselves run under a real systemd in tests/end_to_end/test_systemd.py.
    """
    for name in ("opt", "usr/bin", "etc/systemd/system", "etc/sluice", "var/lib", "var/log"):
        (tmp_path / name).mkdir(parents=True)
    with rabbitmq_stand_in() as broker:
        port, admin = free_ports(2)
        names = ("/etc/systemd", "/etc/sluice", "/opt/sluice", "/usr/bin/sluice", "/var/lib", "/var/log")
        places = {name: f"{tmp_path}{name}" for name in names} | {" deploy/": f" {DEPLOY_FOLDER}"}
        places |= {"127.0.0.1:5673": broker.address, "0.0.0.0:5672": f"{LOOPBACK}:{port}"}
        venv = 'mkdir -p "$3/bin" && cp "$READER/programs/pip" "$READER/programs/sluice" "$3/bin"'
        pip = '[ "$*" = "install dist/sluice_gateway-*.whl" ]'
        stand_ins = {"pip": pip, "python3": f'[ "$1 $2" = "-m venv" ] && {venv}', "systemctl": SYSTEMCTL}
        environment = {"SLUICE_ADMIN": f"http://{LOOPBACK}:{admin}", "SLUICE_ADMIN__BIND": f"{LOOPBACK}:{admin}"}
        reader = Reader(tmp_path, places, environment, stand_ins)
        reader.run(shown("docs/deploy/systemd.md", "python3 -m venv"))
        reader.run(shown("docs/deploy/systemd.md", "sluice init"))
        written = tmp_path / "etc" / "sluice" / "sluice.yaml"
        folders, takeover = blocks(ROOT / "docs" / "deploy" / "systemd.md", "yaml")
        found = yaml.safe_load(written.read_text())
        for part in (folders, takeover):
            for section, values in yaml.safe_load(part.text.replace("/var/", f"{tmp_path}/var/")).items():
                found[section] = {**(found.get(section) or {}), **values}
        written.write_text(yaml.safe_dump(found))
        (sockets,) = blocks(ROOT / "docs" / "deploy" / "systemd.md", "ini")
        (tmp_path / "etc/systemd/system/sluice.socket").write_text(f"[Unit]\nDescription=sockets\n{sockets.text}")
        verified = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(tmp_path / "etc/systemd/system/sluice.socket")],
            capture_output=True, text=True, timeout=HANG_S, check=False,
        )  # fmt: skip
        assert "sluice.socket" not in verified.stderr
        process = reader.start("sluice run -c /etc/sluice/sluice.yaml")
        try:
            process.wait_until(lambda: accepts(LOOPBACK, admin), within=60, what="the gateway")
            said = reader.run(shown("docs/deploy/systemd.md", "systemctl enable --now sluice.socket"))
            assert "100/s" in said
            with AMQPFlood(port, messages=100):
                words = [*command(), "events", "-o", "json", "--token-file", str(tmp_path / "var/lib/sluice/admin.token")]

                def events() -> str:
                    return subprocess.run(words, env=reader.environment, capture_output=True, text=True, timeout=HANG_S, check=True).stdout

                wait_until(lambda: "limit_reached" in events(), within=60, what="the topic is over its limit")
        finally:
            reader.close()


def test_a_fleet_is_changed_and_brought_back(tmp_path: Path) -> None:
    with rabbitmq_stand_in() as broker:
        first, second = (BusyGateway(tmp_path / f"gateway-{number}", broker.address, broker.address, []) for number in range(2))
        first.until = second.until = "/livez"  # one stand-in cannot speak both protocols
        with first, second:
            places = {"127.0.0.1:9180": f"{LOOPBACK}:{first.admin_port}", "127.0.0.1:9280": f"{LOOPBACK}:{second.admin_port}"}
            for number, gateway in enumerate((first, second)):
                places[f"/etc/sluice/gateway-{number}.token"] = str(gateway.directory / "state" / "admin.token")
            reader = Reader(tmp_path, places, {})
            reader.run(shown("docs/deploy/fleet.md", "sluice fleet status"))

            def changes() -> list[int]:
                return [len(gateway.get("/v1/live-changes")["changes"]) for gateway in (first, second)]

            reader.run(shown("docs/deploy/fleet.md", "sluice fleet apply"))
            assert changes() == [1, 1]
            reader.run(shown("docs/deploy/fleet.md", "sluice fleet rollback"))
            assert changes() == [0, 0]
            first.cli("limits", "set", "rocketmq", "orders", "--messages", "5/s")
            assert changes() == [1, 0]
            reader.run(shown("docs/deploy/fleet.md", "sluice fleet sync"))
            assert changes() == [1, 1]
