"""The tokens made while the gateway runs: until when they are good, and what is written of their use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from admin.authentication.auth import FoundToken, Role
from admin.authentication.token_store import StoredToken, TokenStore
from admin.store.state import format_time, parse_time
from common.durable_files import FileSystem

AT = "2026-03-02T12:00:00Z"
THEN = parse_time(AT)
DIGEST, OLD = b"\x01" * 32, b"\x02" * 32


def token(name: str = "ci", **fields: Any) -> StoredToken:
    given = {"name": name, "role": "operator", "sha256": DIGEST.hex(), "created_at": AT, "created_by": "admin"} | fields
    return StoredToken(**given)


class Full(FileSystem):
    """A disk that is full, while it is."""

    full = False

    def open(self, path: Path, flags: int) -> int:
        if self.full:
            raise OSError(28, "No space left on device")
        return super().open(path, flags)


async def test_a_token_is_good_until_its_end_and_the_one_before_a_rotation_until_the_first_of_both(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    await store.put(token(expires_at=AT, previous=OLD.hex(), previous_until="2026-03-02T11:59:50Z"))
    assert store.find(DIGEST, THEN - 0.001) == FoundToken("ci", Role.OPERATOR, THEN)
    assert store.find(DIGEST, THEN) is None
    assert store.find(OLD, THEN - 11) == FoundToken("ci", Role.OPERATOR, THEN - 10)
    assert store.find(OLD, THEN - 10) is None
    await store.put(token(expires_at=AT, previous=OLD.hex(), previous_until="2026-03-02T12:00:50Z"))
    assert store.find(OLD, THEN) is None, "it is the same token, which has ended"
    await store.put(token(previous=OLD.hex(), previous_until=AT))
    assert store.find(DIGEST, 1e12) == FoundToken("ci", Role.OPERATOR, None)
    assert store.find(OLD, THEN - 1) == FoundToken("ci", Role.OPERATOR, THEN)
    assert store.find(b"\x03" * 32, 0) is None


async def test_uses_are_told_at_once_and_written_with_the_next_change(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    await store.put(token())
    assert store.last_used("ci") is None
    store.find(DIGEST, THEN)
    assert (store.last_used("ci") or "").startswith("2026-03-02T12:00:00")
    assert TokenStore(tmp_path).last_used("ci") is None
    await store.put(token("other", sha256=OLD.hex()))
    kept = TokenStore(tmp_path)
    assert (set(kept.by_name), kept.last_used("ci"), kept.last_used("other")) == ({"ci", "other"}, store.last_used("ci"), None)
    store.find(OLD, THEN)
    await store.remove("other")
    assert TokenStore(tmp_path).by_name.keys() == {"ci"}
    assert store.find(OLD, THEN) is None
    await store.put(token("other", sha256=OLD.hex()))
    assert store.last_used("other") is None, "that was another token of this name"


async def test_uses_are_written_each_minute_whatever_the_disk_says_meanwhile(tmp_path: Path, autojump_clock: MockClock) -> None:
    files = Full()
    store = TokenStore(tmp_path, files)
    await store.put(token())

    async def later(seconds: float) -> str | None:
        """What is written by then."""
        await trio.sleep(seconds)
        async with store.turn:
            return TokenStore(tmp_path).last_used("ci")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.keep_last_used)
        store.find(DIGEST, THEN)
        assert await later(59) is None
        assert await later(2) == format_time(THEN)
        store.find(DIGEST, THEN + 5)
        files.full = True
        assert await later(70) == format_time(THEN)
        files.full = False
        assert await later(70) == format_time(THEN + 5) == store.last_used("ci")
        written = (tmp_path / "tokens.json").stat().st_ino
        await later(600)
        assert (tmp_path / "tokens.json").stat().st_ino == written, "nothing was used"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("content", [b"{", b'{"tokens": [{"name": "a"}]}', b'{"tokens": []}x'])
async def test_a_file_that_is_damaged_is_told_and_never_written_over(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokens.json").write_bytes(content)
    store = TokenStore(tmp_path)
    assert store.warning is not None
    assert "it is damaged" in store.warning
    with pytest.raises(OSError, match="it is damaged") as raised:
        await store.put(token())
    assert raised.value.errno == 0
    assert (tmp_path / "tokens.json").read_bytes() == content


async def test_a_role_that_is_unknown_is_damage_and_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    await store.put(token(role="owner"))
    assert "it is damaged" in str(TokenStore(tmp_path).warning)
    (tmp_path / "tokens.json").unlink()
    (tmp_path / "tokens.json").mkdir()
    barred = TokenStore(tmp_path)
    assert "Is a directory; its tokens are not valid" in str(barred.warning)
    with pytest.raises(IsADirectoryError):
        await barred.put(token())
