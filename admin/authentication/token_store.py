"""Tokens made while the gateway runs (`/v1/tokens`): `tokens.json` in the state directory, mode 0600, SHA-256 digests only.

A change is on the disk before it is answered, and in force with the answer. When a token was used last is written once a minute: after a
crash it may be a minute old.
"""

from __future__ import annotations

import errno
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import trio

from admin.authentication.auth import FoundToken, Role, new_token
from admin.store.state import format_time, parse_time
from common import durable_files as durable

FILE: Final = "tokens.json"
MAX_TOKENS: Final = 1000  # made here; a list that a person can still read (guess)
MAX_OVERLAP_S: Final = 86_400.0  # seconds; that a rotated token may stay valid beside the new one (guess)
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
ROLES: Final = tuple(role.word for role in Role if role is not Role.NOBODY)


class StoredToken(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token as it is kept. Times are RFC 3339; `previous` is the digest before a rotation, valid until `previous_until`."""

    name: str
    role: str
    sha256: str
    created_at: str
    created_by: str
    expires_at: str | None = None
    rotated_at: str | None = None
    previous: str | None = None
    previous_until: str | None = None
    last_used_at: str | None = None
    reason: str = ""


class TokensFile(msgspec.Struct, frozen=True):
    """The whole file."""

    tokens: list[StoredToken]
    version: int = 1


class TokenStore:
    """The tokens made here, by name. Changes are made one at a time, by the task that holds `turn`."""

    def __init__(self, folder: Path, files: durable.FileSystem | None = None, lent: Callable[[], str] = str) -> None:
        """Reads the file. One that cannot be used becomes a warning, and is not written over.

        `lent` says why another process has the folder, "" while this one has it.
        """
        self._lent = lent
        self._path = folder / FILE
        self._files = files or durable.FileSystem()
        self.turn = trio.Lock()
        self.warning: str | None = None
        self._error = 0  # errno of what the warning says; 0: the file is damaged
        self.by_name: dict[str, StoredToken] = {}
        self._by_digest: dict[str, tuple[StoredToken, float]] = {}  # -> until when (seconds since 1970) the digest is valid
        self._used: dict[str, float] = {}  # by name: uses that are not written yet
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=TokensFile)
            for token in found.tokens:
                Role[token.role.upper()]
            self._take({token.name: token for token in found.tokens})
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError, ValueError, KeyError) as error:
            self._error = getattr(error, "errno", None) or 0
            why = getattr(error, "strerror", None) or "it is damaged"
            self.warning = f"{self._path}: {why}; its tokens are not valid: mend it or move it away, and start again"

    def _take(self, tokens: dict[str, StoredToken]) -> None:
        self._by_digest = {}
        for token in tokens.values():
            end = float("inf") if token.expires_at is None else parse_time(token.expires_at)
            self._by_digest[token.sha256] = (token, end)
            if token.previous is not None and token.previous_until is not None:
                self._by_digest[token.previous] = (token, min(end, parse_time(token.previous_until)))
        self.by_name = tokens

    def find(self, digest: bytes, now: float) -> FoundToken | None:
        """The token with this digest, if it is valid at `now`; notes its use."""
        found = self._by_digest.get(digest.hex())
        if found is None or now >= found[1]:
            return None
        self._used[found[0].name] = now
        return FoundToken(found[0].name, Role[found[0].role.upper()], None if found[1] == float("inf") else found[1])

    def last_used(self, name: str) -> str | None:
        used = self._used.get(name)
        return self.by_name[name].last_used_at if used is None else format_time(used)

    async def put(self, token: StoredToken) -> None:
        """Add or replace, durably. The caller holds `turn`. Raises OSError; then nothing has changed."""
        await self._write({**self.by_name, token.name: token})

    async def remove(self, name: str) -> None:
        """As `put`."""
        await self._write({key: token for key, token in self.by_name.items() if key != name})
        self._used.pop(name, None)

    def check_owned(self) -> None:
        """Raises OSError where another process has the folder: it has read the tokens, and would not know of a change."""
        why = self._lent()
        if why:
            raise OSError(errno.EROFS, why)

    async def _write(self, tokens: dict[str, StoredToken]) -> None:
        self.check_owned()
        if self.warning is not None:
            raise OSError(self._error, self.warning)
        used = dict(self._used)
        tokens = {
            name: msgspec.structs.replace(token, last_used_at=format_time(used[name])) if name in used else token
            for name, token in tokens.items()
        }
        data = msgspec.json.format(msgspec.json.encode(TokensFile(list(tokens.values()))), indent=1) + b"\n"
        await trio.to_thread.run_sync(durable.replace, self._files, self._path, data)
        self._take(tokens)
        for name, at in used.items():
            if self._used.get(name) == at:
                del self._used[name]

    async def keep_last_used(self, every_s: float = 60.0) -> None:
        """Write now and then when tokens were used last. A disk that is full is not reported here: the next change is."""
        while True:
            await trio.sleep(every_s)
            if self._used and self.warning is None:
                async with self.turn:
                    try:
                        await self._write(self.by_name)
                    except OSError:
                        continue

    def __repr__(self) -> str:
        return f"<TokenStore {len(self.by_name)} tokens>"


def made() -> tuple[str, str]:
    """A new token, and its digest."""
    token = new_token()
    return token, hashlib.sha256(token.encode()).hexdigest()
