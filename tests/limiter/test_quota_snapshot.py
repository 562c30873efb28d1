"""The quota snapshot: one canonical form, strict reading."""

from __future__ import annotations

import hashlib
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.quota_snapshot import Quota, Snapshot, SnapshotError, dump, load
from support.cases import in_one_loop

EXAMPLE = {
    "version": 1,
    "computed_at": "2026-11-21T01:00:00Z",
    "code": "0.1.0",
    "inputs": [{"path": "log", "sha256": "ab", "rows": 86400, "corrupt": 0}],
    "parameters": {},
    "quotas": [
        {
            "protocol": "rocketmq",
            "topic": "orders",
            "messages": {"rate": 500, "burst": 900},
            "bytes": {"rate": 1048576, "burst": 2097152},
            "evidence": {"days": 28, "p50": 120, "p99": 410, "max": 880, "would_refuse": 0.0004, "reason": "p99 of hour class, +15 %"},
        }
    ],
}


def test_the_contracts_example() -> None:
    snapshot = load(json.dumps(EXAMPLE).encode())
    (quota,) = snapshot.quotas
    assert (quota.protocol, quota.topic, quota.messages, quota.bytes) == ("rocketmq", "orders", (500, 900), (1048576, 2097152))
    assert quota.evidence["would_refuse"] == 0.0004
    assert json.loads(dump(snapshot)) == EXAMPLE


def test_the_canonical_form() -> None:
    snapshot = Snapshot("2026-11-21T01:00:00Z", "0.1.0", quotas=(Quota("rocketmq", "t", (500.0, 9)), Quota("amqp", "%2F/x/y", (0.5, 1))))
    assert dump(snapshot) == (
        b'{"code":"0.1.0","computed_at":"2026-11-21T01:00:00Z","inputs":[],"parameters":{},"quotas":['
        b'{"evidence":{},"messages":{"burst":1,"rate":0.5},"protocol":"amqp","topic":"%2F/x/y"},'
        b'{"evidence":{},"messages":{"burst":9,"rate":500},"protocol":"rocketmq","topic":"t"}],"version":1}\n'
    )
    assert snapshot.sha256() == hashlib.sha256(dump(snapshot)).hexdigest()


NIGHT = {
    **EXAMPLE,
    "date": "2026-11-20",
    "night": {"time_zone": "Asia/Tokyo", "k": {"messages": 1.4}, "learning": [{"protocol": "rocketmq", "topic": "new", "reason": "1"}]},
    "quotas": [{**EXAMPLE["quotas"][0], "messages": {"rate": 0.0166667, "burst": 3, "hourly": 2.5}}],  # type: ignore[index]
}


def test_the_additions_of_a_night_come_through_and_are_left_out_where_empty() -> None:
    snapshot = load(json.dumps(NIGHT).encode())
    assert (snapshot.date, snapshot.night) == ("2026-11-20", NIGHT["night"])
    assert (snapshot.quotas[0].messages, snapshot.quotas[0].hourly_messages, snapshot.quotas[0].hourly_bytes) == ((0.0166667, 3), 2.5, None)
    assert json.loads(dump(snapshot)) == NIGHT
    assert load(dump(snapshot)) == snapshot
    assert not {"date", "night"} & json.loads(dump(load(json.dumps(EXAMPLE).encode()))).keys()


@pytest.mark.parametrize("date", ["yesterday", "20261120", "2026-11-31", "", 5])
def test_a_date_that_is_none_is_refused(date: object) -> None:
    with pytest.raises(SnapshotError, match=r"^date: "):
        load(json.dumps({**NIGHT, "date": date}).encode())


@pytest.mark.parametrize("hourly", [0, -1, 1e7, True, "2"])
def test_a_factor_of_the_intraday_raise_is_bounded(hourly: object) -> None:
    with pytest.raises(SnapshotError, match=r"^quotas\[0\].messages.hourly: "):
        load(changed("quotas.0.messages", {"rate": 5, "burst": 9, "hourly": hourly}))


def changed(path: str, value: object) -> bytes:
    """The example with one value changed; REMOVED removes it."""
    document = json.loads(json.dumps(EXAMPLE))
    *way, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    at = document
    for step in way:
        at = at[step]
    if value == "REMOVED":
        del at[last]
    else:
        at[last] = value
    return json.dumps(document).encode()


@in_one_loop
@pytest.mark.parametrize(
    ("at", "value", "path", "said"),
    [
        ("version", 2, "version", "this gateway reads version 1"),
        ("version", True, "version", "unknown"),
        ("code", "REMOVED", "code", "is missing"),
        ("code", 5, "code", "must be a text"),
        ("quotas", {}, "quotas", "must be a list, not dict"),
        ("inputs", [1], "inputs[0]", "must be an object"),
        ("parameters", [], "parameters", "must be an object"),
        ("extra", 1, "extra", "is unknown; known: version"),
        ("quotas.0", 5, "quotas[0]", "must be an object, not int"),
        ("quotas.0.protocol", "kafka", "quotas[0].protocol", "known: amqp, rocketmq"),
        ("quotas.0.protocol", "amqp", "quotas[0].topic", "vhost/exchange/routing_key"),
        ("quotas.0.topic", "", "quotas[0].topic", "not empty"),
        ("quotas.0.topic", "x" * 5000, "quotas[0].topic", "5000 characters, more than 4096"),
        ("quotas.0.topic", "\ud800", "quotas[0].topic", "half a surrogate pair"),
        ("quotas.0.mesages", {"rate": 1, "burst": 1}, "quotas[0].mesages", "is unknown"),
        ("quotas.0.messages", 5, "quotas[0].messages", "must be an object"),
        ("quotas.0.messages.rate", -1, "quotas[0].messages.rate", "outside 0 to"),
        ("quotas.0.messages.rate", 1e16, "quotas[0].messages.rate", "outside 0 to"),
        ("quotas.0.messages.rate", "500", "quotas[0].messages.rate", "no rate per second"),
        ("quotas.0.messages.rate", True, "quotas[0].messages.rate", "no rate per second"),
        ("quotas.0.messages.burst", 0, "quotas[0].messages.burst", "outside 1 to"),
        ("quotas.0.messages.burst", 1.5, "quotas[0].messages.burst", "no whole number"),
        ("quotas.0.messages.burst", "REMOVED", "quotas[0].messages.burst", "is missing"),
        ("quotas.0.evidence", "good", "quotas[0].evidence", "must be an object"),
    ],
)
def test_errors_name_the_path(at: str, value: object, path: str, said: str) -> None:
    with pytest.raises(SnapshotError) as caught:
        load(changed(at, value))
    assert caught.value.path == path
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "must be an object, not list"),
        (b'{"a": NaN}', "NaN is no number"),
        (b'{"a": -Infinity}', "-Infinity is no number"),
        (b'{"a": 1, "a": 2}', "'a' appears twice"),
        (b'{"a": 1' + b"0" * 5000 + b"}", "not JSON"),
    ],
)
def test_bytes_that_are_no_snapshot_are_refused_with_the_reason(data: bytes, said: str) -> None:
    with pytest.raises(SnapshotError, match=said):
        load(data)


def test_a_number_that_overflows_is_found_with_its_path() -> None:
    data = json.dumps(EXAMPLE).replace("0.0004", "1e999").encode()
    with pytest.raises(SnapshotError) as caught:
        load(data)
    assert caught.value.path == "quotas[0].evidence.would_refuse"


def test_a_quota_without_limits_is_an_error() -> None:
    with pytest.raises(SnapshotError, match=r"quotas\[0\]: limits nothing"):
        load(b'{"version":1,"computed_at":"x","code":"y","quotas":[{"protocol":"rocketmq","topic":"t"}]}')


def test_a_topic_has_one_quota() -> None:
    with pytest.raises(SnapshotError, match="two quotas"):
        Snapshot("x", "y", quotas=(Quota("rocketmq", "t", (1, 1)), Quota("rocketmq", "t", (2, 2))))


def test_a_rate_of_zero_needs_no_burst() -> None:
    (quota,) = load(changed("quotas.0.messages", {"rate": 0, "burst": 0})).quotas
    assert quota.messages == (0, 0)


def test_nothing_is_written_that_could_not_be_read() -> None:
    for quota in (Quota("rocketmq", "t", (-1, 5)), Quota("rocketmq", "t"), Quota("rocketmq", "t", (1, 1), evidence={"x": float("nan")})):
        with pytest.raises(SnapshotError):
            dump(Snapshot("x", "y", quotas=(quota,)))


texts = st.text(st.characters(codec="utf-8"), max_size=5)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**15), 10**15) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=4,
)
pairs = st.tuples(st.integers(0, 10**9) | st.floats(0, 10**6), st.integers(1, 10**9))
some_quotas = st.lists(
    st.builds(
        Quota,
        st.just("rocketmq"),
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=8),
        messages=pairs,
        bytes=st.none() | pairs,
        evidence=st.dictionaries(texts, json_values, max_size=2),
    ),
    unique_by=lambda quota: quota.topic,
    max_size=4,
)


@settings(max_examples=50, deadline=None)
@given(quotas=some_quotas, again=st.randoms(use_true_random=False))
def test_reading_what_was_written_gives_the_same(quotas: list[Quota], again: random.Random) -> None:
    snapshot = Snapshot("x", "y", quotas=tuple(quotas))
    assert load(dump(snapshot)) == snapshot
    assert dump(load(dump(snapshot))) == dump(snapshot)
    again.shuffle(quotas)
    assert dump(Snapshot("x", "y", quotas=tuple(quotas))) == dump(snapshot)


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=200) | json_values.map(lambda value: json.dumps(value).encode()))
def test_garbage_raises_snapshot_errors_and_nothing_else(data: bytes) -> None:
    with pytest.raises(SnapshotError):
        load(data)
