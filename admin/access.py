"""How clients reach the admin API: what the configuration says of it, and the sockets it listens on."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import trio
import trio.abc

from admin.authentication.auth import OWN_TOKEN, TOKEN_FILE, Role, TokenFile, first_token
from common.records import dataclass

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

Listeners: TypeAlias = Sequence[trio.abc.Listener[trio.abc.Stream]]
ADMIN_PORT: Final = ("the admin API", "admin.bind")  # what listens, and the setting that says where
PROBES_PORT: Final = ("the listener for probes", "probes.bind")
Bind: TypeAlias = tuple[str, int] | Listeners  # host and port, or sockets that listen already


class ConfiguredToken(Protocol):
    """A token of the configuration (`admin.tokens`)."""

    @property
    def name(self) -> str: ...
    @property
    def role(self) -> str: ...
    @property
    def file(self) -> Path: ...


@dataclass(frozen=True, slots=True)
class Access:
    """What of the configuration a reload may change while the API is served."""

    tokens: tuple[ConfiguredToken, ...] = ()
    names: tuple[str, ...] = ()  # that a Host header may have
    tls: ssl.SSLContext | None = None
    explain: Callable[[ssl.SSLError], str] = str  # OpenSSL's errors in words
    certificate_until: int | None = None  # seconds since 1970; until when the certificate of `tls` holds
    metrics_open: bool = False  # /metrics of the probes' listener needs no token


def token_files(state_directory: Path, configured: Iterable[ConfiguredToken]) -> Iterator[TokenFile]:
    """The state directory's own token, made where there is none and can be one, and those of the configuration."""
    with contextlib.suppress(OSError):  # of a directory that is read-only: reading the file says what is wrong
        first_token(state_directory)
    yield TokenFile(OWN_TOKEN, Role.ADMIN, state_directory / TOKEN_FILE, needed=False)
    for token in configured:
        yield TokenFile(token.name, Role[token.role.upper()], token.file)


async def bound(bind: Bind, what: str, setting: str) -> Listeners:
    """Listen at a host and port. Raises OSError that names the address and the setting."""
    if not isinstance(bind[0], str):
        return bind  # type: ignore[return-value]  # told apart by their first
    host, port = bind
    try:
        return await trio.open_tcp_listeners(port, host=host, backlog=128)  # type: ignore[arg-type]
    except OSError as error:
        remedy = f"`ss -ltnp` shows who has it: stop that, or change {setting}" if error.errno == errno.EADDRINUSE else f"see {setting}"
        raise OSError(error.errno, f"{what} cannot listen on {host} port {port}: {error.strerror or error}; {remedy}") from error


def addresses_of(listeners: Listeners) -> list[tuple[str, int]]:
    """Host and port of each; ("local", 0) for a wire in memory, a path and 0 for a Unix socket."""
    return [_address(listener) for listener in listeners]


def _address(listener: Any) -> tuple[str, int]:
    if not isinstance(listener, trio.SocketListener):
        return ("local", 0)
    name = listener.socket.getsockname()
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) else (str(name), 0)


def text_of(addresses: Iterable[tuple[str, int]]) -> str:
    """The addresses, for the log."""
    return ", ".join(f"{host}:{port}" if port else host for host, port in addresses)
