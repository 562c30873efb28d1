"""From another network namespace a probe, a scraper and a colleague with a viewer's token get exactly what they may, and nothing more.

Needs root and iproute2: the gateway and its clients each have a namespace, with a veth pair between them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from support.gateways import command
from support.namespaces import HERE, Hosts
from support.processes import HANG_S, Process, wait_until
from support.tls import Authority

pytestmark = pytest.mark.namespaces

NAME = "sluice.monitoring.svc"
ASK = """
import http.client, json, ssl, sys
scheme, host, port, method, path, headers, ca = json.loads(sys.argv[1])
if scheme == "https":
    connection = http.client.HTTPSConnection(host, port, timeout=300, context=ssl.create_default_context(cafile=ca))
else:
    connection = http.client.HTTPConnection(host, port, timeout=300)
connection.request(method, path, headers=headers)
answer = connection.getresponse()
print(json.dumps([answer.status, answer.read().decode()]))
"""


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    made = Hosts()
    try:
        made.make()
        yield made
    finally:
        made.remove()


@dataclass
class Reached:
    """A gateway in one namespace, asked from the other."""

    hosts: Hosts
    folder: Path
    ca: Path
    process: Process
    config: dict[str, object] = field(default_factory=dict)

    def ask(self, port: int, path: str, *, scheme: str = "http", method: str = "GET", token: str = "", host: str = "") -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if host:
            headers["Host"] = host
        asked = json.dumps([scheme, HERE, port, method, path, headers, str(self.ca)])
        done = self._run(self.hosts.client, [sys.executable, "-c", ASK, asked])
        assert done.returncode == 0, done.stderr
        status, body = json.loads(done.stdout)
        return status, body

    def colleague(self, token_file: Path, *words: str) -> subprocess.CompletedProcess[str]:
        """`sluice` on the other host, over TLS."""
        return self._run(
            self.hosts.client,
            [*command(), *words, "--admin", f"https://{HERE}:9180", "--ca-file", str(self.ca), "--token-file", str(token_file)],
        )

    def operator(self, *words: str) -> str:
        """`sluice` on the gateway's host, over its Unix socket."""
        done = self._run(self.hosts.gateway, [*command(), *words, "--admin", f"unix:{self.folder}/run/admin.sock"])
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _run(self, host: str, argv: list[str]) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"SLUICE_TOKEN_FILE": str(self.folder / "state" / "admin.token"), "NO_COLOR": "1"}
        return subprocess.run(
            ["ip", "netns", "exec", host, *argv],
            capture_output=True,
            text=True,
            check=False,
            timeout=HANG_S,
            env=environment,
            cwd=self.folder,
        )


@pytest.fixture(params=[1, 2], ids=["one process", "two workers"])
def reached(hosts: Hosts, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Reached]:
    authority = Authority(tmp_path / "tls")
    certificate, key = authority.issue("admin", NAME, HERE)
    config: dict[str, object] = {
        "version": 1,
        "gateway": {"state_directory": "state", "workers": request.param},
        "listeners": [{"name": "rabbit", "protocol": "amqp", "bind": f"{HERE}:5672", "upstream": f"{HERE}:9"}],
        "admin": {
            "bind": f"{HERE}:9180", "names": [NAME], "socket": "run/admin.sock", "tls": {"certificate": str(certificate), "key": str(key)},
        },
        "probes": {"bind": "0.0.0.0:9181", "metrics": "token"},
        "access_log": "off",
    }  # fmt: skip
    file = tmp_path / "sluice.yaml"
    file.write_text(yaml.safe_dump(config))
    argv = ["ip", "netns", "exec", hosts.gateway, *command(), "run", "-c", str(file)]
    process = Process(argv, log=tmp_path / "log", cwd=tmp_path)
    found = Reached(hosts, tmp_path, authority.file, process, config)
    try:
        process.wait_until(lambda: '"event": "started"' in process.output(), within=60, what="sluice run")
        yield found
    finally:
        if process.alive():
            process.popen.send_signal(signal.SIGTERM)
            process.popen.wait(HANG_S)


def listed_upstream(reached: Reached) -> str:
    """As the gateway's workers have it."""
    (listener,) = json.loads(reached.operator("listeners", "-o", "json"))
    return str(listener["upstream"])


def test_each_gets_what_it_may_and_nothing_more(reached: Reached, tmp_path: Path) -> None:
    # the probe
    assert reached.ask(9181, "/livez")[0] == 200
    assert reached.ask(9181, "/startupz", host="10.99.99.99:9181")[0] == 200
    assert reached.ask(9181, "/readyz") == (503, '{"ready":false}')  # its broker is not there; why is for those with a token
    for path in ("/", "/v1/status", "/v1/config", "/v1/tokens", "/dashboard/style.css"):
        assert reached.ask(9181, path)[0] == 404
    assert reached.ask(9181, "/v1/config:reload", method="POST")[0] == 404

    # the scraper
    viewer = tmp_path / "viewer.token"
    viewer.write_text(reached.operator("token", "new", "viewer", "--role", "viewer"))
    token = viewer.read_text().strip()
    assert reached.ask(9181, "/metrics")[0] == 401
    assert reached.ask(9181, "/metrics", token="wrong")[0] == 401
    status, text = reached.ask(9181, "/metrics", token=token)
    assert status == 200
    assert "sluice_build_info" in text
    assert reached.ask(9181, "/v1/status", token=token)[0] == 404

    # the colleague
    status, body = reached.ask(9180, "/v1/status", token=token)
    assert (status, "https://" in body) == (400, True)
    assert reached.ask(9180, "/v1/status", scheme="https")[0] == 401
    assert reached.ask(9180, "/v1/status", scheme="https", token=token, host=NAME)[0] == 200
    status, body = reached.ask(9180, "/v1/status", scheme="https", token=token, host="evil.example")
    assert (status, "admin.names" in body) == (421, True)
    assert reached.colleague(viewer, "status").returncode == 0
    for words in (
        ("limits", "set", "amqp", "/", "orders", "x", "--messages", "1/s"), ("reload",), ("token", "list"), ("token", "new", "mine"),
    ):  # fmt: skip
        refused = reached.colleague(viewer, *words)
        assert refused.returncode == 5, (words, refused.stderr)

    # a reload, then a revocation
    assert listed_upstream(reached) == f"{HERE}:9"
    listener = {"name": "rabbit", "protocol": "amqp", "bind": f"{HERE}:5672", "upstream": f"{HERE}:10"}
    config = reached.config | {"probes": {"bind": "0.0.0.0:9181", "metrics": "open"}, "log": {"level": "debug"}, "listeners": [listener]}
    (reached.folder / "sluice.yaml").write_text(yaml.safe_dump(config))
    assert "probes.metrics" in reached.operator("reload")
    assert reached.ask(9181, "/metrics")[0] == 200
    assert listed_upstream(reached) == f"{HERE}:10"
    reached.operator("token", "revoke", "viewer", "--yes")
    assert reached.colleague(viewer, "status").returncode == 5
    assert token not in reached.process.output()

    # the end
    reached.process.popen.send_signal(signal.SIGTERM)
    wait_until(lambda: not reached.process.alive(), within=40, what="the end")
    assert reached.process.popen.returncode == 0
    assert not (reached.folder / "run" / "admin.sock").exists()
