"""`sluice top`: the topics, or the connections, with most going on, live."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import click

from cli.account_text import account_text
from cli.client import AdminClient, find_items
from cli.exits import CommandError, passes
from cli.explain import moment
from cli.names import quote_topic, words_of
from cli.output import cell, clean, colourful, emit, on_terminal, terminal_width
from cli.tables import TableColumn, cell_width, column, fit_table, fold, shorten
from cli.traffic_columns import CONNECTIONS, TOPICS, limit_and_mode
from cli.verb import Remote, Verb, reaching
from common import figures
from common.failures import INTERRUPTED, OK, UNREACHABLE, USAGE
from common.shell_words import command

SORTS: Final = ("worst", "refused", "rate", "used", "wait", "name")
CONNECTION_SORTS: Final = ("wait", "refused", "backlog", "forwarded", "blocked", "age", "name")
MAX_ROWS: Final = 200  # topics or connections; asked for at once
PIPE_WIDTH: Final = 200  # columns; of the frame in a pipe
WINDOW_S: Final = 10.0  # seconds; a connection's rate is the mean over these, as the topics' rates are
SORT_KEYS: Final = {
    "o": "worst",
    "r": "refused",
    "i": "rate",
    "u": "used",
    "w": "wait",
    "n": "name",
    "b": "backlog",
    "p": "forwarded",
    "a": "age",
}
HELP: Final = "? keys  s sort  / search  enter details  up, down  c connections  q quit"
KEYS: Final = (
    ("s", "the next order"),
    ("o r i u w n", "topics by: worst (refused, then waiting, then received), refused, received, used, wait, name"),
    ("w r b p a n", "connections by: wait, refused, backlog, passed, age, number"),
    ("/", "search: names with each of the words; enter keeps it, escape clears it"),
    ("up, down", "the line that enter is for, which is the first one"),
    ("enter", "what is known of it, and what to type; again or escape: back"),
    ("c, t", "connections; topics"),
    ("?", "these keys; again or escape: back"),
    ("q, ctrl-c", "the end"),
)
PASSED: Final = column("forwarded/s", "passed_per_second", rank=4, short="passed", figure=figures.rate)


class TrafficReader(threading.Thread):
    """Reads `GET /v1/stream` beside the screen, within a `with`: the sums over all topics, once a second.

    `first` is set once they are known, or cannot be had.
    """

    def __init__(self, client: AdminClient) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._over = threading.Event()
        self.latest: dict[str, Any] = {}
        self.first = threading.Event()

    def run(self) -> None:
        while not self._over.is_set():
            with suppress(CommandError):
                for kind, _, data in self._client.follow("/v1/stream", {"events": "0", "topics": "1"}):
                    if kind == "snapshot":
                        self.latest = data
                        self.first.set()
                    if self._over.is_set():
                        return
            self.first.set()
            self._over.wait(1)

    def __enter__(self) -> TrafficReader:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()


@dataclass
class TopView:
    """What is looked at, as the keys have chosen."""

    connections: bool = False
    sort: str = "worst"
    connection_sort: str = "wait"
    query: str = ""
    typing: bool = False  # the filter is being typed
    page: str = ""  # help or details, in front of the list
    first: int = 0  # of the rows, the first that is shown
    items: list[dict[str, Any]] = field(default_factory=list)
    total: int = 0
    listeners: list[dict[str, Any]] = field(default_factory=list)
    trouble: str = ""  # why the numbers are not fresh
    counted: dict[int, list[tuple[float, int]]] = field(default_factory=dict)  # connection -> when, messages forwarded

    def key(self, key: str) -> bool:
        """What a key does; True ends the program."""
        if self.typing:
            if key in {"enter", "escape"}:
                self.typing, self.query = False, self.query if key == "enter" else ""
            elif key == "backspace":
                self.query = self.query[:-1]
            elif len(key) == 1:
                self.query += key
            self.first = 0
            return False
        if key in {"q", "interrupt"}:
            return True
        if self.page and key in {"escape", "enter", "?"}:
            self.page = ""
        elif key == "?":
            self.page = "help"
        elif key == "enter":
            self.page = "details" if self.items else ""
        elif key == "/":
            self.typing, self.query = True, ""
        elif key == "escape":
            self.query = ""
        elif key in {"c", "t"}:
            self.connections, self.first, self.items = (not self.connections if key == "c" else False), 0, []
        elif key == "s":
            self._sort_by(self._sorts[(self._sorts.index(self._sort) + 1) % len(self._sorts)])
        elif key in SORT_KEYS and SORT_KEYS[key] in self._sorts:
            self._sort_by(SORT_KEYS[key])
        elif key in {"down", "up"}:
            self.first = max(0, min(self.first + (1 if key == "down" else -1), len(self.items) - 1))
        return False

    @property
    def _sorts(self) -> tuple[str, ...]:
        return CONNECTION_SORTS if self.connections else SORTS

    @property
    def _sort(self) -> str:
        return self.connection_sort if self.connections else self.sort

    def begin_by(self, sort: str) -> None:
        """The order asked for on the command line. Raises CommandError for one of the other view."""
        if sort not in self._sorts:
            what = "connections" if self.connections else "topics"
            raise CommandError(USAGE, f"--sort {sort} is not for {what}; they sort by {', '.join(self._sorts)}")
        self._sort_by(sort)

    def _sort_by(self, sort: str) -> None:
        if self.connections:
            self.connection_sort = sort
        else:
            self.sort = sort
        self.first = 0

    def look(self, client: AdminClient) -> None:
        """Ask the gateway. While it cannot be reached the old numbers stay, and `trouble` says why."""
        try:
            query = {"q": self.query, "sort": self._sort, "limit": str(MAX_ROWS)}
            body = client.ask("GET", "/v1/connections" if self.connections else "/v1/topics", query=query).body
            self.items, self.total, self.trouble = find_items(body), int(body.get("total") or 0), ""
            self.listeners = list(client.items("/v1/listeners"))
        except CommandError as error:
            if not passes(error):
                raise
            self.trouble = f"{error.message}; trying again"
        if self.connections:
            self._rate_connections(time.monotonic())

    def _rate_connections(self, now: float) -> None:
        """The API counts a connection's messages; its rate is worked out here, over what was looked at."""
        counted: dict[int, list[tuple[float, int]]] = {}
        for item in self.items:
            seen = [each for each in self.counted.get(item["id"], []) if now - each[0] <= WINDOW_S]
            counted[item["id"]] = seen = [*seen, (now, int(item.get("messages_forwarded") or 0))]
            if len(seen) > 1 and seen[-1][0] > seen[0][0]:
                item["passed_per_second"] = (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0])
        self.counted = counted

    def columns(self) -> list[TableColumn]:
        return [*CONNECTIONS, PASSED] if self.connections else TOPICS

    def frame(self, glance: dict[str, Any], width: int) -> list[str]:
        """The whole screen as lines, none wider than `width`."""
        lines = [shorten(clean(line), width) for line in self._header(glance, width)]
        if self.page:
            told = help_lines(width) if self.page == "help" else self.details(width)
            return [*lines, "", *(clean(line) for line in told)]
        shown = self.columns()
        rows = [[cell((each.people or each.read)(item)) for each in shown] for item in self.items[self.first :]]
        if not rows:
            return [
                *lines,
                "",
                f"no {'connection' if self.connections else 'topic'}{f' like {clean(self.query)}' if self.query else ' yet'}",
            ]
        table = fit_table(shown, rows, width).lines
        head = f"\x1b[7m{table[0]}{' ' * (width - cell_width(table[0]))}\x1b[0m" if colourful() else table[0]
        return [*lines, head, *table[1:]]

    def details(self, width: int) -> Iterable[str]:
        """What is known of the first line that is shown, and what to type."""
        if self.first >= len(self.items):
            return ["it is not in the list any more"]
        item = self.items[self.first]
        return connection_lines(item, width) if self.connections else topic_lines(item, width)

    def _header(self, glance: dict[str, Any], width: int) -> Iterable[str]:
        at = datetime.now(UTC).strftime("%H:%M:%S UTC")
        state = "ready" if glance.get("ready") else "NOT READY" if "ready" in glance else "?"
        if glance.get("draining"):
            state = "draining"
        reached = [each.get("upstream_reachable") is not False for each in self.listeners]
        brokers = "brokers reachable" if all(reached) else f"{reached.count(False)} OF {len(reached)} BROKERS UNREACHABLE"
        first = f"sluice {glance.get('name') or ''}  {state}  {brokers}  up {figures.duration(float(glance.get('uptime_seconds') or 0))}"
        yield f"{shorten(first, width - len(at) - 2):{max(width - len(at), 0)}}{at}"
        rates, totals, memory = glance.get("rates") or {}, glance.get("totals") or {}, glance.get("memory") or {}
        numbers = [f"{word} {figures.rate(rates.get(f'{name}_per_second') or 0)}" for word, name in WORDS]
        numbers += [f"waiting {figures.count(totals.get('waiting') or 0)}", f"connections {glance.get('connections') or 0}"]
        if memory.get("held_bytes") is not None:
            numbers.append(f"held {figures.size(memory['held_bytes'])}")
        yield "  ".join(numbers)
        yield self.trouble or next((f"! {warning}" for warning in glance.get("warnings") or []), HELP)
        if self.typing:
            yield f"filter: {self.query}_   enter keeps it, escape clears it"
        else:
            what = "connections" if self.connections else "topics"
            yield f"{what} by {self._sort}, {len(self.items)} of {self.total}" + (f", with {self.query!r}" if self.query else "")


WORDS: Final = (("received", "received"), ("passed", "forwarded"), ("refused", "refused"))


def beside(name: str, text: str, width: int) -> list[str]:
    return fold(text.split(" "), width, indent=" " * 14, first=f"{name:14}")


def help_lines(width: int) -> Iterator[str]:
    for keys, text in KEYS:
        yield from beside(keys, text, width)


def topic_lines(item: dict[str, Any], width: int) -> Iterator[str]:
    account, limit = item.get("account") or {}, item.get("limit") or {}
    words = quote_topic(item["protocol"], item["topic"])
    yield f"{words} ({item['protocol']}, {item.get('operation')})"
    rates = [f"{figures.rate(item[f'{name}_per_second'])} {word}" for word, name in WORDS]
    yield from beside("now", f"{', '.join(rates)}, {item['waiting']:,} waiting", width)
    if account_text(item):
        yield from beside(str(account.get("state")).replace("_", " "), account_text(item), width)
    if account.get("since"):
        yield from beside("since", f"{moment(account['since'])} UTC", width)
    yield from beside("limit", f"{limit_and_mode(limit, limit.get('mode')) or 'none'}, {limit.get('origin') or 'no rule'}", width)
    if limit.get("by"):
        ends = f"until {moment(limit['expires'])} UTC" if limit.get("expires") else "until it is taken back"
        yield from beside("changed", f"by {limit['by']}, {ends}{': ' + limit['reason'] if limit.get('reason') else ''}", width)
    for client in item.get("clients") or []:
        user = f" ({client['user']})" if client.get("user") else ""
        counts = f"{figures.rate(client['refused_per_second'])} refused, {client.get('waiting') or 0:,} waiting"
        yield from beside("client", f"{client['client']}{user}: {counts}", width)
    yield ""
    yield command("why", [item["protocol"], *(words_of(item["protocol"], item["topic"]) or [item["topic"]])])
    if account.get("client"):
        rate = max(1, int((limit.get("messages_per_second") or 2) / 2))
        operation = "" if item["operation"] == "produce" else f" --operation {item['operation']}"
        yield f"sluice limits set client {account['client']}{operation} --messages {rate}/s --for 1h --reason '...'"


def connection_lines(item: dict[str, Any], width: int) -> Iterator[str]:
    yield f"connection {item['id']} of {item.get('client')}"
    for each in CONNECTIONS:
        told = cell((each.people or each.read)(item))
        if told not in {"-", "0"}:
            yield from beside(each.title_for_people, told, width)
    yield ""
    yield f"sluice connections close {item['id']} --reason '...'"


@click.command(
    cls=Verb,
    example="sluice top\nsluice top --sort used -q order\nsluice top --once\n"
    "sluice top --once --connections --sort age\nsluice top --once -o csv",
)
@click.option("-q", "--query", metavar="TEXT", default="", help="Only topics whose name has each word of TEXT; / while it runs.")
@click.option(
    "--sort", type=click.Choice([*dict.fromkeys((*SORTS, *CONNECTION_SORTS))]),
    help=f"Order; s while it runs. Topics: {', '.join(SORTS)}; connections: {', '.join(CONNECTION_SORTS)}. The first is the default.",
)  # fmt: skip
@click.option("--connections", is_flag=True, help="Connections instead of topics; c while it runs.")
@click.option("--interval", type=click.FloatRange(0.2, 60), default=1.0, show_default=True, metavar="SECONDS", help="Between two looks.")
@click.option("--once", is_flag=True, help="Show it once, and end; so it is in a pipe, too.")
@click.option(
    "-o", "--output", "shape", type=click.Choice(["text", "json", "yaml", "csv"]), default="text", show_default=True,
    help="The exact numbers, once; csv: those of the topics or connections.",
)  # fmt: skip
@reaching
def top(remote: Remote, query: str, sort: str | None, connections: bool, interval: float, once: bool, shape: str) -> None:  # noqa: FBT001  -- click's way
    """Show live which topics are refused and by how much, and what holds connections up. Rates are means over 10 s.

    Keys: ? lists them, s or a letter sorts, / searches, enter shows what is known of the first line, up and down move it, c shows
    connections and t topics, q ends. `sluice topics --watch` is plainer.
    """
    client = remote.client
    view = TopView(connections=connections, query=query)
    if sort is not None:
        view.begin_by(sort)
    view.look(client)
    if view.trouble:
        raise CommandError(UNREACHABLE, view.trouble.removesuffix("; trying again"))
    with TrafficReader(client) as glance:
        glance.first.wait(3)
        if shape == "csv":
            emit("csv", view.items, view.columns())
        elif shape != "text":
            emit(shape, {"gateway": glance.latest, "connections" if connections else "topics": view.items})
        elif once or not on_terminal():
            click.echo("\n".join(view.frame(glance.latest, terminal_width() if on_terminal() else PIPE_WIDTH)))
        else:
            click.get_current_context().exit(_live(view, glance, client, interval))


def _live(view: TopView, glance: TrafficReader, client: AdminClient, interval: float) -> int:
    from cli.screen import screen

    try:
        with screen(keys=True) as terminal:
            looked = time.monotonic()
            while True:
                terminal.draw(view.frame(glance.latest, terminal_width()), cut=True)
                key = terminal.wait(max(looked + interval - time.monotonic(), 0))
                if key and key != "resize":
                    if view.key(key):
                        return OK
                    if view.typing or view.page or key in {"up", "down"}:
                        continue
                if key != "resize":
                    view.look(client)
                    looked = time.monotonic()
    except KeyboardInterrupt:
        return INTERRUPTED
