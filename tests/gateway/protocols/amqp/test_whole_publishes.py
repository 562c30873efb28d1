"""Whole publishes: compiled, they are measured and scanned by C written by hand: held to the Python of the same names."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.vecs import vec
from mypy_extensions import i64
from pamqp import commands, header

from gateway.protocols.amqp.publishes import HEADER_BYTES, HEADER_SHIFT, METHOD_SHIFT, WHOLE, measure_publish, scan_publishes
from limiter.columns import Columns
from limiter.keys import Key, Origin
from limiter.recent_keys import RecentKeys
from limiter.rules.sender import Sender
from limiter.scanned_columns import COUNT, FIRST, LARGEST, MESSAGES, NEXT, PLACE, ROWS, SIZE, SUM_WORDS, SUMS, ScannedColumns
from limiter.topics import amqp_topic
from support.amqp import frames
from support.python_twin import python_twin

PYTHON = python_twin("gateway/protocols/amqp/publishes.py")
LIMIT = 131_072


def test_sizes_are_those_of_the_frames() -> None:
    text = frames.publish(1, "orders.1", b"body", exchange="shop")
    method = int.from_bytes(text[3:7], "big") + 8
    header = int.from_bytes(text[method + 3 : method + 7], "big") + 8
    for known in (0, method):
        found = measure_publish(b"xx" + text + b"more", 2, len(text) + 6, known, 1, LIMIT)
        assert (found >> METHOD_SHIFT, found >> HEADER_SHIFT & HEADER_BYTES, found & WHOLE) == (method, header, len(text))
    assert measure_publish(text, 0, len(text), 0, 2, LIMIT) == -1
    assert measure_publish(text, 0, len(text) - 1, 0, 1, LIMIT) == -1
    assert measure_publish(text, 0, len(text), 0, 1, 3) == -1


@given(
    st.sampled_from(["", "shop", "e" * 127]),
    st.text(st.characters(codec="ascii"), max_size=255),
    st.binary(max_size=40),
    st.binary(max_size=5),
    st.data(),
)
def test_publishes_are_measured_as_python_does(exchange: str, key: str, body: bytes, before: bytes, data: st.DataObject) -> None:
    text = bytearray(frames.publish(3, key, body, exchange=exchange))
    for place in data.draw(st.lists(st.integers(0, len(text) - 1), max_size=2)):
        text[place] = data.draw(st.sampled_from([0, 1, 2, 3, 0x28, 0x3C, 0x7F, 0x80, 0xCE, 0xFF]) | st.integers(0, 255))
    whole = before + bytes(text) + b"\xce" * 9
    end = len(before) + len(text) + data.draw(st.sampled_from([0, 0, 9, -1, -8]))
    method = data.draw(st.sampled_from([0, 0, int.from_bytes(text[3:7], "big") + 8, 7]))
    asked = (whole, len(before), end, min(method, 1 << 40), 3, data.draw(st.sampled_from([LIMIT, LIMIT, 20, 1 << 33])))
    assert measure_publish(*asked) == PYTHON.measure_publish(*asked)


# ---- scans ----------------------------------------------------------------------------------------------------------

TURN = 5


def with_headers(headers: dict[str, Any]) -> bytes:
    """A publish to `a` with one octet of body."""
    properties = commands.Basic.Properties(headers=headers)
    content = frames.method(1, header.ContentHeader(body_size=1, properties=properties)) + frames.raw_frame(3, 1, b"x")
    return frames.method(1, commands.Basic.Publish(routing_key="a")) + content


ORIGIN = Origin("amqp", Sender("here", "10.0.0.7", "shop"), b"/")


def raw_of(name: bytes) -> bytes:
    return bytes((0, len(name))) + name


def recent_of(*names: bytes) -> RecentKeys:
    recent = RecentKeys(64)
    for name in names:
        recent.note(raw_of(name), Key(ORIGIN, amqp_topic(b"/", b"", name), None, "produce"))
    return recent


def scanned(
    recent: RecentKeys, text: bytes, room: int = 100, *, next_number: int = 0, keys: int = 8, rows: int = 8, by: Any = scan_publishes
) -> tuple[int, list[int], list[int]]:
    """Where a scan of `text` ends, and the sums and rows that it has written."""
    sums = vec[i64]([next_number] + [0] * (SUMS - 1 + SUM_WORDS * keys))
    found = vec[i64]([0] * rows)
    end = by(text, 0, len(text), room, 1, LIMIT, recent.hashes, recent.names, recent.numbers, TURN, sums, found)
    return end, list(sums), list(found)[: sums[ROWS]]


def test_a_scan_finds_rows_and_what_each_key_is_asked_for() -> None:
    recent = recent_of(b"a", b"b")
    sent = [(b"a", 3), (b"b", 0), (b"b", 0), (b"a", 5), (b"a", 4)]
    texts = [frames.publish(1, name.decode(), b"x" * size) for name, size in sent]
    end, sums, rows = scanned(recent, b"".join(texts), next_number=2)
    assert end == len(b"".join(texts))
    assert (sums[NEXT], sums[MESSAGES]) == (4, 5)
    assert [(row >> 32, row >> 16 & 0xFFFF, row & 0xFFFF) for row in rows] == [(3, 1, 2), (0, 2, 3), (5, 1, 2), (4, 1, 2)]
    a, b = (sums[SUMS + SUM_WORDS * number :][:SUM_WORDS] for number in (2, 3))
    assert recent.names[a[PLACE]] == raw_of(b"a")
    assert (a[COUNT], a[SIZE], a[FIRST], a[LARGEST]) == (3, 12, 3, 5)
    assert (b[COUNT], b[SIZE], b[FIRST], b[LARGEST]) == (2, 0, 0, 0)


@pytest.mark.parametrize(
    ("third", "options", "found"),
    [
        (frames.publish(1, "unknown", b"x"), {}, 2),
        (frames.publish(2, "a", b"x"), {}, 2),
        (frames.publish(1, "a", b"x")[:-1], {}, 2),
        (with_headers({"CC": ["b"]}), {}, 2),
        (with_headers({"C": "C, and no copies"}), {}, 3),
        (frames.publish(1, "a", b"x"), {"room": 2}, 2),
        (frames.publish(1, "a", b"x"), {"rows": 2}, 2),
        (frames.publish(1, "a", b"xx"), {"rows": 2}, 2),
        (frames.publish(1, "b", b"xx"), {"rows": 2}, 3),
        (frames.publish(1, "a", b"x"), {"keys": 1}, 1),
        (frames.publish(1, "a", b"x"), {"next_number": 7}, 1),
    ],
    ids=["unknown", "other channel", "not whole", "copies", "no copies", "room", "rows", "row", "same row", "keys", "numbers"],
)
def test_a_scan_ends_where_anything_is_unusual(third: bytes, options: dict[str, int], found: int) -> None:
    texts = [frames.publish(1, "a", b"x"), frames.publish(1, "b", b"xx"), third]
    end, sums, _ = scanned(recent_of(b"a", b"b"), b"".join(texts), **options)
    assert (end, sums[MESSAGES]) == (len(b"".join(texts[:found])), found)


@pytest.mark.parametrize("before", [0, 1, 8, 9, 10, 40])
@pytest.mark.parametrize("mark", ["CC", "xCC", "CxC", "CxCCx", "C", ""])
def test_a_mark_is_found_however_many_like_it_come_before(before: int, mark: str) -> None:
    text = with_headers({"a": "Cx" * before + mark})
    for by in (scan_publishes, PYTHON.scan_publishes):
        assert scanned(recent_of(b"a"), text, by=by)[0] == (0 if "CC" in mark else len(text))


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), max_size=12),
    st.integers(0, 12), st.integers(0, 6), st.integers(1, 6), st.integers(0, 9), st.data(),
)  # fmt: skip
def test_publishes_are_scanned_as_python_does(
    sent: list[tuple[int, int]], room: int, next_number: int, keys: int, rows: int, data: st.DataObject
) -> None:
    names = [b"orders.%d" % number for number in range(7)]
    text = bytearray().join(frames.publish(1, names[number].decode(), b"x" * size) for number, size in sent)
    for place in data.draw(st.lists(st.integers(0, max(0, len(text) - 1)), max_size=1)):
        if place < len(text):
            text[place] = data.draw(st.integers(0, 255))
    found = []
    for by in (scan_publishes, PYTHON.scan_publishes):
        recent = recent_of(*names[:5])
        found.append((scanned(recent, bytes(text), room, next_number=next_number, keys=keys, rows=rows, by=by), list(recent.numbers)))
    assert found[0] == found[1]


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c", "new"]), st.integers(0, 4)), min_size=1, max_size=40), st.integers(1, 6))
def test_scans_give_the_columns_that_messages_one_by_one_give(sent: list[tuple[str, int]], room: int) -> None:
    """What a scan does not know is added by itself; a key may have two sums then, which count together."""
    recent = recent_of(b"a", b"b", b"c")
    new = Key(ORIGIN, amqp_topic(b"/", b"", b"new"), None, "produce")
    scan = ScannedColumns()
    text = b"".join(frames.publish(1, name, b"x" * size) for name, size in sent)
    ends = [0, *(len(b"".join(frames.publish(1, name, b"x" * size) for name, size in sent[: at + 1])) for at in range(len(sent)))]
    columns = Columns()
    at = done = 0
    while at < len(text):
        sums = scan.begin(columns)
        end = scan_publishes(text, at, len(text), room, 1, LIMIT, recent.hashes, recent.names, recent.numbers, scan.turn, sums, scan.rows)
        if end > at:
            done += scan.end(columns, recent)
            at = end
        else:
            assert sent[done][0] == "new"
            columns.add(new, 1, sent[done][1])
            done += 1
            at = ends[done]
        assert at == ends[done]
    scan.close(columns)
    columns.close()
    rows = [(columns.sums[row & 0xFFFF].key.name.topic.decode(), row >> 32, row >> 16 & 0xFFFF) for row in columns.rows]
    assert [(name, size) for name, size, count in rows for _ in range(count)] == sent
    assert all(before[:2] != after[:2] or room < len(sent) or "new" in after for before, after in pairwise(rows))
    for of_key in columns.sums:
        sizes = [size for name, size in sent if name == of_key.key.name.topic.decode()]
        assert (of_key.count, of_key.size, of_key.first, of_key.largest) == (len(sizes), sum(sizes), sizes[0], max(sizes))
    assert len({of_key.key for of_key in columns.sums}) == len(columns.sums)
    assert all(of_key.number == number for number, of_key in enumerate(columns.sums))
