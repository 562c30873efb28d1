"""Where a verb's bearer token comes from, and what was tried to find one: for the message when the gateway does not take it."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from cli.admin_address import AdminAddress
from cli.exits import CommandError
from common.failures import USAGE
from common.records import dataclass

FILE: Final = "admin.token"  # in the state directory of a gateway
USUAL_FILES: Final = (Path("sluice.yaml"), Path("/etc/sluice/sluice.yaml"))  # as `sluice run` looks for them
USUAL_DIRECTORIES: Final = (Path("state"), Path("config/state"), Path("/var/lib/sluice"))


@dataclass(frozen=True, slots=True)
class TokenSearch:
    """A token, or none. `source`: the file or variable it is from; `tried`: what else was looked at, each with the reason."""

    token: str | None
    source: str = ""
    tried: tuple[str, ...] = ()

    def remedy(self) -> list[str]:
        """What to do where the gateway has answered 401, in lines."""
        if self.token is not None:
            return [
                f"the token is from {self.source}, and this gateway does not know it",
                "is it another gateway's, or has it been replaced? name the right one with --token-file, or see `sluice token new`",
            ]
        return [
            "no token was sent; tried, in this order:",
            *(f"  {each}" for each in self.tried),
            "name one with --token-file FILE or SLUICE_TOKEN_FILE; whoever runs the gateway makes one: `sluice token new`",
        ]


def look_for_token(url: str, token_file: Path | None, environ: Mapping[str, str]) -> TokenSearch:
    """The token of the file given, else SLUICE_TOKEN, else, for a gateway on this machine, its `admin.token` where it can be read.

    Raises CommandError where the file given cannot be read.
    """
    if token_file is not None:
        try:
            return TokenSearch(check_token(token_file.read_text(), str(token_file)), str(token_file))
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not text"
            raise CommandError(
                USAGE,
                f"the token file {token_file} cannot be read: {reason}; "
                "name another with --token-file, or put the token itself into SLUICE_TOKEN",
            ) from None
    if environ.get("SLUICE_TOKEN"):
        return TokenSearch(check_token(environ["SLUICE_TOKEN"], "SLUICE_TOKEN"), "the variable SLUICE_TOKEN")
    tried = ["--token-file and SLUICE_TOKEN_FILE: not given", "SLUICE_TOKEN: not set"]
    if not is_local(url):  # a local gateway's token is not sent to another machine
        return TokenSearch(None, tried=(*tried, f"{FILE} of this machine: not for a gateway on another one"))
    for file in dict.fromkeys(directory / FILE for directory in state_directories(environ)):
        try:
            if stat.S_ISREG(file.stat().st_mode):
                return TokenSearch(check_token(file.read_text(), str(file)), str(file), tuple(tried))
            tried.append(f"{file}: not a file")
        except OSError as error:
            tried.append(f"{file}: {error.strerror}")
        except UnicodeDecodeError:
            tried.append(f"{file}: not text")
    return TokenSearch(None, tried=tuple(tried))


def is_local(url: str) -> bool:
    return AdminAddress.of(url).local


def check_token(text: str, where: str) -> str:
    token = text.strip()
    if not re.fullmatch(r"[\x21-\x7e]+", token):
        raise CommandError(USAGE, f"{where} does not hold a token: one line of printable characters")
    return token


def state_directories(environ: Mapping[str, str]) -> Iterator[Path]:
    """Where a gateway on this machine may keep its state, most likely first."""
    if environ.get("SLUICE_GATEWAY__STATE_DIRECTORY"):
        yield Path(environ["SLUICE_GATEWAY__STATE_DIRECTORY"])
    named = Path(environ["SLUICE_CONFIG"]) if environ.get("SLUICE_CONFIG") else None
    for file in (named, *USUAL_FILES):
        if file is not None and (file == named or file.is_file()):
            yield state_directory_of(file, environ)
    if environ.get("STATE_DIRECTORY"):  # systemd's
        yield Path(environ["STATE_DIRECTORY"].partition(":")[0])
    yield from USUAL_DIRECTORIES


def state_directory_of(file: Path, environ: Mapping[str, str]) -> Path:
    """The state directory that a configuration names; a faulty one has it in the usual place."""
    from config import ConfigError, load

    try:
        return load(file, environ).gateway.state_directory
    except ConfigError:
        return file.parent / "state"
