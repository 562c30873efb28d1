"""Ways in that no package of ours makes, each as a new user goes along its page: until a flood is limited and seen. With a clock.

A real RabbitMQ, a real client. pip, pipx, uv, the Debian package and the images: the files beside this one. `make test-packages`.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.brokers.rabbitmq import RabbitMQ
from support.busy_gateway import BusyGateway
from support.first_limits import Clock, assert_limited, assert_seen, first_queue
from support.floods import flood_until_refused
from support.manifests import DEPLOY, GOLDEN, config_files, documents, resources
from support.packages import PURE, debian, reaching_the_index
from support.pages import ROOT, blocks, shown
from support.pods import pod_of, wait_for_tokens
from support.processes import LOOPBACK, free_ports, wait_until
from support.prometheus import Prometheus
from support.readers import Reader
from support.systemd_namespace import SystemdNamespace
from support.terminals import Terminal

pytestmark = pytest.mark.packages
Remark = Callable[[str, object], None]


def test_the_readme(rabbitmq: RabbitMQ, tmp_path: Path, record_property: Remark) -> None:
    """Its first limit with a file."""
    port, admin = free_ports(2)
    url = f"http://{LOOPBACK}:{admin}"
    places = {"5672": str(port), "5673": str(rabbitmq.port), "9180": str(admin)}
    reader = Reader(tmp_path, places, {"SLUICE_ADMIN": url, "SLUICE_ADMIN__BIND": f"{LOOPBACK}:{admin}"})
    clock = Clock("README.md")
    begin, change = shown("README.md", "cat > sluice.yaml"), shown("README.md", "limits set")
    *files, run = begin.text.splitlines()
    reader.run(replace(begin, text="\n".join(files)))
    with (
        Terminal(["bash", "-c", f"exec {run}"], cwd=tmp_path, env=reader.environment, columns=200) as terminal,
        first_queue(rabbitmq) as queue,
    ):
        terminal.read_until("--help")
        clock.at("started")
        *look, unset = change.text.splitlines()
        assert "100/s" in reader.run(replace(change, text="\n".join(look)))
        counted = assert_limited(f"amqp://guest:guest@{LOOPBACK}:{port}/%2F", queue)
        clock.at("limited")
        (code,) = re.findall(r"#sign-in=(\S+)", terminal.text)
        assert_seen(url, {"code": code}, counted)
        clock.at("seen")
        reader.run(replace(change, text=unset))
    record_property("remark", clock.remark(counted))


def test_systemd(released: Path, rabbitmq: RabbitMQ, tmp_path: Path, record_property: Remark) -> None:
    """Typed by root in a Debian 12 under a real systemd, beside a checkout with the wheel; pip asks the package index."""
    root = debian(tmp_path / "machine")
    reaching_the_index(root)
    (root / "root/dist").mkdir()
    shutil.copy(released / PURE, root / "root/dist")
    shutil.copytree(ROOT / "deploy/systemd", root / "root/deploy/systemd")
    port, admin = free_ports(2)
    url = f"http://{LOOPBACK}:{admin}"
    ports = {"0.0.0.0:5672": port, "127.0.0.1:5673": rabbitmq.port, "127.0.0.1:9180": admin}

    def here(text: str) -> str:
        return re.sub("|".join(map(re.escape, ports)), lambda found: f"{LOOPBACK}:{ports[found[0]]}", text)

    with SystemdNamespace(tmp_path / "systemd", {}, machine=root) as machine, first_queue(rabbitmq) as queue:
        clock = Clock("docs/deploy/systemd.md")
        machine.type(shown("docs/deploy/systemd.md", "python3 -m venv").text)
        clock.at("installed")
        machine.type(here(shown("docs/deploy/systemd.md", "sluice init").text))
        written = root / "etc/sluice/sluice.yaml"
        folders, _ = blocks(ROOT / "docs/deploy/systemd.md", "yaml")
        found = yaml.safe_load(written.read_text())
        for section, values in {**yaml.safe_load(folders.text), "admin": {"bind": f"{LOOPBACK}:{admin}"}}.items():
            found[section] = {**(found.get(section) or {}), **values}
        written.write_text(yaml.safe_dump(found))
        (sockets,) = blocks(ROOT / "docs/deploy/systemd.md", "ini")
        (root / "etc/systemd/system/sluice.socket").write_text(here(f"[Unit]\nDescription=sockets\n{sockets.text}"))
        assert "100/s" in machine.type(shown("docs/deploy/systemd.md", "systemctl enable --now sluice.socket").text, SLUICE_ADMIN=url)
        clock.at("started")
        counted = assert_limited(f"amqp://guest:guest@{LOOPBACK}:{port}/%2F", queue)
        clock.at("limited")
        assert_seen(url, {"token": machine.type(shown("docs/deploy/systemd.md", "cat /var/lib/sluice").text).strip()}, counted)
        clock.at("seen")
    record_property("remark", clock.remark(counted))


@pytest.mark.parametrize("made", ["kustomize", "helm"])
def test_kubernetes(made: str, rabbitmq: RabbitMQ, tmp_path: Path, record_property: Remark) -> None:
    """The page's commands with a stand-in for kubectl; the pod's gateway has the ConfigMap of the plain manifests, or that of the chart.

    Its action is delay: what is over the limit waits, and nothing is refused.
    """
    page = "docs/deploy/kubernetes.md"
    of = resources(DEPLOY / "client") if made == "kustomize" else [GOLDEN / "helm-application.yaml"]
    clock = Clock(f"{page}, {made}")
    with pod_of(config_files(documents(*of)), f"{LOOPBACK}:{rabbitmq.port}", tmp_path) as (gateway, reader), first_queue(rabbitmq) as queue:
        reader.run(shown(page, "create secret generic"))
        reader.run(shown(page, "kubectl apply -k"))
        clock.at("started")
        reader.run(shown(page, "limits get amqp"))
        counted = assert_limited(gateway.amqp_url(), queue, held=True)
        clock.at("limited")
        wait_for_tokens(gateway)
        assert_seen(gateway.admin, {"token": reader.run(shown(page, "get secret"))}, counted)
        clock.at("seen")
    record_property("remark", clock.remark(counted))


def test_compose(rabbitmq: RabbitMQ, tmp_path: Path, record_property: Remark) -> None:
    """sluice and a real Prometheus with the files of deploy/compose, without containers: the board's own query sees what is refused."""
    files = ROOT / "deploy/compose"
    port, probes = free_ports(2)
    url = f"amqp://guest:guest@{LOOPBACK}:{port}/%2F"
    gateway = BusyGateway(tmp_path, f"{LOOPBACK}:1", f"{LOOPBACK}:1", [])
    places = {
        "rabbitmq:5672": f"{LOOPBACK}:{rabbitmq.port}", "0.0.0.0:5672": f"{LOOPBACK}:{port}", "0.0.0.0:9181": f"{LOOPBACK}:{probes}",
        "/var/lib/sluice": str(tmp_path / "state"), "/var/log/sluice": str(tmp_path / "log"),
    }  # fmt: skip
    text = (files / "sluice.yaml").read_text()
    for theirs, ours in places.items():
        text = text.replace(theirs, ours)
    gateway.config.write_text(f"{text}admin: {{bind: '{gateway.admin}'}}\n".replace("http://", ""))
    gateway.rules_file.write_text((files / "limits.yaml").read_text())
    scraping: dict[str, Any] = yaml.safe_load((files / "prometheus.yaml").read_text())
    scraping["scrape_configs"][0]["static_configs"] = [{"targets": [f"{LOOPBACK}:{probes}"]}]
    scraping["rule_files"] = [str(ROOT / "deploy/prometheus/alerts.yaml")]
    board = json.loads((ROOT / "deploy/grafana/sluice.json").read_text())
    (panel,) = [each for each in board["panels"] if each["title"] == "Refused and dropped"]
    query = re.sub(r"\$(?!__)\w+", ".*", panel["targets"][0]["expr"]).replace("$__rate_interval", "60s")
    clock = Clock("deploy/compose")
    with gateway, Prometheus(tmp_path / "prometheus", scraping) as prometheus, first_queue(rabbitmq) as queue:
        clock.at("started")
        counted = assert_limited(url, queue)
        clock.at("limited")

        def drawn() -> bool:
            flood_until_refused(url, "orders", "order.created", refused=1)  # a rate takes two scrapes that differ
            return any(float(each["value"][1]) > 0 for each in prometheus.query(query))

        wait_until(drawn, within=120, what="the board's query sees it", every=1)
        clock.at("seen")
    record_property("remark", clock.remark(counted))
