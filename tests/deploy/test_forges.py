"""The workflow files of GitHub and GitLab, and the compose file: what they name is there. Their linters: `make lint-forges`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from config import lint, load
from support.environments import ROOT

WORKFLOWS = [*sorted((ROOT / ".github" / "workflows").glob("*.yml")), ROOT / ".gitlab-ci.yml"]
CHART_AND_COMPOSE = ROOT / "deploy" / "compose"


def strings(value: object) -> list[str]:
    """All texts within what YAML has read."""
    if isinstance(value, dict):
        return [text for each in value.values() for text in strings(each)]
    if isinstance(value, list):
        return [text for each in value for text in strings(each)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_targets_and_programs_that_a_workflow_calls_are_there(file: Path) -> None:
    said = "\n".join(strings(yaml.safe_load(file.read_text())))
    targets = {name for called in re.findall(r"^make (.*)$", said, re.MULTILINE) for name in called.split() if "=" not in name}
    rules = set(re.findall(r"^([a-z0-9-]+)(?: [a-z0-9-]+)*:", (ROOT / "Makefile").read_text(), re.MULTILINE)) | {"deb", "image"}
    assert targets <= rules
    programs = set(re.findall(r"(?<![\w/-])((?:deploy|\.ci)/[\w./-]+)", said))
    assert programs, "each runs something of this project"
    assert [name for name in programs if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_every_checkout_has_all_commits(file: Path) -> None:
    """The version counts them."""
    read: dict[str, Any] = yaml.safe_load(file.read_text())
    if file.name == ".gitlab-ci.yml":
        assert read["variables"]["GIT_DEPTH"] == "0"
        return
    builds = [job for job in read["jobs"].values() if "make " in (said := "\n".join(strings(job))) or ".ci/run" in said]
    assert builds
    for job in builds:
        depths = [step["with"]["fetch-depth"] for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")]
        assert depths == [0]


def test_wheels_are_built_for_each_python_that_the_package_names() -> None:
    named = re.findall(r"Python :: 3\.(\d\d)", (ROOT / "pyproject.toml").read_text())
    wanted = " ".join(f"cp3{minor}-*" for minor in named)
    for file in WORKFLOWS[1:]:
        assert f"CIBW_BUILD: {wanted}\n" in file.read_text()


def test_the_compose_file_mounts_what_is_there_and_a_configuration_that_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    read = yaml.safe_load((CHART_AND_COMPOSE / "compose.yaml").read_text())
    mounted = [volume.split(":")[0] for service in read["services"].values() for volume in service.get("volumes", ())]
    assert [name for name in mounted if name.startswith(".") and not (CHART_AND_COMPOSE / name).resolve().is_file()] == []
    assert {name for name in mounted if not name.startswith(".")} == set(read["volumes"])
    build = read["services"]["sluice"]["build"]
    assert (CHART_AND_COMPOSE / build["context"] / build["dockerfile"]).resolve().is_file()
    settings = load(CHART_AND_COMPOSE / "sluice.yaml")
    assert list(lint(settings)) == []
    port = settings.listeners[0].bind.port
    assert read["services"]["sluice"]["ports"] == [f"{port}:{port}"]
    (scraped,) = yaml.safe_load((CHART_AND_COMPOSE / "prometheus.yaml").read_text())["scrape_configs"][0]["static_configs"]
    assert settings.probes is not None
    assert scraped["targets"] == [f"sluice:{settings.probes.bind.port}"]
