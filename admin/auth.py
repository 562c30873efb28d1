"""Authentication and authorisation: bearer tokens, roles, and a brake on failures.

A token is 256 random bits in a file; only its SHA-256 is kept in memory. A presented token is hashed before it is compared, so tokens of
any length and any bytes compare in constant time and never raise. 256 bits cannot be guessed; the brake keeps a script with a stale token
from filling the audit and the log. It never locks out a client with a good token at the same address.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import os
import secrets
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TOKEN_FILE: Final = "admin.token"  # noqa: S105  -- the name of a file
TOKEN_BYTES: Final = 32  # bytes of randomness
MIN_TOKEN_BYTES: Final = 16  # bytes; a token in a file; a shorter one is a mistake
FREE_FAILURES: Final = 10  # failures of one address that are answered 401, before 429 (guess)
FORGIVE_EVERY_NS: Final = 6_000_000_000  # ns; one failure is forgotten in this time, ten a minute (guess)
MAX_ADDRESSES: Final = 1024  # addresses in the brake; the least recent is forgotten first


class Role(enum.IntEnum):
    """What an actor is permitted: each role includes those below it."""

    NOBODY = 0  # no token: the probes, the dashboard's files
    VIEWER = 1  # read
    OPERATOR = 2  # change limits, rules, quotas; close connections
    ADMIN = 3  # configuration, draining

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


class TokenError(Exception):
    """A token file that cannot be used, and the way out."""


class Tokens:
    """The tokens that are valid now, as digests."""

    def __init__(self, files: Iterable[TokenFile]) -> None:
        """Reads every file; raises TokenError."""
        self._files = tuple(files)
        self.warnings: list[str] = []  # files that others can read
        self._known: list[tuple[bytes, str, Role]] = []
        self.refresh()

    def refresh(self) -> None:
        """Read the files again (they may have been rotated); raises TokenError, and then keeps the tokens it had."""
        warnings: list[str] = []
        known: list[tuple[bytes, str, Role]] = []
        for file in self._files:
            try:
                token = file.path.read_bytes().strip()
                mode = file.path.stat().st_mode
            except OSError as error:
                raise TokenError(f"token of {file.name!r}: {file.path}: {error.strerror}") from error
            if len(token) < MIN_TOKEN_BYTES:
                raise TokenError(f"token of {file.name!r}: {file.path} holds no token; write one with `sluice token new`")
            if mode & 0o077:
                warnings.append(f"token of {file.name!r}: others can read {file.path}; chmod 600 it")
            known.append((hashlib.sha256(token).digest(), file.name, file.role))
        self.warnings, self._known = warnings, known

    def find(self, presented: bytes) -> tuple[str, Role] | None:
        """The name and role of the token `presented`, in the same time whether and where it differs."""
        digest = hashlib.sha256(presented).digest()
        found: tuple[str, Role] | None = None
        for known, name, role in self._known:
            if hmac.compare_digest(known, digest):
                found = name, role
        return found

    def __repr__(self) -> str:
        return f"<Tokens {[name for _, name, _ in self._known]}>"


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
    folder = os.open(state_directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return path


class FailureBrake:
    """Counts failed attempts per address: after FREE_FAILURES the next are answered 429, until some are forgotten."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, tuple[int, int]] = OrderedDict()  # address -> (failures, monotonic ns of the last)

    def fail(self, address: str, now: int) -> int:
        """Count a failure; returns how long (ns) the address should wait, 0 while it is still free."""
        count, last = self._failures.pop(address, (0, now))
        count = max(0, count - (now - last) // FORGIVE_EVERY_NS) + 1
        count = min(count, 2 * FREE_FAILURES)
        self._failures[address] = (count, now)
        if len(self._failures) > MAX_ADDRESSES:
            self._failures.popitem(last=False)
        return max(0, count - FREE_FAILURES) * FORGIVE_EVERY_NS

    def __repr__(self) -> str:
        return f"<FailureBrake {len(self._failures)} addresses>"
