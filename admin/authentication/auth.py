"""Authentication and authorisation: bearer tokens, roles, and a brake on failures.

A token is 256 random bits; only its SHA-256 is kept in memory. A presented token is hashed before it is looked up, so tokens of any length
and any bytes are alike, and none raises. 256 bits cannot be guessed; the brake keeps a script with a stale token
from filling the audit and the log. It never locks out a client with a good token at the same address.
"""

from __future__ import annotations

import enum
import hashlib
import ipaddress
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from common.durable_files import sync_folder
from common.records import dataclass
from common.secret_files import open_to_others

OWN_TOKEN: Final = "admin"  # noqa: S105  -- the name of the state directory's token
TOKEN_FILE: Final = "admin.token"  # noqa: S105  -- the name of a file
TOKEN_BYTES: Final = 32  # bytes of randomness
MAX_TOKEN_FILE_BYTES: Final = 4096  # bytes; of a token's file that are read (a guess)
MIN_TOKEN_BYTES: Final = 16  # bytes; a token in a file; a shorter one is a mistake
FREE_FAILURES: Final = 10  # failures of one address that are answered 401, before 429 (guess)
FORGIVE_EVERY_NS: Final = 6_000_000_000  # ns; one failure is forgotten in this time, ten a minute (guess)
MAX_ADDRESSES: Final = 1024  # addresses (IPv6: networks) in the brake; the least recent is forgotten first
HOST_BITS: Final = 64  # bits; of an IPv6 address, in which one host has all that there are (RFC 4291, 2.5.4)


class Role(enum.IntEnum):
    """What an actor is permitted: each role includes those below it."""

    NOBODY = 0  # no token: the probes, the dashboard's files
    VIEWER = 1  # read
    OPERATOR = 2  # change limits, rules, quotas; close connections
    ADMIN = 3  # configuration, draining, tokens

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Actor:
    """The author of a request: the token's name and role, and the client address."""

    name: str
    role: Role
    address: str


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A token from the configuration (`admin.tokens`): its owner's name, its role and its file."""

    name: str
    role: Role
    path: Path
    needed: bool = True  # a reload fails where it cannot be used


class TokenError(Exception):
    """A token file that cannot be used, and the way out."""


class FileToken(NamedTuple):
    """A token that stands in a file."""

    name: str
    role: Role
    path: Path


class FoundToken(NamedTuple):
    """A token that is valid now. `ends`: seconds since 1970; None: it has no end."""

    name: str
    role: Role
    ends: float | None = None


class KnownTokens(NamedTuple):
    """What the token files say: the tokens by digest, and warnings about files."""

    by_digest: dict[bytes, FileToken]
    warnings: list[str]
    rotations: int  # of files' tokens, before they were read
    unusable: frozenset[Path]  # files without a token


class OtherTokens(Protocol):
    """Tokens that are kept elsewhere: `token_store.TokenStore`."""

    warning: str | None

    def find(self, digest: bytes, now: float) -> FoundToken | None: ...


class ValidTokens:
    """The tokens that are valid now, as digests: those of files, and others.

    They are found by digest. How long that takes tells something of digests at most, and a digest is of no use to anybody.
    """

    def __init__(self, files: Iterable[TokenFile], others: OtherTokens | None = None, clock: Callable[[], float] = time.time) -> None:
        """Reads every file. One that cannot be used becomes a warning, so that the gateway starts with the others."""
        self._others = others
        self._clock = clock
        self.used: dict[str, float] = {}  # by the name of a file's token: when it was used last (seconds since 1970), since the start
        self._rotations = 0
        self._unusable: frozenset[Path] = frozenset()
        self._rotated: dict[Path, tuple[int, bytes, FileToken]] = {}  # by file: which rotation was its last, and the token since then
        self.take(self.read(files, at_start=True))

    def read(self, files: Iterable[TokenFile], *, at_start: bool = False) -> KnownTokens:
        """What the files say now; nothing changes yet. Raises TokenError for one that cannot be used, unless `at_start`, or it never could.

        A file that is still to come, as of a Secret of Kubernetes, must not keep other changes out.
        """
        warnings: list[str] = []
        unusable: set[Path] = set()
        known: dict[bytes, FileToken] = {}
        rotations = self._rotations
        for file in files:
            try:
                token, exposed = _read(file)
            except TokenError as error:
                if file.needed and not at_start and file.path not in self._unusable:
                    raise
                unusable.add(file.path)
                warnings.append(f"{error}; it is not valid until the file is mended and the configuration reloaded")
                continue
            if exposed:
                warnings.append(f"token of {file.name!r}: others can read {file.path}; chmod 600 it")
            known[hashlib.sha256(token).digest()] = FileToken(file.name, file.role, file.path)
        return KnownTokens(known, warnings, rotations, frozenset(unusable))

    def take(self, read: KnownTokens) -> None:
        """Let these be the tokens of files, and no others; of a file whose token was rotated since it was read, the later one."""
        later = {path: (digest, token) for path, (number, digest, token) in self._rotated.items() if number > read.rotations}
        self._by_digest = {digest: each for digest, each in read.by_digest.items() if each.path not in later}
        self._by_digest.update(later.values())
        self._warnings = read.warnings
        self._unusable = read.unusable

    def rotate(self, digest: bytes, token: FileToken) -> None:
        """Let `token` be that of its file, which has just been written."""
        self._rotations += 1
        self._rotated[token.path] = (self._rotations, digest, token)
        known = {each_digest: each for each_digest, each in self._by_digest.items() if each.path != token.path}
        warnings = [each for each in self._warnings if str(token.path) not in each]
        self.take(KnownTokens({**known, digest: token}, warnings, self._rotations, self._unusable - {token.path}))

    @property
    def warnings(self) -> list[str]:
        """Files that others can read, or that cannot be used."""
        other = None if self._others is None else self._others.warning
        return self._warnings if other is None else [*self._warnings, other]

    def by_digest(self) -> dict[bytes, FileToken]:
        """The tokens of files that are valid now, by digest."""
        return dict(self._by_digest)

    def of_files(self) -> list[FileToken]:
        """The tokens of files that are valid now."""
        return list(self._by_digest.values())

    def find(self, presented: bytes) -> FoundToken | None:
        """The token `presented`, if it is a good one; notes its use."""
        return self.find_digest(hashlib.sha256(presented).digest())

    def find_digest(self, digest: bytes) -> FoundToken | None:
        """The same of a token whose digest is known."""
        found = self._by_digest.get(digest)
        if found is not None:
            self.used[found.name] = self._clock()
            return FoundToken(found.name, found.role)
        return None if self._others is None else self._others.find(digest, self._clock())

    def __repr__(self) -> str:
        return f"<ValidTokens {[token.name for token in self.of_files()]} and {self._others!r}>"


def _read(file: TokenFile) -> tuple[bytes, bool]:
    """The token in a file, and whether others can read it. Raises TokenError."""
    try:
        with file.path.open("rb") as opened:
            token = opened.read(MAX_TOKEN_FILE_BYTES).strip()
            exposed = open_to_others(os.fstat(opened.fileno()))
    except OSError as error:
        raise TokenError(f"token of {file.name!r}: {file.path}: {error.strerror}") from error
    if len(token) < MIN_TOKEN_BYTES:
        raise TokenError(f"token of {file.name!r}: {file.path} holds no token; write one with `sluice token new --file`")
    return token, exposed


def bearer(header: bytes | None) -> bytes | None:
    """The token in an Authorization header, or None where it holds none."""
    if header is None:
        return None
    scheme, _, token = header.partition(b" ")
    token = token.strip()
    return token if scheme.lower() == b"bearer" and token else None


def new_token() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


def first_token(state_directory: Path) -> Path:
    """The path of the state directory's admin token, made (mode 0600, durable) where there is none. Never overwrites one."""
    path = state_directory / TOKEN_FILE
    if path.exists():
        return path
    draft = state_directory / f"{TOKEN_FILE}.{secrets.token_hex(4)}.tmp"
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(handle, new_token().encode() + b"\n")
        os.fsync(handle)
    finally:
        os.close(handle)
    try:
        os.link(draft, path)  # unlike a rename it does not replace a token that another process made meanwhile
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    sync_folder(state_directory)
    return path


class FailureRateLimiter:
    """Counts failed attempts per address: after FREE_FAILURES the next are answered 429, until some are forgotten.

    Of IPv6 the /64 is counted: one host has as many addresses in it as it likes.
    """

    def __init__(self) -> None:
        self._failures: OrderedDict[str, tuple[int, int]] = OrderedDict()  # address -> (failures, monotonic ns of the last)

    def fail(self, address: str, now: int) -> int:
        """Count a failure; returns how long (ns) the address should wait, 0 while it is still free."""
        address = counted_address(address)
        count, last = self._failures.pop(address, (0, now))
        count = max(0, count - (now - last) // FORGIVE_EVERY_NS) + 1
        count = min(count, 2 * FREE_FAILURES)
        self._failures[address] = (count, now)
        if len(self._failures) > MAX_ADDRESSES:
            self._failures.popitem(last=False)
        return max(0, count - FREE_FAILURES) * FORGIVE_EVERY_NS

    def __repr__(self) -> str:
        return f"<FailureRateLimiter {len(self._failures)} addresses>"


def counted_address(address: str) -> str:
    """The address of a client as the brake counts it: of IPv6 its /64; one that is IPv4 in IPv6 is IPv4. Other texts stay as they are."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return address
    return str(found.ipv4_mapped or ipaddress.IPv6Address(int(found) >> HOST_BITS << HOST_BITS))
