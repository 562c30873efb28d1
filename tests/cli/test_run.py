"""`sluice run`: with a file, with the usual one, with none; and what it shows on a terminal."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import stat
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli import configured
from cli.main import main
from support.gateways import command
from support.processes import HANG_S, LOOPBACK, Process, free_ports
from support.terminals import Terminal

pytestmark = pytest.mark.slow  # a gateway for each

CONFIGURATION = """\
listeners: [{{name: a, protocol: amqp, bind: 127.0.0.1:0, upstream: 127.0.0.1:{upstream}}}]
rules: [{{name: all, match: {{protocol: amqp}}, limit: {{messages: 1/s}}}}]
admin: {{bind: 127.0.0.1:{admin}}}
"""
Cli = Callable[..., subprocess.CompletedProcess[str]]


def cli(directory: Path, admin: int, *words: str) -> subprocess.CompletedProcess[str]:
    """`sluice` in another shell, in the same directory."""
    environment = {**os.environ, "SLUICE_ADMIN": f"http://{LOOPBACK}:{admin}"}
    return subprocess.run([*command(), *words], cwd=directory, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False)


def started(log: str) -> bool:
    return "started" in log


@pytest.fixture
def without_a_file(tmp_path: Path) -> Callable[..., tuple[Process, int]]:
    """Start `sluice run --protocol ...` in an empty directory; the process and its admin port."""

    def start(*words: str) -> tuple[Process, int]:
        upstream, admin = free_ports(2)
        argv = [*command(), "run", "--protocol", "amqp", "--bind", ":0", "--upstream", f"{LOOPBACK}:{upstream}", *words]
        process = Process([*argv, "--admin-bind", f"{LOOPBACK}:{admin}"], log=tmp_path / "log", cwd=tmp_path)
        process.wait_until(lambda: started(process.output()), within=20, what="sluice run")
        return process, admin

    return start


def test_a_gateway_runs_without_a_file(without_a_file: Callable[..., tuple[Process, int]], tmp_path: Path) -> None:
    process, admin = without_a_file("--limit", "500/s,5MiB/s")
    with process:
        (rule,) = json.loads(cli(tmp_path, admin, "rules", "list", "-o", "json").stdout)["items"]
        assert (rule["match"], rule["per"], rule["place"]) == ({"protocol": "amqp"}, "topic", "flag --limit")
        assert {name: rule["limit"][name] for name in ("messages", "bytes")} == {"messages": "500/s", "bytes": "5MiB/s"}
        got = json.loads(cli(tmp_path, admin, "limits", "get", "amqp", "/", "orders", "x", "-o", "json").stdout)
        assert [level["limit"]["messages"] for level in got["levels"]] == ["500/s"]
        assert cli(tmp_path, admin, "listeners").stdout.splitlines()[1].split()[:2] == ["amqp", "amqp"]
        process.popen.send_signal(signal.SIGHUP)
        process.wait_until(lambda: '"event": "reloaded"' in process.output(), within=20, what="a reload of what has no file")
        assert json.loads(process.output().splitlines()[-1])["needs_restart"] == []
        process.popen.send_signal(signal.SIGTERM)
        assert process.popen.wait(HANG_S) == 0
    assert stat.S_IMODE((tmp_path / "state" / "admin.token").stat().st_mode) == 0o600


def test_one_limit_of_bytes_is_enough_and_a_setting_may_be_given_too(
    without_a_file: Callable[..., tuple[Process, int]], tmp_path: Path
) -> None:
    process, admin = without_a_file("--limit", "5MiB/s", "--set", "listeners.amqp.max_connections=7", "--name", "here")
    with process:
        (rule,) = json.loads(cli(tmp_path, admin, "rules", "list", "-o", "json").stdout)["items"]
        assert "messages" not in {name for name, value in rule["limit"].items() if value is not None}
        (listener,) = json.loads(cli(tmp_path, admin, "listeners", "-o", "json").stdout)
        assert listener["seats"]["most"] == 7


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--protocol", "amqp", "--bind", ":5672"], 2, "needs --upstream too"),
        (["--limit", "500/s"], 2, "needs --protocol and --bind and --upstream too"),
        (["-c", "x.yaml", "--limit", "500/s"], 2, "are for a run without a file"),
        (["a.yaml", "-c", "b.yaml"], 2, "two configurations are named, a.yaml and -c b.yaml"),
        (["--protocol", "amqo", "--bind", ":1", "--upstream", "h:1"], 3, "flag --protocol: listeners[0].protocol: "),
        (["--protocol", "amqp", "--bind", "1", "--upstream", "h:1"], 3, "flag --bind: listeners[0].bind: "),
        (["--protocol", "amqp", "--bind", ":1", "--upstream", ":1"], 3, "flag --upstream: listeners[0].upstream: "),
        (["--protocol", "amqp", "--bind", ":1", "--upstream", "h:1,:2"], 3, "flag --upstream: listeners[0].upstream[1]: "),
        (["--protocol", "amqp", "--bind", ":1", "--upstream", "h:1", "--upstream", "h:1"], 3, "upstream[1]: h:1 is named twice"),
        (["--protocol", "amqp", "--bind", ":1", "--upstream", "h:1", "--limit", "500"], 3, "limit.messages: 500 has no unit"),
        (["--protocol", "amqp", "--bind", ":1", "--upstream", "h:1", "--limit", "5mb/s"], 3, "limit.bytes: '5mb/s'"),
        (["--protocol", "amqp", "--bind", ":1", "--upstream", "h:1", "--limit", "5/s,6/s"], 3, "limit.messages: given twice"),
    ],
)  # fmt: skip
def test_flags_that_do_not_fit_are_refused_by_name(sluice: Any, words: list[str], code: int, said: str) -> None:
    ran = sluice("run", *words)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err


def test_the_usual_files_are_looked_for_in_turn(sluice: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    host_wide = tmp_path / "etc" / "sluice.yaml"
    monkeypatch.setattr(configured, "USUAL", (Path("sluice.yaml"), host_wide))
    ran = sluice("check")
    assert ran.code == 2
    assert f"there is none at sluice.yaml or {host_wide}" in ran.err
    assert "sluice init" in ran.err
    host_wide.parent.mkdir()
    host_wide.write_text(CONFIGURATION.format(upstream=1, admin=2))
    assert f"{host_wide}: good; 1 listener" in sluice("check").err
    Path("sluice.yaml").write_text(CONFIGURATION.format(upstream=1, admin=3))
    assert f"{tmp_path}/sluice.yaml: good" in sluice("check").err
    assert ("admin.bind", "127.0.0.1:3") in [
        (row["setting"], row["value"]) for row in sluice("config", "show", "--origin", "-o", "json").json
    ]
    assert f"{host_wide}: good" in sluice("check", host_wide).err
    assert f"{host_wide}: good" in sluice("check", "-c", host_wide).err
    monkeypatch.setenv("SLUICE_CONFIG", str(host_wide))
    assert f"{host_wide}: good" in sluice("check").err


def test_the_usual_places_are_those_of_the_documentation() -> None:
    assert [str(usual) for usual in configured.USUAL] == ["sluice.yaml", "/etc/sluice/sluice.yaml"]


def test_on_a_terminal_the_log_is_text_and_the_next_commands_are_shown(tmp_path: Path) -> None:
    upstream, admin = free_ports(2)
    (tmp_path / "sluice.yaml").write_text(CONFIGURATION.format(upstream=upstream, admin=admin))
    with Terminal([*command(), "run"], cwd=tmp_path) as terminal:
        shown = terminal.read_until("sluice --help")
        assert "info    started after_ms=" in shown
        assert f"  admin API   http://127.0.0.1:{admin}\n  token       state/admin.token\n" in shown
        assert f"export SLUICE_ADMIN=http://127.0.0.1:{admin}" in shown
        told = shown[shown.index("sluice is running") :].replace(command()[0], "sluice")  # however deep the program lies
        assert max(len(line) for line in told.splitlines() if "Z " not in line) <= 80
        (typed,) = [line.split() for line in shown.splitlines() if " limits set " in line]
        done = cli(tmp_path, admin, *typed[1:])
        assert (done.returncode, "limit of amqp / amq.default orders changed" in done.stderr) == (0, True)
        os.kill(terminal.popen.pid, signal.SIGINT)
        assert terminal.end() == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_on_a_terminal_a_link_signs_in_once_and_stands_in_no_file(tmp_path: Path, workers: int) -> None:
    upstream, admin = free_ports(2)
    (tmp_path / "sluice.yaml").write_text(CONFIGURATION.format(upstream=upstream, admin=admin))
    with Terminal([*command(), "run", "--set", f"gateway.workers={workers}"], cwd=tmp_path) as terminal:
        shown = terminal.read_until("sluice --help")
        found = re.search(rf"^  dashboard   http://127\.0\.0\.1:{admin}/#sign-in=([\w-]+)$", shown, re.MULTILINE)
        assert found is not None, shown

        def sign_in() -> int:
            body = json.dumps({"code": found[1]}).encode()
            asked = urllib.request.Request(f"http://127.0.0.1:{admin}/v1/session", body, {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(asked, timeout=HANG_S) as answer:
                    return int(answer.status)
            except urllib.error.HTTPError as error:
                with error:
                    return error.code

        assert [sign_in(), sign_in()] == [200, 401]
        assert cli(tmp_path, admin, "support-bundle", "-o", "bundle.tar.gz").returncode == 0
        os.kill(terminal.popen.pid, signal.SIGINT)
        assert terminal.end() == 0
    bundle = gzip.decompress((tmp_path / "bundle.tar.gz").read_bytes())
    everywhere = [bundle, *(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())]
    assert not [where for where in everywhere if found[1].encode() in where]
    assert terminal.text.count(found[1]) == 1


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_log_that_goes_elsewhere_holds_events_only(tmp_path: Path, form: str) -> None:
    upstream, admin = free_ports(2)
    (tmp_path / "sluice.yaml").write_text(CONFIGURATION.format(upstream=upstream, admin=admin))
    words = [] if form == "json" else ["--log-format", form]
    with Process([*command(), "run", *words], log=tmp_path / "log", cwd=tmp_path) as process:
        process.wait_until(lambda: started(process.output()), within=20, what="sluice run")
        process.popen.send_signal(signal.SIGTERM)
        assert process.popen.wait(HANG_S) == 0
        lines = process.output().splitlines()
    assert all(line[:1] == ("{" if form == "json" else "2") for line in lines)


def test_a_faulty_log_format_is_refused() -> None:
    assert main(["run", "--protocol", "amqp", "--bind", ":0", "--upstream", "h:1", "--log-format", "xml"]) == 3
