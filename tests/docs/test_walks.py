"""The pages' shell blocks, executed as they stand, page by page and from top to bottom, as a reader copies them.

Ports and paths of the pages are this test's own. What needs a broker, Spark, systemd or root's folders is in ELSEWHERE, with the test that
runs it. A block that no test runs fails.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from support.brokers.rabbitmq import RabbitMQ
from support.gateways import Gateway, command
from support.pages import ROOT, Block, blocks, pages
from support.processes import LOOPBACK, Process, free_ports

RULES: Final = [
    {"name": "orders", "match": {"protocol": "rocketmq", "topic": "order*"}, "per": "topic", "limit": {"messages": "500/s"}},
    {"name": "amqp-topics", "match": {"protocol": "amqp"}, "per": "topic", "limit": {"messages": "500/s"}},
]
MEETS_A_GATEWAY: Final = ("docs/admin-api.md", "docs/changing-limits.md", "docs/how-a-decision-is-made.md")
ELSEWHERE: Final = {  # words of a block -> the test that runs it
    ("docs/quotas.md", "apt-get install -y python3-venv"): "tests/deploy/test_every_night.py",
    ("docs/quotas.md", "sluice token new --file /etc/sluice/nightly.token"): "tests/deploy/test_every_night.py",
    ("docs/quotas.md", "sluice quotas nightly"): "tests/deploy/test_every_night.py",
    ("docs/quotas.md", "systemctl"): "tests/deploy/test_every_night.py",
    ("docs/quotas.md", "SLUICE_GATEWAYS"): "tests/deploy/test_every_night.py",
    ("docs/quotas.md", "sluice quotas compute"): "tests/end_to_end/test_quota_publication.py",
    ("docs/quotas.md", "spark-submit"): "tests/spark_jobs/test_cluster.py",
    ("docs/quotas.md", "sluice quotas backtest"): "tests/spark_jobs/backtest/test_run.py",
    ("docs/quotas.md", "sluice quotas report"): "tests/gateway/cli/test_quota_report.py",
    ("docs/access-log.md", "sluice log compact"): "tests/gateway/cli/test_log.py",
    ("docs/access-log.md", "sluice log ship"): "tests/gateway/cli/test_log.py",
    ("docs/access-log.md", "rclone copy"): "tests/gateway/log_files/test_agents.py",
    ("docs/access-log.md", "hdfs dfs"): "tests/gateway/log_files/test_agents.py",
    ("docs/tutorial.md", "make -s build"): "Makefile",  # `make install`, of every run, builds and installs the wheel like that
    ("docs/my-messages-are-refused.md", "sluice why"): "tests/gateway/cli/test_why.py",
    ("docs/reaching-the-admin-port.md", "sluice status --admin https"): "tests/gateway/cli/test_admin_address.py",
    ("docs/reaching-the-admin-port.md", "sluice token new grafana"): "tests/gateway/cli/test_token.py",
    ("docs/monitoring.md", "runbook_url"): "tests/deploy/test_prometheus_rules.py",
    ("README.md", "quotas compute"): "tests/end_to_end/test_quota_publication.py",
}
ASSIGNMENT: Final = re.compile(r"(?:export )?\w+=(?:\"[^\"]*\"|\$\([^)]*\)|\S+)\s*")
MAKE: Final = re.compile(
    r"^(?:\S+=\S+ )*make [\w./-]+|^(?:PYTHONPATH=\S+ )?\.venv/bin/(?:python|pytest) "
)  # targets; CI itself, or minutes each


class Reader:
    """Somebody who copies a page's commands into a shell. One shell for all blocks of a page: variables and the folder go on."""

    def __init__(self, folder: Path, replaced: Mapping[str, str], environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.replaced = dict(replaced)
        self.environment = os.environ | dict(environment)
        programs = folder / "programs"
        programs.mkdir(exist_ok=True)
        for place, means in (
            (programs / "sluice", command()),
            (folder / ".venv" / "bin" / "sluice", command()),
            (programs / "python", [sys.executable]),
        ):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(f'#!/bin/sh\nexec {shlex.join(means)} "$@"\n')
            place.chmod(0o755)
        self.environment["PATH"] = f"{programs}:{os.environ['PATH']}"
        self.done: list[str] = []
        self.outputs: list[str] = []
        self.started: list[Process] = []

    def here(self, text: str) -> str:
        for theirs, ours in self.replaced.items():
            text = text.replace(theirs, ours)
        return text

    def run(self, block: Block) -> str:
        """Run a block behind those before it; returns its output. Fails where a command of it fails."""
        mark = f"--- {block.id}"
        script = "\n".join(["set -eu", *self.done, f"echo '{mark}'", self.here(block.text)])
        ran = subprocess.run(
            ["bash", "-c", script], cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert ran.returncode == 0, f"{block.id}: exit {ran.returncode}\n{self.here(block.text)}\n{ran.stdout}\n{ran.stderr}"
        self.done += [line for line in self.here(block.text).splitlines() if ASSIGNMENT.fullmatch(line)]
        self.outputs.append(ran.stdout.rpartition(mark)[2].strip())
        return self.outputs[-1]

    def start(self, line: str) -> Process:
        """Start a command that goes on until it is stopped."""
        process = Process(["bash", "-c", f"exec {self.here(line)}"], log=self.folder / f"started-{len(self.started)}.log",
                          cwd=self.folder, env=self.environment)  # fmt: skip
        self.started.append(process)
        return process

    def close(self) -> None:
        for process in self.started:
            process.stop()


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway for both protocols whose brokers are away: what an operator does needs none."""
    ports = free_ports(4)
    listeners = [
        {"name": "rabbit", "protocol": "amqp", "bind": f"{LOOPBACK}:{ports[0]}", "upstream": f"{LOOPBACK}:{ports[1]}"},
        {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:{ports[2]}", "upstream": f"{LOOPBACK}:{ports[3]}"},
    ]
    with Gateway(tmp_path / "gateway", listeners, RULES, until="/livez") as running:
        yield running


def elsewhere(block: Block) -> str | None:
    return next((test for (page, words), test in ELSEWHERE.items() if page == block.page and words in block.text), None)


@pytest.mark.parametrize("page", MEETS_A_GATEWAY)
def test_a_page_about_a_running_gateway_can_be_followed(page: str, gateway: Gateway) -> None:
    reader = Reader(gateway.directory, {"127.0.0.1:9180": f"{LOOPBACK}:{gateway.admin_port}"},
                    {"SLUICE_ADMIN": f"http://{LOOPBACK}:{gateway.admin_port}"})  # fmt: skip
    for block in blocks(ROOT / page, "sh"):
        revisions = gateway.get("/v1/history")["items"]
        if revisions:
            reader.replaced["rollback 41"] = f"rollback {revisions[0]['revision']} --yes"
        endless = re.sub(r"^curl -sN", "timeout --preserve-status 3 curl -sN", block.text, flags=re.MULTILINE)
        text = re.sub(r"(timeout --preserve-status .*)", r"\1 || true", endless)
        output = reader.run(Block(block.page, block.line, block.language, text))
        assert '"title"' not in output, f"{block.id}: a problem was answered\n{output}"


def follow(reader: Reader, page: str, admin_port: str) -> int:
    """Run a page's blocks. One that ends with `sluice run` goes on until the next such; what follows is for another terminal."""
    made = 0
    for block in blocks(ROOT / page, "sh"):
        if elsewhere(block) or MAKE.match(block.text):
            continue
        *before, last = block.text.rstrip().splitlines()
        if last.removeprefix(".venv/bin/").startswith("sluice run"):
            for process in reader.started:
                process.stop()
            if before:
                reader.run(replace(block, text="\n".join(before)))
            process = reader.start(last)
            process.wait_until(lambda: _alive(admin_port), within=60, what="the gateway")
        else:
            reader.run(block)
        made += 1
    return made


def test_the_readmes_first_limit_can_be_followed(tmp_path: Path) -> None:
    ports = dict(zip(("5672", "5673", "9180"), map(str, free_ports(3)), strict=True))
    reader = Reader(tmp_path, ports, at_port(ports["9180"]))
    try:
        assert follow(reader, "README.md", ports["9180"]) >= 3
    finally:
        reader.close()


@pytest.mark.rabbitmq
def test_the_tutorial_can_be_followed_beside_a_real_rabbitmq(tmp_path: Path, rabbitmq: RabbitMQ) -> None:
    ports = dict(zip(("5670", "9180"), map(str, free_ports(2)), strict=True)) | {"5672": str(rabbitmq.port)}
    reader = Reader(tmp_path, ports, at_port(ports["9180"]))
    try:
        assert follow(reader, "docs/tutorial.md", ports["9180"]) == 6
    finally:
        reader.close()
    passed, refused = map(int, re.findall(r"\d+", next(text for text in reader.outputs if "refused" in text and "passed" in text)))
    assert refused > 0
    assert passed >= 100


def at_port(port: str) -> dict[str, str]:
    """The environment of a reader whose gateway has its admin port elsewhere than the page."""
    return {"SLUICE_ADMIN": f"http://{LOOPBACK}:{port}", "SLUICE_ADMIN__BIND": f"{LOOPBACK}:{port}"}


def _alive(port: str) -> bool:
    asked = subprocess.run(["curl", "-sf", f"http://{LOOPBACK}:{port}/livez"], capture_output=True, check=False)
    return asked.returncode == 0


SHOWN = [block for page in pages() for block in blocks(page, "sh")]


@pytest.mark.parametrize("block", SHOWN, ids=lambda block: block.id)
def test_every_block_of_the_pages_is_run_by_some_test(block: Block) -> None:
    test = elsewhere(block)
    if test is not None:
        assert (ROOT / test).is_file()
        return
    if block.page in {"README.md", "docs/tutorial.md", *MEETS_A_GATEWAY}:
        return
    strangers = [line for line in block.text.splitlines() if line.strip() and not line.startswith("#") and not MAKE.match(line)]
    assert strangers == [], f"{block.id}: no test runs this block; let a test run it, and name that here"
    named = re.findall(r"\bmake ([\w-]+)", block.text)
    targets = re.findall(r"^([\w./-]+(?: [\w./-]+)*):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(named) <= {name for line in targets for name in line.split()} | {""}
