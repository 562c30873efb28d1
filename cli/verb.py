"""What all verbs share: groups that suggest a verb, help that ends with an example, and the common options."""

from __future__ import annotations

import difflib
import functools
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from cli.admin_address import ClientTls
from cli.client import AdminClient, Reply
from cli.exits import CommandError
from cli.output import Column, clean, emit, note_wide, print_status
from cli.token_search import look_for_token
from common.failures import FAILED, USAGE
from common.records import dataclass

DEFAULT_ADMIN: Final = "http://127.0.0.1:9180"
MAX_ANSWERS: Final = 3  # to a question; then it is no
DRY: Final = {"dry_run": "1"}  # the query of a change that is only tried
F = TypeVar("F", bound=Callable[..., Any])


def _write_example(formatter: click.HelpFormatter, example: str) -> None:
    if example:
        with formatter.section("Example" if "\n" not in example.strip() else "Examples"):
            for line in example.strip().splitlines():
                formatter.write(f"{'':{formatter.current_indent}}{line.strip()}\n")


class Verb(click.Command):
    """A command whose help ends with an example."""

    def __init__(self, *args: Any, example: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.example = example

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_example(formatter, self.example)


class VerbGroup(click.Group):
    """A group of verbs. Without a verb it lists, where it has `list`.

    It suggests a verb where one is unknown, and imports a verb's module when that is used.
    """

    command_class = Verb

    def __init__(self, *args: Any, example: str, late: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.example = example
        self.late = dict(late or {})  # verb -> ".module:attribute", beside this file

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """A group that has the verb `list` takes it where none is named."""
        lists = "list" in self.commands and not self.invoke_without_command and not ctx.resilient_parsing  # which completes words
        if lists and (not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)):
            args = ["list", *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.late, *(name for name in super().list_commands(ctx) if name not in self.late)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        where = self.late.get(cmd_name)
        if where is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = where.partition(":")
        command = getattr(importlib.import_module(module, __package__), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if self.get_command(ctx, word) is None and not word.startswith("-") and not ctx.resilient_parsing:
            known = self.list_commands(ctx)
            near = difflib.get_close_matches(word, known, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(known)}."
            ctx.fail(f"no such command '{clean(word)}'; {hint}")
        return super().resolve_command(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_example(formatter, self.example)


@dataclass(frozen=True, slots=True)
class Remote:
    """The gateway that a verb talks to, and the form of its output."""

    url: str
    token_file: Path | None
    timeout_s: float
    form: str  # table (wide ones too), csv, json or yaml
    tls: ClientTls = ClientTls()

    @property
    def client(self) -> AdminClient:
        found = look_for_token(self.url, self.token_file, os.environ)
        return AdminClient(self.url, found.token, self.timeout_s, found, self.tls)

    def emit(self, value: Any, shown: Sequence[Column] | None = None, *, stack: bool = False, uncut: bool = False, empty: str = "") -> None:
        emit(self.form, value, shown, stack=stack, uncut=uncut, empty=empty)


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """The options of a change."""

    dry_run: bool
    if_version: str | None
    reason: str | None
    yes: bool

    def query(self) -> dict[str, str]:
        return {"dry_run": "1" if self.dry_run else "", "reason": self.reason or ""}

    def if_match(self, seen: Reply | None) -> str | None:
        """The version that the change is for: the user's, else the one just read."""
        if self.if_version is not None:
            return self.if_version if self.if_version.startswith(('"', "W/", "*")) else f'"{self.if_version}"'
        return seen.etag or None if seen is not None else None

    def confirm(self, question: str, try_it: Callable[[], object] | None = None) -> None:
        """Ask, unless --yes or --dry-run; without a terminal to ask on, only --yes will do. Raises CommandError.

        `try_it` asks the gateway for a dry run before: what it would refuse, as for want of a role, is not asked about.
        """
        if self.yes or self.dry_run:
            return
        if not sys.stdin.isatty():
            raise CommandError(USAGE, f"{question} There is no terminal to ask on: add --yes.")
        if try_it is not None:
            try_it()
        for _ in range(MAX_ANSWERS):
            answer = str(click.prompt(f"{clean(question)} [y/N]", default="", show_default=False, err=True)).strip().lower()
            if answer in {"y", "yes"}:
                return
            if answer in {"", "n", "no"}:
                raise CommandError(FAILED, "nothing was changed")
            print_status("y is yes, n or nothing is no")
        raise CommandError(FAILED, f"{MAX_ANSWERS} answers were neither y nor n; nothing was changed")


def with_options(command: Callable[..., Any], *options: Callable[..., Any]) -> Callable[..., Any]:
    """`command` with these options, in this order in its help."""
    for option in reversed(options):
        command = option(command)
    return command


def output_option(command: F) -> F:
    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(["table", "wide", "csv", "json", "yaml"]),
        default="table",
        show_default=True,
        callback=note_wide,
        help="Form of the output: a table for the terminal's width, with all columns (wide), or exact values.",
    )(command)


def optional_list_word(command: F) -> F:
    """Accept an optional, ignored `list`, as groups with several verbs require it."""
    return click.argument("word", required=False, type=click.Choice(["list"]), metavar="[list]", expose_value=False)(command)


def read_seconds(text: str, least: float, hint: str = "") -> float:
    """`10s`, `500ms`, or a number of seconds, from `least` to a day. Raises click.BadParameter, with the `hint`."""
    from limiter.units import parse_duration

    try:
        seconds = parse_duration(text if not text.replace(".", "", 1).isdigit() else f"{text}s") / 1e9
    except ValueError as error:
        raise click.BadParameter(f"{error}{hint}") from None
    if not least <= seconds <= 86400 or not seconds:
        raise click.BadParameter(f"{text} is outside {least:g}s to 24h")
    return seconds


def timeout_option(command: F) -> F:
    """How long to wait for an answer; the command gets `timeout`, in seconds."""

    def seconds(_: click.Context, __: click.Parameter, value: str | None) -> float:
        return read_seconds(value or "10s", 0)

    return click.option("--timeout", callback=seconds, metavar="TIME", help="Longest wait for an answer.  [default: 10s]")(command)


def remote(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options to reach a gateway, and the form of the output; the command gets `remote: Remote`."""
    return output_option(reaching(command))


def reaching(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options to reach a gateway, for a verb whose -o is something else; the command gets `remote: Remote`."""

    @timeout_option
    @click.option(
        "--token-file",
        envvar="SLUICE_TOKEN_FILE",
        type=click.Path(path_type=Path),
        help="File with the bearer token (or SLUICE_TOKEN_FILE; or SLUICE_TOKEN itself); default: the local state/admin.token.",
    )
    @click.option(
        "--client-key", envvar="SLUICE_CLIENT_KEY", type=click.Path(path_type=Path), help="Its private key (or SLUICE_CLIENT_KEY)."
    )
    @click.option(
        "--client-certificate",
        envvar="SLUICE_CLIENT_CERTIFICATE",
        type=click.Path(path_type=Path),
        help="Certificate to show, where the gateway wants one (or SLUICE_CLIENT_CERTIFICATE).",
    )
    @click.option(
        "--ca-file",
        envvar="SLUICE_CA_FILE",
        type=click.Path(path_type=Path),
        help="CAs that the gateway's certificate may be of (or SLUICE_CA_FILE); default: the system's.",
    )
    @click.option(
        "--admin",
        envvar="SLUICE_ADMIN",
        metavar="URL",
        default=DEFAULT_ADMIN,
        show_default=True,
        help="Admin API (or SLUICE_ADMIN): http://, https:// or unix:PATH.",
    )
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        admin: str,
        token_file: Path | None,
        timeout: float,
        ca_file: Path | None,
        client_certificate: Path | None,
        client_key: Path | None,
        form: str = "table",
        **kwargs: Any,
    ) -> Any:
        return command(*args, remote=Remote(admin, token_file, timeout, form, ClientTls(ca_file, client_certificate, client_key)), **kwargs)

    return wrapped


def changing(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of verbs that change limits, rules or quotas; the command gets `change: ChangeOptions`."""
    version = click.option(
        "--if-version", metavar="ETAG", help="Change it only if it still is this version (as shown by -o json, or an ETag)."
    )
    return _with_change(command, "history", version)


def acting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of verbs that act on the process: nothing has a version there. The command gets `change: ChangeOptions`."""
    return _with_change(command, "audit (`sluice audit`)")


def _with_change(command: Callable[..., Any], kept: str, *more: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(command)
    def wrapped(*args: Any, dry_run: bool, reason: str | None, yes: bool, if_version: str | None = None, **kwargs: Any) -> Any:
        return command(*args, change=ChangeOptions(dry_run, if_version, reason, yes), **kwargs)

    return with_options(
        wrapped,
        click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing."),
        *more,
        click.option("--reason", metavar="TEXT", help=f"The reason; kept in the {kept}."),
        click.option("--yes", "-y", is_flag=True, help="Do not ask."),
    )


def report_change(change: ChangeOptions, done: str, would: str) -> None:
    """Report what was done ("draining begun"), or what a dry run would do ("begin to drain")."""
    print_status(f"dry run, nothing is changed; would {would}" if change.dry_run else done)
