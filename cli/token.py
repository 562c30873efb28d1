"""`sluice token`: bearer tokens for the admin API, made in a running gateway or in files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

import click

from cli.client import path
from cli.exits import CommandError
from cli.limit_columns import time_of
from cli.listing import Orders, gather_items, limit_option, moment_of, sort_option, watchable
from cli.output import Column, clean, column, print_status
from cli.verb import DRY, ChangeOptions, Remote, VerbGroup, acting, remote, report_change
from common.failures import FAILED, USAGE

TOKENS: Final[list[Column]] = [
    column("name", "name", rank=0),
    column("role", "role", rank=1),
    column("from", "origin", rank=10),
    column("valid", "valid", rank=2),
    column("last used", "last_used_at", rank=3, people=time_of("last_used_at")),
    column("expires", "expires_at", rank=4, people=time_of("expires_at")),
    column("created", "created_at", rank=20, people=time_of("created_at")),
    column("by", "created_by", rank=15),
    column("reason", "reason", rank=30),
]
ROLES: Final = ("viewer", "operator", "admin")
target_option = click.option(
    "--file", "target", type=click.Path(path_type=Path), help="Write the token to this new file, mode 0600. An existing file is kept."
)


@click.group(cls=VerbGroup, example="sluice token new grafana --role viewer --reason 'dashboards'\nsluice token list")
def token() -> None:
    """Make, list, rotate and revoke bearer tokens for the admin API. It takes a token of the role admin."""


@token.command(
    example="sluice token new grafana --role viewer --expires 90d --reason 'dashboards'\n"
    "sluice token new ci --role operator --file tokens/ci\nsluice token new --file tokens/nightly --role operator"
)
@click.argument("token_name", metavar="[NAME]", required=False)
@target_option
@click.option("--name", "file_name", metavar="NAME", help="Without NAME: the owner's name in the lines shown.  [default: that of the file]")
@click.option("--role", type=click.Choice(ROLES), default="operator", show_default=True, help="What it permits.")
@click.option("--expires", metavar="TIME", help="When it ends: 90d, or 2027-01-31T00:00:00Z. Default: never.")
@acting
@remote
def new(
    remote: Remote,
    change: ChangeOptions,
    token_name: str | None,
    target: Path | None,
    file_name: str | None,
    role: str,
    expires: str | None,
) -> None:
    """Make a token. With NAME the running gateway makes it, and it is valid at once: its secret is shown this once.

    Without NAME nothing is asked of a gateway: the token goes to --file, with the lines that the configuration needs for it, or to stdout.
    """
    if token_name is None:
        if expires is not None:
            raise CommandError(USAGE, "--expires needs NAME: a token in a file is valid as long as the file is there")
        _offline(target, file_name, role)
        return
    if target is not None and target.exists():
        raise CommandError(USAGE, f"{target} exists; remove it first if its token is no longer in use")
    body = {"name": token_name, "role": role} | ({"expires": expires} if expires else {})
    made = remote.client.ask("POST", "/v1/tokens", query=change.query(), body=body).body
    _hand_over(remote, change, made, target, "made", "make")


ORDERS: Final[Orders] = {
    "name": None,
    "role": lambda item: item.get("role"),
    "used": moment_of("last_used_at"),
    "expires": lambda item: item.get("expires_at"),
    "created": moment_of("created_at"),
}


@token.command("list", example="sluice token list\nsluice token list --sort expires\nsluice token list -q grafana -o json")
@click.option("-q", "--query", metavar="TEXT", help="Only tokens whose name contains TEXT.")
@sort_option(ORDERS, help="Order; used, created: the latest first; expires: what ends next first.")
@limit_option()
@watchable
@remote
def list_tokens(remote: Remote, query: str | None, sort: str, most: int | None) -> None:
    """List the tokens, of files and made in the gateway, with when each was used last. Secrets are not kept, so none is shown."""
    found = gather_items(remote.client, "/v1/tokens", ORDERS, sort, most, {"q": query or ""})
    empty = f"no token's name contains {query}; `sluice token list` shows all" if query else "there is no token"
    remote.emit(found, TOKENS, empty=empty)


@token.command(example="sluice token revoke grafana --reason 'left the team' --yes\nsluice token revoke grafana --dry-run")
@click.argument("name")
@click.option("--force", is_flag=True, help="Also the last token of the role admin.")
@acting
@remote
def revoke(remote: Remote, change: ChangeOptions, name: str, force: bool) -> None:  # noqa: FBT001  -- click's way
    """Revoke a token. The next request with it is refused, and its open streams end within a second."""
    client, target, forced = remote.client, path("tokens", name), {"force": "1" if force else ""}
    change.confirm(f"Revoke the token {name}?", lambda: client.ask("DELETE", target, query={**DRY, **forced}))
    revoked = client.ask("DELETE", target, query={**change.query(), **forced}).body
    if remote.form != "table":
        remote.emit(revoked)
    report_change(change, f"token {name} revoked", f"revoke the token {name}")


@token.command(example="sluice token rotate grafana --overlap 10m --file grafana.token --yes\nsluice token rotate admin --dry-run")
@click.argument("name")
@target_option
@click.option("--overlap", metavar="TIME", help="For so long the token before stays valid, too; at most 24h. Default: not at all.")
@click.option("--expires", metavar="TIME", help="A new end: 90d, or 2027-01-31T00:00:00Z. Default: as before.")
@acting
@remote
def rotate(remote: Remote, change: ChangeOptions, name: str, target: Path | None, overlap: str | None, expires: str | None) -> None:
    """Replace a token by a new one of the same name and role, shown this once. `admin` is state/admin.token, which is rewritten."""
    if target is not None and target.exists():
        raise CommandError(USAGE, f"{target} exists; choose another file, and replace it once the new token is there")
    client, where = remote.client, path("tokens", name) + ":rotate"
    body = {key: value for key, value in (("overlap", overlap), ("expires", expires)) if value}
    question = f"Rotate the token {name}? Who has the old one needs the new one."
    change.confirm(question, lambda: client.ask("POST", where, query=DRY, body=body))
    made = client.ask("POST", where, query=change.query(), body=body).body
    _hand_over(remote, change, made, target, "rotated", "rotate")


def _hand_over(remote: Remote, change: ChangeOptions, made: dict[str, Any], target: Path | None, done: str, would: str) -> None:
    """Give the secret to its owner: into a file, or to stdout."""
    name = made["name"]
    if change.dry_run:
        report_change(change, "", f"{would} the token {name}")
        return
    if target is not None:
        try:
            _write(target, made["token"])
        except OSError as error:
            click.echo(made["token"])  # it is shown this once: better on the terminal than nowhere
            raise CommandError(
                FAILED, f"the token {name} is {done}, but {target} cannot be written: {error.strerror}; it is shown above"
            ) from None
        print_status(f"token {name} {done}, and written to {target}")
    elif remote.form == "table":
        print_status(f"token {name} {done}; this is the only time it is shown:")
        click.echo(made["token"])
    else:
        remote.emit(made)


def _offline(target: Path | None, name: str | None, role: str) -> None:
    import secrets

    secret = secrets.token_urlsafe(32)
    if target is None:
        click.echo(secret)
        return
    try:
        _write(target, secret)
    except FileExistsError:
        raise CommandError(USAGE, f"{target} exists; remove it first if its token is no longer in use") from None
    except OSError as error:
        raise click.ClickException(f"{target}: {error.strerror}") from None
    from config.kinds import NAME_PATTERN

    print_status(f"{target} written; add to the configuration and reload:")
    named = target.name.partition(".")[0]
    name = name or (named if re.fullmatch(NAME_PATTERN, named) else "ci")
    click.echo(f"admin:\n  tokens:\n    - {{name: {name}, role: {role}, file: {clean(target.absolute())}}}")


def _write(target: Path, secret: str) -> None:
    """A new file, mode 0600. Raises OSError."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secret + "\n")
