"""Prometheus: its tool `promtool`, a server of a test's own, and which metrics an expression names."""

from __future__ import annotations

import json
import re
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from gateway.telemetry.metrics import HISTOGRAM, METRICS
from support.processes import LOOPBACK, Process, free_ports
from support.ran import ran, version_by

OTHERS: Final = ("up",)  # made by Prometheus itself
_NAME: Final = re.compile(r"\b(?:sluice_\w+|process_\w+|up)\b")
_TEXT: Final = re.compile(r'"[^"]*"')


def installed(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise FileNotFoundError(f"{program} is not installed: sh deploy/system-packages.sh prometheus")
    return found


def promtool() -> str:
    return installed("promtool")


def names_in(expression: str) -> list[str]:
    """The metrics that an expression names."""
    return _NAME.findall(_TEXT.sub("", expression))


def unknown_metrics(expression: str) -> list[str]:
    """Those of them that no gateway has; an expression that names none at all is an error."""
    names = names_in(expression)
    assert names, expression
    endings = {HISTOGRAM: ("_bucket", "_sum", "_count")}
    series = {f"{metric.name}{end}" for metric in METRICS.values() for end in endings.get(metric.kind, ("",))}
    return [name for name in names if name not in series and name not in OTHERS]


def each_second(target: str, token_file: Path, rules: Path) -> dict[str, Any]:
    """A configuration that scrapes one target each second."""
    job = {
        "job_name": "sluice", "authorization": {"credentials_file": str(token_file)}, "static_configs": [{"targets": [target]}],
    }  # fmt: skip
    return {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(rules)], "scrape_configs": [job]}


class Prometheus:
    """A server on a free port; a context manager. Its data is in `folder`."""

    def __init__(self, folder: Path, configuration: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.address = f"{LOOPBACK}:{free_ports(1)[0]}"
        self._configuration = folder / "prometheus.yml"
        self._configuration.write_text(yaml.safe_dump(dict(configuration)))
        self._folder = folder

    def __enter__(self) -> Prometheus:
        argv = [
            installed("prometheus"), f"--config.file={self._configuration}", f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address={self.address}", "--log.level=warn",
        ]  # fmt: skip
        self._process = Process(argv, log=self._folder / "prometheus.log", cwd=self._folder)
        self._process.wait_until(self._ready, within=60, what="Prometheus is ready")
        ran("Prometheus", version_by(installed("prometheus"), "--version"))
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def ask(self, path: str, **parameters: str) -> Any:
        """`data` of an answer of its API; a query with a mistake is an error with its words."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{parameters}: {error.read().decode()}") from None

    def query(self, expression: str) -> list[Mapping[str, Any]]:
        """The series of an expression now."""
        found: list[Mapping[str, Any]] = self.ask("query", query=expression)["result"]
        return found
