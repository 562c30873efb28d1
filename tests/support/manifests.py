"""Kubernetes manifests of `deploy/` as data: documents, pods, the gateway's container, and the configuration that a ConfigMap holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from support.pages import ROOT

Manifest = dict[str, Any]

DEPLOY: Final = ROOT / "deploy" / "kubernetes"
CHART: Final = ROOT / "deploy" / "helm" / "sluice"
OURS: Final = ROOT / "tests" / "deploy" / "kubernetes"
GOLDEN: Final = OURS / "golden"
VALUES: Final = OURS / "values"
CONSUMER: Final = OURS / "consumer"  # a chart that has ours as dependencies
SIDECAR: Final = CHART / "charts" / "sluice-sidecar"
KUSTOMIZED: Final = ("client", "broker")  # folders of deploy/kubernetes, each a Kustomize base
UNAPPLIED: Final = frozenset({"sidecar.yaml", "ship-sidecar.yaml"})  # parts of a pod, to be added to one


def documents(*files: Path) -> list[Manifest]:
    """All documents of these files, in order."""
    return [each for file in files for each in yaml.load_all(file.read_text(), yaml.CSafeLoader) if each]


def resources(folder: Path) -> list[Path]:
    """The files that a kustomization.yaml names."""
    return [folder / name for name in yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]]


def sets() -> dict[str, list[Manifest]]:
    """What is applied together, by name: the Kustomize bases, and the chart as it is rendered for each file of values."""
    found = {name: documents(*resources(DEPLOY / name)) for name in KUSTOMIZED}
    return found | {file.stem: documents(file) for file in sorted(GOLDEN.glob("helm-*.yaml"))}


def pods(manifests: list[Manifest]) -> Iterator[tuple[Manifest, Manifest]]:
    """Manifests that make pods, with the pod's spec."""
    for each in manifests:
        if each["kind"] in {"Deployment", "StatefulSet"}:
            yield each, each["spec"]["template"]["spec"]
        elif each["kind"] == "CronJob":
            yield each, each["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def containers(pod: Manifest) -> list[Manifest]:
    return [*pod.get("initContainers", []), *pod["containers"]]


def config_files(manifests: list[Manifest]) -> dict[str, str]:
    """The files of the ConfigMap that has a sluice.yaml."""
    (found,) = [each["data"] for each in manifests if each["kind"] == "ConfigMap" and "sluice.yaml" in each["data"]]
    return dict(found)
