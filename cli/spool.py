"""`sluice spool`: what waits in the gateway because a rule says `action: spool`."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote_to_bytes

import click

from cli.exits import CommandError
from cli.key_completion import complete_spooled
from cli.keys import topic_path
from cli.listing import limit_option, sort_option, watchable
from cli.names import topic_of
from cli.output import print_status
from cli.tables import Special, choose_columns
from cli.verb import Remote, VerbGroup, remote
from common import figures
from common.failures import USAGE
from common.views import columns
from gateway.waiting.disk import UNWRITABLE
from limiter.protocols import PROTOCOL_NAMES
from limiter.rules.level_keys import LEVEL_WORDS
from limiter.topics import topic_of_parts

NOTHING: Final = "nothing waits in the spool; messages over a limit wait there where their rule says `action: spool`"
WAITING: Final = choose_columns([each for each in columns.SPOOL if each.title != "disk bytes"], {"topic": Special(topic_of)})
KEY: Final = click.argument(
    "key",
    nargs=-1,
    required=True,
    metavar=" | ".join(names.key_words for names in PROTOCOL_NAMES.values() if names.spools),
    shell_complete=complete_spooled,
)


@click.group(cls=VerbGroup, example="sluice spool list")
def spool() -> None:
    """Look at what waits in the gateway until its limit lets it pass: messages over a limit whose rule says `action: spool`."""


@spool.command("list", example="sluice spool list\nsluice spool list --sort wait --limit 10 --watch\nsluice spool list -q order -o json")
@click.option("-q", "--query", metavar="TEXT", help="Only topics whose name contains TEXT.")
@sort_option(["messages", "bytes", "wait", "name"], "messages", "Order; what is largest now first.")
@limit_option()
@watchable
@remote
def list_(remote: Remote, query: str | None, sort: str, most: int | None) -> None:
    """List the topics that wait in the spool, most messages first, and how full it is.

    Messages: that wait, in memory and on disk. Bytes: those of their publishes. For: since when something of the topic has waited. A short
    burst waits in memory and takes no disk; files are deleted when all in them has left, so their bytes fall in steps.
    """
    found = list(remote.client.items("/v1/spool", {"q": query or "", "sort": sort}, most=most))
    remote.emit(found, WAITING, empty=f"no topic that waits in the spool has {query} in its name" if query else NOTHING)
    if remote.form in {"table", "wide"}:
        body = remote.client.ask("GET", "/v1/spool", query={"limit": "1"}).body
        for line in describe_whole(body.get("spool") or {} if isinstance(body, dict) else {}):
            print_status(line)


def describe_whole(figures_: dict[str, Any]) -> list[str]:
    """The spool as a whole in words, and what is wrong with it."""
    if "used_bytes" not in figures_:
        return []
    used, size = figures.size(figures_["used_bytes"]), figures.size(figures_["size_bytes"])
    messages, on_disk = (figures.count(figures_.get(name) or 0) for name in ("messages", "disk_messages"))
    lines = [f"spool: {messages} messages wait, {on_disk} of them on disk; {used} of {size} used"]
    if figures_.get("trouble"):
        lines.append(f"it cannot be written: {figures_['trouble']}; {UNWRITABLE}")
    if figures_.get("full"):
        lines.append("it is full (spool.max_size): clients whose messages are to be spooled are not read until it drains")
    if figures_.get("expired"):
        lines.append(f"{figures.count(figures_['expired'])} messages were given up for their age since the start (max_age, drop_expired)")
    if figures_.get("damaged_batches"):
        lines.append(f"{figures_['damaged_batches']} batches could not be read back since the start; their connections were closed")
    return lines


@spool.command(example="sluice spool show amqp / orders order.created\nsluice spool show amqp / amq.default jobs -o json")
@KEY
@watchable
@remote
def show(remote: Remote, key: tuple[str, ...]) -> None:
    """Show what waits of one topic, for how long, and how soon it is gone.

    Gone in: at the limit's rate, if no more comes. `sluice why` says more of the limit; `sluice connections list -q TOPIC` shows whose
    messages wait.
    """
    target = key_path(key)
    protocol = key[0]
    parts = [unquote_to_bytes(part) for part in target.removeprefix(f"/v1/limits/{protocol}/").split("/")]
    text = topic_of_parts(protocol, parts).text()
    body = remote.client.ask("GET", "/v1/spool", query={"protocol": protocol, "topic": text}).body
    items = body.get("items") if isinstance(body, dict) else None
    none = {"protocol": protocol, "topic": text, "messages": 0, "bytes": 0, "disk_messages": 0, "disk_bytes": 0, "waiting_seconds": None}
    waiting: dict[str, Any] = items[0] if items else none
    rate = spooling_rate(remote.client.ask("GET", target).body)
    gone = round(waiting["messages"] / rate, 3) if rate else None
    shown = {**waiting, "messages_per_second": rate, "gone_in_seconds": gone}
    remote.emit(in_words(shown) if remote.form == "table" else shown)
    if not waiting["messages"]:
        print_status("nothing of this topic waits in the spool" if rate else "nothing of this topic waits in the spool; no rule spools it")


def key_path(key: tuple[str, ...]) -> str:
    """The path of a topic's limits. Raises CommandError for what is no topic."""
    if key[0] in LEVEL_WORDS:
        raise CommandError(USAGE, f"the spool is told by topic; of a {key[0]}: sluice connections list -q {key[-1]}")
    return topic_path(key)


def spooling_rate(body: object) -> float | None:
    """Messages per second of the tightest limit that spools and that all messages of the topic share; None: there is none, or it has no
    rate of messages. A limit per client, user or exchange says nothing of the topic as a whole."""
    levels = body.get("levels") if isinstance(body, dict) else None
    rates = [
        float((level.get("limit") or {}).get("messages_per_second") or 0)
        for level in levels or []
        if level.get("action") == "spool" and level.get("mode") == "enforce" and level.get("per") in {"topic", "rule"}
    ]
    return min((rate for rate in rates if rate), default=None)


def in_words(shown: dict[str, Any]) -> dict[str, object]:
    """What waits of a topic for people, without what is not known."""
    rate, gone, waited = shown["messages_per_second"], shown["gone_in_seconds"], shown["waiting_seconds"]
    found = {
        "topic": topic_of(shown),
        "messages": figures.count(shown["messages"]),
        "on disk": figures.count(shown["disk_messages"]),
        "bytes": figures.size(shown["bytes"]),
        "waiting for": None if waited is None else figures.duration(waited),
        "limit": None if rate is None else figures.rate(rate),
        "gone in": None if gone is None or not shown["messages"] else figures.duration(gone),
    }
    return {name: value for name, value in found.items() if value is not None}
