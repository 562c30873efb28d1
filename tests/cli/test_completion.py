"""Completion as the shell asks for it, and as bash, zsh and fish do it: verbs, options, and keys of the running gateway."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from support.gateways import command
from support.processes import HANG_S
from support.terminals import Terminal

in_a_shell = pytest.mark.slow  # processes for each
Completed = Callable[..., list[str]]

TOPICS = [
    {"protocol": "amqp", "topic": "%2F/orders/order.created", "operation": "produce"},
    {"protocol": "amqp", "topic": "%2F/orders/order.paid", "operation": "produce"},
    {"protocol": "amqp", "topic": "shop/mails/", "operation": "produce"},
    {"protocol": "rocketmq", "topic": "orders", "operation": "produce"},
]


@pytest.fixture
def completed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Completed:
    """What bash is told may stand in place of the last word of some words. Asked in this process: a start of Python each was most of it."""

    def ask(words: str, **environment: str) -> list[str]:
        asked = {"_SLUICE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
        for name, value in {**environment, **asked}.items():
            monkeypatch.setenv(name, value)
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([])
        said = capsys.readouterr()
        assert (ended.value.code, said.err) == (0, "")
        return [line.partition(",")[2] for line in said.out.splitlines() if line]

    return ask


@pytest.mark.parametrize(
    ("words", "some"),
    [
        ("sluice w", {"why"}),
        ("sluice su", {"support-bundle"}),
        ("sluice config ", {"show", "schema", "diff"}),
        ("sluice init --pro", {"--protocol"}),
        ("sluice init --protocol a", {"amqp"}),
        ("sluice limits s", {"set"}),
    ],
)
def test_verbs_and_options_complete(completed: Completed, words: str, some: set[str]) -> None:
    assert some <= set(completed(words))


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("sluice why r", ["rocketmq"]),
        ("sluice why rocketmq o", ["orders"]),
        ("sluice why amqp ", ["/", "shop"]),
        ("sluice why amqp / o", ["orders"]),
        ("sluice why amqp / orders order.", ["order.created", "order.paid"]),
        ("sluice why kafka ", []),
    ],
)
def test_keys_complete_from_the_topics_of_the_gateway(completed: Completed, admin: Any, words: str, offered: list[str]) -> None:
    protocol = words.split()[2]
    admin.topics = [topic for topic in TOPICS if topic["protocol"] == protocol]
    assert completed(words) == offered


SEEN: dict[str, list[dict[str, Any]]] = {
    "/v1/topics": [
        *TOPICS,
        {"protocol": "amqp", "topic": "%2F//jobs", "operation": "consume"},
        {"protocol": "rocketmq", "topic": "team-a%orders"},
        {"protocol": "rocketmq", "topic": "%RETRY%billing", "group": "billing"},
    ],
    "/v1/connections": [
        {"id": 42, "client": "10.0.0.7:5000", "user": "shop", "vhost": "/", "client_properties": {"connection_name": "checkout"}},
        {"id": 43, "client": "[2001:db8::7]:5000", "user": "mail", "vhost": "team"},
    ],
    "/v1/listeners": [{"name": "rabbit"}, {"name": "rocket"}],
}


@pytest.fixture
def seen(admin: Any) -> Any:
    """A gateway with traffic of all kinds; it answers `?protocol=` as the real one."""
    for path, items in SEEN.items():
        admin.answers[f"GET {path}"] = (200, {"items": items, "next": None, "total": len(items)})
    return admin


def of_protocol(admin: Any, protocol: str) -> None:
    items = [item for item in SEEN["/v1/topics"] if item["protocol"] == protocol]
    admin.answers["GET /v1/topics"] = (200, {"items": items, "next": None, "total": len(items)})


KEYS_OF_LIMITS = [
    ("r", ["rocketmq"]),
    ("c", ["client"]),
    ("rocketmq o", ["orders"]),
    ("amqp / orders order.", ["order.created", "order.paid"]),
    ("client ", ["10.0.0.7", "2001:db8::7"]),
    ("user s", ["shop"]),
    ("vhost t", ["team"]),
    ("listener r", ["rabbit", "rocket"]),
    ("exchange ", ["/", "shop"]),
    ("exchange / ", ["orders"]),
    ("queue / ", ["jobs"]),
    ("namespace ", ["team-a"]),
    ("group ", ["billing"]),
    ("client 10.0.0.7 ", []),
    ("moon ", []),
]


@pytest.mark.parametrize(("verb", "key", "offered"), [
    *(("get", *each) for each in KEYS_OF_LIMITS),
    *((verb, *each) for verb in ("set", "unset") for each in KEYS_OF_LIMITS[2:4]),
])  # fmt: skip
def test_keys_of_limits_complete(completed: Completed, seen: Any, verb: str, key: str, offered: list[str]) -> None:
    """All three verbs ask the same function, so a key of each protocol shows that the other two do."""
    of_protocol(seen, "rocketmq" if key.split(maxsplit=1)[0] in {"rocketmq", "namespace", "group"} else "amqp")
    assert completed(f"sluice limits {verb} {key}") == offered


STRANGE = [
    "orders;touch${IFS}pwned", "orders`reboot`", "orders$(reboot)", "o*", "o'x", 'o"x', "o x", "o\nx", "o|x", "o&x", "o>x", "o\\x", "o!x",
    "o\x1bx", "o\u202ex", "--yes", "-x", "",
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "path", "item"),
    [
        ("sluice why rocketmq ", "/v1/topics", lambda name: {"topic": name}),
        ("sluice spool show rocketmq ", "/v1/spool", lambda name: {"topic": name}),
        ("sluice limits get user ", "/v1/connections", lambda name: {"id": 1, "user": name}),
        ("sluice limits get group ", "/v1/topics", lambda name: {"topic": "%RETRY%x", "group": name}),
    ],
)
def test_a_name_that_a_shell_does_not_take_as_it_is_is_not_offered(
    completed: Completed, admin: Any, words: str, path: str, item: Callable[[str], dict[str, Any]]
) -> None:
    """Whoever may connect names topics, and bash puts what is offered on the command line: it ran the topic's command."""
    admin.answers["GET /v1/topics"] = (200, {"items": [], "next": None, "total": 0})
    admin.answers[f"GET {path}"] = (200, {"items": [item(name) for name in [*STRANGE, "orders", "订单"]], "next": None, "total": 20})
    assert completed(words) == ["orders", "订单"]


@pytest.mark.usefixtures("seen")
def test_numbers_of_connections_complete(completed: Completed) -> None:
    assert completed("sluice connections close ") == ["42", "43"]
    assert completed("sluice connections close 43") == ["43"]


# ---- the shells themselves ----------------------------------------------------------------------------------------------

PROMPT = "ready> "
IN_TWO = "'rea''dy> '"  # so that what is typed does not look like it
SHELLS = {  # how a shell starts without a person's own files, and loads the script
    "bash": (["bash", "--norc", "--noprofile", "-i"], f"source ./script; PS1={IN_TWO}"),
    "zsh": (["zsh", "-f", "-i"], f"autoload -Uz compinit; compinit -u -D; source ./script; PROMPT={IN_TWO}"),
}


def script(shell: str, folder: Path) -> dict[str, str]:
    """The script beside a `sluice` on the PATH, and the environment that has it."""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "sluice").write_text(f'#!/bin/sh\nexec {shlex.join(command())} "$@"\n')
    (programs / "sluice").chmod(0o755)
    done = subprocess.run([*command(), "completion", shell], capture_output=True, text=True, timeout=HANG_S, check=True)
    (folder / "script").write_text(done.stdout)
    home = folder / "home"
    home.mkdir()
    return {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(home), "XDG_CONFIG_HOME": str(home), "XDG_DATA_HOME": str(home)}


def installed(shell: str) -> None:
    assert shutil.which(shell), f"{shell} is not installed: sh deploy/system-packages.sh zsh fish"


@in_a_shell
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_loads_without_a_word(tmp_path: Path, shell: str) -> None:
    installed(shell)
    environment = {**os.environ, **script(shell, tmp_path)}
    before = "autoload -Uz compinit; compinit -u -D; " if shell == "zsh" else ""
    quiet = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run(
        [shell, *quiet, "-c", f"{before}source ./script"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@in_a_shell
@pytest.mark.parametrize("shell", ["bash", "zsh"])
@pytest.mark.parametrize(
    ("typed", "rest"),
    [("sluice supp", "ort-bundle"), ("sluice init --protocol a", "mqp"), ("sluice limits get rocketmq or", "ders")],
)
def test_a_verb_a_value_and_a_key_complete_in_the_shell(tmp_path: Path, seen: Any, shell: str, typed: str, rest: str) -> None:
    """The tab key at a shell's prompt writes the rest of the word."""
    installed(shell)
    of_protocol(seen, "rocketmq")
    argv, load = SHELLS[shell]
    with Terminal(argv, cwd=tmp_path, env={**script(shell, tmp_path), "TERM": "dumb"}, columns=120) as terminal:
        terminal.type(f"{load}\n")
        terminal.read_until(PROMPT)
        at = len(terminal.text)
        terminal.type(f"{typed}\t")
        terminal.read_until(rest, after=at)
        assert "not found" not in terminal.text


@in_a_shell
@pytest.mark.parametrize(
    ("typed", "offered"),
    [("sluice supp", "support-bundle"), ("sluice init --protocol a", "amqp"), ("sluice limits get rocketmq or", "orders")],
)
def test_fish_completes_a_verb_a_value_and_a_key(tmp_path: Path, seen: Any, typed: str, offered: str) -> None:
    """What fish itself would offer at its prompt."""
    installed("fish")
    of_protocol(seen, "rocketmq")
    environment = {**os.environ, **script("fish", tmp_path)}
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source ./script; complete --do-complete '{typed}'"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip
    assert (done.stderr, [line.partition("\t")[0] for line in done.stdout.splitlines()]) == ("", [offered])


def test_without_a_gateway_nothing_is_offered_and_nothing_said(completed: Completed) -> None:
    assert completed("sluice why amqp ", SLUICE_ADMIN="http://127.0.0.1:1") == []
