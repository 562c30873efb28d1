"""What `make release` leaves, installed into clean environments by pip, pipx and uv; and each small extra alone.

`make test-packages`: it fetches some 100 MB: pip asks the index for what the wheel needs.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from gateway.build import VERSION
from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.clients.newcomers import NEWCOMERS, Newcomers
from support.environments import ROOT
from support.first_limits import Clock, assert_limited, assert_seen, first_queue
from support.packages import PURE, SOURCE, another
from support.pages import shown
from support.processes import HANG_S, LOOPBACK, Process, free_ports
from support.terminals import Terminal

pytestmark = pytest.mark.packages
VENV = f"{shlex.quote(sys.executable)} -m venv"
# extra -> what can be imported with it, and not without it
COMPACTION = "sluice.common.log_files.compaction"
EXTRAS = {"zstd": "zstandard", "redis": "redis", "otel": "opentelemetry.sdk", "ship": "boto3", "compact": COMPACTION}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory, released: Path) -> Path:
    """A folder with dist/ in it."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(released, folder / "dist")
    return folder


def shell(text: str, folder: Path, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SLUICE_", "VIRTUAL_ENV"))}
    clean = kept | {"HOME": str(folder)} | environment
    done = subprocess.run(["sh", "-euxc", text], cwd=folder, env=clean, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
    return done.stdout


def limited_and_seen(sluice: Path, folder: Path, clock: Clock, rabbitmq: RabbitMQ) -> str:
    """The page's commands by this `sluice`, at a terminal in `folder`, until the dashboard shows the flood, entered by the terminal's link.

    Only the ports are this test's. Returns a remark.
    """
    port, admin_port = free_ports(2)
    admin = f"http://{LOOPBACK}:{admin_port}"
    begin, limit = shown("docs/deploy/pip.md", "sluice-env/bin/sluice run").text, shown("docs/deploy/pip.md", "limits set").text
    begin, limit = (text.strip().replace("sluice-env/bin/sluice", str(sluice)) for text in (begin, limit))
    begin = begin.replace(":5670", f":{port}").replace(":5672", f":{rabbitmq.port}")
    words = ["sh", "-c", f"exec {begin} --admin-bind {LOOPBACK}:{admin_port}"]
    with Terminal(words, cwd=folder, columns=200) as terminal, first_queue(rabbitmq) as queue:
        terminal.read_until("--help")
        clock.at("started")
        assert "100/s" in shell(limit, folder, SLUICE_ADMIN=admin)
        counted = assert_limited(f"amqp://guest:guest@{LOOPBACK}:{port}/%2F", queue)
        clock.at("limited")
        (code,) = re.findall(r"#sign-in=(\S+)", terminal.text)
        assert_seen(admin, {"code": code}, counted)
        clock.at("seen")
    return clock.remark(counted)


def test_pip_and_a_first_limit_as_the_page_says(checkout: Path, rabbitmq: RabbitMQ, record_property: Callable[[str, object], None]) -> None:
    clock = Clock("docs/deploy/pip.md")
    assert f"sluice {VERSION} (pure Python" in shell(shown("docs/deploy/pip.md", "-m venv sluice-env").text, checkout)
    clock.at("installed")
    record_property("remark", limited_and_seen(checkout / "sluice-env/bin/sluice", checkout, clock, rabbitmq))
    shell(shown("docs/deploy/pip.md", "--require-hashes").text, checkout)


def test_an_upgrade_under_load_refuses_nobody_as_the_page_says(
    checkout: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """And back again. In front of a real RabbitMQ, with clients that come, publish, wait for the confirm and leave all the time."""
    (tmp_path / "dist").mkdir()
    shutil.copy(checkout / "dist" / PURE, tmp_path / "dist")
    first = shown("docs/deploy/pip.md", "-m venv sluice-env").text
    *install, begin = shown("docs/deploy/pip.md", "-m venv sluice-next").text.strip().splitlines()
    shell(first, tmp_path)
    (tmp_path / "dist" / PURE).unlink()
    another(checkout / "dist" / PURE, tmp_path / "dist", "99.0")
    shell("\n".join(install), tmp_path)
    (port, admin_port) = free_ports(2)
    admin = f"{LOOPBACK}:{admin_port}"

    def status() -> str:
        words = ["sluice-env/bin/sluice", "status", "-o", "json", "--admin", f"http://{admin}"]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=HANG_S).stdout

    with RabbitMQ(tmp_path / "rabbitmq") as rabbitmq, Queue(rabbitmq.url, "upgraded") as queue:
        words = begin.replace(":5670", f":{port}").replace(":5672", f":{rabbitmq.port}").replace("--limit 500/s", "--limit 100k/s")

        def run(environment: str) -> Process:
            command = words.replace("sluice-next", environment)
            return Process(["sh", "-c", f"exec {command} --admin-bind {admin}"], log=tmp_path / f"log-{environment}", cwd=tmp_path)

        running = run("sluice-env")
        newcomers = Newcomers(port, "upgraded")
        try:
            running.wait_until(lambda: f'"version": "{VERSION}"' in status(), within=60, what="the gateway")
            with newcomers.coming():
                for environment, version in (("sluice-next", "99.0"), ("sluice-env", VERSION)):
                    running.wait_until(partial(newcomers.have_confirmed, len(newcomers.confirmed) + 50), within=60, what="confirms")
                    before, running = running, run(environment)
                    assert before.popen.wait(HANG_S) == 0, before.output()[-3000:]
                    running.wait_until(partial(newcomers.have_confirmed, len(newcomers.confirmed) + 50), within=60, what="confirms")
                    assert re.search(rf'"version": *"{re.escape(version)}"', status())
        finally:
            running.stop()
        stored = queue.drain()
    record_property("remark", f"{len(newcomers.confirmed)} confirmed, {newcomers.told} told to reconnect")
    assert newcomers.faults == []
    assert set(newcomers.confirmed) <= set(stored)
    assert len(stored) == len(set(stored))
    assert newcomers.told <= 2 * NEWCOMERS


def test_pipx_and_uv_as_the_page_says(
    checkout: Path, tmp_path: Path, rabbitmq: RabbitMQ, record_property: Callable[[str, object], None]
) -> None:
    by_pipx, by_uv = shown("docs/deploy/pip.md", "pipx install").text.splitlines()
    (tmp_path / "dist").symlink_to(checkout / "dist")
    assert shutil.which("pipx") is not None, "make test-packages installs it"
    clock = Clock("docs/deploy/pip.md, pipx")
    shell(by_pipx, tmp_path, PIPX_HOME=str(tmp_path / "pipx"), PIPX_BIN_DIR=str(tmp_path / "a"), PIPX_DEFAULT_PYTHON=sys.executable)
    clock.at("installed")
    record_property("remark", limited_and_seen(tmp_path / "a/sluice", tmp_path, clock, rabbitmq))
    uv = ROOT / "build/tools/bin"
    assert (uv / "uv").exists(), "make test-packages installs it"
    places = {"UV_TOOL_DIR": str(tmp_path / "uv"), "UV_TOOL_BIN_DIR": str(tmp_path / "b"), "UV_PYTHON": sys.executable}
    clock = Clock("docs/deploy/pip.md, uv")
    shell(by_uv, tmp_path, PATH=f"{uv}:{os.environ['PATH']}", **places)
    clock.at("installed")
    record_property("remark", limited_and_seen(tmp_path / "b/sluice", tmp_path, clock, rabbitmq))
    (example,) = tmp_path.glob("uv/**/sluice/config/sluice.yaml")
    for folder in ("a", "b"):
        said = shell(f"{folder}/sluice --version; {folder}/sluice check {example} 2>&1", tmp_path)
        assert f"sluice {VERSION} (" in said
        assert "0 warnings" in said


@pytest.mark.parametrize("extra", EXTRAS)
def test_each_extra_alone(checkout: Path, tmp_path: Path, extra: str) -> None:
    shell(f"{VENV} e; e/bin/pip -q install 'sluice-gateway[{extra}] @ file://{checkout}/dist/{PURE}'", tmp_path)
    shell(f"e/bin/python -c 'import {EXTRAS[extra]}'; e/bin/sluice --version", tmp_path)
    others = [name for other, name in EXTRAS.items() if other not in {extra, "zstd"}]
    for name in others:
        assert subprocess.run([tmp_path / "e/bin/python", "-c", f"import {name}"], capture_output=True, check=False).returncode == 1, name


def test_all_extras_together(checkout: Path, tmp_path: Path) -> None:
    """But `spark`, of 400 MB: it is in the environment that these tests run in, beside all others, by the hashes of the lock."""
    every = ",".join(EXTRAS)
    shell(f"{VENV} e; e/bin/pip -q install 'sluice-gateway[{every}] @ file://{checkout}/dist/{PURE}'", tmp_path)
    assert "No broken requirements found" in shell("e/bin/pip check", tmp_path)
    shell(f"e/bin/python -c 'import {','.join(EXTRAS.values())}'; e/bin/sluice --version", tmp_path)


def test_the_source_distribution_without_a_compiler(checkout: Path, tmp_path: Path) -> None:
    """No compiler is on the path, so pip fetches setuptools alone, and not what compiles."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sh", "env", "ls"):
        (programs / name).symlink_to(f"/bin/{name}" if name != "env" else "/usr/bin/env")
    shell(f"{VENV} e", tmp_path)
    said = shell(f"e/bin/pip -v install {checkout}/dist/{SOURCE} 2>&1", tmp_path, PATH=str(programs), CC="cc")
    assert "sluice: building pure Python (no C compiler)" in said
    assert re.findall(r"Collecting (mypy|types-PyYAML|pathspec)\b", said) == []
    assert "(pure Python" in shell("e/bin/sluice --version", tmp_path)
