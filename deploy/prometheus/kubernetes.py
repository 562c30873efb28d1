"""Writes alerts.yaml as a PrometheusRule for the Prometheus Operator: `make docs`. A test compares the two."""

from __future__ import annotations

from pathlib import Path
from typing import Final

DEPLOY: Final = Path(__file__).resolve().parents[1]
RULES: Final = DEPLOY / "prometheus" / "alerts.yaml"
TARGETS: Final = (DEPLOY / "kubernetes" / "monitoring" / "prometheusrule.yaml", DEPLOY / "helm" / "sluice" / "files" / "alerts.yaml")
HEAD: Final = """\
# Written from deploy/prometheus/alerts.yaml by deploy/prometheus/kubernetes.py (`make docs`).
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: sluice
  labels: {app.kubernetes.io/component: sluice}
spec:
"""


def prometheus_rule() -> str:
    """The manifest; comments of the rules go along, those at the head of the file do not."""
    text = RULES.read_text()
    groups = text[text.index("groups:\n") :]
    return HEAD + "".join(f"  {line}" if line.strip() else line for line in groups.splitlines(keepends=True))


def main() -> None:
    for target, text in zip(TARGETS, (prometheus_rule(), RULES.read_text()), strict=True):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


if __name__ == "__main__":
    main()
