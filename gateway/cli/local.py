"""`sluice run`, `check`, `config`, `token`: verbs that need no running gateway."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gateway.cli.exits import INVALID, OK, USAGE, CommandError
from gateway.cli.output import clean, counted, emit, print_status
from gateway.cli.verb import Group, Verb, output_option
from gateway.settings.sources import FLAGS

if TYPE_CHECKING:
    from gateway.settings import Settings


def configured(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that name the configuration; the command gets `settings: Settings`. A faulty one ends with exit 3 and all its faults."""

    @click.option(
        "-c", "--config", envvar="SLUICE_CONFIG", required=True, metavar="FILE", type=click.Path(), help="Configuration (or SLUICE_CONFIG)."
    )
    @click.option("--name", metavar="NAME", help="gateway.name")
    @click.option("--state-directory", metavar="DIR", help="gateway.state_directory")
    @click.option("--rules-file", metavar="FILE", help="rules_file")
    @click.option("--admin-bind", metavar="HOST:PORT", help="admin.bind")
    @click.option("--log-level", metavar="LEVEL", help="log.level")
    @click.option("--log-format", metavar="FORMAT", help="log.format")
    @click.option(
        "--set", "others", multiple=True, metavar="PATH=VALUE", help="Any other setting, e.g. limiter.threads=0. May be repeated."
    )
    @functools.wraps(command)
    def wrapped(*args: Any, config: str, others: tuple[str, ...], **kwargs: Any) -> Any:
        flags = {setting: kwargs.pop(flag.lstrip("-").replace("-", "_")) for flag, setting in FLAGS.items()}
        flags = {setting: value for setting, value in flags.items() if value is not None}
        for other in others:
            setting, equals, value = other.partition("=")
            if not equals:
                raise CommandError(USAGE, f"--set {other}: write it like --set limiter.threads=0")
            flags[setting] = value
        return command(*args, settings=_load(config, flags), **kwargs)

    return wrapped


def _load(config: str, flags: dict[str, str]) -> Settings:
    from gateway.settings import ConfigError, load

    try:
        return load(config, os.environ, flags)
    except ConfigError as error:
        for problem in error.errors:
            click.echo(_lines(str(problem)), err=True)
        raise CommandError(INVALID, f"{config}: {counted(len(error.errors), 'error')}") from None


def _lines(text: str) -> str:
    return "\n".join(clean(line) for line in text.splitlines())


@click.command(
    cls=Verb, example="sluice run -c config/sluice.yaml\nsluice run -c config/sluice.yaml --admin-bind 127.0.0.1:0 --log-format text"
)
@configured
@click.pass_context
def run(ctx: click.Context, settings: Settings) -> None:
    """Run a gateway until SIGTERM. SIGHUP reads the configuration again."""
    from gateway.main import run as run_gateway

    ctx.exit(run_gateway(settings))


@click.command(cls=Verb, example="sluice check -c config/sluice.yaml --strict")
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@configured
@click.pass_context
def check(ctx: click.Context, settings: Settings, strict: bool) -> None:  # noqa: FBT001  -- click's way
    """Check a configuration without starting a gateway: exit 0, or 3 with the line, column and remedy of each mistake."""
    from gateway.settings import lint

    warnings = lint(settings)
    for warning in warnings:
        location = str(warning.location)
        click.echo(_lines(str(warning).replace(f"{location}: ", f"{location}: {'error' if strict else 'warning'}: ", 1)), err=True)
    if warnings and strict:
        raise CommandError(INVALID, f"{counted(len(warnings), 'warning')}, and --strict")
    counts = (counted(len(settings.listeners), "listener"), counted(len(settings.rules), "rule"), counted(len(warnings), "warning"))
    print_status(f"{settings.file}: good; {', '.join(counts)}")
    ctx.exit(OK)


@click.group(cls=Group, example="sluice config show -c config/sluice.yaml --origin")
def config() -> None:
    """Show the configuration in force, or its schema."""


@config.command(example="sluice config show -c config/sluice.yaml --origin\nsluice config show -c config/sluice.yaml -o json")
@click.option("--origin", is_flag=True, help="Show where each value comes from: file and line, environment, flag, or default.")
@output_option
@configured
def show(settings: Settings, origin: bool, form: str) -> None:  # noqa: FBT001  -- click's way
    """Show the effective settings: a flag wins over the environment, that over the file, that over the default.

    Without --origin the output is YAML that can be read back.
    """
    described = settings.describe()
    if origin:
        rows = [{"setting": path, "value": value, "from": str(settings.origin(path))} for path, value in leaves(described, "")]
        if form == "table":  # as the file takes it, not as `yes` and `no`
            rows = [{**row, "value": str(row["value"]).lower()} if isinstance(row["value"], bool) else row for row in rows]
        emit(form, rows)
    else:
        described.pop("rules_file", None)  # its rules are shown
        emit("yaml" if form == "table" else form, described)


def leaves(value: object, path: str) -> list[tuple[str, object]]:
    """Every single value with its path, as `listeners[0].bind`."""
    if isinstance(value, dict) and value:
        return [leaf for name, inner in value.items() for leaf in leaves(inner, f"{path}.{name}" if path else name)]
    if isinstance(value, list) and value:
        return [leaf for number, inner in enumerate(value) for leaf in leaves(inner, f"{path}[{number}]")]
    return [] if value in ({}, []) else [(path, value)]


@config.command(example="sluice config schema > config/sluice.schema.json\nsluice config schema --rules > config/limits.schema.json")
@click.option("--rules", is_flag=True, help="The schema of the rules file instead.")
def schema(rules: bool) -> None:  # noqa: FBT001  -- click's way
    """Print the JSON Schema of the configuration, for editors."""
    from gateway.settings.schema import rules_schema, schema, text

    click.echo(text(rules_schema() if rules else schema()), nl=False)


@click.group(cls=Group, example="sluice token new --file tokens/ci")
def token() -> None:
    """Make bearer tokens for the admin API."""


@token.command(example="sluice token new --file tokens/ci --name ci --role operator\nsluice token new")
@click.option(
    "--file", "target", type=click.Path(path_type=Path), help="Write the token to this new file, mode 0600. An existing file is kept."
)
@click.option("--name", default="ci", show_default=True, help="Name of its owner, as the history shows it.")
@click.option("--role", type=click.Choice(["viewer", "operator", "admin"]), default="operator", show_default=True, help="What it permits.")
def new(target: Path | None, name: str, role: str) -> None:
    """Make a token of 256 random bits, and show the lines to add to the configuration. Without --file it goes to stdout."""
    import secrets

    secret = secrets.token_urlsafe(32)
    if target is None:
        click.echo(secret)
        return
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise CommandError(USAGE, f"{target} exists; remove it first if its token is no longer in use") from None
    except OSError as error:
        raise click.ClickException(f"{target}: {error.strerror}") from None
    with os.fdopen(handle, "w") as file:
        file.write(secret + "\n")
    print_status(f"{target} written; add to the configuration and restart:")
    click.echo(f"admin:\n  tokens:\n    - {{name: {name}, role: {role}, file: {clean(target.absolute())}}}")
