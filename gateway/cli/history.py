"""`sluice history`: changes with their author, time and reason, and the way back."""

from __future__ import annotations

from typing import Any, Final

import click

from gateway.cli.client import path
from gateway.cli.explain import moment
from gateway.cli.listing import limit_option, watchable
from gateway.cli.names import typed_path
from gateway.cli.output import print_status, summarise
from gateway.cli.tables import TableColumn, column
from gateway.cli.verb import Change, Group, Remote, changing, remote, report_change


def _targets(item: dict[str, Any]) -> object:
    changes = [change for change in item.get("changes", []) if isinstance(change, dict)]
    first = ", ".join(str(change.get("target")) for change in changes[:3])
    return f"{first} and {len(changes) - 3} more" if len(changes) > 3 else first


def _became(item: dict[str, Any]) -> object:
    changes = [change for change in item.get("changes", []) if isinstance(change, dict)]
    if len(changes) != 1:
        return f"{len(changes)} changes"
    return f"{summarise(changes[0].get('before'))} -> {summarise(changes[0].get('after'))}"


def when(item: dict[str, Any]) -> object:
    """A time of today by its hour; UTC."""
    return moment(str(item["at"])) if item.get("at") else None


def _typed_targets(item: dict[str, Any]) -> object:
    changes = [change for change in item.get("changes", []) if isinstance(change, dict)]
    first = ", ".join(typed_path(str(change.get("target"))) for change in changes[:3])
    return f"{first} and {len(changes) - 3} more" if len(changes) > 3 else first


COLUMNS: Final[list[TableColumn]] = [
    column("revision", "revision", rank=1),
    column("at", "at", rank=2, people=when),
    column("by", "by", rank=3),
    column("action", "action", rank=8),
    TableColumn("what", _targets, 0, people=_typed_targets),
    TableColumn("change", _became, 4),
    column("reason", "reason", rank=5),
]
CHANGES: Final[list[TableColumn]] = [
    column("what", "target", rank=0, people=lambda change: typed_path(str(change.get("target")))),
    TableColumn("before", lambda change: summarise(change.get("before")), 1),
    TableColumn("after", lambda change: summarise(change.get("after")), 1),
]


@click.group(cls=Group, example="sluice history list")
def history() -> None:
    """Changes of limits, rules and quotas: by whom, when, why, before and after."""


@history.command("list", example="sluice history list --limit 20")
@limit_option(50)
@watchable
@remote
def list_(remote: Remote, most: int) -> None:
    """List changes, the latest first."""
    empty = "nothing was changed yet: the configuration's rules hold; `sluice limits set` changes the limit of a topic"
    remote.emit(list(remote.client.items("/v1/history", most=most)), COLUMNS, empty=empty)


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
    remote.emit(entry.get("changes", []), CHANGES)


@history.command(example="sluice history rollback 41 --reason 'limit too low'")
@click.argument("revision", type=click.IntRange(min=0))
@changing
@remote
def rollback(remote: Remote, change: Change, revision: int) -> None:
    """Restore limits, rules and quotas as of a revision. This makes a new revision; the history keeps every one."""
    change.confirm(f"Return limits, rules and quotas of {remote.url} to revision {revision}?")
    roll_back(remote, change, revision)


def roll_back(remote: Remote, change: Change, revision: int) -> None:
    """POST the rollback, on the condition that the history has not changed since it was read."""
    client = remote.client
    seen = client.ask("GET", "/v1/history", query={"limit": "1"}) if change.if_version is None else None
    reason = {"reason": change.reason} if change.reason else {}
    reply = client.ask("POST", f"/v1/history/{revision}:rollback", query=change.query(), body=reason, if_match=change.if_match(seen))
    body = reply.body
    if remote.form != "table" or not isinstance(body, dict):
        remote.emit(body)
    elif change.dry_run:
        remote.emit(body.get("changes", []), CHANGES)
    else:
        remote.emit([body.get("entry", {})], COLUMNS)
    report_change(change, f"returned to revision {revision}", f"return to revision {revision}")
