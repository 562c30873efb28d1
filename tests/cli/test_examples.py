"""Every example at the end of a `--help`, executed as it stands, against one gateway with both protocols: by a shell where it needs one,
else in this process, as a shell's words.

An example runs as it is written and must end with exit code 0, unless EXAMPLES says what it needs first, which of its values are
this test's own, or when it has run long enough. What needs Spark is run beside Spark's other tests (tests/spark_jobs/test_examples.py);
what needs more is in ELSEWHERE, with the test that takes it from the program and runs it. So there is
no example that nothing runs: a new one runs by itself, or fails here.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from support.busy_gateway import RULES, BusyGateway, busy_gateway
from support.examples import OF_SPARK, example, examples
from support.gateways import Gateway, amqp_listener, command, run_here
from support.log_files import log_file
from support.processes import HANG_S, LOOPBACK, Process, free_ports, wait_until
from support.ran_elsewhere import Ran, calls
from support.s3_stand_in import s3_stand_in
from support.terminals import Terminal

pytestmark = pytest.mark.slow  # a gateway, and a shell and a process for many

CONFIGURATION: Final = """\
listeners: [{name: rabbit, protocol: amqp, bind: 127.0.0.1:0, upstream: 127.0.0.1:1}]
rules: [{name: all, match: {protocol: amqp}, limit: {messages: 1/s}}]
admin: {bind: 127.0.0.1:0}
"""
SNAPSHOT: Final = {
    "version": 1, "computed_at": "2026-11-21T01:00:00Z", "code": "test", "inputs": [], "parameters": {},
    "quotas": [{"protocol": "rocketmq", "topic": "orders", "messages": {"rate": 30, "burst": 30}}],
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Example:
    """What an example needs. `until`: what it shows when it has run long enough; it is then interrupted and may take its time to end."""

    before: tuple[str, ...] = ()
    replaced: Mapping[str, str] = field(default_factory=dict)  # {name} within the new text: see `values`
    until: str = ""
    end: signal.Signals = signal.SIGINT
    code: int = 0


NEW_LIMIT: Final = "sluice limits set rocketmq orders --messages 31/s"
NEXT_LIMIT: Final = "sluice limits set rocketmq orders --messages 32/s"
CANDIDATE: Final = "sluice rules set orders --candidate-messages 15/s"
NO_TOKEN: Final = "sluice token revoke grafana --yes || true"
EXAMPLES: Final = {
    "sluice run -c config/sluice.yaml": Example(until='"started"'),
    "sluice run": Example(until='"started"'),
    "sluice run --protocol amqp --bind :5672 --upstream 127.0.0.1:5673 --limit 500/s": Example(
        replaced={":5672": "127.0.0.1:0 --admin-bind 127.0.0.1:0 --state-directory aside"}, until='"started"'
    ),
    "sluice init": Example(code=2),  # asks; without a terminal it says so (test_init.py answers it at one)
    "sluice init --yes --directory gateway": Example(replaced={"--yes": "--yes --ports {rabbit}"}),
    "sluice config diff sluice.yaml next.yaml --exit-code": Example(before=("cp sluice.yaml next.yaml",)),
    "sluice limits unset rocketmq orders --reason 'incident over'": Example(before=(NEW_LIMIT,)),
    "sluice limits unset client 10.0.0.7": Example(before=("sluice limits set client 10.0.0.7 --messages 5000/s",)),
    "sluice rules remove orders-storm --reason 'incident over'": Example(
        before=("sluice rules add orders-storm --match topic='order*' --messages 500/s --mode shadow --replace",)
    ),
    "sluice rules promote orders --dry-run": Example(before=(CANDIDATE,)),
    "sluice rules promote orders --reason 'a week without refusals'": Example(before=(CANDIDATE,)),
    "sluice rules reset rocketmq-topics": Example(before=("sluice rules set rocketmq-topics --messages 40/s",)),
    "sluice connections close 42 --reason 'runaway job'": Example(replaced={"42": "{connection} --yes"}),
    "sluice fleet rollback 41 --reason 'limit too low'": Example(before=(NEW_LIMIT, NEXT_LIMIT), replaced={"41": "{before} --yes"}),
    "sluice history rollback 41 --reason 'limit too low'": Example(before=(NEW_LIMIT, NEXT_LIMIT), replaced={"41": "{before} --yes"}),
    "sluice history show 42": Example(before=(NEW_LIMIT,), replaced={"42": "{revision}"}),
    "sluice quotas plan quotas.json": Example(before=("sluice quotas apply quotas.json --yes",)),
    "sluice quotas plan quotas.json && echo nothing to do": Example(before=("sluice quotas apply quotas.json --yes",)),
    "sluice quotas rollback --yes --reason 'orders refused too much'": Example(before=("sluice quotas apply other.json --yes",)),
    "sluice quotas show orders --state /srv/quota-state": Example(
        before=("sluice quotas apply quotas.json --yes",), replaced={"/srv/quota-state": "{state}"}
    ),
    "sluice quotas report --state /srv/quota-state -o report.html": Example(replaced={"/srv/quota-state": "{state}"}),
    "sluice support-bundle --log /var/log/sluice/sluice.log -o incident-12.tar.gz": Example(replaced={"/var/log/sluice": "{logs}"}),
    "sluice log compact /var/log/sluice": Example(replaced={"/var/log/sluice": "{access_log}"}),
    "sluice log ship /var/log/sluice --to s3://logs/sluice --every 10min": Example(
        replaced={"/var/log/sluice": "{closed_log}"}, until="1 file shipped to s3://logs/sluice", end=signal.SIGTERM
    ),
    "sluice completion bash > /etc/bash_completion.d/sluice": Example(replaced={"/etc/bash_completion.d": "."}),
    "sluice completion zsh > ~/.zfunc/_sluice": Example(before=("mkdir -p ~/.zfunc",)),
    "sluice completion fish > ~/.config/fish/completions/sluice.fish": Example(before=("mkdir -p ~/.config/fish/completions",)),
    "sluice audit verify": Example(replaced={"verify": "verify {state}"}),
    "sluice audit verify /var/lib/sluice/state": Example(replaced={"/var/lib/sluice/state": "{state}"}),
    "sluice audit verify -c /etc/sluice/sluice.yaml": Example(replaced={"/etc/sluice/sluice.yaml": "{config}"}),
    "sluice token new grafana --role viewer --reason 'dashboards'": Example(before=(NO_TOKEN,)),
    "sluice token new grafana --role viewer --expires 90d --reason 'dashboards'": Example(before=(NO_TOKEN,)),
    "sluice token new ci --role operator --file tokens/ci": Example(before=("rm -f tokens/ci; sluice token revoke ci --yes || true",)),
    "sluice token revoke grafana --reason 'left the team' --yes": Example(before=(NO_TOKEN, "sluice token new grafana")),
    "sluice token revoke grafana --dry-run": Example(before=(NO_TOKEN, "sluice token new grafana")),
    "sluice token rotate grafana --overlap 10m --file grafana.token --yes": Example(
        before=(NO_TOKEN, "sluice token new grafana; rm -f grafana.token")
    ),
}
# What a shell alone can do; `log` lowers the priority of its process.
FOR_A_SHELL: Final = re.compile(r"[;|&<>$~*]|^(?!sluice )|^sluice log ")
ENDLESS: Final = re.compile(r" --watch\b|^sluice top\b(?!.* --once)|^sluice events .*(-f|--follow)\b")  # goes on until it is interrupted
DRAIN: Final = [each for each in examples() if each.startswith("sluice drain")]  # each with a gateway of its own, below
SPARK: Final = [each for each in examples() if each.startswith(OF_SPARK)]  # tests/spark_jobs/test_examples.py
ELSEWHERE: Final = {  # words of an example -> the test that takes it from the program and runs it
    "quota-state --shadow-nights 3": Ran("tests/deploy/test_every_night.py::test_the_commands_of_the_page_run_a_night"),
    "s3a://bucket/log": Ran("tests/spark_jobs/test_stores.py::test_the_pages_commands_on_s3", by="storage"),
}
HERE: Final = [each for each in examples() if each not in {*DRAIN, *SPARK, *map(example, ELSEWHERE)}]


@dataclass(frozen=True, slots=True)
class Shell:
    """A folder with files as the examples name them, and an environment that leads to the gateway."""

    gateway: BusyGateway
    folder: Path
    environment: dict[str, str]

    def values(self) -> dict[str, str]:
        """This test's own values for those of the examples."""
        connection = self.gateway.get("/v1/connections?limit=1")["items"][0]["id"]
        rabbit = str(self.gateway.get("/v1/listeners")["items"][0]["upstream"])
        revision = self.gateway.get("/v1/history?limit=1")["revision"]
        return {
            "connection": str(connection), "revision": str(revision), "before": str(revision - 1), "rabbit": rabbit.rpartition(":")[2],
            "logs": str(self.folder), "access_log": str(self.gateway.directory / "access-log"),
            "state": str(self.gateway.directory / "state"), "config": str(self.gateway.config),
            "closed_log": str(self.folder / "closed-log"),
        }  # fmt: skip

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        if not FOR_A_SHELL.search(line):
            return run_here(shlex.split(line)[1:], self.environment, self.folder)
        return subprocess.run(
            ["bash", "-c", line], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=HANG_S, check=False,
        )  # fmt: skip


def a_sluice(folder: Path) -> Path:
    """A directory for PATH with the `sluice` under test in it."""
    programs = folder / "programs"
    programs.mkdir()
    (programs / "sluice").write_text(f'#!/bin/sh\nexec {shlex.join(command())} "$@"\n')
    (programs / "sluice").chmod(0o755)
    return programs


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("reader")
    programs = a_sluice(folder)
    for name in ("sluice.yaml", "config/sluice.yaml"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(CONFIGURATION)
    for name, rate in (("quotas.json", 30), ("other.json", 31), ("last-night.json", 29)):
        quota = {**SNAPSHOT["quotas"][0], "messages": {"rate": rate, "burst": rate}}  # type: ignore[index]
        (folder / name).write_text(json.dumps({**SNAPSHOT, "quotas": [quota]}))
    (folder / "sluice.log").write_text('{"event": "started"}\n')
    log_file(folder / "closed-log")
    with busy_gateway(tmp_path_factory.mktemp("busy")) as gateway, s3_stand_in("logs") as s3:
        environment = {
            **os.environ, **s3.environment(),
            "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(folder), "SLUICE_ADMIN": gateway.admin,
            "SLUICE_TOKEN_FILE": str(gateway.directory / "state" / "admin.token"),
        }  # fmt: skip
        yield Shell(gateway, folder, environment)


@pytest.mark.parametrize("line", HERE)
def test_an_example_runs(shell: Shell, line: str) -> None:
    needs = EXAMPLES.get(line, Example())
    for each in needs.before:
        prepared = shell.run(each)
        assert prepared.returncode == 0, f"{each}: {prepared.stdout}{prepared.stderr}"
    typed = line
    for theirs, ours in needs.replaced.items():
        assert theirs in typed
        typed = typed.replace(theirs, ours.format(**shell.values()), 1)
    if needs.until:
        runs_until(shell, typed, needs.until, needs.end)
        return
    if ENDLESS.search(line):
        is_shown_until_interrupted(shell, typed, "on disk" if " spool " in line else "orders")
        return
    ran = shell.run(typed)
    assert ran.returncode == needs.code, f"{typed}: exit {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    assert ran.stdout or ran.stderr or ">" in line, "an example shows something"


def runs_until(shell: Shell, line: str, wanted: str, end: signal.Signals) -> None:
    log = shell.folder / "until.log"
    log.unlink(missing_ok=True)
    with Process(["bash", "-c", f"exec {line}"], log=log, env=shell.environment, cwd=shell.folder) as process:
        process.wait_until(lambda: wanted in process.output(), within=30, what=line)
        process.popen.send_signal(end)
        assert process.popen.wait(HANG_S) == 0, process.output()


def is_shown_until_interrupted(shell: Shell, line: str, wanted: str) -> None:
    """On a terminal, as such a verb is used; Ctrl-C ends it."""
    with Terminal(["bash", "-c", f"exec {line}"], cwd=shell.folder, env=shell.environment) as terminal:
        terminal.read_until(wanted)
        terminal.popen.send_signal(signal.SIGINT)
        assert terminal.end() in {0, 130}, terminal.text


@pytest.mark.parametrize("line", DRAIN)
def test_the_examples_of_drain_end_a_gateway_with_exit_0(tmp_path: Path, line: str) -> None:
    (upstream,) = free_ports(1)
    gateway = Gateway(tmp_path, [amqp_listener(f"{LOOPBACK}:{upstream}")], RULES[:1], until="/livez")
    gateway.start()
    try:
        done = gateway.cli(*shlex.split(line)[1:])
        assert "draining begun" in done.stderr
        if "--wait" in line:
            assert "the gateway has ended" in done.stderr
        wait_until(lambda: not gateway.alive(), within=40, what="the gateway ends")
        assert gateway.process.popen.returncode == 0
        assert gateway.cli(*shlex.split(line)[1:], check=False).returncode == 4, "nobody is there any more"
    finally:
        if gateway.alive():
            gateway.kill()


@pytest.mark.parametrize(("words", "ran"), ELSEWHERE.items(), ids=list(ELSEWHERE))
def test_what_runs_elsewhere_is_taken_from_the_program_and_run_there(words: str, ran: Ran) -> None:
    assert calls(ran.tree, ran.name, "example", words), f"{ran.test} does not take the example"
    assert ran.apart == ran.by, "in `make test`, or named as what is not"


def test_the_tables_name_examples_that_exist() -> None:
    assert set(EXAMPLES) <= set(HERE)
