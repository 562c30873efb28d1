"""The alerting rules that `deploy/` ships: Prometheus' own tool reads and tests them, and nothing that they name is missing."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import yaml

from support.cases import in_one_loop
from support.pages import shown
from support.processes import HANG_S
from support.prometheus import promtool, unknown_metrics

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "deploy" / "prometheus"
RUNBOOKS: Final = ROOT / "docs" / "runbooks.md"

RULES: Final[list[dict[str, Any]]] = [
    rule for group in yaml.load((FOLDER / "alerts.yaml").read_text(), yaml.CSafeLoader)["groups"] for rule in group["rules"]
]
CASES: Final[list[dict[str, Any]]] = [
    case for test in yaml.load((FOLDER / "alerts_test.yaml").read_text(), yaml.CSafeLoader)["tests"] for case in test["promql_expr_test"]
]
SECTIONS: Final = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", RUNBOOKS.read_text(), re.MULTILINE | re.DOTALL))
PARTS: Final = ("**Means.**", "**See.**", "**Do.**", "**Ends**")  # of a runbook


def ran(*words: str) -> str:
    done = subprocess.run([promtool(), *words], cwd=FOLDER, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, f"promtool {' '.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_promtool_reads_the_rules() -> None:
    assert f"SUCCESS: {len(RULES)} rules found" in ran("check", "rules", "alerts.yaml")


@pytest.mark.slow
def test_each_alert_fires_for_its_series_and_is_silent_for_others() -> None:
    assert "SUCCESS" in ran("test", "rules", "alerts_test.yaml")


@in_one_loop
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_is_tested_explained_and_computed_from_metrics_that_exist(rule: dict[str, Any]) -> None:
    name = rule["alert"]
    tested = {bool(case.get("exp_samples")) for case in CASES if f'alertname="{name}"' in case["expr"]}
    assert tested == {True, False}, "a case in which it fires, and one in which it does not"
    assert set(rule["labels"]) == {"severity"}
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}, "no runbook_url: a link without an address is dead"
    assert rule["annotations"]["runbook"] == f"docs/runbooks.md#{name.lower()}"
    assert name in SECTIONS
    assert unknown_metrics(rule["expr"]) == []


def test_each_runbook_is_of_an_alert_and_has_its_four_parts() -> None:
    assert [*SECTIONS] == [rule["alert"] for rule in RULES], "in the order of the rules"
    for name, text in SECTIONS.items():
        places = [text.find(f"\n{part}") for part in PARTS]
        assert -1 not in places, name
        assert places == sorted(places), name


def test_the_page_about_monitoring_counts_the_rules_and_names_the_critical_ones() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()
    assert f"has {len(RULES)} rules" in page
    (critical,) = re.findall(r"^\| `critical` \| (.*?) \|", page, re.MULTILINE)
    assert critical.split(", ") == [rule["alert"] for rule in RULES if rule["labels"]["severity"] == "critical"]


def test_the_line_of_the_page_makes_a_link_of_each_runbook(tmp_path: Path) -> None:
    """`runbook_url: docs/runbooks.md#...` was a dead link in each notification."""
    shutil.copy(FOLDER / "alerts.yaml", tmp_path)
    subprocess.run(shlex.split(shown("docs/monitoring.md", "runbook_url").text), cwd=tmp_path, check=True)
    changed = yaml.safe_load((tmp_path / "alerts.yaml").read_text())
    rules = [rule for group in changed["groups"] for rule in group["rules"]]
    assert [rule["alert"] for rule in rules] == [*SECTIONS]
    for rule in rules:
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
        address = urlsplit(rule["annotations"]["runbook_url"])
        assert (address.scheme, address.path.rpartition("/")[2], address.fragment) == ("https", "runbooks.md", rule["alert"].lower())


def test_a_metric_that_does_not_exist_is_found() -> None:
    assert unknown_metrics('sum by (job, le) (rate(sluice_nothing_total{topic="sluice_x"}[5m])) > up') == ["sluice_nothing_total"]
    assert unknown_metrics("histogram_quantile(0.9, sluice_overhead_seconds_bucket) / sluice_ready_bucket") == ["sluice_ready_bucket"]
