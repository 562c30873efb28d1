"""What a start imports: nothing that only few gateways, or only one command, have use for. Every restart pays for it, and every test.

A module costs 0.3 ms and 40 kB on average (2026-11). What is missing here fails where it is first used, so a name in ABSENT is only right
where that use imports it.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from support.gateways import command
from support.processes import LOOPBACK, Process, free_ports, wait_until

IMPORTED: Final = re.compile(r"^import time: +\d+ \| +\d+ \| *(\S+)$", re.MULTILINE)
TIMED: Final = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}

# Of the standard library and of others.
ABSENT: Final = (
    "argparse", "asyncio", "boto3", "concurrent.futures.process", "email", "html", "http.client", "http.server", "multiprocessing", "numpy",
    "opentelemetry", "pamqp", "pyarrow", "redis", "sqlite3", "tomllib", "unittest", "urllib.request", "xml", "zstandard",
)  # fmt: skip
# Ours: other verbs, and what only few configurations want.
OURS_ABSENT: Final = (
    "admin.alerting.hook", "cli.client_advice", "cli.limits", "cli.live", "cli.log", "cli.quotas", "cli.rules", "cli.top", "cli.why",
    "common.log_files.ship", "control_plane.workers", "gateway.broker_load.amqp", "gateway.fleet.fleet", "gateway.telemetry.span_export",
    "gateway.workers", "spark_jobs",
)  # fmt: skip
MOST_OURS: Final = 520  # of a gateway, interpreted, where each module counts: 520 (2026-12); of the compiled build, 300
MOST_OTHERS: Final = 325  # of a gateway: 311 (2026-11)


def imported(said: str) -> set[str]:
    """Modules, ours as they are called in the repository."""
    return {name.removeprefix("sluice.") for name in IMPORTED.findall(said)}


def within(modules: set[str], packages: tuple[str, ...]) -> set[str]:
    return {name for name in modules for package in packages if name == package or name.startswith(f"{package}.")}


def is_ours(name: str) -> bool:
    return name.partition(".")[0] in {"admin", "cli", "common", "config", "control_plane", "gateway", "limiter", "spark_jobs"}


def of_command(*words: str, directory: Path) -> set[str]:
    done = subprocess.run([*command(), *words], capture_output=True, text=True, check=False, env=TIMED, cwd=directory, timeout=60)
    assert done.returncode in {0, 4}, done.stderr[-2000:]  # 4: there is no gateway
    return imported(done.stderr)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    port, upstream, admin = free_ports(3)
    file = tmp_path / "sluice.yaml"
    file.write_text(
        f"listeners: [{{name: rabbit, protocol: amqp, bind: '{LOOPBACK}:{port}', upstream: '{LOOPBACK}:{upstream}'}}]\n"
        f"admin: {{bind: '{LOOPBACK}:{admin}'}}\n"
    )
    return file


def test_a_gateway_starts_without_what_it_does_not_use(config: Path) -> None:
    log = config.parent / "log"
    with Process([*command(), "run", "-c", str(config)], log=log, cwd=config.parent, env=TIMED) as process:
        wait_until(lambda: '"event": "started"' in process.output(), within=60, what="the gateway to serve")
        modules = imported(process.output())
    assert {"trio", "limiter.limits", "gateway.app", "admin.app"} <= modules
    assert within(modules, ABSENT + OURS_ABSENT) == set()
    ours = {name for name in modules if is_ours(name)}
    assert len(ours) <= MOST_OURS
    assert len(modules - ours) <= MOST_OTHERS


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        (("--version",), ("trio", "yaml", "config", "admin", "h11", "ssl", "limiter.judge", "cli.why")),
        (("check", "sluice.yaml"), ("trio", "admin", "h11", "gateway.app", "limiter.judge", "cli.why")),
        (("why", "amqp", "/", "orders", "created"), ("trio", "yaml", "admin", "h11", "gateway", "limiter.judge", "spark_jobs")),
        (("limits", "list"), ("trio", "yaml", "admin", "h11", "gateway", "limiter.judge", "spark_jobs")),
    ],
    ids=lambda words: words[0],
)
def test_a_command_starts_without_a_gateway(words: tuple[str, ...], absent: tuple[str, ...], config: Path) -> None:
    empty = config.parent / "empty"  # where no configuration leads to a token
    empty.mkdir()
    modules = of_command(*words, directory=config.parent if "check" in words else empty)
    assert "click" in modules
    assert within(modules, (*absent, "asyncio", "argparse", "multiprocessing", "pamqp", "redis", "numpy")) == set()
