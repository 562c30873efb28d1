"""`sluice support-bundle`: what is in it, what is not, and with a gateway that answers in part or not at all."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.support_bundle import redact
from support.busy_gateway import VIEWER, BusyGateway, busy_gateway
from support.gateways import command
from support.processes import HANG_S, LOOPBACK, free_ports

pytestmark = pytest.mark.slow  # a gateway with floods

EVERYTHING = {
    "host.json", "livez.json", "readyz.json", "status.json", "config.json", "listeners.json", "rules.json", "events.json",
    "quotas-status.json", "limits.json", "topics.json", "connections.json", "history.json", "audit.json", "metrics.txt", "check.txt",
    "log.txt", "contents.json",
}  # fmt: skip


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BusyGateway]:
    with busy_gateway(tmp_path_factory.mktemp("busy")) as found:
        found.cli("limits", "set", "rocketmq", "orders", "--messages", "31/s", "--reason", "incident 12")
        yield found


def contents(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as tar:
        return {member.name.partition("/")[2]: tar.extractfile(member).read().decode() for member in tar}  # type: ignore[union-attr]


def test_it_holds_all_that_helps_and_nothing_secret(gateway: BusyGateway, tmp_path: Path) -> None:
    in_path = "token-sent-in-the-path-0123456789"
    assert gateway.request("GET", f"/v1/status/{in_path}", authorised=False).status == 401
    archive = tmp_path / "incident.tar.gz"
    log = tmp_path / "sluice.log"
    log.write_text(f"{gateway.log()}\nauthorization: token={gateway.token}\n")
    done = gateway.cli("support-bundle", "-o", str(archive), "--log", str(log), "-c", str(gateway.config))
    parts = contents(archive)
    assert set(parts) == EVERYTHING
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    everything = "".join(parts.values())
    for secret in (gateway.token, VIEWER, in_path, "secret@", "x" * 50):  # tokens, the clients' password, their messages
        assert secret not in everything
    assert json.loads(parts["topics.json"])[0]["topic"]
    assert "incident 12" in parts["history.json"]
    assert "GET /v1/status/*" in parts["audit.json"]
    assert "sluice_messages_refused_total" in parts["metrics.txt"]
    assert ": good; 2 listeners, 3 rules" in parts["check.txt"]
    assert "limiter.threads = 1    (default)" in parts["check.txt"]
    assert '"limit_reached"' in parts["log.txt"]
    assert all(name in done.stdout for name in EVERYTHING)
    assert all(row["missing"] is None for row in json.loads(parts["contents.json"])["parts"])


def test_an_archive_is_not_written_over(gateway: BusyGateway, tmp_path: Path) -> None:
    archive = tmp_path / "mine.tar.gz"
    archive.write_text("mine")
    done = gateway.cli("support-bundle", "-o", str(archive), check=False)
    assert (done.returncode, archive.read_text()) == (1, "mine")


def test_what_the_token_may_not_see_is_named_as_missing(gateway: BusyGateway, tmp_path: Path) -> None:
    archive = tmp_path / "wrong.tar.gz"
    (tmp_path / "token").write_text("not-a-token-of-this-gateway-0123456789")
    gateway.cli("support-bundle", "-o", str(archive), "--token-file", str(tmp_path / "token"))
    parts = contents(archive)
    missing = {row["file"]: row["missing"] for row in json.loads(parts["contents.json"])["parts"] if row["missing"]}
    assert {"livez.json", "host.json"} <= set(parts)
    assert "401" in missing["status.json"]


def test_without_a_gateway_the_rest_is_there_and_the_exit_code_says_so(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    environment = {**os.environ, "SLUICE_ADMIN": f"http://{LOOPBACK}:{port}"}
    done = subprocess.run(
        [*command(), "support-bundle", "-o", "b.tar.gz"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANG_S,
        check=False,
    )  # fmt: skip
    assert done.returncode == 4
    parts = contents(tmp_path / "b.tar.gz")
    assert set(parts) == {"host.json", "contents.json"}
    assert "cannot be reached" in parts["contents.json"]


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({"password": "hunter2", "password_file": "/etc/x"}, {"password": "********", "password_file": "/etc/x"}),
        ({"url": "redis://u:hunter2@h/0"}, {"url": "redis://*********@h/0"}),
        ([{"client_properties": {"product": "pika", "customer": "4711"}}], [{"client_properties": {"product": "pika"}}]),
        ({"tokens": [{"name": "ci", "file": "tokens/ci"}]}, {"tokens": [{"name": "ci", "file": "tokens/ci"}]}),
        (7, 7),
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_is_left_out(given: Any, left: Any) -> None:
    assert redact(given) == left
