"""Which configuration a verb is for: a file that is named, one at a usual place, or none but the flags of `sluice run`."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cli.exits import CommandError
from cli.output import clean
from cli.verb import with_options
from common.failures import INVALID, USAGE
from common.figures import pluralise
from config.hung_files import READ_S, hung_file
from config.sources import FLAGS

if TYPE_CHECKING:
    from config import CommandLine, Settings

USUAL: Final = (Path("sluice.yaml"), Path("/etc/sluice/sluice.yaml"))  # looked for in this order, where no file is named


def configured(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that name the configuration; the command gets `settings: Settings`. A faulty one ends with exit 3 and all its faults."""

    @functools.wraps(command)
    def wrapped(*args: Any, config: str | None, file: str | None, **kwargs: Any) -> Any:
        flags = take_flags(kwargs)
        return command(*args, settings=load_settings(config_file(config, file), flags), **kwargs)

    return setting_options(wrapped)


def setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The file, and settings that go before its own."""
    return with_options(
        command,
        click.argument("file", required=False, type=click.Path()),
        click.option(
            "-c",
            "--config",
            metavar="FILE",
            type=click.Path(),
            help="Configuration (or SLUICE_CONFIG); default: ./sluice.yaml, then /etc/sluice/sluice.yaml.",
        ),
        click.option("--name", metavar="NAME", help="gateway.name"),
        click.option("--state-directory", metavar="DIR", help="gateway.state_directory"),
        click.option("--takeover", metavar="SOCKET", help="gateway.takeover"),
        click.option("--rules-file", metavar="FILE", help="rules_file"),
        click.option("--admin-bind", metavar="HOST:PORT", help="admin.bind"),
        click.option("--log-level", metavar="LEVEL", help="log.level"),
        click.option("--log-format", metavar="FORMAT", help="log.format"),
        click.option(
            "--set", "others", multiple=True, metavar="PATH=VALUE", help="Any other setting, e.g. limiter.threads=0. May be repeated."
        ),
    )


def take_flags(options: dict[str, Any]) -> dict[str, str]:
    """The settings among a verb's options (path -> text), which are taken out of them. Raises CommandError."""
    flags = {setting: options.pop(flag.lstrip("-").replace("-", "_")) for flag, setting in FLAGS.items()}
    flags = {setting: value for setting, value in flags.items() if value is not None}
    for other in options.pop("others"):
        setting, equals, value = other.partition("=")
        if not equals:
            raise CommandError(USAGE, f"--set {other}: write it like --set limiter.threads=0")
        flags[setting] = value
    return flags


def config_file(option: str | None, argument: str | None) -> str:
    """The file that is named, by -c, as an argument or by SLUICE_CONFIG, else the first usual one there is. Raises CommandError."""
    if option is not None and argument is not None and option != argument:
        raise CommandError(USAGE, f"two configurations are named, {argument} and -c {option}; give one")
    named = option or argument or os.environ.get("SLUICE_CONFIG")
    if named:
        return named
    for usual in USUAL:
        if usual.is_file():
            return str(usual)
    raise CommandError(
        USAGE,
        f"no configuration is named, and there is none at {' or '.join(map(str, USUAL))}",
        [
            "write one:            sluice init",
            "name one:             -c FILE, or SLUICE_CONFIG=FILE",
            "or run without one:   sluice run --protocol amqp --bind 127.0.0.1:5672 --upstream 127.0.0.1:5673 --limit 500/s",
        ],
    )


def load_settings(config: str | CommandLine, flags: dict[str, str]) -> Settings:
    """Raises CommandError, once all faults are shown; and where a file is not read within READ_S."""
    from config import ConfigError, load

    found: list[Settings] = []
    failed: list[BaseException] = []

    def read() -> None:
        try:
            found.append(load(config, os.environ, flags))
        except BaseException as error:  # it is raised below
            failed.append(error)

    thread = threading.Thread(target=read, daemon=True)  # one that hangs is left behind
    thread.start()
    thread.join(READ_S)
    if thread.is_alive():
        raise CommandError(INVALID, hung_file(thread.ident, READ_S))
    try:
        if failed:
            raise failed[0]
        return found[0]
    except ConfigError as error:
        for problem in error.errors:
            click.echo(by_line(str(problem)), err=True)
        what = config if isinstance(config, str) else "the command line"
        raise CommandError(INVALID, f"{what}: {pluralise(len(error.errors), 'error')}") from None


def by_line(text: str) -> str:
    return "\n".join(clean(line) for line in text.splitlines())
