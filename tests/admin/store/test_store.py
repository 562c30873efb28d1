"""The store: what it finds when it opens, and what it keeps."""

from __future__ import annotations

import dataclasses
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from admin.store.changes import Author, StoreError
from admin.store.journal import Entry, Journal, JournalError
from admin.store.rules_in_force import MAX_KEYS
from admin.store.snapshots import KEEP, publication
from admin.store.state import (
    QUOTAS,
    SHADOW,
    Edit,
    PublishedQuotas,
    State,
    StoredOverride,
    StoredRule,
    decode_state,
    encode_state,
    key_of,
    key_target,
)
from admin.store.store import Store
from common.durable_files import FileSystem
from config.rule_texts import RuleTexts
from limiter.limits import Rate
from limiter.quota_snapshot import Quota, Snapshot
from limiter.rules.rule_set import RuleError, RuleSet
from limiter.topics import amqp_topic, rocketmq_topic
from support.admin.admin_client import RULES, Clock
from support.processes import HANG_S

WHO = Author("tester", "admin", "127.0.0.1", "r1")
KEY = "limits/rocketmq/orders"


def open_store(folder: Path, rotate_at: int = 1 << 20) -> Store:
    return Store.open(folder, RULES, Clock(), None, rotate_at)


async def set_rate(store: Store, rate: int, target: str = KEY) -> None:
    await store.change(lambda: ([(target, StoredOverride(messages=f"{rate}/s"))], None), WHO, "test")


def rate_of(store: Store) -> str | None:
    stored = store.state.keys.get(KEY)
    return None if stored is None else stored.messages


async def with_changes(folder: Path, rates: int = 3) -> None:
    store = open_store(folder)
    for rate in range(1, rates + 1):
        await set_rate(store, rate)
    store.close()


def test_a_new_folder_is_for_its_owner_only(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a" / "state")
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
    assert (store.revision, store.warnings) == (0, [])
    store.close()


def test_a_folder_others_can_read_is_warned_about(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o755)
    store = open_store(tmp_path / "state")
    assert "chmod 700" in store.warnings[0]
    store.close()


async def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    await with_changes(tmp_path / "state")
    for file in (tmp_path / "state").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_a_folder_in_use_is_not_shared(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(StoreError, match="in use by another gateway"):
        open_store(tmp_path)
    store.close()
    open_store(tmp_path).close()


async def test_changes_take_turns_and_each_is_one_revision(tmp_path: Path) -> None:
    import trio

    store = open_store(tmp_path)
    seen: list[int] = []
    store.enforce = lambda rules: seen.append(rules.revision)
    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(set_rate, store, number, f"limits/rocketmq/{number}")
    assert (seen, store.revision, len(store.state.keys), store.revisions()) == (list(range(1, 11)), 10, 10, list(range(1, 11)))
    store.close()


async def test_a_change_once_begun_is_not_cancelled(tmp_path: Path) -> None:
    import trio

    store = open_store(tmp_path)
    seen: list[int] = []
    store.enforce = lambda rules: seen.append(rules.revision)
    with trio.CancelScope() as scope:

        def edit() -> tuple[list[Edit], None]:
            scope.cancel()
            return [(KEY, StoredOverride(messages="5/s"))], None

        with trio.CancelScope(shield=True):
            await store.change(edit, WHO, "test")
    assert (seen, store.revision) == ([1], 1)
    store.close()
    store = open_store(tmp_path)
    assert rate_of(store) == "5/s"
    store.close()


DAMAGES = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "one bit": lambda data: data[:120] + bytes([data[120] ^ 1]) + data[121:],
    "zeros": lambda data: bytes(len(data)),
    "not ours": lambda data: b'{"hello": 1}\n',
    "binary": lambda data: os.urandom(len(data)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
async def test_a_damaged_state_file_is_restored_without_loss(tmp_path: Path, damage: object) -> None:
    await with_changes(tmp_path)
    path = tmp_path / "state.json"
    damaged = damage(path.read_bytes())  # type: ignore[operator]
    path.write_bytes(damaged)
    store = open_store(tmp_path)
    assert (rate_of(store), store.revision, store.rules().revision) == ("3/s", 3, 3)
    assert "restored" in store.warnings[0]
    assert [file.read_bytes() for file in tmp_path.glob("state.json.damaged-*")] == [damaged]
    await set_rate(store, 4)
    store.close()
    store = open_store(tmp_path)
    assert (rate_of(store), store.warnings) == ("4/s", [])
    store.close()


async def test_a_state_file_that_went_missing_is_restored(tmp_path: Path) -> None:
    await with_changes(tmp_path)
    (tmp_path / "state.json").unlink()
    store = open_store(tmp_path)
    assert (rate_of(store), store.revision) == ("3/s", 3)
    store.close()


async def test_without_a_good_state_the_gateway_does_not_start_and_says_the_way_out(tmp_path: Path) -> None:
    await with_changes(tmp_path)
    for name in ("state.json", "state.json.previous"):
        (tmp_path / name).write_bytes(b"garbage")
    with pytest.raises(StoreError, match="move both aside"):
        open_store(tmp_path)
    for name in ("state.json", "state.json.previous"):
        (tmp_path / name).rename(tmp_path / f"{name}.aside")
    store = open_store(tmp_path)  # the ways out work: from the history, or without any
    assert (rate_of(store), store.revision, len(store.warnings)) == ("3/s", 3, 1)
    store.close()
    for name in ("state.json", "history.jsonl"):
        (tmp_path / name).rename(tmp_path / f"{name}.away")
    store = open_store(tmp_path)
    assert (rate_of(store), store.revision, store.warnings) == (None, 0, [])
    await set_rate(store, 9)
    assert store.revision == 1
    store.close()


async def test_with_both_state_files_gone_the_live_changes_are_those_of_the_history(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for rate in (1, 2):
        await set_rate(store, rate)
        await set_rate(store, rate, f"{KEY}-{rate}")
    await store.change(lambda: ([(f"{KEY}-1", None)], None), WHO, "test")
    before = store.state
    store.close()
    for name in ("state.json", "state.json.previous"):
        (tmp_path / name).unlink()
    store = open_store(tmp_path)
    assert store.state == before
    (warning,) = store.warnings
    assert "revision 5 was put together from the history" in warning
    assert "lost" not in warning
    store.close()
    store = open_store(tmp_path)  # it is on the disk again
    assert (store.state, store.warnings) == (before, [])
    store.close()


async def test_a_line_that_takes_back_a_later_one_or_is_of_no_time_stops_no_start(tmp_path: Path) -> None:
    history = Journal(tmp_path, FileSystem())
    history.append(Entry(1, "2026-11-21T12:00:00Z", "ann", "PUT", "applied", revision=1))
    history.append(Entry(2, "2026-11-21T12:00:00Z", "sluice", "void", "void", voids=3))
    history.append(Entry(3, "at noon", "ann", "POST /v1/drain", "done"))
    for start in ("state put together from the history", "state of the file"):
        store = open_store(tmp_path)
        assert (store.revision, store.state.sequence) == (1, 3), start
        store.close()


async def test_a_history_that_was_rolled_tells_what_it_does_not_know(tmp_path: Path) -> None:
    store = open_store(tmp_path, rotate_at=600)
    await set_rate(store, 7, f"{KEY}-early")
    for rate in range(1, 9):
        await set_rate(store, rate)
    store.close()
    for name in ("state.json", "state.json.previous"):
        (tmp_path / name).unlink()
    store = open_store(tmp_path, rotate_at=600)
    assert (rate_of(store), store.revision) == ("8/s", 9)
    assert "so changes of before, if they held still, are lost" in store.warnings[0]
    await set_rate(store, 9)
    assert store.revision == 10
    store.close()


@pytest.mark.parametrize(("kept", "said"), [(0, "is gone or empty"), (1, "ends with line 1")])
async def test_an_emptied_history_is_told_until_the_next_change(tmp_path: Path, kept: int, said: str) -> None:
    await with_changes(tmp_path)
    path = tmp_path / "history.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:kept]))
    store = open_store(tmp_path)
    (warning,) = store.warnings
    assert said in warning
    assert "the last change is of line 3" in warning
    assert (rate_of(store), store.revision) == ("3/s", 3)
    await set_rate(store, 4)
    store.close()
    store = open_store(tmp_path)
    assert (rate_of(store), store.revision, store.warnings) == ("4/s", 4, [])
    store.close()


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (lambda lines: lines[0] + lines[2], "does not follow"),
        (lambda lines: b"\n" + b"".join(lines), "no line of a history"),
        (lambda lines: b"[" + b"".join(lines)[1:], "no line of a history"),
    ],
)
async def test_a_damaged_history_does_not_touch_the_limits(tmp_path: Path, damage: Callable[[list[bytes]], bytes], fault: str) -> None:
    await with_changes(tmp_path)
    path = tmp_path / "history.jsonl"
    path.write_bytes(damage(path.read_bytes().splitlines(keepends=True)))
    store = open_store(tmp_path)
    assert (rate_of(store), store.revision, store.revisions()) == ("3/s", 3, [])
    (warning,) = store.warnings
    assert fault in warning
    await set_rate(store, 4)
    assert store.revisions() == [4]
    assert len(list(tmp_path.glob("history.jsonl.damaged-*"))) == 1
    store.close()
    open_store(tmp_path).close()


@pytest.mark.parametrize("cut", [1, 10, 100, 300])
async def test_half_a_line_at_the_end_of_the_history_is_cut_off(tmp_path: Path, cut: int) -> None:
    await with_changes(tmp_path)
    path = tmp_path / "history.jsonl"
    whole = path.read_bytes()
    half = whole[:cut].replace(b"\n", b"")
    path.write_bytes(whole + half)
    store = open_store(tmp_path)
    assert f"({len(half)} bytes)" in store.warnings[0]
    assert (rate_of(store), store.revisions(), path.read_bytes()) == ("3/s", [1, 2, 3], whole)
    store.close()


@pytest.mark.parametrize("at", [20, 90, 150])
async def test_a_line_that_was_altered_shows(tmp_path: Path, at: int) -> None:
    await with_changes(tmp_path)
    path = tmp_path / "history.jsonl"
    data = bytearray(path.read_bytes())
    line = data.index(b"\n") + 1
    data[line + at] ^= 1
    path.write_bytes(data)
    with pytest.raises(JournalError):
        Journal(tmp_path, FileSystem())


async def test_no_change_waits_for_a_search_which_tells_what_was_there_when_it_began(tmp_path: Path) -> None:
    """40 searches at once, with a viewer's token, had a change of a limit wait for 11 s."""
    store = open_store(tmp_path, rotate_at=1)  # each change renames the file
    for rate in (1, 2):
        await set_rate(store, rate)
    reading, go_on = threading.Event(), threading.Event()
    found: list[Entry] = []

    def wanted(entry: Entry) -> bool:
        reading.set()
        return go_on.wait(HANG_S)

    async def search() -> None:
        found.extend(await store.changes(1 << 60, 100, wanted))

    with trio.fail_after(HANG_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(search)
            try:
                await trio.to_thread.run_sync(reading.wait)
                await set_rate(store, 3)
                assert store.revisions() == [2, 3]
            finally:
                go_on.set()
    assert [entry.revision for entry in found] == [2]
    store.close()


async def test_the_history_is_bounded(tmp_path: Path) -> None:
    store = open_store(tmp_path, rotate_at=4096)
    for rate in range(1, 101):
        await set_rate(store, rate)
    kept = store.revisions()
    assert kept == list(range(kept[0], 101))
    assert 10 < len(kept) < 60
    assert sum(file.stat().st_size for file in tmp_path.glob("history.jsonl*")) < 2 * (4096 + 1024)
    assert await store.edits_back_to(1) is None
    assert [entry.revision for entry in await store.entries(kept)] == kept
    assert await store.edits_back_to(kept[0]) == [(KEY, StoredOverride(messages=f"{kept[0]}/s"))]
    store.close()
    store = open_store(tmp_path, rotate_at=4096)
    assert store.revisions() == kept
    assert [entry.revision for entry in await store.entries(kept)] == kept
    store.close()


async def test_published_quotas_that_went_missing_are_not_passed_over(tmp_path: Path) -> None:
    published = publication(Snapshot("2026-11-21T01:00:00Z", "1"))
    store = open_store(tmp_path)
    edits: list[Edit] = [(QUOTAS, PublishedQuotas(published.sha256, 0, published.snapshot.computed_at))]
    await store.change(lambda: (edits, published), WHO, "test")
    store.close()
    file = next((tmp_path / "quotas").iterdir())
    data = file.read_bytes()
    for damaged in (data[:-10], data.replace(b'"1"', b'"2"')):
        file.write_bytes(damaged)
        with pytest.raises(StoreError, match=r"move .*quotas aside"):
            open_store(tmp_path)
    file.unlink()
    with pytest.raises(StoreError, match="missing"):
        open_store(tmp_path)
    (tmp_path / "quotas").rename(tmp_path / "aside")
    store = open_store(tmp_path)
    assert "no quotas hold" in store.warnings[0]
    await store.change(lambda: (edits, published), WHO, "test")
    store.close()
    store = open_store(tmp_path)
    assert store.warnings == []
    store.close()


async def test_quotas_that_were_only_tried_and_went_missing_stop_no_start(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    await publish(store, 1, SHADOW)
    store.close()
    next((tmp_path / "quotas").iterdir()).unlink()
    store = open_store(tmp_path)
    (warning,) = store.warnings
    assert "no quotas are tried" in warning
    store.close()


async def publish(store: Store, rate: int, target: str = QUOTAS) -> str:
    """Publish, or try, a snapshot with this rate; its SHA-256."""
    published = publication(Snapshot("2026-11-21T01:00:00Z", "1", quotas=(Quota("rocketmq", "orders", (rate, rate)),)))
    edits: list[Edit] = [(target, PublishedQuotas(published.sha256, 1, published.snapshot.computed_at))]
    await store.change(lambda: (edits, published), WHO, "test")
    return published.sha256


def kept(store: Store) -> set[str]:
    return {path.stem for path in (store.folder / "quotas").iterdir()}


async def test_a_trial_s_snapshot_goes_with_it_unless_it_is_kept_for_rollback(tmp_path: Path) -> None:
    """One that was in force before and is then tried is needed by a rollback when the trial has ended."""
    store = open_store(tmp_path)
    first, second = await publish(store, 1), await publish(store, 2)
    assert await publish(store, 1, SHADOW) == first
    third = await publish(store, 3, SHADOW)  # another trial takes its place
    assert kept(store) == {first, second, third}
    await set_rate(store, 5)  # what is tried stays while other things change
    assert kept(store) == {first, second, third}
    await store.change(lambda: ([(SHADOW, None)], None), WHO, "test")
    assert kept(store) == {first, second}
    assert (await store.snapshot(first), await store.snapshot(third)) != (None, None)
    store.close()
    open_store(tmp_path).close()


async def test_a_snapshot_that_is_tried_outlives_its_place_among_those_kept_for_rollback(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    tried = await publish(store, 1)
    await publish(store, 1, SHADOW)
    for rate in range(2, KEEP + 2):
        await publish(store, rate)
    assert len(kept(store)) == KEEP + 1
    assert tried in kept(store)
    await publish(store, KEEP + 2, SHADOW)
    assert tried not in kept(store)
    assert len(kept(store)) == KEEP + 1
    store.close()


async def test_live_changes_of_keys_are_bounded(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    stored = StoredOverride(messages="1/s")
    edits: list[Edit] = [(f"limits/rocketmq/{number}", stored) for number in range(MAX_KEYS)]
    assert store.plan(edits).state.revision == 1
    with pytest.raises(RuleError, match="live changes of keys"):
        store.plan([*edits, (KEY, stored)])
    store.close()


def test_rules_are_the_same_object_until_something_changes(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert store.rules() is store.rules()
    before = store.rules()
    assert store.replace_file_rules(RULES) is not before
    store.close()


async def test_no_live_change_compiles_the_rules_anew(tmp_path: Path) -> None:
    """They may be thousands, and a change must not take as long as a start."""
    store = Store.open(tmp_path, RULES, Clock(), rule_texts=RuleTexts())
    for number in (0, 1):  # with and without one that was added live
        before = store.rules()
        assert store.all_rules() is store.all_rules()
        await set_rate(store, 5 + number)
        after = store.rules()
        assert after is not before
        assert after._index is before._index
        added = StoredRule({"match": {"topic": "a*"}, "limit": {"messages": f"{5 + number}/s"}}, 1)
        await store.change(lambda rule=added: ([("live-rules/storm", rule)], None), WHO, "test")  # type: ignore[misc]
        assert store.rules()._index is not after._index
    read = RULES[:1]
    compiled = RuleSet(store.with_live_rules(read))
    assert store.replace_file_rules(read, compiled)._index is compiled._index
    assert store.replace_file_rules(RULES)._index is not compiled._index
    store.close()


class Waiting(FileSystem):
    """A disk that waits with the first sync until it is told to go on."""

    def __init__(self) -> None:
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def sync(self, handle: int) -> None:
        self.begun.set()
        self.goes_on.wait(HANG_S)
        super().sync(handle)


async def test_rules_of_the_file_that_are_replaced_while_a_change_is_stored_hold_with_the_change(tmp_path: Path) -> None:
    files = Waiting()
    store = Store.open(tmp_path, RULES, Clock(), files)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(set_rate, store, 5)
        await trio.to_thread.run_sync(files.begun.wait, HANG_S)
        store.replace_file_rules(RULES[:1])
        files.goes_on.set()
    assert store.rules().file_rules == RULES[:1]
    assert store.rules().revision == 1
    assert store.rules().overrides
    store.close()


async def test_a_change_of_a_rule_that_is_gone_is_kept_and_told_as_unfit(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    name = RULES[0].name
    await set_rate(store, 5, f"rules/{name}")
    assert store.unfit() == {}
    store.replace_file_rules(RULES[1:])
    assert store.unfit() == {name: "no rule of the configuration has this name"}
    assert f"rules/{name}" in store.state.live_changes()
    store.close()


@pytest.mark.parametrize(
    "name",
    [
        rocketmq_topic(b"orders"),
        rocketmq_topic(b"a/b %\xff"),
        amqp_topic(b"/", b"", b""),
        amqp_topic(b"a/b", b"e", b"k.\xff"),
    ],
)
def test_a_target_names_its_key(name: object) -> None:
    assert key_of(key_target(name)) == name  # type: ignore[arg-type]


async def test_the_state_file_reads_back_as_it_was(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    stored = StoredOverride(messages="1/7s", bytes="5MiB/s", burst="90s", action="delay", mode="shadow", open_for="0s", max_delay="2s")
    await store.change(lambda: ([(KEY, stored), ("rules/orders", stored)], None), WHO, "test")
    assert decode_state(encode_state(store.state)) == store.state
    store.close()


async def test_an_older_gateway_can_go_on_until_there_is_a_live_rule_or_a_client(tmp_path: Path) -> None:
    """A state without them is written as before; one with them says its version."""
    edits: dict[str, StoredOverride | StoredRule] = {
        "limits/client/10.0.0.7": StoredOverride(messages="5/s"),
        "live-rules/storm": StoredRule({"match": {"topic": "a*"}, "limit": {"messages": "5/s"}}, 1),
    }
    for target, after in edits.items():
        plain = State().changed([("limits/rocketmq/a", StoredOverride(messages="5/s"))])
        more = plain.changed([(target, after)])
        assert b'"version":1' in encode_state(plain)
        assert b'"version":2' in encode_state(more)
        assert decode_state(encode_state(more)) == more
        assert encode_state(more.changed([(target, None)])) == encode_state(dataclasses.replace(plain, revision=more.revision + 1))


def test_a_live_rule_that_cannot_be_read_any_more_stops_the_start_with_the_way_out(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    stored = StoredRule({"limit": {"mesages": "5/s"}}, 1)
    (folder / "state.json").write_bytes(encode_state(State().changed([("live-rules/storm", stored)])))
    with pytest.raises(StoreError, match=r"(?s)storm.*limit\.mesages.*did you mean"):
        Store.open(folder, RULES, Clock(), rule_texts=RuleTexts())


async def test_many_live_changes_stay_fast_enough_to_be_made(tmp_path: Path) -> None:
    """10,000 clients and 1,000 live rules are held and found; docs/performance has the times."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    edits: list[tuple[str, StoredOverride | StoredRule]] = [
        (f"limits/client/10.{at >> 8}.{at & 255}.1", StoredOverride(messages=f"{at % 99 + 1}/s")) for at in range(10_000)
    ]
    edits += [(f"live-rules/r{at}", StoredRule({"match": {"topic": f"t{at}-*"}, "limit": {"messages": "5/s"}}, at)) for at in range(1000)]
    (folder / "state.json").write_bytes(encode_state(State().changed(edits)))
    store = Store.open(folder, RULES, Clock(), rule_texts=RuleTexts())
    try:
        await store.change(lambda: ([("limits/client/10.9.9.9", StoredOverride(messages="77/s"))], None), Author("tester"), "test")
        found = store.rules().effective(rocketmq_topic(b"t500-a"), client="10.9.9.9")
        assert {(each.per, each.rule.name, each.limit.messages) for each in found} == {
            ("topic", "r500", Rate(5)), ("client", "unruled", Rate(77)),
        }  # fmt: skip
    finally:
        store.close()
