"""Every block of YAML in the pages is read by the program that it is for: the gateway's own loader, the pins', Prometheus' `promtool`.

A fragment is put where it belongs by its top-level keys: what a configuration needs besides (a listener, a rule) is added. Grafana and
Kubernetes are not here; of what is for them, the names are held against ours.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final, cast

import jsonschema
import pytest
import yaml

from admin.endpoints import ROUTES
from cli.main import main
from config.schema import schema
from spark_jobs.method.pins import read_pins
from support.cases import in_one_loop
from support.manifests import CHART
from support.pages import ROOT, Block, blocks, pages
from support.processes import HANG_S
from support.prometheus import promtool
from support.tls import Authority

SHOWN: Final = [block for page in pages() for block in blocks(page, "yaml")]
SECTIONS: Final = set(cast(dict[str, Any], schema()["properties"]))
LISTENERS: Final = """\
listeners:
  - {name: rabbit, protocol: amqp, bind: 127.0.0.1:5672, upstream: 127.0.0.1:5673}
  - {name: rocket, protocol: rocketmq, bind: 127.0.0.1:10911, upstream: 127.0.0.1:10912}
"""
RULES: Final = "rules:\n  - name: any\n    match: {protocol: amqp}\n    per: listener\n    limit: {messages: 20000/s}\n"
VALUES: Final = set(yaml.safe_load((CHART / "values.yaml").read_text()))
KUBERNETES: Final = {"ports", "startupProbe", "livenessProbe", "readinessProbe"}

KINDS: Final[dict[str, set[str]]] = {
    "adapt": {"adapt"},
    "pins": {"pins"},
    "prometheus": {"scrape_configs", "rule_files"},
    "grafana": {"apiVersion", "providers"},
    "kubernetes": KUBERNETES,
    "settings": SECTIONS,
    "values": VALUES,
}


def kind_of(found: Any) -> str:
    keys = set(found) if isinstance(found, dict) else set()
    if isinstance(found, list) and all("limit" in each for each in found):
        return "rules"
    for kind, wanted in KINDS.items():
        if keys and keys <= wanted:
            return kind
    return "unknown"


def configuration(kind: str, text: str) -> str:
    """A whole one around what a block has; its own text stays as the page has it."""
    if kind == "rules":
        return f"{LISTENERS}rules:\n{text}"
    if kind == "adapt":  # as deep as a rule's members are
        return f"{LISTENERS}{RULES}{text}"
    has = yaml.safe_load(text)
    return text + (LISTENERS if "listeners" not in has else "") + (RULES if "rules" not in has else "")


OURS: Final = [block for block in SHOWN if kind_of(yaml.load(block.text, yaml.CSafeLoader)) in {"rules", "adapt", "settings"}]


@in_one_loop
@pytest.mark.parametrize("block", SHOWN, ids=lambda block: block.id)
def test_a_block_is_for_a_program_that_we_know(block: Block) -> None:
    assert kind_of(yaml.load(block.text, yaml.CSafeLoader)) != "unknown", block.text


@pytest.mark.parametrize("block", OURS, ids=lambda block: block.id)
def test_the_gateway_reads_it(block: Block, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Authority(tmp_path / "tls", "webhook-ca")
    authority = Authority(tmp_path / "tls", "operators-ca")
    authority.issue("admin", "sluice.monitoring.svc")
    file = tmp_path / "sluice.yaml"
    file.write_text(configuration(kind_of(yaml.load(block.text, yaml.CSafeLoader)), block.text))
    code = main(["check", "-c", str(file)])
    assert code == 0, f"{block.id}\n{file.read_text()}\n{capsys.readouterr().err}"


def of_kind(kind: str) -> list[Block]:
    return [block for block in SHOWN if kind_of(yaml.load(block.text, yaml.CSafeLoader)) == kind]


@pytest.mark.slow
@pytest.mark.parametrize("block", of_kind("prometheus"), ids=lambda block: block.id)
def test_prometheus_reads_it(block: Block, tmp_path: Path) -> None:
    (tmp_path / "sluice.token").write_text("token")
    shutil.copy(ROOT / "deploy" / "prometheus" / "alerts.yaml", tmp_path)
    (tmp_path / "prometheus.yml").write_text(block.text.replace("/etc/prometheus", str(tmp_path)))
    words = [promtool(), "check", "config", "prometheus.yml"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("block", of_kind("pins"), ids=lambda block: block.id)
def test_the_nightly_job_reads_it(block: Block) -> None:
    assert len(read_pins(block.text.encode())) == len(yaml.safe_load(block.text)["pins"])


@pytest.mark.parametrize("block", of_kind("grafana"), ids=lambda block: block.id)
def test_grafanas_provider_names_our_dashboard(block: Block) -> None:
    (provider,) = yaml.safe_load(block.text)["providers"]
    assert (provider["type"], set(provider["options"])) == ("file", {"path"})
    (named,) = re.findall(r"# (\S+\.json) is in here", block.text)
    assert (ROOT / "deploy" / "grafana" / named).is_file()


@pytest.mark.parametrize("block", of_kind("kubernetes"), ids=lambda block: block.id)
def test_kubernetes_probes_are_paths_of_ours(block: Block) -> None:
    found = yaml.safe_load(block.text)
    ports = {each["name"]: each["containerPort"] for each in found["ports"]}
    page = (ROOT / block.page).read_text()
    paths = {str(route.template) for route in ROUTES}
    for name in KUBERNETES - {"ports"}:
        asked = found[name]["httpGet"]
        assert asked["path"] in paths
        assert f"bind: 0.0.0.0:{ports[asked['port']]}" in page


@pytest.mark.parametrize("block", of_kind("values"), ids=lambda block: block.id)
def test_the_chart_takes_the_values(block: Block) -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text()) | yaml.safe_load(block.text)
    checked = jsonschema.Draft202012Validator(json.loads((CHART / "values.schema.json").read_text()))
    assert [each.message for each in checked.iter_errors(values)] == []


def test_there_are_blocks_of_every_kind() -> None:
    kinds = [kind_of(yaml.load(block.text, yaml.CSafeLoader)) for block in SHOWN]
    assert {"rules", "adapt", "settings", "pins", "prometheus", "grafana", "kubernetes", "values"} == set(kinds)
    assert len(OURS) >= 25
