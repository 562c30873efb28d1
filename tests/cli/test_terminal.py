"""The command line as a person has it: a pseudo-terminal of 80, 120 or 200 columns, a real gateway, real traffic over its limits."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

from cli.main import main
from cli.tables import cell_width
from support.brokers import swallowing
from support.gateways import Gateway, amqp_listener, command
from support.processes import HANG_S, LOOPBACK, wait_until
from support.terminals import Terminal

pytestmark = pytest.mark.slow  # a terminal and a process for each

LONG = "shop.orders.europe.germany.berlin.warehouse-12.created.v2.and-a-tail.that.never.ends"
RULES: list[dict[str, object]] = [
    {"name": "amqp-topics", "match": {"protocol": "amqp"}, "per": "topic", "limit": {"messages": "2/s"}},
    {"name": "rocket-topics", "match": {"protocol": "rocketmq"}, "per": "topic", "limit": {"messages": "100/s", "bytes": "5MiB/s"}},
]
REASON = "incident 4711: the warehouse in Berlin had its disks full, and its clients sent everything twice"
CLIENT = "2001:db8:1234:5678:9abc:def0:1234:5678"
LONG_RULE = "orders-of-the-warehouse-in-berlin-while-its-disks-are-full"
ANSI = re.compile(r"\x1b\[[?0-9;]*[A-Za-z]")
Open = Callable[..., Terminal]
Show = Callable[..., list[str]]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with traffic of both protocols: `orders` at three times its limit, and names that are hard to show."""
    with ExitStack() as stack:
        rabbit = stack.enter_context(swallowing.SwallowingBroker(swallowing.amqp))
        rocket = stack.enter_context(swallowing.SwallowingBroker(swallowing.rocketmq))
        listeners: list[dict[str, object]] = [
            amqp_listener(rabbit.address),
            {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": rocket.address},
        ]
        made = stack.enter_context(Gateway(tmp_path_factory.mktemp("gateway"), listeners, RULES))
        topics = [("orders", 300.0), ("订单-已创建-😀", 5.0), (LONG, 5.0)]
        names = [("orders", "order.created"), ("", "jobs"), ("orders", LONG)]
        stack.enter_context(swallowing.rocketmq_producer(made.port("rocket"), topics))
        stack.enter_context(swallowing.amqp_producer(made.amqp_url(), names, 20))

        def busy() -> bool:
            seen = {item["topic"]: item for item in made.get("/v1/topics")["items"]}
            return len(seen) == len(topics) + len(names) and seen["orders"]["refused_per_second"] > 0

        wait_until(busy, within=60, what="traffic of every topic")
        changed(made)
        yield made


def changed(gateway: Gateway) -> None:
    """Changes with long names and reasons: of keys, a rule, quotas and a token, and one that was refused."""
    gateway.cli("limits", "set", "rocketmq", LONG, "--messages", "50/s", "--bytes", "3MiB/s", "--for", "30m", "--reason", REASON)
    gateway.cli("limits", "set", "amqp", "/", "orders", LONG, "--messages", "40/s", "--reason", "incident 12")
    gateway.cli("limits", "set", "client", CLIENT, "--messages", "900/s", "--for", "40d", "--reason", REASON)
    gateway.cli("rules", "add", LONG_RULE, "--match", f"topic={LONG}*", "--messages", "7000/s", "--mode", "shadow", "--reason", REASON)
    gateway.cli("token", "new", "dashboards-of-the-warehouse-team-in-berlin@example.org", "--role", "viewer", "--reason", REASON)
    quotas = [
        {"protocol": "rocketmq", "topic": name, "messages": {"rate": 120.5, "burst": 1205}, "evidence": {"reason": REASON, "days": 28}}
        for name in (LONG, "订单-已创建-😀", "invoices")
    ]
    quotas.append({"protocol": "amqp", "topic": f"%2F/orders/{LONG}", "messages": {"rate": 9, "burst": 90}, "evidence": {}})
    snapshot = {"version": 1, "computed_at": "2026-11-21T01:00:00Z", "code": "test", "inputs": [], "parameters": {}, "quotas": quotas}
    gateway.put("/v1/quotas", snapshot)
    assert gateway.cli("limits", "set", "rocketmq", "order*", "--messages", "5/s", check=False).returncode == 8


def environment_of(gateway: Gateway) -> dict[str, str]:
    return {"SLUICE_ADMIN": gateway.admin, "SLUICE_TOKEN_FILE": str(gateway.directory / "state" / "admin.token"), "NO_COLOR": "1"}


@pytest.fixture
def shell(gateway: Gateway) -> Iterator[Open]:
    """Run `sluice WORDS` on a terminal of so many columns."""
    with ExitStack() as stack:

        def run(*words: str, columns: int = 80, colour: bool = False) -> Terminal:
            environment = environment_of(gateway) | {"NO_COLOR": "" if colour else "1"}
            terminal = Terminal([*command(), *words], cwd=Path(gateway.directory), env=environment, columns=columns)
            return stack.enter_context(terminal)

        yield run


@pytest.fixture
def show(gateway: Gateway) -> Show:
    """The lines of `sluice WORDS` on a terminal of so many columns, from a fork of this process: its start is most of what a verb costs.

    Tests with `shell` hold that the command shows such lines, too.
    """

    def run(*words: str, columns: int = 80) -> list[str]:
        child, master = pty.fork()
        if child == 0:
            show_verb(gateway, words, columns)
        text = b""
        with os.fdopen(master, "rb", buffering=0) as shown, suppress(OSError):  # EIO: the verb has ended
            while data := shown.read(1 << 16):
                text += data
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        lines = ANSI.sub("", text.decode().replace("\r\n", "\n")).splitlines()
        assert code == 0, "\n".join(lines)
        return lines

    return run


def show_verb(gateway: Gateway, words: tuple[str, ...], columns: int) -> NoReturn:
    """In the fork: as a process of its own would, and out."""
    code = 1
    try:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        sys.stdin, sys.stdout, sys.stderr = (open(number, mode, closefd=False) for number, mode in enumerate("rww"))  # noqa: SIM115  -- its own
        os.environ.update(environment_of(gateway), TERM="xterm", COLUMNS="")
        os.chdir(gateway.directory)
        warnings.simplefilter("ignore")  # those of a test are errors
        code = main(words)
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def shown(terminal: Terminal) -> list[str]:
    """All lines of a command that ends by itself."""
    assert terminal.end() == 0, terminal.text
    return ANSI.sub("", terminal.text).splitlines()


def too_wide(lines: list[str], columns: int) -> list[str]:
    """Lines wider than the terminal, but for a word that is: it has a line of its own, whole, so that it can be copied."""
    return [line for line in lines if cell_width(line) > columns and " " in line.strip()]


WIDTHS = [80, 120, 200]


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize(
    ("words", "important"),
    [
        (
            ["topics"],
            ["topic", "received", "passed", "refused"],
        ),  # at 80 columns more may make room for the worst client
        (["topics", "--sort", "refused", "--limit", "3"], ["topic", "refused"]),
        (["limits", "list"], ["for", "limit", "used", "in", "refused"]),
        (["connections", "list"], ["client", "id", "state", "bottleneck"]),
        (["listeners"], ["listener", "bind", "upstream", "state"]),
        (["rules", "list"], ["rule", "match", "per", "limit"]),
        (["audit", "list"], ["at", "by", "action", "outcome"]),
        (["token", "list"], ["name", "role", "valid", "last used"]),
        (["top", "--once"], ["topic", "received", "passed", "refused", "limit"]),
        (["top", "--once", "--connections"], ["client", "state"]),
    ],
)
def test_no_line_of_a_table_is_wider_than_the_terminal_and_what_matters_is_there(
    show: Show, words: list[str], important: list[str], columns: int
) -> None:
    lines = show(*words, columns=columns)
    assert [line for line in lines if cell_width(line) > columns] == []
    if important:
        assert any(set(important) <= set(re.split(r" {2,}", line.strip())) | set(line.split()) for line in lines), "\n".join(lines)


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize(
    ("words", "there"),
    [
        (["limits", "get", "rocketmq", "orders"], "rocketmq orders"),
        (["limits", "get", "rocketmq", LONG], REASON),
        (["limits", "get", "amqp", "/", "orders", LONG], LONG),
        (["limits", "get", "client", CLIENT], REASON),
        (["history", "show", "1"], REASON),
        (["status"], "revision"),
        (["quotas", "status"], "in force: those of 2026-11-21"),
        (["quotas", "show"], f"%2F/orders/{LONG}"),
        (["quotas", "show", "invoices"], "invoices"),
        (["events", "--kind", "changed"], REASON),
        (["events", "--kind", "changed"], LONG),
        (["events", "--kind", "limit_reached", "--topic", "orders", "--limit", "3"], "rule rocket-topics"),
        (["why", "rocketmq", "orders"], "What to do"),
        (["why", "rocketmq", LONG], LONG),
        (["rules", "show", "rocket-topics"], "rocket-topics"),
    ],
)
def test_no_line_of_prose_is_wider_than_the_terminal_and_nothing_is_cut(show: Show, words: list[str], there: str, columns: int) -> None:
    lines = show(*words, columns=columns)
    commands = [line for line in lines if line.lstrip().startswith("sluice ")]  # of `why`: whole, to be copied
    assert too_wide([line for line in lines if line not in commands], columns) == []
    assert there in " ".join(" ".join(lines).split()), "\n".join(lines)


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_limit_of_a_client_is_told_as_that_of_a_topic_with_whole_times(show: Show, columns: int) -> None:
    lines = show("limits", "get", "client", CLIENT, columns=columns)
    said = " ".join(" ".join(lines).split())
    assert said.startswith(
        f"client {CLIENT} produce per client: 900/s (burst 900) of no rule for {CLIENT} from override, changed live by admin "
    )
    moment = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*Z"
    assert re.search(rf"changed live by admin {moment}: {re.escape(REASON)}, until {moment} how mode enforce, ", said), said


@pytest.mark.parametrize("columns", WIDTHS)
def test_what_changed_is_told_with_its_name_author_and_reason(show: Show, columns: int) -> None:
    """Of every change all is there, in its column or below its line: nobody is sent to another form or a wider terminal."""
    lines = show("history", "list", columns=columns)
    assert lines[0].split()[:3] == ["what", "rev", "at"]
    assert too_wide(lines, columns) == []
    said = " ".join(" ".join(lines).split())
    assert ("-o wide" in said, "…" in said) == (False, False)
    names = (f"rocketmq {LONG}", f"amqp / orders {LONG}", f"client {CLIENT}", f"rule {LONG_RULE}", "quotas")
    for each in (*names, "admin", "none -> 50/s, 3MiB/s", "none -> 900/s", "none -> 4 quotas", REASON, "incident 12"):
        assert each in said, (each, lines)
    audit = show("audit", "list", columns=columns)
    assert any("refused" in line and "PUT" in line for line in audit), audit


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_names_are_whole_and_as_one_types_them(show: Show, columns: int) -> None:
    lines = show("topics", columns=columns)
    for name in ("orders", "/ orders order.created", "/ amq.default jobs", "订单-已创建-😀"):
        assert any(line == name or line.startswith(f"{name}  ") for line in lines), (name, lines)
    assert any(line.split("  ")[0] == LONG for line in lines) == (columns >= cell_width(LONG))
    assert not any("%2F" in line for line in lines)


def test_what_is_left_out_is_told_once_and_wide_has_it(shell: Open) -> None:
    lines = shown(shell("limits", "list"))
    (note,) = [line for line in lines if "more with -o wide" in line]
    assert re.match(r"\d+ columns more with -o wide", note)
    text = shell("limits", "list", "-o", "wide")
    assert text.end() == 0
    assert LONG in text.text
    assert "more with" not in text.text


def test_figures_have_three_digits_and_csv_is_exact(gateway: Gateway, shell: Open) -> None:
    (line,) = [line for line in shown(shell("topics", "-q", "orders", "--sort", "refused", "--limit", "1")) if line.startswith("orders")]
    name, *figures = re.split(r"  +", line)
    assert name == "orders"
    assert all(re.fullmatch(r"[0-9.]{1,4}k?/s", text) for text in figures[:3])
    assert figures[3:5] == ["100/s", "5 MiB/s"]
    assert re.fullmatch(r"[0-9.]{1,4} %", figures[5])
    rows = gateway.cli("topics", "-o", "csv").stdout.splitlines()
    assert rows[0].startswith("protocol,topic,operation,received/s,forwarded/s")
    assert len(rows) == 7


def test_steady_traffic_over_its_limit_shows_the_limit(gateway: Gateway) -> None:
    """300/s against 100/s behind the default breaker: single seconds jump, the means over ten seconds do not."""

    def rates() -> tuple[float, float]:
        (orders,) = [item for item in gateway.get("/v1/topics")["items"] if item["topic"] == "orders"]
        return orders["forwarded_per_second"], orders["refused_per_second"]

    def right() -> bool:
        passed, refused = rates()
        return 80 <= passed <= 120 and refused >= 100

    wait_until(right, within=90, what="about the limit passed, and the rest refused")


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_change_reads_well(show: Show, columns: int) -> None:
    key, change = ("amqp", "/", "orders", "order.created"), ("--messages", "3/s", "--reason", "incident 12", "--for", "1h")
    dry = show("limits", "set", *key, *change, "--dry-run", columns=columns)
    lines = show("limits", "set", *key, *change, columns=columns)
    again = show("limits", "set", *key, *change[:2], "--reason", REASON, columns=columns)
    for each in (dry, lines, again):
        assert [line for line in each if cell_width(line) > columns] == []
    assert any(line.startswith("/ orders order.created") and "3/s" in line and "override" in line for line in lines), lines
    assert "limit of amqp / orders order.created changed" in lines
    assert "replaced the earlier change" in " ".join(again)
    back = show("limits", "unset", *key, columns=columns)
    assert [line for line in back if cell_width(line) > columns] == []
    assert "live change of amqp / orders order.created taken back" in back


def test_colour_on_a_terminal_unless_no_color(shell: Open) -> None:
    coloured, plain = shell("rules", "list", colour=True), shell("rules", "list")
    assert (coloured.end(), plain.end()) == (0, 0)
    assert ("\x1b[1m" in coloured.text, "\x1b[" in plain.text) == (True, False)


# ---- what is drawn again and again -----------------------------------------------------------------------------------


def test_watch_draws_in_place_until_ctrl_c_and_leaves_the_last_table(shell: Open) -> None:
    terminal = shell("topics", "--watch", "0.3")
    terminal.read_until("UTC")
    at = len(terminal.text)
    terminal.read_until("orders", after=at)  # a second frame
    terminal.popen.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    screens = terminal.text.split("\x1b[?1049l")
    assert "\x1b[2J" not in screens[0], "clearing in between flickers"
    assert "orders" in screens[1]


def test_watch_in_a_pipe_is_one_table_after_another(gateway: Gateway) -> None:
    environment = {**os.environ, "SLUICE_ADMIN": gateway.admin, "SLUICE_TOKEN_FILE": str(gateway.directory / "state" / "admin.token")}
    with subprocess.Popen([*command(), "rules", "list", "--watch", "0.2"], env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(10)]  # the head, three rules and an empty line, twice
        process.send_signal(signal.SIGINT)
        process.stdout.close()
        assert process.wait(HANG_S) == 130
    assert lines[:5] == lines[5:]
    assert lines[4] == "\n"


def screens(terminal: Terminal) -> list[str]:
    """The frames drawn so far, without ANSI."""
    return [ANSI.sub("", frame) for frame in terminal.text.split("\x1b[H")[1:]]


def until(terminal: Terminal, wanted: Callable[[str], Any]) -> str:
    """Read until a whole frame is as wanted."""

    def done() -> bool:
        terminal.read_until("\x1b[H", after=len(terminal.text))
        return len(screens(terminal)) > 1 and bool(wanted(screens(terminal)[-2]))

    wait_until(done, within=60, what="a frame like that")
    return screens(terminal)[-2]


def test_top_shows_sorts_filters_and_changes_its_view(shell: Open) -> None:
    terminal = shell("top", "--interval", "0.3")
    frame = until(terminal, lambda frame: "topics by worst" in frame and "received 0/s" not in frame)
    lines = frame.splitlines()
    assert lines[0].startswith("sluice end-to-end  ready  brokers reachable")
    assert re.match(r"received [0-9.]+/s  passed [0-9.]+/s  refused [0-9.]+/s  waiting \d+  connections 2", lines[1])
    head = lines[4].split()
    assert head == ["topic", "received", "passed", "refused", "limit", "worst", "client"]
    assert lines[5].startswith("orders ")
    assert max(cell_width(line) for line in lines) <= 80
    terminal.type("?")
    until(terminal, lambda frame: "these keys; again or escape: back" in frame)
    terminal.type("?")
    until(terminal, lambda frame: "\norders" in frame)
    terminal.type("\r")
    until(terminal, lambda frame: "\nsluice why rocketmq orders" in frame and "\nsluice limits set client 127.0.0.1 --messages" in frame)
    terminal.type("\x1b")
    until(terminal, lambda frame: "\norders" in frame)
    terminal.type("n")
    until(terminal, lambda frame: "topics by name" in frame)
    terminal.type("/jobs\r")
    frame = until(terminal, lambda frame: "with 'jobs'" in frame)
    assert (" jobs " in frame, "\norders" in frame) == (True, False)
    terminal.type("\x1b")
    until(terminal, lambda frame: "\norders" in frame)
    terminal.type("c")
    assert "checkout-7" in until(terminal, lambda frame: "connections by wait" in frame)
    terminal.resize(120)
    until(terminal, lambda frame: max(map(cell_width, frame.splitlines())) == 120)
    terminal.type("q")
    assert terminal.end() == 0


@pytest.mark.parametrize("ending", ["q", "SIGINT", "SIGTERM", "SIGHUP"])
def test_top_leaves_the_terminal_as_it_was(shell: Open, ending: str) -> None:
    terminal = shell("top", "--interval", "0.3")
    until(terminal, lambda frame: "topics by" in frame)
    assert terminal.settings() != terminal.settings_before, "keys are read one by one"
    if ending.startswith("SIG"):
        terminal.popen.send_signal(getattr(signal, ending))
    else:
        terminal.type(ending)
    code = terminal.popen.wait(HANG_S)
    assert code == {"q": 0, "SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}[ending]
    assert terminal.settings() == terminal.settings_before
    terminal.read_until("\x1b[?25h\x1b[?1049l")
    assert "Traceback" not in terminal.text


def test_top_in_a_pipe_is_one_frame(gateway: Gateway) -> None:
    lines = gateway.cli("top").stdout.splitlines()
    assert lines[3].startswith("topics by worst")
    assert not any("\x1b" in line for line in lines)
    numbers = json.loads(gateway.cli("top", "-o", "json", "--sort", "name").stdout)
    assert (numbers["gateway"]["name"], len(numbers["topics"])) == ("end-to-end", 6)


# ---- events ----------------------------------------------------------------------------------------------------------


def test_events_are_listed_followed_and_told_as_json(gateway: Gateway, shell: Open) -> None:
    lines = gateway.cli("events", "--kind", "limit_reached", "--limit", "1").stdout.splitlines()
    assert len(lines) == 1
    assert all("limit_reached" in line for line in lines)
    events = [json.loads(line) for line in gateway.cli("events", "--topic", "orders", "--limit", "1", "-o", "json").stdout.splitlines()]
    assert {event["topic"] for event in events} == {"orders"}
    terminal = shell("events", "-f", "--limit", "1", "--kind", "limit_reached,log_level_set", "--level", "info")
    terminal.read_until("is over its limit")
    gateway.request("PUT", "/v1/log/level", {"level": "info"})
    terminal.read_until("log_level_set")
    terminal.popen.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert "Traceback" not in terminal.text
