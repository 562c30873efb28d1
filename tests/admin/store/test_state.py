"""The state as a value: what an edit makes of it, what has ended, and its bytes."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest

from admin.store.state import (
    ENCODED_AT_ONCE,
    LIVE_RULES,
    QUOTAS,
    SHADOW,
    Burst,
    PublishedQuotas,
    State,
    StateError,
    Stored,
    StoredCandidate,
    StoredOverride,
    StoredRule,
    as_json,
    decode_state,
    encode_state,
    end_of,
    format_time,
    from_json,
    has_expired,
    key_of,
    live,
    parse_time,
    tried,
)
from limiter.rules.rule_set import RuleError
from limiter.units import parse_rate

AT = "2026-03-02T12:00:00Z"
THEN = parse_time(AT)
KEY, LEVEL = "limits/amqp/%2F/x/orders", "limits/client/10.0.0.7"
CHANGE = StoredOverride("500/s", expires=AT)
RULE = StoredRule({"match": {"topic": "a"}, "messages": "5/s"}, 1, expires=AT)


def published(sha256: str) -> PublishedQuotas:
    return PublishedQuotas(sha256, 3, AT)


def test_a_change_is_read_field_by_field() -> None:
    found = live(
        StoredOverride(
            "500/s", "5MB/s", Burst(7, 8), 9, "delay", "system_busy", "shadow", "2s", "3s", "close", StoredCandidate("4/s"), AT, "op", AT,
            "why",
        )
    )  # fmt: skip
    assert found.messages == parse_rate("500/s")
    assert found.bytes is not None
    assert (found.messages_burst, found.bytes_burst, found.burst_ns, found.concurrent) == (7, 8, None, 9)
    assert (found.action, found.reply, found.mode, found.fallback) == ("delay", "system_busy", "shadow", "close")
    assert (found.open_for_ns, found.max_delay_ns) == (2_000_000_000, 3_000_000_000)
    assert found.candidate is not None
    assert found.candidate.messages == parse_rate("4/s")
    assert (found.expires_at, found.by, found.at, found.reason) == (THEN, "op", THEN, "why")
    least = live(StoredOverride(burst="2s"))
    assert (least.burst_ns, least.messages_burst, least.bytes_burst, least.candidate, least.at, least.expires_at) == (
        2_000_000_000, None, None, None, 0.0, None
    )  # fmt: skip


def test_a_candidate_is_none_or_says_what_is_tried() -> None:
    assert tried("none").is_empty()
    found = tried(StoredCandidate("4/s", "5MB/s", Burst(7, 8)))
    assert (found.messages, found.messages_burst, found.bytes_burst, found.burst_ns) == (parse_rate("4/s"), 7, 8, None)
    assert tried(StoredCandidate(burst="2s")).burst_ns == 2_000_000_000
    for candidate, said in (("5/s", "is no candidate"), (StoredCandidate(), "is empty"), (StoredCandidate("5"), "5")):
        with pytest.raises(RuleError, match=said) as raised:
            tried(candidate)
        assert raised.value.field == "candidate"


@pytest.mark.parametrize("stored", [CHANGE, RULE])
def test_a_change_has_ended_at_its_end(stored: Stored) -> None:
    assert end_of(stored) == THEN
    assert [has_expired(stored, now) for now in (THEN - 0.001, THEN)] == [False, True]


@pytest.mark.parametrize("stored", [StoredOverride("5/s"), StoredRule({}, 1), published("a"), None])
def test_what_has_no_end_never_ends(stored: Stored | None) -> None:
    assert end_of(stored) is None
    assert not has_expired(stored, 1e12)


def test_times_are_in_utc_to_the_millisecond() -> None:
    assert format_time(THEN + 0.1234) == "2026-03-02T12:00:00.123Z"
    assert parse_time("2026-03-02T13:00:00.5+01:00") == THEN + 0.5
    with pytest.raises(ValueError, match="has no UTC offset"):
        parse_time("2026-03-02T12:00:00")


EDITS: list[tuple[str, Stored]] = [
    (KEY, CHANGE), (LEVEL, CHANGE), ("rules/orders", CHANGE), (f"{LIVE_RULES}mine", RULE), (QUOTAS, published("a")),
    (SHADOW, published("b")),
]  # fmt: skip


@pytest.mark.parametrize(("target", "after"), EDITS)
def test_an_edit_changes_its_target_and_nothing_else(target: str, after: Stored) -> None:
    state = State(4, 9)
    once = state.changed([(target, after)])
    assert once.get(target) == after
    assert [once.get(other) for other, _ in EDITS if other != target] == [None] * 5
    assert (once.revision, once.sequence, state.get(target)) == (5, 9, None)
    (change,) = once.changes([(target, None)])
    assert (change.target, change.before, change.after) == (target, as_json(after), None)
    assert from_json(target, change.before) == after
    assert from_json(target, None) is None
    gone = once.changed([(target, None)])
    assert gone.get(target) is None
    assert gone.changed([(target, None)]).revision == 7
    every = state.changed(EDITS)
    assert [every.get(other) for other, _ in EDITS] == [stored for _, stored in EDITS]
    assert every.revision == 5


def test_published_snapshots_are_kept_the_latest_first_and_each_once() -> None:
    state = State()
    for name in ("a", "b", "c", "a"):
        state = state.changed([(QUOTAS, published(name))])
    assert state.snapshots == ("a", "c", "b")
    assert state.changed([(QUOTAS, None)]).snapshots == ("a", "c", "b")
    assert state.changed([(SHADOW, published("d"))]).snapshots == ("a", "c", "b")


def test_all_that_has_ended_is_removed_where_its_end_is_believed() -> None:
    later = "2026-03-02T12:00:01Z"
    with_its_rule = StoredOverride("1/s", at="2026-03-02T11:00:00Z", expires=later)
    state = State().changed(
        [
            *EDITS,
            ("rules/later", StoredOverride("1/s", expires=later)),
            (f"{LIVE_RULES}endless", StoredRule({}, 1)),
            ("rules/mine", with_its_rule),
        ]
    )
    ended = {KEY, LEVEL, "rules/orders", f"{LIVE_RULES}mine", "rules/mine"}
    assert {target for target, after in state.expired(THEN) if after is None} == ended
    assert state.expired(THEN - 1) == []
    assert {target for target, _ in state.expired(THEN + 1, lambda end: end > THEN)} == {"rules/later"}


@pytest.mark.parametrize("many", [0, 1, ENCODED_AT_ONCE, ENCODED_AT_ONCE + 1, 2 * ENCODED_AT_ONCE + 3])
def test_the_bytes_are_the_same_in_pieces_and_read_back(many: int) -> None:
    keys = {f"limits/amqp/%2F/x/{number}": StoredOverride(f"{number + 1}/s") for number in range(many)}
    levels = {f"limits/client/10.0.{number // 256}.{number % 256}": CHANGE for number in range(many)}
    state = State(4, 9, keys, {"orders": CHANGE}, published("a"), ("a", "b"), published("b"), levels, {"mine": RULE})
    data = encode_state(state)
    assert decode_state(data) == state
    inner = data[data.index(b'{"version"') : -2]
    assert msgspec.json.decode(inner)["keys"] == {target: as_json(stored) for target, stored in keys.items()}


def file(**fields: Any) -> bytes:
    """A state file with these fields, and its checksum."""
    given = {"version": 1, "revision": 1, "sequence": 1, "keys": {}, "rules": {}, "quotas": None, "snapshots": []} | fields
    inner = msgspec.json.encode(given)
    return b'{"sha256":"%b","state":%b}\n' % (hashlib.sha256(inner).hexdigest().encode(), inner)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"version": 99}, "of version 99; this gateway reads versions"),
        ({"keys": {"limits/nothing/a": {}}}, "is not the path of a key"),
        ({"keys": {KEY: {"messages": "5"}}}, "5"),
        ({"levels": {LEVEL: {"messages": "5"}}}, "5"),
        ({"levels": {"limits/planet/mars": {}}}, "planet"),
        ({"rules": {"r": {"expires": "soon"}}}, "soon"),
        ({"live_rules": {"r": {"rule": {}, "number": 1, "expires": "soon"}}}, "soon"),
        ({"other": 1}, "unknown field"),
    ],
)
def test_a_state_that_cannot_hold_is_refused_with_its_fault(fields: dict[str, Any], fault: str) -> None:
    assert decode_state(file()).revision == 1
    with pytest.raises(StateError, match=fault):
        decode_state(file(**fields))


@pytest.mark.parametrize(
    ("target", "value"),
    [
        (KEY, {"messages": "5"}), (KEY, {"unknown": 1}), ("limits/amqp/short", {}), ("limits/nothing/a", {}), ("planets/mars", {}),
        ("rules/r", {"expires": "soon"}), (QUOTAS, {"quotas": 1}), (SHADOW, {}), ("limits/planet/mars", {}),
        (f"{LIVE_RULES}r", {"rule": {}, "number": 1, "expires": "soon"}),
    ],
)  # fmt: skip
def test_what_the_history_has_of_a_change_that_cannot_hold_is_refused(target: str, value: dict[str, Any]) -> None:
    with pytest.raises(StateError):
        from_json(target, value)


def test_a_target_is_the_path_of_a_key_or_none() -> None:
    assert key_of(KEY).protocol == "amqp"
    for target in ("limits", "limits/amqp", "limits/amqp/%2F/x", "rules/amqp/%2F/x/orders", "limits/nothing/a"):
        with pytest.raises(StateError, match="is not the path of a key"):
            key_of(target)
