"""Counting stored messages as they pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from gateway.protocols.rocketmq.polls.stored_messages import StoredMessages
from support.rocketmq.stored_messages import stored
from support.wires.conversations import bytewise, randomly

CUTS: dict[str, Callable[[bytes], Iterable[bytes]]] = {
    "whole": lambda data: [data],
    "bytewise": bytewise,
    "randomly": lambda data: randomly(data, 7),
}
cut = pytest.mark.parametrize("cut", CUTS)


def count(*pieces: bytes) -> tuple[int, int]:
    stored_messages = StoredMessages()
    for piece in pieces:
        padded = b"before" + piece + b"after"
        stored_messages.add(padded, 6, 6 + len(piece))
    return stored_messages.messages, stored_messages.bytes


@cut
def test_each_message_counts_one_and_the_bytes_of_its_body(cut: str) -> None:
    data = stored(b"x" * 100) + stored(b"") + stored(b"y" * 5000, topic="T" * 127, properties="") + stored(b"z")
    assert count(*CUTS[cut](data)) == (4, 5101)


@cut
@pytest.mark.parametrize(("born", "store"), [(True, False), (False, True), (True, True)])
def test_addresses_of_ipv6_make_heads_longer(cut: str, born: bool, store: bool) -> None:
    data = stored(b"x" * 10, born_v6=born, store_v6=store) * 3 + stored(b"y")
    assert count(*CUTS[cut](data)) == (4, 31)


@cut
@pytest.mark.parametrize("properties", ["", "KEYS\x01k\x02", "UNIQ_KEY\x01" + "u" * 32_000 + "\x02"], ids=["none", "one", "long"])
def test_an_inner_batch_counts_what_it_holds(cut: str, properties: str) -> None:
    data = stored(b"x" * 300, inner=7, properties=properties) + stored(b"y") + stored(b"z" * 100_000, inner=12, properties=properties)
    assert count(*CUTS[cut](data)) == (20, 100_301)


@cut
def test_what_was_given_back_before_is_told_apart(cut: str) -> None:
    data = (
        stored(b"x", reconsumed=3)
        + stored(b"y" * 500)
        + stored(b"z", reconsumed=1, born_v6=True, store_v6=True)
        + stored(b"", born_v6=True)
    )
    counted = StoredMessages()
    for piece in CUTS[cut](data):
        counted.add(piece, 0, len(piece))
    assert (counted.messages, counted.redelivered) == (4, 2)


def test_only_the_property_says_what_an_inner_batch_holds() -> None:
    """Not text in its body, nor the name of another property."""
    assert count(stored(b"a\x02INNER_NUM\x0199\x02b", inner=3)) == (3, 16)
    assert count(stored(b"aINNER_NUM\x0199", inner=3, properties="XINNER_NUM\x0150\x02")) == (3, 13)
    data = stored(b"body", properties="INNER_NUM\x018\x02")
    assert count(data) == (1, 4), "an ordinary message counts one, whatever it says"
    unnamed = stored(b"body", inner=5).replace(b"INNER_NUM", b"OUTER_NUM")
    assert count(unnamed) == (1, 4)


def test_a_message_counts_as_soon_as_its_head_is_there() -> None:
    data = stored(b"x" * 100)
    assert count(data[:87]) == (0, 0)
    assert count(data[:88]) == (1, 100)
    assert count(data + data[:20]) == (1, 100)


@cut
@pytest.mark.parametrize("total", [0, 4, 87, 187])
def test_bytes_that_do_not_look_like_a_message_end_the_counting(cut: str, total: int) -> None:
    good = stored(b"x" * 100)
    data = good + total.to_bytes(4, "big") + good[4:] + good
    assert count(*CUTS[cut](data)) == (1, 100)


def test_random_bytes_do_no_harm() -> None:
    for seed in range(200):
        junk = bytes((seed * 31 + at * at) % 251 for at in range(500))
        messages, _ = count(*randomly(junk, seed))
        assert 0 <= messages <= 5
