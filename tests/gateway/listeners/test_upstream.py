"""A broker that is not there: dials are few, spread out and bounded, and everybody hears the reason at once. Time is trio's mock clock."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable
from functools import partial

import pytest
import trio
import trio.testing

from gateway.listeners.upstream import (
    CONNECT_TIMEOUT_S,
    MAX_BACKOFF_S,
    MAX_DIALS,
    MIN_BACKOFF_S,
    PROBE_EVERY_S,
    UnreachableError,
    Upstream,
    reason,
)
from gateway.transport.channel import Channel
from gateway.transport.proxy_protocol import Ends
from gateway.transport.tls.context import upstream_hop

REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")


class FakeUpstream(Upstream):
    """Dials nothing: `answer` says what becomes of each, after `takes_s`."""

    def __init__(self, answer: Callable[[], Exception | None], takes_s: float = 0.0) -> None:
        super().__init__("rabbit", ("127.0.0.1", 5673))
        self.answer = answer
        self.takes_s = takes_s
        self.under_way = 0
        self.most_under_way = 0
        self.dialled_at: list[float] = []
        self.probed_at: list[float] = []

    async def _connect(self) -> socket.socket:
        self.probed_at.append(trio.current_time())
        await trio.sleep(self.takes_s)
        error = self.answer()
        if error is not None:
            raise error
        return socket.socket()

    async def _open(self, ends: Ends | None) -> Channel:
        self.dialled_at.append(trio.current_time())
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await trio.sleep(self.takes_s)
        finally:
            self.under_way -= 1
        error = self.answer()
        if error is not None:
            raise error
        return Channel(socket.socket())


async def fails(upstream: Upstream) -> str:
    with pytest.raises(UnreachableError) as caught:
        await upstream.dial(None)
    return str(caught.value)


async def test_while_the_broker_is_down_thousands_of_clients_are_a_few_dials(autojump_clock: trio.testing.MockClock) -> None:
    """docs/design/reliability.md F22: 2,000 clients a second for 30 s."""
    upstream = FakeUpstream(lambda: REFUSED)
    began = trio.current_time()
    for _ in range(600):
        assert "(127.0.0.1:5673) cannot be reached: Connection refused" in await fails(upstream)
        for _ in range(99):
            with pytest.raises(UnreachableError):
                await upstream.dial(None)
        await trio.sleep(0.05)
    assert 30 / MAX_BACKOFF_S <= len(upstream.dialled_at) < 60
    assert upstream.dials == {"ok": 0, "failed": len(upstream.dialled_at), "spared": 60_000 - len(upstream.dialled_at)}
    gaps = [later - earlier for earlier, later in zip(upstream.dialled_at, upstream.dialled_at[1:], strict=False)]
    assert max(gaps) <= MAX_BACKOFF_S + 0.051
    assert trio.current_time() - began == pytest.approx(30)


async def test_while_one_probes_nobody_waits_for_it(autojump_clock: trio.testing.MockClock) -> None:
    upstream = FakeUpstream(lambda: REFUSED)
    await fails(upstream)
    await trio.sleep(MAX_BACKOFF_S)
    upstream.takes_s = 5.0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fails, upstream)
        await trio.sleep(1)
        began = trio.current_time()
        await fails(upstream)
        assert trio.current_time() == began


async def test_dials_of_a_broker_that_is_up_are_bounded_and_nobody_is_lost(autojump_clock: trio.testing.MockClock) -> None:
    upstream = FakeUpstream(lambda: None, takes_s=0.1)
    reached = 0

    async def dial() -> None:
        nonlocal reached
        (await upstream.dial(None)).close()
        reached += 1

    async with trio.open_nursery() as nursery:
        for _ in range(1000):
            nursery.start_soon(dial)
    assert (reached, upstream.most_under_way) == (1000, MAX_DIALS)


async def test_clients_that_wait_for_a_dial_hear_of_the_failure_of_the_dials_before_theirs(autojump_clock: trio.testing.MockClock) -> None:
    upstream = FakeUpstream(lambda: TimeoutError(errno.ETIMEDOUT, "no connection within 5 s"), takes_s=CONNECT_TIMEOUT_S)
    async with trio.open_nursery() as nursery:
        for _ in range(1000):
            nursery.start_soon(fails, upstream)
    assert trio.current_time() <= CONNECT_TIMEOUT_S + 0.1
    assert len(upstream.dialled_at) == MAX_DIALS


async def test_dials_that_fail_together_have_failed_once(autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture) -> None:
    upstream = FakeUpstream(lambda: REFUSED, takes_s=0.01)
    upstream.ok = True
    async with trio.open_nursery() as nursery:
        for _ in range(MAX_DIALS):
            nursery.start_soon(fails, upstream)
    assert upstream.dials["failed"] == MAX_DIALS
    assert [record.getMessage() for record in caplog.records] == ["upstream_unreachable"]
    await trio.sleep(MIN_BACKOFF_S)
    await upstream.probe(in_use=False)
    assert upstream.dials["failed"] == MAX_DIALS + 1, "the next probe is as near as after one failure"


async def test_a_dial_from_before_says_nothing_about_a_broker_that_was_reached_since(autojump_clock: trio.testing.MockClock) -> None:
    answers: list[Exception | None] = [None, TimeoutError(errno.ETIMEDOUT, "no connection within 5 s")]
    upstream = FakeUpstream(lambda: answers.pop(0), takes_s=5.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fails, upstream)
        await trio.sleep(1)
        upstream.takes_s = 0.1
        (await upstream.dial(None)).close()
    assert (upstream.ok, upstream.why, upstream.dials) == (True, "", {"ok": 1, "failed": 1, "spared": 0})


async def test_an_older_dial_that_ends_does_not_let_a_second_probe_begin(autojump_clock: trio.testing.MockClock) -> None:
    upstream = FakeUpstream(lambda: REFUSED, takes_s=3.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fails, upstream)  # until 3
        await trio.sleep(1)
        upstream.takes_s = 0.5
        await fails(upstream)  # until 1.5: down
        await trio.sleep(0.5)
        upstream.takes_s = 4.0
        nursery.start_soon(partial(upstream.probe, in_use=False))  # until 6
        await trio.sleep(3)
        assert (len(upstream.dialled_at), upstream.under_way) == (3, 1)
        await fails(upstream)
        await upstream.probe(in_use=False)
        assert len(upstream.dialled_at) == 3, "while one probes nobody else dials"


@pytest.mark.parametrize("name", [".example.com", "a..b", "a" * 64 + ".example"])
async def test_a_name_that_tls_or_the_resolver_takes_for_an_error_is_an_unreachable_broker(name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        for upstream in (
            Upstream("rabbit", server.getsockname(), tls=upstream_hop(None, None, None, name, "none")),
            Upstream("rabbit", (name, 5672)),
        ):
            assert "cannot be reached: " in await fails(upstream)
            assert upstream.ok is False
            await upstream.probe(in_use=False)  # raises nothing


async def test_success_ends_the_backoff(autojump_clock: trio.testing.MockClock) -> None:
    answers: list[Exception | None] = [REFUSED, None, None]
    upstream = FakeUpstream(lambda: answers.pop(0))
    await fails(upstream)
    await trio.sleep(1)
    await upstream.probe(in_use=False)
    assert (upstream.ok, upstream.why) == (True, "")
    (await upstream.dial(None)).close()
    assert upstream.dials == {"ok": 2, "failed": 1, "spared": 0}


async def test_running_out_of_our_own_descriptors_says_nothing_about_the_broker() -> None:
    upstream = FakeUpstream(lambda: OSError(errno.EMFILE, "Too many open files"))
    with pytest.raises(OSError, match="Too many open files"):
        await upstream.dial(None)
    assert upstream.ok is None


async def test_a_name_that_does_not_resolve_and_a_port_nobody_listens_on_are_told_in_the_systems_words() -> None:
    text = await fails(Upstream("rabbit", ("no-such-host.invalid", 5672)))
    assert "Name or service not known" in text or "Temporary failure in name resolution" in text  # the second where there is no resolver
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = gone.getsockname()
    assert (await fails(Upstream("rabbit", address))).endswith(f"(127.0.0.1:{address[1]}) cannot be reached: Connection refused")


async def test_of_two_addresses_the_one_that_answers_is_taken() -> None:
    """docs/design/reliability.md F35: localhost is ::1 and 127.0.0.1; only one of them listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        channel = await Upstream("rabbit", ("localhost", server.getsockname()[1])).dial(None)
        assert channel.sock.getpeername()[:2] == server.getsockname()
        channel.close()


def test_a_timeout_keeps_its_own_words() -> None:
    assert reason(TimeoutError(errno.ETIMEDOUT, "no connection within 5 s")) == "no connection within 5 s"


async def test_a_broker_that_stays_away_is_a_line_a_minute_and_so_is_its_return(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sluice")
    there = False
    upstream = FakeUpstream(lambda: None if there else REFUSED)
    for _ in range(600):  # 150 s, a probe each time one is due
        await upstream.probe(in_use=False)
        await trio.sleep(0.25)
    assert upstream.dials["failed"] > 30
    there = True
    await trio.sleep(MAX_BACKOFF_S)
    await upstream.probe(in_use=False)
    assert [record.getMessage() for record in caplog.records] == ["upstream_unreachable"] * 3 + ["upstream_reachable"]
    assert caplog.records[3].fields["unreachable_s"] == pytest.approx(150 + MAX_BACKOFF_S)  # type: ignore[attr-defined]


# ---- looks: a broker that was there, and that nobody dials ------------------------------------------------------------------


async def probed(upstream: Upstream, seconds: float, *, in_use: bool = False) -> None:
    """As `housekeeping.probe_broker` does, for so long."""
    for _ in range(round(seconds * 4)):
        await upstream.probe(in_use=in_use)
        await trio.sleep(0.25)


async def test_a_broker_that_goes_while_nobody_dials_is_missed(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    there = True
    upstream = FakeUpstream(lambda: None if there else REFUSED)
    await probed(upstream, 0.25)
    there = False
    await probed(upstream, PROBE_EVERY_S + 0.5)
    assert (upstream.ok, upstream.why) == (False, "Connection refused")
    assert [record.getMessage() for record in caplog.records] == ["upstream_unreachable"]
    there = True
    await probed(upstream, MAX_BACKOFF_S + 0.5)
    assert upstream.ok is True


async def test_a_broker_that_nobody_uses_is_looked_for_every_few_seconds_and_not_dialled(autojump_clock: trio.testing.MockClock) -> None:
    upstream = FakeUpstream(lambda: None)
    await probed(upstream, 12 * PROBE_EVERY_S)
    assert (len(upstream.dialled_at), len(upstream.probed_at)) == (1, 11)
    assert upstream.dials == {"ok": 1, "failed": 0, "spared": 0}


async def test_looks_that_succeed_do_not_hide_dials_that_fail(autojump_clock: trio.testing.MockClock) -> None:
    """A broker that takes connections, and says no word of TLS to any."""
    upstream = FakeUpstream(lambda: None)
    await probed(upstream, 0.25)
    upstream.answer = lambda: REFUSED if upstream.under_way == 0 and upstream.takes_s else None
    upstream.takes_s = 5.0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fails, upstream)
        await trio.sleep(1)
        upstream.takes_s = 0.0
        for _ in range(3):
            await trio.sleep(1)
            await upstream._probe_unused()
        upstream.takes_s = 5.0
    assert (upstream.ok, upstream.dials["failed"]) == (False, 1)


async def test_a_broker_to_which_a_connection_is_open_is_not_looked_for(autojump_clock: trio.testing.MockClock) -> None:
    upstream = FakeUpstream(lambda: None)
    await probed(upstream, 4 * PROBE_EVERY_S, in_use=True)
    assert upstream.probed_at == []
    closed = trio.current_time()
    await probed(upstream, 4 * PROBE_EVERY_S)
    assert upstream.probed_at[0] == pytest.approx(closed + PROBE_EVERY_S, abs=0.3)


async def test_clients_that_come_and_go_are_as_good_as_looks(autojump_clock: trio.testing.MockClock) -> None:
    upstream = FakeUpstream(lambda: None)
    for _ in range(20):
        (await upstream.dial(None)).close()
        await probed(upstream, PROBE_EVERY_S - 1)
    assert upstream.probed_at == []


async def test_a_look_that_began_before_a_dial_says_nothing_against_it(autojump_clock: trio.testing.MockClock) -> None:
    answers: list[Exception | None] = [None, None, TimeoutError(errno.ETIMEDOUT, "no connection within 5 s")]
    upstream = FakeUpstream(lambda: answers.pop(0))
    await upstream.probe(in_use=False)
    await trio.sleep(PROBE_EVERY_S)
    async with trio.open_nursery() as nursery:
        upstream.takes_s = 5.0
        nursery.start_soon(partial(upstream.probe, in_use=False))
        await trio.sleep(1)
        upstream.takes_s = 0.1
        (await upstream.dial(None)).close()
    assert (upstream.ok, len(upstream.probed_at)) == (True, 1)


async def test_a_look_without_a_descriptor_says_nothing_about_the_broker(autojump_clock: trio.testing.MockClock) -> None:
    answers: list[Exception | None] = [None, OSError(errno.EMFILE, "Too many open files")]
    upstream = FakeUpstream(lambda: answers.pop(0))
    await probed(upstream, PROBE_EVERY_S + 1)
    assert (upstream.ok, upstream.dials["failed"], answers) == (True, 0, [])


async def test_a_look_says_nothing_to_the_broker() -> None:
    """Neither a PROXY header nor a word of TLS."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        upstream = Upstream("rabbit", server.getsockname(), send_proxy=True, tls=upstream_hop(None, None, None, "localhost", "none"))
        upstream.ok = True
        await upstream.probe(in_use=False)
        connection, _ = server.accept()
        with connection:
            connection.settimeout(5)
            assert connection.recv(100) == b""
    assert upstream.ok is True
