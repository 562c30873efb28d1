"""What is fuzzed of the state directory: the state file, the journals, fill levels, the snapshot of quotas, and a whole directory.

The first byte says whether checksums are made right, so that what is behind them is reached at all.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import zlib
from contextlib import ExitStack, suppress
from functools import lru_cache
from pathlib import Path

from fuzz.scripts import Script, check_reason, own_folder
from fuzz.targets.admin_api import Unsynced

from admin.store.audit_chain import verify_journal
from admin.store.journal import BEGIN, FILE, Entry, Journal, JournalError, chain_hash, latest
from admin.store.state import StateError, decode_state, encode_state
from admin.store.state_directory import STATE
from admin.store.store import Store, StoreError
from gateway.clock import now_ns
from gateway.lifecycle import fill_levels
from limiter.buckets.packed_buckets import ROW_BYTES, SECRET_BYTES
from limiter.judge import Judge
from limiter.quota_snapshot import Snapshot, SnapshotError, dump, load
from limiter.request import Request
from limiter.rules.rule_set import RuleSet
from limiter.topics import topic_of_parts
from support.admin.admin_client import RULES, Clock

BURST = 2000  # messages; of the rule of RULES for RocketMQ's topics, which has so many a second, too


def right(inner: bytes) -> bytes:
    """A state file with the checksum of what is in it."""
    return b'{"sha256":"' + hashlib.sha256(inner).hexdigest().encode() + b'","state":' + inner + b"}\n"


def state_file(data: bytes) -> None:
    """The state file: StateError, or a state that is the same when it is written and read."""
    if not data:
        return
    try:
        state = decode_state(right(data[1:]) if data[0] & 1 else data[1:])
    except StateError as error:
        check_reason(error)
        return
    written = encode_state(state)
    assert decode_state(written) == state
    assert encode_state(decode_state(written)) == written
    state.expired(0.0)
    repr(state)


@lru_cache(maxsize=1)
def folder() -> Path:
    return own_folder()


def chain(lines: list[bytes], *, mend: bool) -> bytes:
    """A journal of these lines; with `mend` each is an entry that gets its place in the chain."""
    if not mend:
        return b"\n".join(lines)
    out = b""
    digest = BEGIN
    for line in lines[:-1]:
        digest = chain_hash(digest, line)
        out += b'{"hash":"' + digest.encode() + b'","entry":' + line + b"}\n"
    return out + lines[-1]


def journal(data: bytes) -> None:
    """The history: JournalError, or one whose revisions can all be read, that takes a line, and is then whole for who verifies it."""
    if not data:
        return
    place = folder()
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    (place / FILE).write_bytes(chain(data[1:].split(b"\n"), mend=data[0] & 1 == 1))
    try:
        opened = Journal(place, Unsynced())
    except JournalError as error:
        check_reason(error)
        return
    whole = (place / FILE).read_bytes()
    for revision in opened.revisions():
        entry = opened.entry(revision)
        assert entry is not None
        assert entry.revision == revision
    with ExitStack() as files:
        assert len(latest(opened.opened(files), 3, opened.holds)) <= 3
    with suppress(AssertionError):  # sequences that go back are for `verify_journal` to find
        before = verify_journal(place, FILE)
    opened.append(Entry(opened.sequence + 1, "2026-11-21T12:00:00Z", "fuzzer", "PUT /", "applied", revision=2**40))
    assert (place / FILE).read_bytes().startswith(whole)
    again = Journal(place, Unsynced())
    assert (again.hash, again.sequence, again.repaired) == (opened.hash, opened.sequence, 0)
    assert again.revisions() == opened.revisions()
    assert verify_journal(place, FILE).ok == before.ok, "a line more makes another verdict"


NAMES = (STATE, STATE + ".previous", FILE, FILE + ".1", "refusals.jsonl", "tokens.json")


def state_directory(data: bytes) -> None:
    """Damaged files at a start: StoreError and nothing is lost, or a store; started again it is the same."""
    if not data:
        return
    place = folder()
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700)
    script = Script(data[1:])
    for at, name in enumerate(NAMES):
        size = script.byte() * 16
        content = script.take(size)
        if size == 0:
            continue
        if data[0] & 1 << at:
            content = right(content) if name.startswith(STATE) else chain(content.split(b"\n"), mend=True)
        (place / name).write_bytes(content)
    before = {path.read_bytes() for path in place.glob(STATE + "*")}  # of a journal half a line may be cut off
    try:
        store = Store.open(place, RULES, Clock(), Unsynced())
    except StoreError as error:
        check_reason(error)
        assert before <= {path.read_bytes() for path in place.iterdir()}, "refused, but a file is lost"
        return
    state, rules = store.state, store.rules()
    store.close()
    assert isinstance(rules, RuleSet)
    again = Store.open(place, RULES, Clock(), Unsynced())
    again.close()
    assert again.state == state, "started again it is another state"


# ---- fill levels -------------------------------------------------------------------------------------------------------


def fills(data: bytes) -> None:
    """Fill levels: left alone, or taken so that no bucket has more than its burst; never in the way of a start; saved and read again."""
    if not data:
        return
    said = data[1:]
    if data[0] & 1:
        rows = said[: len(said) // ROW_BYTES * ROW_BYTES]
        head = {"at": (0.0, 1.0, 2e9, -1e300)[data[0] >> 2 & 3], "secret": bytes(SECRET_BYTES).hex(), "order": sys.byteorder}
        said = json.dumps(head).encode() + b"\n" + rows + zlib.crc32(rows).to_bytes(4, "big")
    place = folder()
    (place / fill_levels.FILE).write_bytes(said)
    judge = Judge(RuleSet(RULES), 100)
    file = fill_levels.FillLevelsFile(place, judge, Clock())
    file.restore()
    begun = now_ns()
    passed = asked_at_once(judge)
    assert 0 <= passed <= BURST + refilled(begun), f"{passed} passed at once, the burst is {BURST}"
    file.save()
    assert file.failed_writes == 0
    again = Judge(RuleSet(RULES), 100)
    fill_levels.FillLevelsFile(place, again, Clock()).restore()
    more = asked_at_once(again)
    assert passed + more <= BURST + refilled(begun), f"after a restart {more} passed once more, behind {passed}"


def refilled(since: int) -> int:
    """Messages that the bucket may have got since then, and one."""
    return (now_ns() - since) * BURST // 10**9 + 1


def asked_at_once(judge: Judge) -> int:
    """How many of a flood of small messages pass."""
    origin = judge.origin("rocketmq", "rocket", "127.0.0.1", None)
    key = judge.key(origin, b"produce orders", topic_of_parts("rocketmq", [b"orders"]))
    asked = [Request(key, 10**4, 1, 100)]
    judge.decide(asked, now_ns())
    return asked[0].passed


# ---- quotas ------------------------------------------------------------------------------------------------------------


def quota_snapshot(data: bytes) -> None:
    """A snapshot of quotas: SnapshotError with a path, or one that is the same when written and read, byte for byte."""
    try:
        snapshot = load(data)
    except SnapshotError as error:
        check_reason(error)
        return
    assert isinstance(snapshot, Snapshot)
    written = dump(snapshot)
    again = load(written)
    assert again == snapshot
    assert dump(again) == written
    assert again.sha256() == snapshot.sha256()
