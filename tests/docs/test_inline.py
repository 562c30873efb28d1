"""Commands between backticks, in the text and in tables, executed against a gateway: exit code 0, unless CASES says what the page promises.

A page names verbs in passing (`sluice limits set`): what lacks an argument is asked for its help, which must know options that are named.
What is abbreviated or has a placeholder is in CASES with what a reader would put there. A command that nothing covers is run as it stands.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import pytest

from cli.main import common_options_last, main, sluice
from support.busy_gateway import BusyGateway
from support.gateways import command
from support.pages import MAKE, ROOT, blocks, inline, pages
from support.processes import HANG_S
from support.prometheus import promtool
from support.terminals import Terminal

WORDS: Final = re.compile(r"(?:\.venv/bin/)?sluice (?=[a-z])")


@dataclass(frozen=True, slots=True)
class Case:
    """What a command needs. `typed`: what a reader types for it, with {names} of `values`; `before`: commands that make its state."""

    typed: str = ""
    before: tuple[str, ...] = ()
    code: int = 0
    until: str = ""  # goes on until it is interrupted; this is shown by then


NEW_LIMIT: Final = ("limits set rocketmq orders --messages 31/s", "limits set rocketmq orders --messages 32/s")
STORM: Final = "rules add storm --match exchange='ord*' --per topic --messages 500/s --replace"
NO_GRAFANA: Final = "token revoke grafana --yes"
GRAFANA: Final = ("?" + NO_GRAFANA, "token new grafana")  # ?: may fail
QUOTAS: Final = "quotas apply quotas.json --yes"
CASES: Final = {
    # placeholders
    "limits set rocketmq TOPIC --messages N/s": Case("limits set rocketmq orders --messages 900/s"),
    "rules add storm … --replace": Case(STORM, (STORM,)),
    "spool show KEY": Case("spool show amqp / orders order.created"),
    "why KEY": Case("why amqp / orders order.created"),
    "limits set … --candidate-messages": Case("limits set rocketmq orders --messages 900/s --candidate-messages 500/s"),
    "check -c /etc/sluice/sluice.yaml": Case("check -c sluice.yaml"),
    "config show -c /etc/sluice/sluice.yaml --origin": Case("config show -c sluice.yaml --origin"),
    "rules promote": Case("rules promote orders", ("rules set orders --candidate-messages 15/s",)),
    "rules show": Case("rules show orders"),
    "history rollback 41 --reason 'limit too low'": Case("history rollback {before} --reason 'limit too low' --yes", NEW_LIMIT),
    # what must be there before
    "rules add storm --match exchange='ord*' --per topic --messages 500/s --mode shadow --for 2h": Case(
        before=("?rules remove storm --yes",)
    ),
    "rules set storm --messages 300/s": Case(before=(STORM,)),
    "rules show storm": Case(before=(STORM,)),
    "rules remove storm": Case(before=(STORM,)),
    "rules reset orders": Case(before=("rules set orders --messages 40/s",)),
    "limits unset amqp / orders order.created --reason over": Case(before=("limits set amqp / orders order.created --messages 10/s",)),
    "limits set queue / jobs --messages 50/s": Case(),
    "token new prometheus --role viewer --file prometheus.token": Case(
        before=("?token revoke prometheus --yes", "!rm -f prometheus.token")
    ),
    "token new orders-team --role viewer --file orders-team.token": Case(
        before=("?token revoke orders-team --yes", "!rm -f orders-team.token")
    ),
    # what is asked on a terminal is answered with --yes
    "token rotate grafana --overlap 10m": Case("token rotate grafana --overlap 10m --yes", GRAFANA),
    "token revoke grafana": Case("token revoke grafana --yes", GRAFANA),
    "token rotate admin": Case("token rotate admin --dry-run"),  # in earnest by tests/cli/test_token.py: it is the token of all the others
    "quotas rollback --reason 'refuses too much'": Case("quotas rollback --reason 'refuses too much' --yes", (QUOTAS,)),
    "quotas rollback": Case("quotas rollback --yes", (QUOTAS,)),
    "init": Case(code=2),  # asks; without a terminal it says so
    "drain": Case(code=2),  # the same
    "reload": Case(),
    # goes on until it is interrupted
    "top": Case(until="orders"),
    "events -f": Case(until="orders"),
}
FILES: Final = {
    "quotas.json": json.dumps({
        "version": 1, "computed_at": "2026-11-21T01:00:00Z", "code": "test", "inputs": [], "parameters": {},
        "quotas": [{"protocol": "rocketmq", "topic": "orders", "messages": {"rate": 30, "burst": 30}}],
    })
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Inline:
    """A command of a page: where (page:line), and its words without `sluice`."""

    where: str
    line: str

    @property
    def id(self) -> str:
        return f"{self.where} {self.line}"


def found() -> Iterator[Inline]:
    """Each once on a page."""
    seen = set()
    for page in pages():
        for where, text in inline(page):
            start = WORDS.match(text)
            line = text[start.end() :] if start else ""
            if start and (page, line) not in seen and not text.startswith("sluice quotas limits"):
                seen.add((page, line))
                yield Inline(where, line)


SHOWN: Final = list(found())


def without_arguments(words: list[str]) -> list[str] | None:
    """The verb, where a command line is only its name, or its name and options named in passing; None where it can be run."""
    here: click.Command = sluice
    context = click.Context(here, info_name="sluice")
    rest = common_options_last(list(words))
    verb: list[str] = []
    while isinstance(here, click.Group) and rest:
        name, inner, rest = here.resolve_command(context, rest)
        assert inner is not None
        verb.append(str(name))
        here, context = inner, click.Context(inner, info_name=name, parent=context)
    if isinstance(here, click.Group):
        return verb
    try:
        with context:
            here.parse_args(context, list(rest))
    except click.exceptions.Exit:
        return None
    except click.MissingParameter:
        return verb
    except click.UsageError as error:
        return verb if "requires an argument" in error.message else None
    return None


Run = Callable[[str], tuple[int, str]]


@pytest.fixture
def here(busy: BusyGateway, monkeypatch: pytest.MonkeyPatch) -> BusyGateway:
    """In the gateway's folder, as the pages say, so that its token and its files are found."""
    monkeypatch.chdir(busy.directory)
    monkeypatch.setenv("SLUICE_ADMIN", busy.admin)
    for name in ("SLUICE_TOKEN", "SLUICE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    for name, text in FILES.items():
        Path(name).write_text(text)
    return busy


@pytest.fixture
def run(here: BusyGateway, capsys: pytest.CaptureFixture[str]) -> Run:
    """One command, in this process: starting a hundred of them would take a minute."""

    def ran(line: str) -> tuple[int, str]:
        if line.startswith("!"):
            return subprocess.run(["sh", "-c", line[1:]], check=False).returncode, ""
        code = main(shlex.split(line.removeprefix("?"), comments=True))
        out, err = capsys.readouterr()
        return (0 if line.startswith("?") else code), out + err

    return ran


def values(gateway: BusyGateway) -> dict[str, str]:
    revision = gateway.get("/v1/history?limit=1")["revision"]
    return {"before": str(revision - 1)}


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: shown.id)
def test_a_command_in_the_text_does_what_it_says(here: BusyGateway, run: Run, shown: Inline) -> None:
    case = CASES.get(shown.line)
    verb = without_arguments(shlex.split(shown.line)) if case is None else None
    if verb is not None:
        code, told = run(f"{' '.join(verb)} --help")
        assert code == 0
        assert all(option in told for option in re.findall(r"(?:^| )(--[\w-]+)", shown.line)), told
        return
    case = case or Case()
    for each in case.before:
        code, told = run(each)
        assert code == 0, f"{each}: {told}"
    typed = (case.typed or shown.line).format(**values(here))
    if case.until:
        with Terminal([*command(), *shlex.split(typed)], cwd=here.directory, env={"SLUICE_ADMIN": here.admin}) as terminal:
            terminal.read_until(case.until)
            terminal.popen.send_signal(signal.SIGINT)
            assert terminal.end() in {0, 130}, terminal.text
        return
    code, told = run(typed)
    assert code == case.code, f"{typed}: exit {code}\n{told}"


def test_cases_are_of_commands_that_pages_show() -> None:
    assert set(CASES) <= {shown.line for shown in SHOWN}
    assert len(SHOWN) > 100


# ---- docs/changing-limits.md: commands beside requests ----------------------------------------------------------------------

CHANGING: Final = ROOT / "docs" / "changing-limits.md"
ROWS: Final = [
    [re.findall(r"`([^`]*)`", cell) for cell in line.strip("|").split(" | ")]
    for line in CHANGING.read_text().splitlines()
    if line.startswith("|") and ("`sluice " in line or "`curl " in line)
]
REQUESTS: Final = [(where, text) for page in pages() for where, text in inline(page) if text.startswith("curl ") and "$" in text]
NOT_YET: Final = {  # what a DELETE takes back
    "limits/amqp/%2F/orders/order.created": ("limits set amqp / orders order.created --messages 10/s",),
    "rules/storm": (STORM,),
}


def asked(here: BusyGateway, text: str) -> str:
    """A request of the page in a shell that has its first block behind it; fails unless the answer is a good one."""
    first = next(block for block in blocks(CHANGING, "sh") if block.text.startswith("api="))
    script = (
        f"set -eu\n{first.text.replace('127.0.0.1:9180', here.admin.removeprefix('http://'))}\n{text} -sS -o answer -w '%{{http_code}}'"
    )
    done = subprocess.run(["bash", "-c", script], cwd=here.directory, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, f"{text}: {done.stderr}"
    assert done.stdout.startswith("2"), f"{text}: {done.stdout}\n{(here.directory / 'answer').read_text()}"
    return (here.directory / "answer").read_text() if done.stdout != "204" else ""


@pytest.mark.parametrize(("where", "text"), REQUESTS, ids=lambda value: value[:60])
def test_a_request_in_a_table_is_answered(here: BusyGateway, run: Run, where: str, text: str) -> None:
    if "-X DELETE" in text:
        for path, before in NOT_YET.items():
            if path in text:
                for each in before:
                    assert run(each)[0] == 0
    if '--json \'{"messages": "300/s"}\' "$api/rules/storm' in text:
        assert run(STORM)[0] == 0
    asked(here, text)


def test_the_variants_of_a_change_are_what_the_table_says(here: BusyGateway, run: Run) -> None:
    """`… --dry-run`, `?dry_run=1` instead of `?force=1`, PATCH instead of PUT with a part only."""
    (cli,), (http,) = next(row[1:] for row in ROWS if row[0] == [] and "limits set amqp" in row[1][0])
    text = CHANGING.read_text()
    assert "`… --dry-run` | `…?dry_run=1` instead of `?force=1`" in text
    assert "`-X PATCH` instead of `-X PUT`" in text
    path = "/v1/limits/amqp/%2F/orders/order.created"
    run("?limits unset amqp / orders order.created")
    before = here.get(path)["levels"]
    assert run(f"{cli.removeprefix('sluice ')} --dry-run")[0] == 0
    asked(here, http.replace("?force=1", "?dry_run=1"))
    assert [level["origin"] for level in here.get(path)["levels"]] == [level["origin"] for level in before], "nothing has changed"
    asked(here, http)
    asked(here, re.sub(r"--json '.*?'", """--json '{"messages": "90/s", "reason": null}'""", http.replace("-X PUT", "-X PATCH")))
    assert '"90/s"' in json.dumps(here.get(path)), "the part"
    assert run("limits unset amqp / orders order.created")[0] == 0


OTHERS: Final = [(row[1][0], row[2][0]) for row in ROWS if len(row) == 3 and row[2] and row[2][0].startswith("limits/")]


@pytest.mark.parametrize(("cli", "path"), OTHERS, ids=lambda value: value[:60])
def test_a_limit_for_something_else_is_found_under_its_path(here: BusyGateway, run: Run, cli: str, path: str) -> None:
    assert run(cli.removeprefix("sluice "))[0] == 0
    answer = here.request("GET", f"/v1/{path}")
    assert answer.status == 200
    assert '"override"' in answer.text
    assert here.request("DELETE", f"/v1/{path}?force=1").status in {200, 204}


def test_tables_have_both_kinds() -> None:
    assert len(REQUESTS) == 8
    assert len(OTHERS) == 9


# ---- other programs ----------------------------------------------------------------------------------------------------

OTHER: Final = re.compile(
    r"^(?:[A-Z_]+=\S* )*(?:\S*/)?(?:make|promtool|pip|apt-get|journalctl|kubectl|python3?|pytest|rabbitmqctl|curl|hdfs) "
)
NAMED_ONLY: Final = {  # not to be executed as they stand -> why
    "kubectl port-forward": "the name of a command, without its arguments; it needs a cluster",
    "kubectl exec": "the name of a command, without its arguments; the block that has it is run",
    "curl --json": "an option of curl, named in passing; requests with it are run above",
    "hdfs dfs -put": "the name of a command; the block that has it is run",
    "pip install py-spy": "a tool of others, which is no part of this project",
    "pip install pre-commit && pre-commit install": "a tool of others, and it writes hooks into the repository",
    "journalctl -u sluice": "reads the journal of systemd, which a test machine has not; the unit is checked",
    "journalctl -u sluice-quotas": "reads the journal of systemd, which a test machine has not; the unit is checked",
    "python docs/plots/algorithms.py": "writes into the tree; tests/contracts/test_algorithm_plots.py draws the same and compares",
    "python docs/plots/protecting.py": "writes into the tree; tests/contracts/test_protecting_plot.py draws the same and compares",
    "PYTHONPATH=.:tests .venv/bin/python -m support.public_names": "writes into the tree; tests/contracts/test_names.py asks what it would",
    "PYTHONPATH=.:tests .venv/bin/python -m support.released X.Y.Z": "writes into the tree; what it left is read by a test",
    "apt-get install openjdk-17-jre-headless": "changes the machine; deploy/system-packages.sh installs the same for `make test`",
    "apt-get remove sluice": "changes the machine; tests/deploy/test_debian.py does the same in a Debian of its own",
    "apt-get purge sluice": "changes the machine; tests/deploy/test_debian.py does the same in a Debian of its own",
    "pip install -v": "an option of pip, named in passing",
    "python -m": "how Python is told a module's name, named in passing",
    "rabbitmqctl shutdown": "ends the broker of the machine; the tests end those that they start",
    "apt-get install rabbitmq-server": "changes the machine; deploy/system-packages.sh installs it for `make test`",
}
OF_OTHERS: Final = sorted({text for page in pages() for _, text in inline(page) if OTHER.match(text) and "$" not in text})
LINES: Final = [  # of blocks that run the project's own targets, tests and benches
    line.partition("#")[0].strip()
    for page in pages()
    for block in blocks(page, "sh")
    for line in block.text.splitlines()
    if MAKE.match(line) and page.name != "tutorial.md"
]


@pytest.mark.slow
@pytest.mark.parametrize("line", [*dict.fromkeys([*OF_OTHERS, *LINES])])
def test_commands_of_other_programs(line: str) -> None:
    """make says what it would do; Python's programs are asked for their help, our tests are collected; what pip is to install exists."""
    if line in NAMED_ONLY:
        if line.startswith("journalctl"):
            assert (ROOT / "deploy" / "systemd" / f"{line.rsplit(maxsplit=1)[-1]}.service").is_file()
        return
    bare = re.sub(r"^(?:[A-Z_]+=\S* )+", "", line)
    words = shlex.split(bare)
    environment = {**os.environ, **dict(re.findall(r"([A-Z_]+)=(\S+) ", line[: len(line) - len(bare)])), "PYTHONDONTWRITEBYTECODE": "1"}
    program = words[0].rpartition("/")[2]
    folder = ROOT
    if program == "make":
        words = ["make", "-n", "--no-print-directory", *words[1:]]
    elif program == "promtool":
        words, folder = [promtool(), *words[1:]], ROOT / "deploy" / "prometheus"
    elif program == "pytest":
        apart = [] if "-k" in words else ["--collect-only"]  # whole suites, which `make test` runs
        words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *apart, *words[1:]]
        environment.pop("SLUICE_EXPECT_BUILD", None)  # a developer runs them from the source tree
    elif program.startswith("python"):
        words = [sys.executable, *words[1:], "--help"]  # takes minutes; its arguments are ones that it knows
        environment["PYTHONPATH"] = f"{environment.get('PYTHONPATH', '')}:{ROOT}"  # as after `make install`
    elif program == "pip":
        (extras,) = re.fullmatch(r"sluice-gateway\[([\w,]+)\]", words[2]).groups()  # type: ignore[union-attr]
        assert set(extras.split(",")) <= set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
        return
    else:
        raise AssertionError(f"no test runs {line}; let one run it, or say in NAMED_ONLY why it is not run")
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, f"{line}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


def test_what_is_not_run_is_named_on_a_page() -> None:
    assert set(NAMED_ONLY) <= set(OF_OTHERS)
    assert len(LINES) >= 8
