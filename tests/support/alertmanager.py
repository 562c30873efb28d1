"""A real Alertmanager, as Debian has it, for a test's own use."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

from support.processes import LOOPBACK, Process, free_ports
from support.prometheus import installed


class Alertmanager:
    """On a free port, alone, with its data in `folder`; it sends what it has to the webhook `receiver`. A context manager."""

    def __init__(self, folder: Path, receiver: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.url = f"http://{LOOPBACK}:{free_ports(1)[0]}"
        self._configuration = folder / "alertmanager.yml"
        self._configuration.write_text(
            json.dumps(
                {
                    "route": {"receiver": "tests", "group_by": ["alertname", "gateway"], "group_wait": "0s", "group_interval": "1s"},
                    "receivers": [{"name": "tests", "webhook_configs": [{"url": receiver, "send_resolved": True}]}],
                }
            )
        )

    def __enter__(self) -> Alertmanager:
        argv = [
            installed("prometheus-alertmanager"), f"--config.file={self._configuration}", f"--storage.path={self._folder / 'data'}",
            f"--web.listen-address={self.url.removeprefix('http://')}", "--cluster.listen-address=", "--log.level=warn",
        ]  # fmt: skip
        self._process = Process(argv, log=self._folder / "alertmanager.log", cwd=self._folder)
        self._process.wait_until(self._ready, within=60, what="Alertmanager is ready")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def alerts(self) -> list[Any]:
        """What it has, as its API shows it."""
        with urllib.request.urlopen(f"{self.url}/api/v2/alerts", timeout=30) as answer:
            found: list[Any] = json.load(answer)
            return found
