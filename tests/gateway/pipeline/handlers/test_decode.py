"""Decode, between reads and parts: however a stream is cut into reads, the same requests and all of its bytes come out of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.counting.accounts import Accounts
from gateway.pipeline.handlers.decode import BRIDGE_READ_ABOVE_BYTES, JOIN_REST_BELOW_BYTES, MAX_BRIDGE_STEPS, Decode
from gateway.pipeline.parts import REQUEST, Part
from gateway.pipeline.pipeline import Batch
from limiter.credit import Credit
from support.amqp import frames as amqp
from support.rocketmq import frames as rocketmq
from support.wires.conversations import Talk

PROTOCOLS = ("amqp", "rocketmq")
BODIES = st.lists(st.sampled_from((0, 1, 200, 4_096, 4_097, 16_384, 140_000)), min_size=1, max_size=30)
READS = st.lists(
    st.one_of(st.integers(1, 300), st.integers(BRIDGE_READ_ABOVE_BYTES - 2, BRIDGE_READ_ABOVE_BYTES + 2), st.integers(1, 262_144)),
    min_size=1,
    max_size=30,
)


def message(protocol: str, number: int, size: int) -> bytes:
    if protocol == "amqp":
        return amqp.publish(1, ("orders", "bills")[number % 3 == 2], bytes(size), message_id=f"{number:06}")
    return rocketmq.send(("orders", "bills")[number % 3 == 2], bytes(size), opaque=number)


class Reader:
    """A connection's Decode, after the handshake, with `room` requests of credit each time."""

    def __init__(self, protocol: str, room: int) -> None:
        talk = Talk(protocol)
        if protocol == "amqp":
            talk.client(amqp.greeting(channels=(1,), heartbeat=0))
            talk.broker(amqp.broker_opens())
        self.decode = Decode(talk.conversation, Credit(room, 1), Accounts(), Credit(1 << 20, 1))
        self.room = room
        self.parts: list[Part] = []

    def read(self, data: bytes) -> None:
        """One read, and as many turns without one as it takes to decode all of it that is whole."""
        batch = Batch(self, data, 1)
        while True:
            assert self.decode.carry(batch)
            self.parts += batch.parts
            assert sum(part.count for part in batch.parts if part.kind == REQUEST) <= self.room
            if not self.decode.pending:
                return
            assert batch.parts, "every turn gets further"
            batch = Batch(self, b"", 1)

    def requests(self) -> dict[str, tuple[int, int]]:
        """Messages and their bytes, by topic."""
        found: dict[str, tuple[int, int]] = {}
        for part in self.parts:
            if part.kind == REQUEST:
                assert part.key is not None
                messages, size = found.get(part.key.text, (0, 0))
                found[part.key.text] = (messages + part.count * part.messages, size + part.count * part.size)
        return found

    def passed(self) -> bytes:
        return b"".join(part.data[part.start : part.end] for part in self.parts)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(sizes=BODIES, reads=READS, room=st.sampled_from((1, 3, 1_000)))
def test_reads_of_any_length_lose_and_count_nothing_twice(protocol: str, sizes: list[int], reads: list[int], room: int) -> None:
    stream = b"".join(message(protocol, number, size) for number, size in enumerate(sizes))
    whole = Reader(protocol, 1_000)
    whole.read(stream)
    assert whole.passed() == stream
    cut = Reader(protocol, room)
    at = 0
    for size in [*reads, len(stream)]:
        if at < len(stream):
            cut.read(stream[at : at + size])
            at += size
            assert stream[: len(cut.passed()) + cut.decode.undecoded()] == (cut.passed() + undecoded(cut.decode))
    assert cut.passed() == stream
    assert cut.requests() == whole.requests()
    assert cut.decode.undecoded() == 0


def undecoded(decode: Decode) -> bytes:
    return decode.rest[decode.at :] + b"".join(decode.later)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("size", [200, 16_384])
def test_a_long_read_is_not_copied_to_complete_one_message(protocol: str, size: int) -> None:
    """Wherever the read before has ended; only what begins before a read and ends in it is joined, one message."""
    whole = message(protocol, 0, size)
    read = 4 * BRIDGE_READ_ABOVE_BYTES
    stream = b"".join(message(protocol, number, size) for number in range(5 * read // size))
    for end in range(read, read + len(whole) + 2, 1 if size == 200 else 97):
        reader = Reader(protocol, 1_000)
        reader.read(stream[:end])
        assert len(reader.decode.rest) <= JOIN_REST_BELOW_BYTES
        del reader.parts[:]
        long = stream[end : end + read]
        reader.read(long)
        joined = [part for part in reader.parts if part.data is not long]
        assert sum(part.end - part.start for part in joined) <= len(whole) + MAX_BRIDGE_STEPS, f"cut at {end}"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_whole_messages_before_bad_bytes_pass_first(protocol: str) -> None:
    """Wherever the reads before them have ended; and nothing behind them."""
    good = message(protocol, 0, 200)
    bad = b"\xff" * 2 * BRIDGE_READ_ABOVE_BYTES
    for cut in range(1, len(good) + 4):
        reader = Reader(protocol, 1_000)
        for part in ((good + bad)[:cut], (good + bad)[cut:], good):
            reader.read(part)
        assert reader.decode.fault is not None
        assert (reader.passed(), reader.decode.undecoded()) == (good, 0), f"cut at {cut}"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_stands_before_bad_bytes_is_counted_once(protocol: str) -> None:
    """Also what begins in a long read, behind a message that was completed by it."""
    good, other = message(protocol, 0, 200), message(protocol, 1, 200)
    for cut in range(1, len(good) + len(other), 7):
        reader = Reader(protocol, 1_000)
        stream = good + other + b"\xff" * 2 * BRIDGE_READ_ABOVE_BYTES
        reader.read(stream[:cut])
        reader.read(stream[cut:])
        accounts = reader.decode.accounts
        accounts.fold(1)
        assert sum(totals.received for totals in accounts.topics.values()) == 2, f"cut at {cut}"
        assert (good + other).startswith(reader.passed())


def test_a_batch_that_ends_in_a_long_read_takes_its_messages_of_the_room() -> None:
    """Otherwise a turn would decode almost twice what there is room for."""
    batch = rocketmq.send("orders", rocketmq.batch_body(*[b"x"] * 400), code=320, batch=True, opaque=1)
    stream = batch + b"".join(message("rocketmq", 2 + number, 200) for number in range(500))
    reader = Reader("rocketmq", 450)
    assert reader.decode.carry(Batch(reader, stream[:1000], 1))
    long = Batch(reader, stream[1000:], 1)
    assert reader.decode.carry(long)
    assert len(stream) - 1000 >= BRIDGE_READ_ABOVE_BYTES
    assert sum(part.count * part.messages for part in long.parts if part.kind == REQUEST) == 450
