"""Several addresses behind a listener: which a client is led to, and when one that has failed is used again. Time is trio's mock clock."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
import trio
import trio.testing

from common.tls.context import upstream_hop
from gateway.listeners.hold_down import GOOD_PROBES, MIN_HOLD_S
from gateway.listeners.unreachable import HELD, NO_ANSWER, REFUSED, NoAnswerError, UnreachableError
from gateway.listeners.upstream import ANSWER_S, FRESH_S, MAX_BACKOFF_S, PROBE_EVERY_S, Upstream
from gateway.listeners.upstreams import DIAL_S, Upstreams
from gateway.protocols.amqp.frames import PROTOCOL_HEADER
from gateway.protocols.amqp.question import QUESTION
from gateway.transport.channel import Channel, Heard
from gateway.transport.channel_io import read_some
from gateway.transport.proxy_protocol import Ends
from support.processes import LOOPBACK

UP, DOWN, HANGS = "up", "down", "hangs"


class Told(Heard):
    """When something was heard, as the test says."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.at = float("-inf")

    def silent_s(self) -> float:
        return trio.current_time() - self.at


class Broker(Upstream):
    """A broker as a test wants it: up, down (refuses), or hanging (takes connections and says nothing)."""

    def __init__(self, port: int, state: str = UP) -> None:
        super().__init__("rabbit", (LOOPBACK, port), question=QUESTION)
        self.state = state
        self.heard = self.told = Told(self.text)
        self.asked_at: list[float] = []
        self.clients = 0

    async def _open(self, ends: Ends | None) -> Channel:
        await trio.sleep(0.001)
        if self.state == DOWN:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        self.clients += 1
        return Channel(socket.socket())

    async def _ask(self) -> None:
        self.asked_at.append(trio.current_time())
        if self.state == HANGS:
            await trio.sleep(ANSWER_S)
            raise NoAnswerError(NO_ANSWER, "it hangs")
        await trio.sleep(0.001)
        if self.state == DOWN:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        self.told.at = trio.current_time()


@dataclass
class Pair:
    """Two brokers, the first preferred."""

    first: Broker = field(default_factory=lambda: Broker(1))
    second: Broker = field(default_factory=lambda: Broker(2))

    def __post_init__(self) -> None:
        self.upstreams = Upstreams("rabbit", [self.first, self.second])

    async def client(self) -> str:
        """Connects a client; which broker it is led to."""
        before = [self.first.clients, self.second.clients]
        (await self.upstreams.dial(None)).close()
        return "first" if self.first.clients > before[0] else "second"

    @asynccontextmanager
    async def probed(self) -> AsyncIterator[None]:
        """As `periodic_tasks.probe_broker` does."""

        async def probe(upstream: Upstream) -> None:
            while True:
                await upstream.probe()
                await trio.sleep(0.25)

        async with trio.open_nursery() as nursery:
            for upstream in self.upstreams.members:
                nursery.start_soon(probe, upstream)
            await trio.sleep(0.1)
            yield
            nursery.cancel_scope.cancel()

    async def until(self, true: Callable[[], bool], within_s: float) -> float:
        began = trio.current_time()
        while not true():
            assert trio.current_time() - began < within_s
            await trio.sleep(0.05)
        return trio.current_time() - began


@pytest.fixture
def pair() -> Pair:
    return Pair()


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.getMessage(), record.fields["upstream"]) for record in caplog.records]  # type: ignore[attr-defined]


async def test_new_connections_go_to_the_first_address_that_answers(pair: Pair, autojump_clock: trio.testing.MockClock) -> None:
    assert [await pair.client() for _ in range(3)] == ["first"] * 3
    pair.first.state = DOWN
    await trio.sleep(1)
    assert [await pair.client() for _ in range(3)] == ["second"] * 3, "the one that finds out is led on too"
    assert (pair.upstreams.ok, pair.upstreams.why, pair.upstreams.switched) == (True, "", 1)


async def test_the_client_that_finds_a_hanging_broker_is_led_on_within_the_time_of_a_probe(
    pair: Pair, autojump_clock: trio.testing.MockClock
) -> None:
    async with pair.probed():
        pair.first.state = HANGS
        await trio.sleep(1)
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(pair.client)
        assert trio.current_time() - began <= ANSWER_S + 0.1
        assert pair.second.clients == 50
        assert pair.first.why_label == NO_ANSWER
        began = trio.current_time()
        assert await pair.client() == "second"
        assert trio.current_time() - began < 0.1, "whoever comes later does not wait"


async def test_clients_that_come_together_have_the_broker_asked_once(pair: Pair, autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(200):
            nursery.start_soon(pair.client)
    assert (len(pair.first.asked_at), pair.first.clients) == (1, 200)
    await pair.client()
    assert len(pair.first.asked_at) == 1, "it was heard of just now"
    await trio.sleep(FRESH_S)
    await pair.client()
    assert len(pair.first.asked_at) == 2


async def test_one_address_alone_is_dialled_as_before(autojump_clock: trio.testing.MockClock) -> None:
    one = Broker(1)
    upstreams = Upstreams("rabbit", [one])
    (await upstreams.dial(None)).close()
    assert one.asked_at == [], "nobody else could take the client: nothing is gained by asking first"
    one.state = DOWN
    with pytest.raises(UnreachableError, match=r"the broker behind this gateway \(127\.0\.0\.1:1\) cannot be reached: Connection refused"):
        await upstreams.dial(None)
    one.state = UP
    await trio.sleep(MAX_BACKOFF_S)
    await one.probe()
    assert one.ok is True, "and it is not held: nobody could stand in"


async def test_where_none_answers_each_reason_is_told_and_few_are_dialled(pair: Pair, autojump_clock: trio.testing.MockClock) -> None:
    pair.first.state, pair.second.state = DOWN, HANGS
    with pytest.raises(UnreachableError) as caught:
        await pair.client()
    assert str(caught.value) == (
        "none of the brokers behind this gateway can be reached: 127.0.0.1:1: Connection refused; 127.0.0.1:2: it hangs"
    )
    assert (pair.upstreams.ok, pair.upstreams.why_label) == (False, REFUSED)
    asked = len(pair.first.asked_at) + len(pair.second.asked_at)
    for _ in range(100):
        with pytest.raises(UnreachableError):
            await pair.client()
    assert len(pair.first.asked_at) + len(pair.second.asked_at) - asked <= 4


async def test_an_address_that_has_failed_returns_after_its_hold_and_good_probes(
    pair: Pair, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with pair.probed():
        assert await pair.client() == "first"
        pair.first.state = DOWN
        await pair.until(lambda: pair.first.ok is False, within_s=PROBE_EVERY_S + 1)
        failed_at = trio.current_time()
        pair.first.state = UP
        await pair.until(lambda: pair.first.held, within_s=MAX_BACKOFF_S + 1)
        asked = len(pair.first.asked_at)
        while pair.first.ok is False:
            assert await pair.client() == "second"
            assert pair.first.describe(preferred=False).state == "held"
            await trio.sleep(0.1)
        assert trio.current_time() - failed_at >= MIN_HOLD_S
        assert len(pair.first.asked_at) - asked >= GOOD_PROBES - 1
        assert await pair.client() == "first"
    first, second = pair.first.text, pair.second.text
    assert events(caplog) == [
        ("upstream_unreachable", first), ("upstream_switched", second), ("upstream_reachable", first), ("upstream_switched", first),
    ]  # fmt: skip
    assert [record.fields.get("reason") for record in caplog.records if record.getMessage() == "upstream_switched"] == [  # type: ignore[attr-defined]
        REFUSED, None,
    ]  # fmt: skip


@pytest.mark.slow
async def test_a_broker_that_comes_and_goes_does_not_take_the_clients_with_it(pair: Pair, autojump_clock: trio.testing.MockClock) -> None:
    """An hour of 10 s up, 10 s down."""
    led: list[str] = []
    async with pair.probed():
        for period in range(360):
            pair.first.state = DOWN if period % 2 else UP
            for _ in range(5):
                await trio.sleep(2)
                led.append(await pair.client())
    changes = sum(one != other for one, other in pairwise(led))
    assert 0 < changes == pair.upstreams.switched
    assert changes <= 40, "without a hold-down some 180"
    assert led[-400:].count("second") > 360


async def test_a_held_address_is_used_at_once_where_the_other_fails(pair: Pair, autojump_clock: trio.testing.MockClock) -> None:
    async with pair.probed():
        pair.first.state = DOWN
        await pair.client()
        pair.first.state = UP
        await pair.until(lambda: pair.first.held, within_s=MAX_BACKOFF_S + 1)
        assert (pair.first.why_label, pair.upstreams.ok) == (HELD, True)
        pair.second.state = DOWN
        await trio.sleep(FRESH_S)
        assert await pair.client() == "first"
        assert (pair.first.ok, pair.second.ok, pair.upstreams.ok) == (True, False, True)


async def test_a_hold_is_void_where_nobody_stands_in(pair: Pair, autojump_clock: trio.testing.MockClock) -> None:
    """Both were down: the first that answers is used, as with one address alone."""
    async with pair.probed():
        await pair.client()
        pair.first.state = pair.second.state = DOWN
        await pair.until(lambda: pair.upstreams.ok is False, within_s=2 * PROBE_EVERY_S)
        pair.second.state = UP
        await pair.until(lambda: pair.upstreams.ok is True, within_s=MAX_BACKOFF_S + 0.5)
        assert await pair.client() == "second"


async def test_a_connection_that_ended_without_a_word_has_the_broker_asked_at_once(
    pair: Pair, autojump_clock: trio.testing.MockClock
) -> None:
    async with pair.probed():
        await trio.sleep(0.5)
        pair.first.state = DOWN
        pair.first.heard.doubted = True
        assert await pair.until(lambda: pair.first.ok is False, within_s=PROBE_EVERY_S) < 1.5
        assert await pair.client() == "second"


async def test_an_address_that_was_never_in_use_is_used_as_soon_as_it_answers_twice(
    pair: Pair, autojump_clock: trio.testing.MockClock
) -> None:
    """At the start of a machine the second may be there before the first."""
    pair.first.state = DOWN
    async with pair.probed():
        await trio.sleep(0.3)
        assert await pair.client() == "second"
        pair.first.state = UP
        await pair.until(lambda: pair.first.ok is True, within_s=MAX_BACKOFF_S + 3)
        assert await pair.client() == "first"


async def test_running_out_of_our_own_descriptors_leads_nobody_on(
    pair: Pair, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none_left(_: Ends | None) -> Channel:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(pair.first, "_open", none_left)
    with pytest.raises(OSError, match="Too many open files"):
        await pair.client()
    assert (pair.first.ok, pair.second.asked_at) == (True, [])


# ---- how long a client waits, and what is counted of it ----------------------------------------------------------------


class Mute(Upstream):
    """A broker's address where a connection is never made, asked as Upstream itself asks."""

    def __init__(self, port: int) -> None:
        super().__init__("rabbit", (LOOPBACK, port), question=QUESTION)
        self.opened = 0

    async def _open(self, ends: Ends | None) -> Channel:
        self.opened += 1
        await trio.sleep_forever()
        raise AssertionError


@pytest.mark.parametrize(("addresses", "within_s"), [(2, 2 * ANSWER_S), (16, DIAL_S)])
async def test_where_all_hang_a_client_is_refused_in_time_and_none_is_asked_twice(
    addresses: int, within_s: float, autojump_clock: trio.testing.MockClock
) -> None:
    members = [Mute(1 + number) for number in range(addresses)]
    began = trio.current_time()
    with pytest.raises(UnreachableError, match="none of the brokers behind this gateway") as caught:
        await Upstreams("rabbit", members).dial(None)
    assert trio.current_time() - began == pytest.approx(within_s, abs=0.01)
    assert [each.opened for each in members[:2]] == [1, 1]
    assert f"127.0.0.1:1: no connection within {ANSWER_S:g} s; 127.0.0.1:2: no connection" in str(caught.value)


async def test_a_dial_that_takes_too_long_is_given_up_and_says_so(
    pair: Pair, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers, and the client's own connection is never made."""

    async def never(_: Ends | None) -> Channel:
        await trio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr(pair.first, "_open", never)
    began = trio.current_time()
    with pytest.raises(UnreachableError, match=r"^none of the brokers behind this gateway has answered within 10 s$"):
        await pair.client()
    assert trio.current_time() - began == pytest.approx(DIAL_S, abs=0.01)


async def test_who_waits_for_an_answer_that_is_given_up_asks_again(
    pair: Pair, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client that asks may be gone before there is an answer: then nothing is known, and nobody is led there."""
    pair.first.state = HANGS
    led: list[str] = []

    async def second_client() -> None:
        led.append(await pair.client())

    async with trio.open_nursery() as nursery:
        with trio.move_on_after(1):
            nursery.start_soon(second_client)
            await pair.first.confirm()
    assert (led, len(pair.first.asked_at)) == (["second"], 2)


async def test_a_client_that_is_refused_counts_once_as_spared(autojump_clock: trio.testing.MockClock) -> None:
    members = [Broker(1 + number, DOWN) for number in range(3)]
    upstreams = Upstreams("rabbit", members)
    with pytest.raises(UnreachableError):
        await upstreams.dial(None)
    for each in members:
        each._retry_at = trio.current_time() + 1
    assert upstreams.dials() == {"ok": 0, "failed": 3, "spared": 0}
    for _ in range(10):
        with pytest.raises(UnreachableError):
            await upstreams.dial(None)
    assert upstreams.dials() == {"ok": 0, "failed": 3, "spared": 10}


async def test_an_address_that_nobody_stands_in_for_is_not_shown_as_held(pair: Pair, autojump_clock: trio.testing.MockClock) -> None:
    assert await pair.client() == "first"
    pair.first.state = DOWN
    await trio.sleep(1)
    assert await pair.client() == "second"
    assert pair.first.describe(preferred=False).held_seconds > 0
    pair.second.state = DOWN
    await trio.sleep(1)
    with pytest.raises(UnreachableError):
        await pair.client()
    assert [each.held_seconds for each in pair.upstreams.describe()] == [0.0, 0.0]
    alone = Broker(1)
    await alone.probe()
    alone.state = DOWN
    await trio.sleep(PROBE_EVERY_S)
    await alone.probe()
    assert (alone.ok, alone.describe(preferred=False).held_seconds) == (False, 0.0)


# ---- reload --------------------------------------------------------------------------------------------------------------


async def test_a_reload_keeps_what_is_known_of_addresses_that_stay(
    pair: Pair, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    await pair.client()
    dials = pair.upstreams.dials()
    pair.upstreams.move([(LOOPBACK, 2), (LOOPBACK, 3)], None)
    first, other = pair.upstreams.members
    assert (first, other.address, other.ok) == (pair.second, (LOOPBACK, 3), None)
    assert pair.upstreams.dials() == dials, "no counter goes back"
    assert await pair.client() == "second"
    assert events(caplog) == [("upstream_switched", pair.second.text)]
    assert caplog.records[0].fields["reason"] == "removed"  # type: ignore[attr-defined]
    pair.first.heard.doubted = False
    pair.first.state = DOWN
    await pair.first.probe()
    assert pair.upstreams.preferred is pair.second, "what becomes of one that is gone is nobody's affair"


async def test_one_address_becomes_several_and_one_again(autojump_clock: trio.testing.MockClock) -> None:
    one = Broker(1)
    upstreams = Upstreams("rabbit", [one])
    (await upstreams.dial(None)).close()
    upstreams.move([(LOOPBACK, 9), (LOOPBACK, 1)], None)
    assert [upstream.text for upstream in upstreams.members] == ["127.0.0.1:9", "127.0.0.1:1"]
    assert upstreams.members[1] is one
    upstreams.move([(LOOPBACK, 1)], None)
    assert upstreams.members == [one]
    upstreams.move([(LOOPBACK, 7)], None)
    assert (one.text, one.ok) == ("127.0.0.1:7", None)


@pytest.mark.parametrize("beside", [[], [(LOOPBACK, 2)]])
def test_connections_to_an_address_that_is_taken_out_and_put_back_are_counted_all_the_time(beside: list[tuple[str, int]]) -> None:
    upstreams = Upstreams.at("rabbit", [(LOOPBACK, 1), *beside])
    heard = upstreams.members[0].heard
    heard.connections += 3
    upstreams.move([(LOOPBACK, 9), *beside], None)
    assert upstreams.members[0].describe(preferred=False).connections == 0
    upstreams.move([(LOOPBACK, 1), *beside], None)
    assert upstreams.members[0].describe(preferred=False).connections == 3
    heard.connections -= 3
    assert upstreams.members[0].describe(preferred=False).connections == 0
    upstreams.move([(LOOPBACK, 9), *beside], None)
    upstreams.move([(LOOPBACK, 1), *beside], None)
    assert upstreams.members[0].heard is not heard, "with its last connection it is forgotten"


def test_each_address_has_its_own_name_in_tls_unless_one_is_given() -> None:
    addresses = [("a.example", 5671), ("b.example.", 5671)]
    upstreams = Upstreams.at("rabbit", addresses, tls=upstream_hop(None, None, None, None, "full"))
    assert [each.tls and each.tls.server_name for each in upstreams.members] == ["a.example", "b.example"]
    upstreams.take_tls(upstream_hop(None, None, None, "cluster.example", "full"))
    assert [each.tls and each.tls.server_name for each in upstreams.members] == ["cluster.example"] * 2
    assert upstreams.tls is not None
    first = upstreams.members[0].tls
    assert first is not None
    assert first.failures is upstreams.tls.failures, "failed handshakes are counted per listener"


class Server:
    """A broker's port: accepts, reads what comes first, and answers it, or closes."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.heard: list[bytes] = []
        self.sock = socket.create_server((LOOPBACK, 0))
        self.address: tuple[str, int] = self.sock.getsockname()

    async def run(self) -> None:
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(self.sock))
        await trio.serve_listeners(self._serve, [listener])

    async def _serve(self, stream: trio.SocketStream) -> None:
        self.heard.append(await stream.receive_some(8))
        if self.answer:
            await stream.send_all(self.answer)
            await stream.receive_some(1)
        await stream.aclose()


async def test_a_broker_that_closes_in_place_of_an_answer_leaves_the_client_to_the_next_one() -> None:
    """As RabbitMQ does when it dies: the connections in its accept queue are reset."""
    first, second = Server(b""), Server(b"\x01start")
    upstreams = Upstreams.at("rabbit", [first.address, second.address])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(first.run)
        nursery.start_soon(second.run)
        channel = await upstreams.dial(None, PROTOCOL_HEADER)
        assert channel.sock.getpeername() == second.address
        assert await read_some(channel) == b"\x01start", "what was looked at is still there"
        assert (first.heard, second.heard) == ([PROTOCOL_HEADER], [PROTOCOL_HEADER])
        assert [each.heard.doubted for each in upstreams.members] == [True, False]
        assert upstreams.dials() == {"ok": 1, "failed": 1, "spared": 0}
        channel.close()
        second.answer = b""
        with pytest.raises(UnreachableError, match=r"it closed the connection and did not answer; does send_proxy_protocol \(none\) fit"):
            await upstreams.dial(None, PROTOCOL_HEADER)
        nursery.cancel_scope.cancel()


async def test_a_broker_that_takes_a_connection_and_hangs_leaves_the_client_to_the_next_one(autojump_clock: trio.testing.MockClock) -> None:
    autojump_clock.autojump_threshold = 0.2  # the sockets are real
    first, second = socket.create_server((LOOPBACK, 0)), Server(b"\x01start")
    with first:
        upstreams = Upstreams.at("rabbit", [first.getsockname(), second.address])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(second.run)
            began = trio.current_time()
            (await upstreams.dial(None, PROTOCOL_HEADER)).close()
            assert ANSWER_S <= trio.current_time() - began < DIAL_S
            assert second.heard == [PROTOCOL_HEADER]
            nursery.cancel_scope.cancel()
