"""The contract fuzzer: schemathesis against a real gateway, one process and two workers.

It makes requests out of the OpenAPI document, good ones and bad ones, and finds any 5xx, and any status, type or body that is not
declared. To run it alone: `.venv/bin/pytest tests/admin/test_openapi_fuzz.py`. It runs as a program, and its own words tell how to send a
failing request again.

Left out are `/v1/stream` (its answer has no end; `test_events.py`) and `/v1/drain` (it would end the gateway).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from support.brokers.stand_ins import rabbitmq
from support.gateways import Gateway, amqp_listener

CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")
LEFT_OUT = ("/v1/stream", "/v1/drain")
# What goes the way of another: of 23 levels of limits, 16 whose requests have the same handler and body as one of the rest, and a name
# that is any text; and the dashboard's files but one. `make test-long` has them.
ALIKE = r"^/v1/limits/(user|group|namespace|requeue|consume/(?!queue))/?|^/dashboard/(?!app\.js)"
RULES = [
    {"name": "orders", "match": {"protocol": "amqp", "exchange": "orders"}, "per": "topic", "limit": {"messages": "500/s"}},
    {"name": "all", "match": {"protocol": "rocketmq"}, "per": "topic", "limit": {"messages": "100/s"}},
]
ADMIN = "admins-token-of-the-fuzzer-0123456789"
VIEWER = "viewers-token-of-the-fuzzer-0123456789"
PROGRAM = Path(sys.executable).with_name("schemathesis")


def fuzz(gateway: Gateway, folder: Path, token: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the fuzzer; what it finds once it finds again."""
    left_out = [word for path in LEFT_OUT for word in ("--exclude-path", path)]
    return subprocess.run(
        [
            str(PROGRAM), "run", f"{gateway.admin}/v1/openapi.json", "--checks", ",".join(CHECKS),  "--no-color",
            "--generation-deterministic", "--warnings", "off", "--request-timeout", "20",
            "--header", f"Authorization: Bearer {token}", *left_out, *options,
        ],
        capture_output=True, text=True, check=False, timeout=600, cwd=folder, env={**os.environ, "COLUMNS": "160"},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "options"),
    [
        (1, ("--phases", "examples,coverage", "--exclude-path-regex", ALIKE)),
        pytest.param(2, ("--phases", "examples,coverage,fuzzing", "-n", "20"), marks=pytest.mark.long),
    ],
)
def test_no_request_gets_an_answer_that_is_not_declared(tmp_path: Path, workers: int, options: tuple[str, ...]) -> None:
    settings = {"gateway": {"name": "fuzzed", "state_directory": "state", "workers": workers}}
    with (
        rabbitmq() as broker,  # enough of one to be ready: 503 of /readyz is declared, and a 5xx
        with_tokens(Gateway(tmp_path / "gateway", [amqp_listener(broker.address)], RULES, settings)) as gateway,
    ):
        for token, phases in ((ADMIN, options), (VIEWER, ("--phases", "examples"))):
            done = fuzz(gateway, tmp_path, token, *phases)
            assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
            assert "generated" in done.stdout
            assert gateway.request("GET", "/v1/status", authorised=False, Authorization=f"Bearer {token}").status == 200, "still valid"
        assert re.search(r'^sluice_admin_requests_total\{[^}]*code="403"\}', gateway.request("GET", "/metrics").text, re.MULTILINE)
        assert "admin_request_failed" not in gateway.log()
        assert gateway.get("/v1/audit:verify")["ok"]


def with_tokens(gateway: Gateway) -> Gateway:
    """The gateway with tokens of the fuzzer's own, in files.

    The fuzzer finds `POST /v1/tokens/admin:rotate`: with the gateway's own token all that it asks for after that was answered 401. A token
    that a request has made it could revoke as well.
    """
    configuration = yaml.safe_load(gateway.config.read_text())
    configuration["admin"]["tokens"] = []
    for role, token in (("admin", ADMIN), ("viewer", VIEWER)):
        (gateway.directory / f"{role}.token").write_text(token)
        configuration["admin"]["tokens"].append({"name": f"fuzzing-{role}", "role": role, "file": f"{role}.token"})
    gateway.config.write_text(yaml.safe_dump(configuration, sort_keys=False))
    return gateway
