"""What a person at the terminal can type next: the admin API's address, and the first commands, with this gateway's own values."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cli.verb import DEFAULT_ADMIN
from common.shell_words import quote_word
from config.command_line import NAME as COMMAND_LINE
from gateway.build import build
from limiter.units import format_limit

if TYPE_CHECKING:
    from config import Settings
    from control_plane.admin_server import SignInLink

MAX_LISTENERS_SHOWN: Final = 3  # listeners; more are a configuration that is no newcomer's; a guess


def first_steps(settings: Settings, sign_in_link: Callable[[], SignInLink | None]) -> Iterator[str]:
    """Lines for the end of the start. They assume a shell in the directory that the gateway was started in.

    `sign_in_link` makes a link to the dashboard, or None. It signs in without a token, so these lines belong on a terminal only.
    """
    token = settings.gateway.state_directory / "admin.token"
    sluice = command()
    yield ""
    of_command_line = settings.file.name == COMMAND_LINE
    yield f"sluice is running, as {'the command line' if of_command_line else shorten_path(settings.file)} says. Ctrl-C drains and stops."
    for listener in settings.listeners[:MAX_LISTENERS_SHOWN]:
        yield f"  clients     connect to {listener.bind} ({listener.protocol})"
    yield f"  limit       {limits_in_force(settings)}"
    admin = f"{'http' if settings.admin.tls is None else 'https'}://{settings.admin.bind}"
    if build().kind == "pure Python":
        yield "  build       pure Python: several times the processor time of a compiled one"
    if (link := sign_in_link()) is not None:
        yield f"  dashboard   {link.url}"
        yield f"              signs you in once, within {link.minutes} minutes; later by the token"
    yield f"  admin API   {admin}"
    yield f"  token       {shorten_path(token)}"
    yield f"  files       {', '.join(directories(settings))}"
    yield "Type in another terminal, in this directory:"
    if admin != DEFAULT_ADMIN and settings.admin.bind.port:
        yield f"  export SLUICE_ADMIN={admin}"
    if shorten_path(token) != "state/admin.token":
        yield f"  export SLUICE_TOKEN_FILE={quote_word(str(token))}"
    yield f"  {sluice} topics                       # passed and refused, topic by topic"
    yield f"  {sluice} {example_limit(settings)}"
    yield f"  {sluice} --help"
    yield ""


def limits_in_force(settings: Settings) -> str:
    """The limits of the configuration in plain words: `500/s for each topic`. Live changes, which may hold over them, are not looked at."""
    rules = [rule for rule in settings.rules if rule.mode != "off"]
    if not rules:
        return "none: every message passes"
    if len(rules) > 1:
        return f"{len(rules)} rules; sluice rules list shows them"
    (rule,) = rules
    whose = f"each {rule.per}" if rule.per != "rule" else "all topics together"
    if not set(rule.match.given()) <= {"protocol"}:
        whose += f" that rule {rule.name} matches"
    counted_only = ", counted only (mode: shadow)" if rule.mode == "shadow" else ""
    return f"{format_limit(rule.limit, ' and ')} for {whose}{counted_only}"


def example_limit(settings: Settings) -> str:
    """A first `limits set` (without the command's name), for the protocol of the first listener."""
    names = settings.listeners[0].speaks.names
    return f"limits set {names.name} {' '.join(names.example)} --messages 100/s --for 30m"


def command(directory: Path = Path()) -> str:
    """`sluice`; where the shell would not find it, the path that it was called by, as one types it in `directory`."""
    called = Path(sys.argv[0]).absolute()
    if called.name != "sluice" or shutil.which("sluice") is not None:
        return "sluice"
    return quote_word(shorten_path(called) if directory == Path() else str(called))


def directories(settings: Settings) -> Iterator[str]:
    yield f"{shorten_path(settings.gateway.state_directory)}/"
    if settings.access_log is not None:
        yield f"{shorten_path(settings.access_log.directory)}/"


def shorten_path(path: Path) -> str:
    """A path as one types it here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
