"""`sluice fleet`: many gateways and one operator. One change, made at the first gateway and given to the others.

**The truth.** Live changes are kept by the first gateway that is named, the *reference*, in its state directory, with their history. The
others are made equal to it: all of its live changes go there in one request, which is one revision in their history. So a gateway that was
away catches up by the same (`sync`), whatever it has missed, and nothing has to remember who has heard of what.

A gateway that has live changes of its own is not overwritten by a change in passing: `apply` and `rollback` leave it as it is and name it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from cli.admin_address import ClientTls
from cli.client import AdminClient
from cli.exits import CommandError
from cli.listing import Orders, limit_option, order_items, sort_option, watchable
from cli.output import Column, emit, print_status
from cli.tables import TableColumn, column
from cli.token_search import look_for_token
from cli.verb import DEFAULT_ADMIN, DRY, VerbGroup, output_option, timeout_option
from common.failures import CONFLICT, FAILED, OK, UNREACHABLE, USAGE
from common.figures import pluralise

CHANGES: Final = "/v1/live-changes"
QUOTAS: Final = "quotas"  # what the targets of their publications begin with, in the history
CHANGING: Final = {"limits": ("set", "unset"), "rules": ("set", "reset", "add", "remove", "promote")}  # what `apply` takes
IN_SYNC: Final = "yes"


@dataclass
class Member:
    """One gateway as it was read; `fault`: why it was not."""

    client: AdminClient
    token_file: Path | None
    status: dict[str, Any]
    live: dict[str, Any]  # GET /v1/live-changes
    etag: str = ""
    fault: CommandError | None = None

    @property
    def name(self) -> str:
        return f"{self.status['name']} ({self.client.url})" if "name" in self.status else self.client.url

    def row(self, reference: Member) -> dict[str, Any]:
        known = {name: self.status.get(name) for name in ("name", "version", "ready", "connections", "revision")}
        same = None if self.fault or reference.fault else self.live["digest"] == reference.live["digest"]
        away = None if self.fault is None else self.fault.message
        changes = None if self.fault else len(self.live["changes"])
        return {"url": self.client.url, **known, "changes": changes, "in_sync": same, "reference": self is reference, "away": away}

    def __repr__(self) -> str:
        return f"<Member {self.name}>"


@dataclass(frozen=True)
class NamedGateways:
    """The gateways in the order in which they were named; the first is the reference."""

    members: list[Member]

    @property
    def reference(self) -> Member:
        """Raises CommandError where it is away: then nothing may be changed."""
        first = self.members[0]
        if first.fault is not None:
            raise CommandError(
                first.fault.code, f"{first.client.url} is the reference, and away: nothing was changed",
                [first.fault.message, "name another gateway first, to make that one the reference"],
            )  # fmt: skip
        return first


def read(given: str, timeout_s: float) -> Member:
    """Ask one gateway; `given` is URL or URL,TOKENFILE. Raises CommandError for a URL that is none."""
    url, _, file = given.partition(",")
    token_file = Path(file) if file else _token_file()
    found = look_for_token(url, token_file, os.environ)
    client = AdminClient(url, found.token, timeout_s, found, ClientTls.of(os.environ))
    try:
        status = client.ask("GET", "/v1/status").body
        live = client.ask("GET", CHANGES)
    except CommandError as error:
        return Member(client, token_file, {}, {}, fault=error)
    body = live.body if isinstance(live.body, dict) else {}
    if not isinstance(status, dict) or not isinstance(body.get("digest"), str) or not isinstance(body.get("changes"), dict):
        fault = CommandError(FAILED, "what answers there is no sluice gateway, or one that is too old")
        return Member(client, token_file, {}, {}, fault=fault)
    return Member(client, token_file, status, body, live.etag)


def _token_file() -> Path | None:
    given = os.environ.get("SLUICE_TOKEN_FILE")
    return Path(given) if given else None


def of_fleet(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option that names the gateways; the command gets `fleet: NamedGateways`, read."""

    @timeout_option
    @click.option(
        "-g", "--gateway", "gateways", multiple=True, metavar="URL[,TOKENFILE]", envvar="SLUICE_GATEWAYS",
        help="Admin API of a gateway (or SLUICE_GATEWAYS, with spaces between); the first is the reference."
        "  [default: SLUICE_ADMIN, or this machine's]",
    )  # fmt: skip
    @functools.wraps(command)
    def wrapped(*args: Any, gateways: tuple[str, ...], timeout: float, **kwargs: Any) -> Any:
        named = gateways or (os.environ.get("SLUICE_ADMIN") or DEFAULT_ADMIN,)
        return command(*args, fleet=NamedGateways([read(each, timeout) for each in named]), **kwargs)

    return wrapped


@click.group(cls=VerbGroup, example="sluice fleet status")
def fleet() -> None:
    """Many gateways, one operator: look at all, and make one change at all.

    The first gateway named is the reference: its state has the live changes that the others are made equal to.
    """


def _sync_word(row: dict[str, Any]) -> object:
    if row["reference"]:
        return "reference"
    return None if row["in_sync"] is None else (IN_SYNC if row["in_sync"] else "no")


ROWS: Final[Sequence[Column]] = [
    column("gateway", "name", rank=0),
    column("url", "url", rank=1),
    column("version", "version", rank=5),
    column("ready", "ready", rank=2),
    column("connections", "connections", rank=6),
    column("revision", "revision", rank=4),
    column("live changes", "changes", rank=7),
    TableColumn("in sync", _sync_word, 3),
    column("away", "away", rank=8),
]


def _trouble(row: dict[str, Any]) -> int:
    """3 away, 2 other live changes, 1 not ready, 0 none of these."""
    return 3 if row["away"] else 2 if row["in_sync"] is False else int(not row["ready"])


ORDERS: Final[Orders] = {
    "place": None,
    "name": column("gateway", "name").read,
    "trouble": _trouble,
    "connections": column("connections", "connections").read,
    "revision": column("revision", "revision").read,
}


@fleet.command(example="sluice fleet status\nsluice fleet status --sort trouble")
@watchable
@of_fleet
@sort_option(ORDERS, default="place", help="Order: as they were named, by name, or what is largest first.")
@limit_option()
@output_option
def status(fleet: NamedGateways, form: str, sort: str, most: int | None) -> int:
    """Show all gateways: version, readiness, revision of their rules, and whether their live changes are the reference's.

    Exit 0 all are there and in sync, 4 one is away, 6 one has other live changes: of all of them, however many are shown.
    """
    rows = [each.row(fleet.members[0]) for each in fleet.members]
    emit(form, order_items(rows, ORDERS, sort)[:most], ROWS)
    if any(each.fault for each in fleet.members):
        return UNREACHABLE
    return OK if all(row["in_sync"] for row in rows) else CONFLICT


def give(reference: Member, others: Sequence[Member], reason: str, *, dry_run: bool = False) -> int:
    """Make the live changes of the others the reference's. Each is told of; the exit code is that of the first that has not got them."""
    code = OK
    if not others:
        print_status(f"{reference.name}: there is no other gateway; name all of them (-g, or SLUICE_GATEWAYS)")
    now = reference.client.ask("GET", CHANGES).body
    for each in others:
        if each.fault is not None:
            print_status(f"{each.name}: AWAY, has not got it: {each.fault.message}")
            code = code or UNREACHABLE
            continue
        if each.live["digest"] == now["digest"]:
            print_status(f"{each.name}: has it already")
            continue
        query = {"dry_run": "1" if dry_run else ""}
        try:
            reply = each.client.ask("PUT", CHANGES, query=query, body={"changes": now["changes"], "reason": reason}, if_match=each.etag)
        except CommandError as error:
            print_status(f"{each.name}: HAS NOT GOT IT: {'; '.join([error.message, *error.lines])}")
            code = code or (error.code if error.code in {UNREACHABLE, CONFLICT} else FAILED)
            continue
        if dry_run:
            changes = [f"{item['target']}: {'removed' if item['after'] is None else 'set'}" for item in reply.body["changes"]]
            print_status(f"{each.name}: would change {', '.join(changes)}")
        else:
            print_status(f"{each.name}: has it, revision {reply.body['revision']}")
    if code:
        print_status("`sluice fleet sync` gives it to those that have not got it, once they can take it")
    return code


def change_all(fleet: NamedGateways, words: Sequence[str], reason: str) -> int:
    """Run a verb at the reference, and give what came of it to the others."""
    from cli.main import main

    reference, others = fleet.reference, fleet.members[1:]
    own = ["--admin", reference.client.url, *(["--token-file", str(reference.token_file)] if reference.token_file else [])]
    print_status(f"{reference.name}: the reference")
    code = main([*own, *words])
    if code:
        print_status("nothing was changed elsewhere")
        return code
    strangers = [each for each in others if each.fault is None and each.live["digest"] != reference.live["digest"]]
    takers = [each for each in others if each not in strangers]
    if "--dry-run" in words:
        away = [each for each in takers if each.fault is not None]
        print_status(f"{pluralise(len(takers) - len(away), 'other gateway')} would get the same")
        for each in away:
            print_status(f"{each.name}: AWAY, would not get it: {each.fault}")
        given = UNREACHABLE if away else OK
    else:
        given = give(reference, takers, reason)
    for each in strangers:
        print_status(f"{each.name}: LEFT AS IT IS: it has other live changes; `sluice fleet sync` replaces them by the reference's")
    return given or (CONFLICT if strangers else OK)


@fleet.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    example="sluice fleet apply limits set rocketmq orders --messages 100/s --reason 'incident 12'\n"
    "sluice fleet apply rules set rocketmq-topics --messages 1000/s --dry-run",
)
@of_fleet
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="VERB...")
def apply(fleet: NamedGateways, words: tuple[str, ...]) -> int:
    """Make a change of a limit or a rule at all gateways: `limits set`, `limits unset`, `rules set` and so on, with their options.

    It is made at the reference first; where that refuses it, nothing is changed anywhere. One that is away or refuses it is named, and
    the others have it. Exit 0 all have it, 4 one is away, 6 one has live changes of its own and was left as it is.
    """
    if len(words) < 2 or words[1] not in CHANGING.get(words[0], ()):
        known = ", ".join(f"{group} {verb}" for group, verbs in CHANGING.items() for verb in verbs)
        raise CommandError(USAGE, f"`{' '.join(words[:2])}` cannot be made at all gateways; there are {known}")
    return change_all(fleet, words, reason_in(words) or f"fleet: {' '.join(words[:2])}")


def reason_in(words: Sequence[str]) -> str:
    for number, word in enumerate(words):
        if word == "--reason" and number + 1 < len(words):
            return words[number + 1]
        if word.startswith("--reason="):
            return word.partition("=")[2]
    return ""


@fleet.command(example="sluice fleet rollback 41 --reason 'limit too low'")
@of_fleet
@click.argument("revision", type=click.IntRange(min=0))
@click.option("--dry-run", is_flag=True, help="Show what would change at the reference, and change nothing.")
@click.option("--reason", metavar="TEXT", help="The reason; kept in the history of each gateway.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def rollback(fleet: NamedGateways, revision: int, reason: str | None, *, dry_run: bool, yes: bool) -> int:
    """Return the reference to a revision of its history, and give its live changes to the others.

    Quotas are none of these. Where they were published since that revision, nothing is changed: exit 6.
    """
    found = fleet.reference.client.ask("POST", f"/v1/history/{revision}:rollback", query=DRY, body={}).body
    if any(str(change["target"]).partition("/")[0] == QUOTAS for change in found["changes"]):
        raise CommandError(
            CONFLICT, f"quotas were published since revision {revision}, and a rollback would take them back at the reference alone",
            ["name a later revision (`sluice history list`), or take the change back by another: `sluice fleet apply limits unset ...`"],
        )  # fmt: skip
    words = ["history", "rollback", str(revision), *(["--dry-run"] if dry_run else []), *(["--yes"] if yes else [])]
    return change_all(fleet, [*words, *(["--reason", reason] if reason else [])], reason or f"fleet: back to revision {revision}")


@fleet.command(example="sluice fleet sync --dry-run\nsluice fleet sync --reason 'gateway-2 is back'")
@of_fleet
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--reason", metavar="TEXT", default="fleet: sync", help="The reason; kept in the history of each gateway.")
def sync(fleet: NamedGateways, reason: str, *, dry_run: bool) -> int:
    """Make the live changes of all gateways the reference's: of one that was away, or has other ones. Repeating it changes nothing.

    Exit 0 all have them, 4 one is away, 1 one refuses them.
    """
    return give(fleet.reference, fleet.members[1:], reason, dry_run=dry_run)
