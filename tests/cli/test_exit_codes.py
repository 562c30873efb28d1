"""How every verb ends, and where its words go (`docs/design/contract.md` 2)."""

# ruff: noqa: E501  -- tables, one case a line

from __future__ import annotations

import re
import socket
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest

from cli.main import VERBS, main
from support.gateways import command
from support.processes import HANG_S

from .conftest import TOKEN, problem

pytestmark = pytest.mark.slow  # a process for each

# status, type of the problem, exit code
CODES = [
    (400, "malformed", 1), (401, "unauthorised", 5), (403, "forbidden", 5), (403, "policy", 8), (404, "not-found", 7), (409, "snapshot-gone", 6),
    (412, "precondition-failed", 6), (421, "misdirected", 8), (422, "invalid", 1), (428, "precondition-required", 6), (429, "slow-down", 5),
    (500, "fault", 1), (503, "draining", 1), (507, "not-stored", 1),
]  # fmt: skip


@pytest.mark.parametrize(("status", "name", "code"), CODES)
def test_answers_become_exit_codes(sluice: Any, admin: Any, status: int, name: str, code: int) -> None:
    admin.answers["GET /v1/topics"] = problem(status, name, "so it is", [{"pointer": "/messages", "message": "no unit"}])[:2]
    ran = sluice("topics")
    assert (ran.code, ran.out) == (code, "")
    assert "so it is" in ran.err
    assert "/messages: no unit" in ran.err


def test_without_a_token_not_authorised(sluice: Any, admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLUICE_TOKEN")
    ran = sluice("topics")
    assert ran.code == 5
    assert "no token was sent" in ran.err


def test_an_admin_port_where_no_gateway_listens_is_unreachable(sluice: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        ran = sluice("topics", "--admin", f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert (ran.code, ran.out) == (4, "")
    assert "cannot be reached" in ran.err


def test_a_gateway_that_does_not_answer_is_unreachable(sluice: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        ran = sluice("topics", "--admin", f"127.0.0.1:{silent.getsockname()[1]}", "--timeout", "50ms")
    assert ran.code == 4
    assert "did not answer within 0.05 s" in ran.err


def test_something_else_that_answers_is_unreachable(sluice: Any) -> None:
    import threading

    with socket.create_server(("127.0.0.1", 0)) as other:

        def talk() -> None:
            peer, _ = other.accept()
            peer.recv(1000)
            peer.sendall(b"AMQP\x00\x00\x09\x01")
            peer.close()

        thread = threading.Thread(target=talk)
        thread.start()
        ran = sluice("topics", "--admin", f"127.0.0.1:{other.getsockname()[1]}")
        thread.join()
    assert ran.code == 4


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:99999", "http://x/path"])
def test_a_bad_address_is_a_usage_error(sluice: Any, url: str) -> None:
    ran = sluice("topics", "--admin", url)
    assert ran.code == 2
    assert "http://127.0.0.1:9180" in ran.err


def test_token_files(sluice: Any, admin: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The file given wins over SLUICE_TOKEN; the local state directory's is the default."""
    monkeypatch.setenv("SLUICE_TOKEN", "wrong")
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    assert sluice("topics").code == 5
    assert sluice("topics", "--token-file", tmp_path / "token").code == 0
    monkeypatch.setenv("SLUICE_TOKEN_FILE", str(tmp_path / "token"))
    assert sluice("topics").code == 0
    monkeypatch.delenv("SLUICE_TOKEN_FILE")
    monkeypatch.delenv("SLUICE_TOKEN")
    Path("state").mkdir()
    Path("state/admin.token").write_text(TOKEN)
    assert sluice("topics").code == 0
    assert sluice("topics", "--token-file", tmp_path / "none").code == 2


def test_the_state_directory_of_a_configuration_is_looked_into(
    sluice: Any, admin: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SLUICE_TOKEN")
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "admin.token").write_text(TOKEN)
    (tmp_path / "c.yaml").write_text(
        "gateway: {state_directory: s}\nlisteners: [{name: a, protocol: amqp, bind: 127.0.0.1:1, upstream: 127.0.0.1:2}]\n"
    )
    assert sluice("topics").code == 5
    monkeypatch.setenv("SLUICE_CONFIG", str(tmp_path / "c.yaml"))
    assert sluice("topics").code == 0
    monkeypatch.setenv("SLUICE_CONFIG", "none")
    monkeypatch.setenv("SLUICE_GATEWAY__STATE_DIRECTORY", str(tmp_path / "s"))
    assert sluice("topics").code == 0


def test_a_token_found_lying_about_stays_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    from cli.client import token_for

    Path("state").mkdir()
    Path("state/admin.token").write_text(TOKEN)
    assert token_for("http://127.0.0.1:9180", None, {}) == TOKEN
    assert token_for("http://localhost:9180", None, {}) == TOKEN
    assert token_for("http://gateway.example.com:9180", None, {}) is None
    assert token_for("http://127.0.0.1.example.com:9180", None, {}) is None
    assert token_for("http://gateway.example.com:9180", None, {"SLUICE_TOKEN": "x"}) == "x"


def test_tokens_with_line_breaks_are_refused(sluice: Any, admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_TOKEN", "a\r\nX: y")
    ran = sluice("topics")
    assert ran.code == 2
    assert "X: y" not in ran.err


def test_an_unknown_verb_suggests(sluice: Any) -> None:
    ran = sluice("limit", "list")
    assert ran.code == 2
    assert "no such command 'limit'; did you mean `limits`?" in ran.err
    assert "did you mean `list`?" in sluice("rules", "lst").err
    assert "there are add, list" in sluice("rules", "zzzzzz").err


def test_unknown_options_are_usage_errors(sluice: Any) -> None:
    assert sluice("topics", "--nonsense").code == 2


def test_an_interrupted_command_ends_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(self: click.Context, *args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(click.Context, "invoke", interrupted)
    assert main(["version"]) == 130
    assert capsys.readouterr().err.split("\n")[-2:] == ["sluice: interrupted", ""]


def test_a_reader_that_closes_the_pipe_ends_the_command_quietly() -> None:
    import subprocess
    import sys

    script = "import sys; from cli.main import main; sys.exit(main(['config', 'schema']))"
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=root, env={"PYTHONPATH": str(root)}
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1


@pytest.mark.parametrize(
    ("answer", "code", "out"),
    [((200, {"ready": True}), 0, "ready  yes\n"), ((503, {"ready": False, "reasons": ["rabbit is down"]}), 1, "")],
)
def test_health(sluice: Any, admin: Any, answer: tuple[int, dict[str, Any]], code: int, out: str) -> None:
    admin.answers["GET /readyz"] = answer
    ran = sluice("health")
    assert ran.code == code
    assert out in ran.out
    if code:
        assert ran.err.splitlines() == [f"{admin.url} is not ready:", "  rabbit is down"]
        assert sluice("health", "-o", "json").json == {"ready": False, "reasons": ["rabbit is down"]}


def test_health_that_is_not_quite_good_says_so_and_is_ready(sluice: Any, admin: Any) -> None:
    admin.answers["GET /readyz"] = (200, {"ready": True, "warnings": ["disk: 7 bytes are free"]})
    ran = sluice("health")
    assert (ran.code, ran.out, ran.err) == (0, "ready  yes\n", "ready, but disk: 7 bytes are free\n")
    assert sluice("health", "-o", "json").json["warnings"] == ["disk: 7 bytes are free"]


def test_health_without_a_token_says_that_the_reasons_need_one(sluice: Any, admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    admin.answers["GET /readyz"] = (503, {"ready": False})
    monkeypatch.delenv("SLUICE_TOKEN")
    ran = sluice("health")
    assert ran.code == 1
    assert "the reasons are shown only with a token; see --token-file" in ran.err


def test_status_shows_what_is_within_as_lines_of_their_own(sluice: Any, admin: Any) -> None:
    told = {"connections": 7, "draining": False, "fleet": {"name": "orders", "reachable": False, "gateways": 3}}
    admin.answers["GET /v1/status"] = (200, told)
    assert sluice("status", "-o", "wide").out.splitlines() == [
        "connections      7", "draining         no", "fleet.name       orders", "fleet.reachable  no", "fleet.gateways   3",
    ]  # fmt: skip


def test_status_says_each_thing_once(sluice: Any, admin: Any) -> None:
    """The API tells two of them twice, for who has read them there before."""
    memory = {"memory_full": False, "memory": {"full": False, "held_bytes": 7}}
    told = {"revision": 3, "needs_restart": ["admin.bind: 1 -> 2"], **memory, "workers": [memory], "state": {"revision": 3, "quotas": None}}
    admin.answers["GET /v1/status"] = (200, told)
    assert [line.split(maxsplit=1) for line in sluice("status", "-o", "wide").out.splitlines()] == [
        ["revision", "3"], ["needs_restart", "admin.bind: 1 -> 2"], ["memory.full", "no"], ["memory.held_bytes", "7"],
        ["workers[0].memory.full", "no"], ["workers[0].memory.held_bytes", "7"], ["state.quotas", "-"],
    ]  # fmt: skip
    assert sluice("status", "-o", "json").json == told
    admin.answers["GET /v1/status"] = (200, {"memory_full": True})
    assert sluice("status", "-o", "wide").out.split() == ["memory_full", "yes"], "of several workers together nothing else says it"


def test_health_of_an_unreachable_gateway_exits_with_4(sluice: Any) -> None:
    assert sluice("health", "--admin", "http://127.0.0.1:1", "--token-file", "none").code == 4


def test_reload_with_a_bad_file_is_3(sluice: Any, admin: Any) -> None:
    admin.answers["POST /v1/config:reload"] = problem(
        422, "invalid", "the configuration cannot be used", [{"pointer": "", "message": "c.yaml:1:2: x\n  1 | y"}]
    )[:2]
    ran = sluice("reload")
    assert ran.code == 3
    assert ran.err.endswith("\n  c.yaml:1:2: x\n    1 | y\n")


def test_reload_and_drain(sluice: Any, admin: Any) -> None:
    ran = sluice("reload", "--reason", "why")
    assert (ran.out, ran.err) == ("in force: rule a: added\n", "configuration read again\n")
    assert admin.requests[-1].query == {"reason": "why"}
    ran = sluice("reload", "--dry-run")
    assert (ran.code, ran.out, ran.err) == (0, "would be in force: rule a: added\n", "dry run, the configuration in force stays\n")
    assert admin.requests[-1].query == {"dry_run": "1"}
    assert sluice("drain").code == 2  # nobody to ask, no --yes
    ran = sluice("drain", "--dry-run", "-o", "json")
    assert (ran.json["connections"], ran.err) == (7, "dry run, nothing is changed; would begin to drain\n")
    assert sluice("drain", "--yes", "--reason", "upgrade").code == 0
    assert admin.writes()[-1].body == {"confirm": True, "reason": "upgrade"}


def test_reload_says_what_needs_a_restart_and_when_nothing_changed(sluice: Any, admin: Any) -> None:
    admin.answers["POST /v1/config:reload"] = (200, {"in_force": [], "needs_restart": ["admin.bind"]})
    assert sluice("reload").out == "needs a restart: admin.bind\n"
    admin.answers["POST /v1/config:reload"] = (200, {"in_force": [], "needs_restart": []})
    ran = sluice("reload")
    assert (ran.out, ran.err) == ("", "configuration read again: nothing changed\n")


PROMISED = {  # verbs that scripts rely on; a group's in its help
    "": "run init check config why limits rules topics clients top events connections listeners history fleet audit quotas log spool reload drain status "
    "health support-bundle token version completion",
    "config": "show schema diff",
    "limits": "list get set unset",
    "rules": "list set promote reset show add remove",
    "connections": "list close",
    "history": "list show rollback",
    "fleet": "status apply rollback sync",
    "audit": "list verify",
    "quotas": "show report compute plan apply rollback status backtest nightly",
    "log": "compact ship",
    "spool": "list show",
    "token": "new list revoke rotate",
}


@pytest.mark.parametrize("group", PROMISED, ids=lambda group: group or "sluice")
def test_every_verb_of_the_contract_is_there(sluice: Any, group: str) -> None:
    out = sluice(*group.split(), "--help").out
    for verb in PROMISED[group].split():
        assert re.search(rf"(?m)^  {verb}( |$)", out), verb


def test_no_verb_is_missing_from_those_promised() -> None:
    """A new one is promised from its first release on: it has a line above."""
    assert set(PROMISED[""].split()) == set(VERBS)


def test_the_version_is_told(sluice: Any) -> None:
    version = sluice("version", "-o", "json").json["sluice"]
    ran = sluice("--version")
    assert (ran.code, ran.err) == (0, "")
    assert re.fullmatch(rf"sluice {re.escape(version)} \(.+, Python 3\.\d+\.\d+\S*\)\n", ran.out)
    assert sluice("--version", "limits", "list").out == ran.out, "nothing else is done"


@pytest.mark.parametrize("words", ["", "limits", "limits list", "quotas plan", "top", "completion"])
def test_h_is_help_everywhere(words: str) -> None:
    """In a process of its own: click keeps a command's help option as the first context had it, and other tests make some by hand."""
    short, long = (
        subprocess.run([*command(), *words.split(), option], capture_output=True, text=True, timeout=HANG_S, check=False)
        for option in ("-h", "--help")
    )
    assert (short.returncode, short.stdout) == (0, long.stdout), short.stderr
    assert "Example" in short.stdout


def test_run_gives_the_settings_to_the_gateway_and_ends_as_it_does(sluice: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys
    from types import ModuleType

    seen: list[Any] = []
    main = ModuleType("control_plane.main")

    def run(settings: object, *_: object) -> int:
        seen.append(settings)
        return 9

    main.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "control_plane.main", main)
    (tmp_path / "c.yaml").write_text("listeners: [{name: a, protocol: amqp, bind: 127.0.0.1:1, upstream: 127.0.0.1:2}]\n")
    assert (
        sluice("run", "-c", tmp_path / "c.yaml", "--admin-bind", "127.0.0.1:0", "--log-level", "debug", "--set", "limiter.threads=0").code
        == 9
    )
    (settings,) = seen
    assert (settings.admin.bind.port, settings.log.level, settings.limiter.threads) == (0, "debug", 0)
