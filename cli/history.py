"""`sluice history`: changes with their author, time and reason, and the way back."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import click

from cli.client import path
from cli.limit_columns import time_of
from cli.listing import Orders, limit_option, order_items, sort_option, watchable
from cli.names import describe_path
from cli.output import print_status, summarise
from cli.tables import TableColumn, column
from cli.verb import DRY, ChangeOptions, Remote, VerbGroup, changing, remote, report_change, with_options
from common.figures import pluralise

when: Final = time_of("at")


def _targets(item: dict[str, Any], name: Callable[[str], str] = str) -> str:
    targets = [name(str(change.get("target"))) for change in _changes(item)]
    first = ", ".join(targets[:3])
    return f"{first} and {len(targets) - 3} more" if len(targets) > 3 else first


def _became(item: dict[str, Any], text: Callable[[object], str] = summarise) -> str:
    changes = _changes(item)
    if len(changes) != 1:
        return f"{len(changes)} changes"
    return f"{text(changes[0].get('before'))} -> {text(changes[0].get('after'))}"


def _changes(item: dict[str, Any]) -> list[dict[str, Any]]:
    return [change for change in item.get("changes", []) if isinstance(change, dict)]


def _in_short(stored: object) -> str:
    """The limits alone, `50/s, 3MiB/s`. `sluice history show` has all of it."""
    if not isinstance(stored, dict):
        return "none"
    if isinstance(stored.get("quotas"), int):
        return pluralise(stored["quotas"], "quota")
    rule = stored.get("rule")
    held = rule.get("limit") if isinstance(rule, dict) else stored
    limits = [str(held[name]) for name in ("messages", "bytes") if held.get(name)] if isinstance(held, dict) else []
    mode = (rule if isinstance(rule, dict) else stored).get("mode")
    return ", ".join([*limits, *([str(mode)] if mode else [])]) or summarise(stored)


def _describe_targets(item: dict[str, Any]) -> str:
    return _targets(item, describe_path)


_OF_THE_TARGET: Final = re.compile(r"(PUT|PATCH|DELETE) /")
_ROLLBACK: Final = re.compile(r"POST /v1/history/(\d+):rollback")


def _cause(item: dict[str, Any]) -> object:
    """`rollback to 41`, `expiry`: what changed it, where what and change do not say it already."""
    action = str(item.get("action") or "")
    rolled = _ROLLBACK.fullmatch(action)
    if rolled:
        return f"rollback to {rolled[1]}"
    return None if _OF_THE_TARGET.match(action) else action


COLUMNS: Final[list[TableColumn]] = [
    column("revision", "revision", rank=1, short="rev"),
    column("at", "at", rank=2, people=when),
    column("by", "by", rank=3, below=True),
    column("action", "action", rank=5, people=_cause, below=True),
    TableColumn("what", _targets, 0, people=_describe_targets, whole=True),
    TableColumn("change", _became, 4, people=lambda item: _became(item, _in_short), below=True),
    column("reason", "reason", rank=6, below=True),
]
CHANGES: Final[list[TableColumn]] = [
    column("what", "target", rank=0, people=lambda change: describe_path(str(change.get("target")))),
    TableColumn("before", lambda change: summarise(change.get("before")), 1),
    TableColumn("after", lambda change: summarise(change.get("after")), 1),
]


@click.group(cls=VerbGroup, example="sluice history list")
def history() -> None:
    """Changes of limits, rules and quotas: by whom, when, why, before and after."""


ORDERS: Final[Orders] = {
    "latest": None,
    "oldest": lambda item: -int(item.get("revision") or 0),
    "by": lambda item: item.get("by"),
    "what": _describe_targets,
}


def journal_options(orders: Orders) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Options that choose lines of a journal, and their order: those of the API's history and audit."""
    return lambda command: with_options(
        command,
        sort_option(orders, "latest", "Order of the lines that --limit leaves, which are the latest."),
        limit_option(50),
        click.option("--by", metavar="NAME", help="Only lines of the token of this name."),
        click.option("--target", metavar="TEXT", help="Only changes of such a target, e.g. limits/rocketmq/orders."),
        click.option(
            "-q", "--query", "q", metavar="TEXT", help="Only lines with TEXT in author, action, reason, detail, address or target."
        ),
        click.option("--since", metavar="TIME", help="Only lines from this time on, e.g. 2026-11-21T12:00:00Z."),
        click.option("--until", metavar="TIME", help="Only lines before this time."),
    )


def journal_lines(remote: Remote, target: str, orders: Orders, sort: str, most: int, chosen: dict[str, str | None]) -> list[dict[str, Any]]:
    """The latest lines that are as chosen, in order."""
    query = {name: text for name, text in chosen.items() if text}
    return order_items(remote.client.items(target, query, most=most), orders, sort)


@history.command(
    "list",
    example="sluice history list --limit 20\nsluice history list --by ops --since 2026-11-21T12:00:00Z\nsluice history list -q orders",
)
@journal_options(ORDERS)
@watchable
@remote
def list_(remote: Remote, sort: str, most: int, **chosen: str | None) -> None:
    """List changes, the latest first."""
    empty = "nothing was changed yet: the configuration's rules hold; `sluice limits set` changes the limit of a topic"
    if any(chosen.values()):
        empty = "no change is like that; `sluice history list` shows the latest"
    remote.emit(journal_lines(remote, "/v1/history", ORDERS, sort, most, chosen), COLUMNS, empty=empty)


@history.command(example="sluice history show 42")
@click.argument("revision", type=click.IntRange(min=0))
@remote
def show(remote: Remote, revision: int) -> None:
    """Show one change: the values before and after it."""
    body = remote.client.ask("GET", path("history", str(revision))).body
    entry = body.get("entry") if isinstance(body, dict) else None
    if remote.form != "table" or not isinstance(entry, dict):
        remote.emit(body)
        return
    print_status(
        ", ".join(f"{name} {entry[name]}" for name in ("revision", "at", "by", "action", "reason") if entry.get(name) not in {None, ""})
    )
    remote.emit(entry.get("changes", []), CHANGES, uncut=True)


@history.command(example="sluice history rollback 41 --reason 'limit too low'")
@click.argument("revision", type=click.IntRange(min=0))
@changing
@remote
def rollback(remote: Remote, change: ChangeOptions, revision: int) -> None:
    """Restore limits, rules and quotas as of a revision. This makes a new revision; the history keeps every one."""
    client = remote.client
    change.confirm(
        f"Return limits, rules and quotas of {remote.url} to revision {revision}?",
        lambda: client.ask("POST", f"/v1/history/{revision}:rollback", query=DRY, body={}),
    )
    roll_back(remote, change, revision)


def roll_back(remote: Remote, change: ChangeOptions, revision: int) -> None:
    """POST the rollback, on the condition that the history has not changed since it was read."""
    client = remote.client
    seen = client.ask("GET", "/v1/history", query={"limit": "1"}) if change.if_version is None else None
    reason = {"reason": change.reason} if change.reason else {}
    reply = client.ask("POST", f"/v1/history/{revision}:rollback", query=change.query(), body=reason, if_match=change.if_match(seen))
    body = reply.body
    if remote.form != "table" or not isinstance(body, dict):
        remote.emit(body)
    elif change.dry_run:
        remote.emit(body.get("changes", []), CHANGES, uncut=True)
    else:
        remote.emit([body.get("entry", {})], COLUMNS)
    report_change(change, f"returned to revision {revision}", f"return to revision {revision}")
