"""What is written to the spool comes back as it was, or as damaged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pipeline.parts import BODY, PLAIN, REQUEST, Part
from gateway.waiting.disk.records import BATCH, RECORD, DamagedError, decode, encode
from limiter.judge import Judge
from limiter.keys import Key
from limiter.rules.rule_set import RuleSet
from limiter.topics import amqp_topic

JUDGE = Judge(RuleSet(()))
ORIGIN = JUDGE.origin("amqp", "here", "10.0.0.7", "shop", b"/", 1)
KEY = JUDGE.key(ORIGIN, b"orders", amqp_topic(b"/", b"", b"orders"))


def key_of(data: bytes) -> Key:
    return KEY


@st.composite
def parts(draw: st.DrawFn) -> Part:
    data = draw(st.binary(max_size=40))
    start = draw(st.integers(0, len(data)))
    kind = draw(st.sampled_from([PLAIN, REQUEST, BODY]))
    counts = (draw(st.integers(1, 1 << 31)), draw(st.integers(0, 1 << 31)), draw(st.integers(0, 1 << 62))) if kind == REQUEST else (0, 0, 7)
    part = Part(kind, 3, data, start, len(data), KEY if kind == REQUEST else None, *counts, draw(st.booleans()))
    part.paid, part.prepaid, part.again, part.unanswered = (draw(st.booleans()) for _ in range(4))
    part.deadline = draw(st.integers(0, (1 << 62) - 1))
    part.begin_hold().paged_at = draw(st.integers(0, (1 << 62) - 1))
    return part


def seen(part: Part) -> tuple[object, ...]:
    flags = (part.complete, part.paid, part.prepaid, part.again, part.unanswered)
    return (
        part.kind,
        part.ordering_key,
        part.data[part.start : part.end],
        part.key,
        part.count,
        part.messages,
        part.size,
        flags,
        part.deadline,
        part.find_paged_at(),
    )


@given(st.lists(parts(), max_size=5))
def test_parts_come_back_as_they_were(written: list[Part]) -> None:
    batch = encode(written)
    assert len(batch) == BATCH.size + sum(RECORD.size + part.end - part.start for part in written)
    assert [seen(part) for part in decode(batch, 3, key_of)] == [seen(part) for part in written]


@given(st.lists(parts(), min_size=1, max_size=3), st.data())
def test_a_bit_that_flips_is_damage(written: list[Part], data: st.DataObject) -> None:
    batch = bytearray(encode(written))
    at = data.draw(st.integers(0, len(batch) * 8 - 1))
    batch[at // 8] ^= 1 << at % 8
    with pytest.raises(DamagedError):
        decode(bytes(batch), 3, key_of)


@given(st.lists(parts(), min_size=1, max_size=3), st.data())
def test_a_batch_that_is_torn_or_too_long_is_damage(written: list[Part], data: st.DataObject) -> None:
    batch = encode(written)
    with pytest.raises(DamagedError):
        decode(batch[: data.draw(st.integers(0, len(batch) - 1))], 3, key_of)
    with pytest.raises(DamagedError):
        decode(batch + b"x", 3, key_of)
