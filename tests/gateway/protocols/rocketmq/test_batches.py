"""A batch of n messages counts n, by the lengths the broker goes by."""

from __future__ import annotations

import pytest

from gateway.protocols.rocketmq.batches import count_batch
from support.rocketmq.frames import batch_body

THREE = batch_body(b"a", b"", b"c" * 1000)


def test_messages_of_a_batch_are_counted_wherever_it_stands() -> None:
    assert count_batch(b"before" + THREE + b"after", 6, 6 + len(THREE)) == 3


@pytest.mark.parametrize("count", [1, 2, 1000])
def test_any_number(count: int) -> None:
    body = batch_body(*[b"x" * 10] * count, properties=b"")
    assert count_batch(body, 0, len(body)) == count


def test_the_announced_total_size_is_not_believed() -> None:
    """The broker ignores it when it stores the messages, so a client could declare a thousand messages to be one."""
    body = bytearray(THREE)
    body[0:4] = len(body).to_bytes(4, "big")
    assert count_batch(bytes(body), 0, len(body)) == 3


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x",
        THREE[:-1],
        THREE + b"x",
        THREE + bytes(21),
        THREE[:16] + b"\xff\xff\xff\xff" + THREE[20:],
        bytes(20) + b"\xff\xff",
        b"\xff" * 100,
    ],
    ids=["empty", "short", "cut", "one byte more", "21 bytes more", "body of 4 GiB", "negative properties", "all ones"],
)
def test_a_broken_chain_counts_as_one(body: bytes) -> None:
    assert count_batch(body, 0, len(body)) == 1


def test_every_cut_of_a_batch_counts_one_or_a_whole_number_of_entries() -> None:
    entry = 22 + len(b"WAIT\x01true\x02")
    whole = {entry + 1: 1, 2 * entry + 1: 2, len(THREE): 3}
    for end in range(len(THREE) + 1):
        assert count_batch(THREE, 0, end) == whole.get(end, 1)
