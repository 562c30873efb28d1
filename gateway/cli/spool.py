"""`sluice spool`: what waits on the gateway's disk because a rule says `action: spool`."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote_to_bytes

import click

from gateway.cli import figures
from gateway.cli.exits import FAILED, USAGE, CommandError
from gateway.cli.key_completion import complete_spooled
from gateway.cli.keys import OF_LEVELS, topic_path
from gateway.cli.listing import limit_option, sort_option, watchable
from gateway.cli.names import topic_of
from gateway.cli.output import print_status
from gateway.cli.tables import TableColumn, column
from gateway.cli.verb import DRY, Change, Group, Remote, acting, remote, report_change
from gateway.spool import UNWRITABLE
from limiter.protocols import PROTOCOL_NAMES
from limiter.topics import topic_of_parts

NOTHING: Final = "nothing waits in the spool; messages over a limit wait there where their rule says `action: spool`"
WAITING: Final[list[TableColumn]] = [
    column("protocol", "protocol", rank=30),
    column("topic", "topic", rank=0, people=topic_of),
    column("messages", "messages", rank=1, figure=figures.count),
    column("bytes", "bytes", rank=2, figure=figures.size),
    column("waiting s", "waiting_seconds", rank=3, short="for", figure=figures.duration),
    column("paused", "paused.reason", rank=4, people=lambda item: pause_in_words(item.get("paused"))),
]
KEY: Final = click.argument(
    "key",
    nargs=-1,
    required=True,
    metavar=" | ".join(names.key_words for names in PROTOCOL_NAMES.values() if names.spools),
    shell_complete=complete_spooled,
)


@click.group(cls=Group, example="sluice spool list")
def spool() -> None:
    """Look at what waits on the gateway's disk until its limit lets it pass, pause it, or give it up: messages over a limit whose rule says
    `action: spool`."""


@spool.command("list", example="sluice spool list\nsluice spool list --sort wait --limit 10 --watch\nsluice spool list -q order -o json")
@click.option("-q", "--query", metavar="TEXT", help="Only topics whose name contains TEXT.")
@sort_option(["messages", "bytes", "wait", "name"], "messages", "Order; what is largest now first.")
@limit_option()
@watchable
@remote
def list_(remote: Remote, query: str | None, sort: str, most: int | None) -> None:
    """List the topics that wait in the spool, most messages first, and how full it is.

    For: since when something of the topic has waited. Bytes: those of its publishes. Paused: until when. A short burst waits in memory and
    takes no disk; files are deleted when all in them has left, so their bytes fall in steps.
    """
    found = list(remote.client.items("/v1/spool", {"q": query or "", "sort": sort}, most=most))
    remote.emit(found, WAITING, empty=f"no topic that waits in the spool has {query} in its name" if query else NOTHING)
    if remote.form in {"table", "wide"}:
        body = remote.client.ask("GET", "/v1/spool", query={"limit": "1"}).body
        for line in whole(body.get("spool") or {} if isinstance(body, dict) else {}):
            print_status(line)


def whole(figures_: dict[str, Any]) -> list[str]:
    """The spool as a whole in words, and what is wrong with it."""
    if "used_bytes" not in figures_:
        return []
    used, size = figures.size(figures_["used_bytes"]), figures.size(figures_["size_bytes"])
    lines = [f"spool: {figures.count(figures_['messages'])} messages wait; {used} of {size} on disk"]
    if figures_.get("trouble"):
        lines.append(f"it cannot be written: {figures_['trouble']}; {UNWRITABLE}")
    if figures_.get("full"):
        lines.append("it is full (spool.max_size): clients whose messages are to be spooled are not read until it drains")
    if figures_.get("replaying_bytes"):
        lines.append(f"{figures.size(figures_['replaying_bytes'])} of ended connections or processes are to be replayed (durable: true)")
    if figures_.get("replay_trouble"):
        lines.append(f"some of it waits: {figures_['replay_trouble']}")
    if figures_.get("replayed_messages"):
        lines.append(f"{figures.count(figures_['replayed_messages'])} messages were replayed since the start")
    if figures_.get("expired"):
        lines.append(f"{figures.count(figures_['expired'])} messages were given up for their age since the start (max_age, drop_expired)")
    if figures_.get("accepted"):
        refused, lost = figures.count(figures_["accepted_refused"]), figures.count(figures_["accepted_lost"])
        given_up = figures.count(figures_["accepted_given_up"])
        lines.append(
            f"{figures.count(figures_['accepted'])} messages were accepted by the gateway since the start (answer); of these the broker "
            f"refused {refused}, {lost} were lost, and operators gave up {given_up}"
        )
    if figures_.get("set_aside_messages") or figures_.get("set_aside_damages"):
        aside, damages = figures.count(figures_["set_aside_messages"]), figures.count(figures_["set_aside_damages"])
        lines.append(f"{aside} messages and {damages} damaged stretches were set aside; see set-aside in {figures_['directory']}")
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
    none = {"protocol": protocol, "topic": text, "messages": 0, "bytes": 0, "waiting_seconds": None, "paused": None}
    waiting: dict[str, Any] = items[0] if items else none
    rate = spooling_rate(remote.client.ask("GET", target).body)
    gone = round(waiting["messages"] / rate, 3) if rate and not waiting.get("paused") else None
    shown = {**waiting, "messages_per_second": rate, "gone_in_seconds": gone}
    remote.emit(in_words(shown) if remote.form == "table" else shown)
    if not waiting["messages"]:
        print_status("nothing of this topic waits in the spool" if rate else "nothing of this topic waits in the spool; no rule spools it")


@spool.command(
    example="sluice spool pause amqp / orders order.created --for 30min --reason 'the consumer is being repaired'\n"
    "sluice spool pause rocketmq orders --for 30min --reason 'the consumer is being repaired'"
)
@KEY
@click.option("--for", "duration", metavar="TIME", help="For how long (30min, 2h); without it until it is resumed.")
@acting
@remote
def pause(remote: Remote, change: Change, key: tuple[str, ...], duration: str | None) -> None:
    """Let nothing of a topic leave the spool until it is resumed, or the time is over. Needs --reason.

    What waits stays, in order, and what comes goes behind it, also while the topic is below its limit. Other messages of the same AMQP
    channels wait behind it; other channels go on. A RocketMQ send that cannot wait is refused. A stop of the gateway ends the pause: what
    waits then goes on to the broker.
    """
    body = {"for": duration, "reason": needed(change)}
    found = remote.client.ask("POST", f"{spool_path(key)}:pause", body=body, query=change.query()).body
    show_done(remote, found)
    for remark in found.get("remarks") or [] if isinstance(found, dict) else []:
        print_status(str(remark))
    ends = found.get("until") if isinstance(found, dict) else None
    words = f"{' '.join(key)} is paused {f'until {ends}' if ends else 'until `sluice spool resume`'}"
    report_change(change, words, f"pause {' '.join(key)}")


@spool.command(example="sluice spool resume amqp / orders order.created --reason 'the consumer is back'")
@KEY
@acting
@remote
def resume(remote: Remote, change: Change, key: tuple[str, ...]) -> None:
    """Let a topic that was paused leave the spool again, at its limit."""
    found = remote.client.ask("POST", f"{spool_path(key)}:resume", body={}, query=change.query()).body
    show_done(remote, found)
    report_change(change, f"{' '.join(key)} goes on", f"let {' '.join(key)} go on")


@spool.command(example="sluice spool discard amqp / orders order.created --dry-run --reason 'a test of ours'")
@KEY
@acting
@remote
def discard(remote: Remote, change: Change, key: tuple[str, ...]) -> None:
    """Give up what waits of a topic now, without a copy. Needs --reason; asks before.

    On AMQP channels with confirms each message is answered with a nack, else it is dropped. RocketMQ's are dropped: of those that the
    gateway has accepted (`answer`) no sender is told. Order holds: a message behind others is given up when its turn comes. Messages of
    transactions wait on. What comes later is not touched.
    """
    client, target = remote.client, f"{spool_path(key)}:discard"
    body = {"reason": needed(change)}
    if not change.yes and not change.dry_run:
        would = client.ask("POST", target, body=body, query=DRY).body
        change.confirm(f"Give up {given_up(would)} of {' '.join(key)} of the gateway at {remote.url}, for good?")
    found = client.ask("POST", target, body=body, query=change.query()).body
    show_done(remote, found)
    report_change(change, f"{given_up(found)} given up", f"give up {given_up(found)}")
    fail_on_faults(found)


@spool.command(example="sluice spool drain amqp / orders order.created --to orders.jsonl --dry-run --reason 'a test of ours'")
@KEY
@click.option(
    "--to", "file", metavar="NAME", required=True, help="Name of the new file, in the folder `drained` of the gateway's state directory."
)
@acting
@remote
def drain(remote: Remote, change: Change, key: tuple[str, ...], file: str) -> None:
    """Write what waits of a topic now to a file, and then give it up as `discard` does. Needs --reason; asks before.

    The file is on the gateway's machine, for its user alone: bodies of messages do not go through the API. It has one message a line, as
    JSON; with several workers there is one of each. Nothing is given up before it is on the disk.
    """
    client, target = remote.client, f"{spool_path(key)}:drain"
    body = {"to": file, "reason": needed(change)}
    if not change.yes and not change.dry_run:
        would = client.ask("POST", target, body=body, query=DRY).body
        change.confirm(f"Take {given_up(would)} of {' '.join(key)} out of the gateway at {remote.url}, into {file}?")
    found = client.ask("POST", target, body=body, query=change.query()).body
    show_done(remote, found)
    told = found if isinstance(found, dict) else {}
    files = ", ".join(told.get("files") or []) or "no file"
    report_change(change, f"{given_up(found)} given up; written: {files}", f"write {given_up(found)} to {file} and give them up")
    fail_on_faults(found)


def fail_on_faults(body: object) -> None:
    """Raises CommandError where not all was done."""
    faults = body.get("faults") if isinstance(body, dict) else None
    if faults:
        raise CommandError(FAILED, "; ".join(map(str, faults)))


def show_done(remote: Remote, body: object) -> None:
    """What was done, for programs."""
    if remote.form != "table":
        remote.emit(body)


def needed(change: Change) -> str:
    """The reason. Raises CommandError where there is none."""
    if not (change.reason or "").strip():
        raise CommandError(USAGE, "say why: --reason TEXT; it is kept in the audit (`sluice audit`)")
    return str(change.reason)


def given_up(body: object) -> str:
    """`4,000 messages (4.1 MiB) of 3 connections`."""
    found = body if isinstance(body, dict) else {}
    messages, several = int(found.get("messages") or 0), int(found.get("connections") or 0)
    connections = f"{several} connection{'' if several == 1 else 's'}"
    return f"{messages} message{'' if messages == 1 else 's'} ({figures.size(found.get('bytes') or 0)}) of {connections}"


def spool_path(key: tuple[str, ...]) -> str:
    """The path of what waits of a topic. Raises CommandError as `key_path`."""
    return key_path(key).replace("/v1/limits/", "/v1/spool/", 1)


def pause_in_words(pause: object) -> str:
    if not isinstance(pause, dict):
        return ""
    return f"until {pause['until']}" if pause.get("until") else "yes"


def key_path(key: tuple[str, ...]) -> str:
    """The path of a topic's limits. Raises CommandError for what is no topic."""
    if key[0] in OF_LEVELS:
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
        "bytes": figures.size(shown["bytes"]),
        "waiting for": None if waited is None else figures.duration(waited),
        "paused": pause_in_words(shown.get("paused")) or None,
        "paused because": f"{shown['paused']['reason']} ({shown['paused']['by']})" if shown.get("paused") else None,
        "limit": None if rate is None else figures.rate(rate),
        "gone in": None if gone is None or not shown["messages"] else figures.duration(gone),
    }
    return {name: value for name, value in found.items() if value is not None}
