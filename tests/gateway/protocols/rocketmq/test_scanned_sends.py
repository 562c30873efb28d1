"""Scans of sends: compiled, C written by hand does them: held to the Python of the same name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.vecs import vec
from mypy_extensions import i64

from gateway.protocols.rocketmq.layouts import DIGITS, NAME, OPAQUE, TEXT, Layout
from gateway.protocols.rocketmq.mixed_sends import scan_sends
from limiter.keys import Key, Origin
from limiter.recent_keys import RecentKeys
from limiter.rules.sender import Sender
from limiter.scanned_columns import BEFORE, COUNT, FIRST, LARGEST, MESSAGES, NEXT, ROWS, SIZE, SUM_WORDS, SUMS
from limiter.topics import rocketmq_topic
from support.python_twin import python_twin

PYTHON = python_twin("gateway/protocols/rocketmq/mixed_sends.py")
LAYOUT = Layout((b'{"code":310,"b":"', b'","e":"', b'","i":"', b'"},"opaque":', b"}"), bytes([NAME, DIGITS, TEXT, OPAQUE]))
ORIGIN = Origin("rocketmq", Sender("here", "10.0.0.7", "shop"), b"")
TURN = 3


def send(topic: bytes, opaque: int, body: bytes = b"", *, text: bytes = b"KEYS") -> bytes:
    header = b'{"code":310,"b":"%b","e":"0","i":"%b"},"opaque":%d}' % (topic, text, opaque)
    return (4 + len(header) + len(body)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body


def recent_of(*names: bytes) -> RecentKeys:
    recent = RecentKeys(64)
    for name in names:
        recent.note(name, Key(ORIGIN, rocketmq_topic(name), None, "produce"))
    return recent


def scanned(
    recent: RecentKeys, text: bytes, *, room: int = 100, most: int = 1 << 20, keys: int = 8, rows: int = 8, opaques: int = 8,
    layout: Layout = LAYOUT, by: Any = scan_sends,
) -> tuple[int, list[int], list[int], list[int]]:  # fmt: skip
    """Where a scan of `text` ends, and the sums, rows and opaques that it has written."""
    sums = vec[i64]([0] * (SUMS + SUM_WORDS * keys))
    found, numbers = vec[i64]([0] * rows), vec[i64]([0] * (BEFORE + opaques))
    end = by(
        text, 0, len(text), room, most, layout.plan, layout.text, recent.hashes, recent.names, recent.numbers, TURN, sums, found, numbers
    )
    return end, list(sums), list(found)[: sums[ROWS]], list(numbers)[BEFORE:][: sums[MESSAGES]]


def test_a_scan_finds_rows_opaques_and_what_each_key_is_asked_for() -> None:
    texts = [send(b"a", 5, b"xxx"), send(b"b", 6), send(b"b", 0), send(b"a", 0x7FFF_FFFF, b"xxxxx")]
    end, sums, rows, opaques = scanned(recent_of(b"a", b"b"), b"".join(texts))
    assert end == len(b"".join(texts))
    assert opaques == [5, 6, 0, 0x7FFF_FFFF]
    assert [(row >> 32, row >> 16 & 0xFFFF, row & 0xFFFF) for row in rows] == [(3, 1, 0), (0, 2, 1), (5, 1, 0)]
    assert sums[NEXT] == 2
    a = sums[SUMS:][:SUM_WORDS]
    assert (a[COUNT], a[SIZE], a[FIRST], a[LARGEST]) == (2, 8, 3, 5)


@pytest.mark.parametrize(
    ("third", "options", "found"),
    [
        (send(b"unknown", 3), {}, 2),
        (send(b"a", 3)[:-1], {}, 2),
        (send(b"a", 3, text=b'\\"'), {}, 2),
        (send(b"a", 3).replace(b"310", b"311"), {}, 2),
        (b"\0\0\0\x04" + send(b"a", 3)[4:], {}, 2),
        (send(b"a", 3)[:4] + b"\x01\0\0\x10" + send(b"a", 3)[8:], {}, 2),
        (send(b"a", 3, b"x" * 200), {"most": 200}, 2),
        (send(b"a", 3), {"room": 2}, 2),
        (send(b"a", 3), {"opaques": 2}, 2),
        (send(b"a", 3), {"rows": 2}, 2),
        (send(b"b", 3), {"rows": 2}, 3),
        (send(b"a", 3), {"keys": 1}, 1),
        (send(b"a", 3), {"layout": Layout((b'{"code":310,"b":"a","e":"0","i":"KEYS"},"opaque":', b"}"), bytes([OPAQUE]))}, 0),
    ],
    ids=[
        "unknown", "not whole", "text", "other layout", "length", "other serialize type", "large", "room", "opaques", "rows", "same row",
        "keys", "one topic",
    ],
)  # fmt: skip
def test_a_scan_ends_where_anything_is_unusual(third: bytes, options: dict[str, Any], found: int) -> None:
    texts = [send(b"a", 1), send(b"b", 2), third]
    end, sums, _, _ = scanned(recent_of(b"a", b"b"), b"".join(texts), **options)
    assert (end, sums[MESSAGES]) == (len(b"".join(texts[:found])), found)


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.sampled_from([0, 7, 0x7FFF_FFFF, 0x8000_0000])), max_size=10),
    st.integers(0, 10), st.integers(1, 6), st.integers(0, 9), st.integers(0, 9), st.sampled_from([1 << 20, 70, 80]), st.data(),
)  # fmt: skip
def test_sends_are_scanned_as_python_does(
    sent: list[tuple[int, int, int]], room: int, keys: int, rows: int, opaques: int, most: int, data: st.DataObject
) -> None:
    names = [b"orders.%d" % number for number in range(7)]
    text = bytearray().join(send(names[number], opaque, b"x" * size) for number, size, opaque in sent)
    for place in data.draw(st.lists(st.integers(0, max(0, len(text) - 1)), max_size=1)):
        if place < len(text):
            text[place] = data.draw(st.sampled_from(b'\0\1\x04"\\}09') | st.integers(0, 255))
    found = []
    for by in (scan_sends, PYTHON.scan_sends):
        recent = recent_of(*names[:5])
        outcome = scanned(recent, bytes(text), room=room, keys=keys, rows=rows, opaques=opaques, most=most, by=by)
        found.append((outcome, list(recent.numbers)))
    assert found[0] == found[1]
