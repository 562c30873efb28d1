"""`sluice audit`: requests to change something and their outcome, and whether the journals that have them are whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from cli.configured import USUAL, load_settings
from cli.exits import CommandError
from cli.history import journal_lines, journal_options, when
from cli.listing import Orders, watchable
from cli.output import Column, columns, emit, print_status
from cli.tables import TableColumn, column
from cli.verb import Remote, VerbGroup, output_option, remote
from common.failures import FAILED

LINES: Final[list[TableColumn]] = [
    column("sequence", "sequence", rank=9),
    column("at", "at", rank=1, people=when),
    column("by", "by", rank=3),
    column("role", "role", rank=8),
    column("address", "address", rank=6),
    column("action", "action", rank=0),
    column("outcome", "outcome", rank=2),
    column("reason", "reason", rank=4, below=True),
    column("detail", "detail", rank=5),
]
JOURNALS: Final[Sequence[Column]] = columns("file", "ok", "lines", "first", "since", "last")
OUTCOMES: Final = ("applied", "done", "refused", "failed", "void")
ORDERS: Final[Orders] = {
    "latest": None,
    "oldest": lambda item: -int(item.get("sequence") or 0),
    "by": lambda item: item.get("by"),
    "action": lambda item: item.get("action"),
    "outcome": lambda item: item.get("outcome"),
}


def selecting(command: Any) -> Any:
    """Options that choose lines of the audit."""
    return journal_options(ORDERS)(click.option("--outcome", type=click.Choice(OUTCOMES), help="Only lines of this outcome.")(command))


def show(remote: Remote, sort: str, most: int, chosen: dict[str, str | None]) -> None:
    empty = "no line of the audit is like that" if any(chosen.values()) else "nobody has asked this gateway for a change yet"
    remote.emit(journal_lines(remote, "/v1/audit", ORDERS, sort, most, chosen), LINES, empty=empty)


@click.group(
    cls=VerbGroup,
    invoke_without_command=True,
    example="sluice audit list --limit 20\nsluice audit list --outcome refused -o json\nsluice audit verify",
)
@selecting
@remote
@click.pass_context
def audit(context: click.Context, /, remote: Remote, sort: str, most: int, **chosen: str | None) -> None:
    """List requests to change something, the latest first: limits, reloads, closed connections, drains; refused ones too."""
    if context.invoked_subcommand is None:
        show(remote, sort, most, chosen)


@audit.command("list", example="sluice audit list --by ops --since 2026-11-21T12:00:00Z")
@selecting
@watchable
@remote
def list_(remote: Remote, sort: str, most: int, **chosen: str | None) -> None:
    """The same."""
    show(remote, sort, most, chosen)


@audit.command(example="sluice audit verify\nsluice audit verify /var/lib/sluice/state\nsluice audit verify -c /etc/sluice/sluice.yaml")
@click.argument("directory", required=False, type=click.Path(path_type=Path))
@click.option("-c", "--config", metavar="FILE", type=click.Path(), help="Configuration that names the state directory.")
@output_option
def verify(directory: Path | None, config: str | None, form: str) -> int:
    """Check the journals of a state directory: that no line was altered, removed, inserted, moved or cut.

    Reads the files alone, so it needs no gateway and no token; one may be running. Exit code 1 where something is wrong. Lines that are
    old enough are rolled away, and the chain is checked from the oldest on that is there.
    """
    from admin.store.audit_chain import verify_state_directory

    folder = directory or _state_directory(config)
    try:
        report = verify_state_directory(folder)
    except OSError as error:
        raise CommandError(FAILED, f"{error.filename or folder} cannot be read: {error.strerror}") from None
    if form == "table":
        emit(form, [_row(each) for each in report["journals"]], JOURNALS)
    else:
        emit(form, report)
    for fault in report["faults"]:
        print_status(fault)
    if not report["ok"]:
        raise CommandError(FAILED, f"the audit in {folder} is not whole")
    return 0


def _row(journal: dict[str, Any]) -> dict[str, Any]:
    return {**journal, "ok": "whole" if journal["ok"] else "broken"}


def _state_directory(config: str | None) -> Path:
    """That of the configuration named, or at a usual place; else ./state."""
    named = config or next((str(path) for path in USUAL if path.is_file()), None)
    return Path("state") if named is None else load_settings(named, {}).gateway.state_directory
