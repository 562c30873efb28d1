"""`sluice events`: the gateway's last events, and with -f those that follow."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, Final

import click

from cli.client import AdminClient, find_items
from cli.event_text import sentence
from cli.exits import CommandError, passes
from cli.explain import moment
from cli.names import quote_topic
from cli.output import clean, colourful, emit, emit_rows, on_terminal, print_status, terminal_width
from cli.repeats import STANDS_FOR, fold_repeats
from cli.tables import fold
from cli.verb import Remote, Verb, reaching
from common.failures import INTERRUPTED
from common.shell_words import quote_word

RETRY_S: Final = 2.0  # seconds; before another attempt to reach the gateway
MOST: Final = 500  # events; of one answer, and looked through for those that repeat others
SHOWN_APART: Final = ("id", "ts", "level", "event", STANDS_FOR)
ROW: Final = ("id", "ts", "level", "event", "protocol", "topic")  # columns of the CSV; the last one has the other fields, as JSON
INDENT: Final = " " * 10  # of the lines after an event's first, on a terminal: below its level
COLOURS: Final = {"warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31m"}
LEVELS: Final = ("info", "warning", "error", "critical")


@click.command(
    cls=Verb,
    example="sluice events --limit 20\nsluice events -f --kind limit_reached,limit_recovered\nsluice events --topic orders -o json\n"
    "sluice events --level warning -o csv\nsluice events --all --kind limit_reached",
)
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens from now on, until ctrl-c.")
@click.option("--kind", metavar="NAMES", help="Only these events, with commas between: limit_reached,limit_recovered.")
@click.option("--topic", metavar="NAME", help="Only events of this topic, as logs name it: orders, %2F/orders/order.created.")
@click.option("--level", type=click.Choice(LEVELS), help="Only events of this level and above.")
@click.option(
    "--limit", "most", type=click.IntRange(1, MOST), default=50, show_default=True, help="The latest so many; with -f to begin with."
)
@click.option("--all", "every", is_flag=True, help="Also as text each line of a limit that goes on being reached.")
@click.option(
    "-o", "--output", "shape", type=click.Choice(["text", "json", "yaml", "csv"]), default="text", show_default=True,
    help="json: an object per line; yaml: a document each; csv: what all events have, and their other fields as JSON.",
)  # fmt: skip
@reaching
def events(remote: Remote, *, follow: bool, every: bool, most: int, shape: str, **chosen: str | None) -> None:
    """Show the gateway's last events, the latest last: limits reached and recovered, changes, connections refused, brokers gone, reloads.

    A limit that goes on being reached says so once a minute. As text that is its first line and one that stands for the others, with their
    number (lines) and sum; -f, json, yaml and csv have each line.

    On a terminal what is most frequent is a sentence; json has its fields.

    With -f a gateway that is gone is waited for, and nothing that it still has in memory is missed.
    """
    every = every or shape != "text"
    query = {name: value for name, value in chosen.items() if value}
    client = remote.client
    page = client.ask("GET", "/v1/events", query={**query, "limit": str(most if every else MOST)}).body
    begin = find_items(page)
    if shape == "csv":
        emit_rows([[*ROW, "fields"]])
    for event in begin if every else fold_repeats(begin)[-most:]:
        show(event, shape)
    if not follow:
        return
    try:
        for event in follow_events(client, query, str(page.get("next") or "")):
            show(event, shape)
    except KeyboardInterrupt:
        click.get_current_context().exit(INTERRUPTED)


def follow_events(client: AdminClient, query: dict[str, str], last: str) -> Iterator[dict[str, Any]]:
    """Events as they happen. After a break it goes on behind the last one seen."""
    lost = False
    while True:
        try:
            for kind, number, data in client.follow("/v1/stream", {**query, "snapshots": "0"}, last):
                if lost:
                    print_status(f"{client.url} answers again")
                    lost = False
                if kind == "event":
                    last = number or last
                    yield data
                elif kind == "gap":
                    print_status("some events in between are not kept any more")
        except CommandError as error:
            if not passes(error):
                raise
            if not lost:
                print_status(f"{error.message}; trying again")
            lost = True
        time.sleep(RETRY_S)


def show(event: dict[str, Any], shape: str) -> None:
    if shape == "json":
        click.echo(json.dumps(event, ensure_ascii=True))
    elif shape == "yaml":
        click.echo("---")
        emit("yaml", event)
    elif shape == "csv":
        emit_rows([[*map(event.get, ROW), {name: value for name, value in event.items() if name not in ROW}]])
    else:
        click.echo(as_text(event, terminal_width() if on_terminal() else None))


def as_text(event: dict[str, Any], width: int | None = None) -> str:
    """`12:01:03  warning  limit_reached  / orders order.created  rule=orders refused=120`; on a terminal a sentence, if there is one of it.

    Folded to `width`; a name is not broken. In a pipe it has its fields.
    """
    level = str(event.get("level"))
    colour = COLOURS.get(level, "") if colourful() else ""
    name = ""
    if event.get("topic") is not None:
        name = quote_topic(event.get("protocol") or _protocol(event), event["topic"])
    fields = [
        clean(f"{key}={_value(value)}")
        for key, value in event.items()
        if key not in {*SHOWN_APART, "topic", "protocol"} and value is not None
    ]
    head = clean(f"{moment(str(event.get('ts')))}  {level:7}  {event.get('event')}")
    if event.get(STANDS_FOR):
        fields = [f"{STANDS_FOR}={event[STANDS_FOR]}", *fields]  # first: it says what the others are sums of
    parts = [*([clean(name)] if name else []), *fields]
    told = None if width is None else sentence(event)
    if told is not None and width is not None:
        head = moment(str(event.get("ts")))
        text = "\n".join(fold([head, *clean(told).split(" ")], width, indent=INDENT))
    elif width is None:
        text = "  ".join(filter(None, (head, clean(name), " ".join(fields))))
    else:
        text = "\n".join(fold([head, *parts], width, indent=INDENT, gap="  "))
    return f"{colour}{head}\x1b[0m{text.removeprefix(head)}" if colour and text.startswith(head) else text


def _protocol(event: dict[str, Any]) -> str:
    return "amqp" if str(event["topic"]).count("/") == 2 else "rocketmq"


def _value(value: object) -> str:
    text = quote_word(value) if isinstance(value, str) else ""
    return json.dumps(value, ensure_ascii=False) if not text or "'\"'" in text else text  # so that a command in it can be copied
