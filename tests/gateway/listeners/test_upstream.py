"""A broker that is not there: dials are few, spread out and bounded, and everybody hears the reason at once. Time is trio's mock clock."""

from __future__ import annotations

import errno
import logging
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
import trio
import trio.testing

from common.tls.context import upstream_hop
from gateway.listeners.connecting import CONNECT_TIMEOUT_S, UNSENT_BYTES
from gateway.listeners.tls_handshake import TlsHandshakeError
from gateway.listeners.unreachable import NoAnswerError, UnreachableError, reason
from gateway.listeners.upstream import (
    ANSWER_S,
    JITTER,
    MAX_BACKOFF_S,
    MAX_DIALS,
    MIN_BACKOFF_S,
    PROBE_EVERY_S,
    Upstream,
)
from gateway.listeners.upstreams import Upstreams
from gateway.protocols.amqp.question import QUESTION as AMQP
from gateway.protocols.rocketmq.question import QUESTION as ROCKETMQ
from gateway.transport import proxy_protocol
from gateway.transport.channel import Channel, Heard
from gateway.transport.proxy_protocol import Ends
from support.brokers.stand_ins import StandIn, rabbitmq, rocketmq
from support.processes import LOOPBACK, wait_until
from support.wires.receiving import receive_exactly

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
    upstreams = Upstreams("rabbit", [upstream])
    began = trio.current_time()
    for _ in range(600):
        for _ in range(100):
            with pytest.raises(UnreachableError, match=r"\(127\.0\.0\.1:5673\) cannot be reached: Connection refused"):
                await upstreams.dial(None)
        await trio.sleep(0.05)
    assert 30 / MAX_BACKOFF_S <= len(upstream.dialled_at) < 60
    assert upstreams.dials() == {"ok": 0, "failed": len(upstream.dialled_at), "spared": 60_000 - len(upstream.dialled_at)}
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
    await upstream.probe()
    assert upstream.dials["failed"] == MAX_DIALS + 1, "the next probe is as near as after one failure"


async def test_a_dial_from_before_says_nothing_about_a_broker_that_was_reached_since(autojump_clock: trio.testing.MockClock) -> None:
    answers: list[Exception | None] = [None, TimeoutError(errno.ETIMEDOUT, "no connection within 5 s")]
    upstream = FakeUpstream(lambda: answers.pop(0), takes_s=5.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fails, upstream)
        await trio.sleep(1)
        upstream.takes_s = 0.1
        (await upstream.dial(None)).close()
    assert (upstream.ok, upstream.why, upstream.dials) == (True, "", {"ok": 1, "failed": 1})


async def test_an_older_dial_that_ends_does_not_let_a_second_probe_begin(autojump_clock: trio.testing.MockClock) -> None:
    upstream = FakeUpstream(lambda: REFUSED, takes_s=3.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fails, upstream)  # until 3
        await trio.sleep(1)
        upstream.takes_s = 0.5
        await fails(upstream)  # until 1.5: down
        await trio.sleep(0.5)
        upstream.takes_s = 4.0
        nursery.start_soon(upstream.probe)  # until 6
        await trio.sleep(2)
        assert (len(upstream.dialled_at), upstream.under_way) == (3, 1)
        await fails(upstream)
        await upstream.probe()
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
            await upstream.probe()  # raises nothing


async def test_success_ends_the_backoff(autojump_clock: trio.testing.MockClock) -> None:
    answers: list[Exception | None] = [REFUSED, None, None]
    upstream = FakeUpstream(lambda: answers.pop(0))
    await fails(upstream)
    await trio.sleep(1)
    await upstream.probe()
    assert (upstream.ok, upstream.why) == (True, "")
    (await upstream.dial(None)).close()
    assert upstream.dials == {"ok": 2, "failed": 1}


async def test_running_out_of_our_own_descriptors_says_nothing_about_the_broker() -> None:
    upstream = FakeUpstream(lambda: OSError(errno.EMFILE, "Too many open files"))
    with pytest.raises(OSError, match="Too many open files"):
        await upstream.dial(None)
    assert upstream.ok is None


async def test_so_it_is_where_a_broker_is_really_dialled() -> None:
    most, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.create_server(("127.0.0.1", 0)) as server:
        upstream = Upstream("rabbit", server.getsockname())
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limit))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                await upstream.dial(None)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, limit))
    assert (upstream.ok, upstream.dials) == (None, {"ok": 0, "failed": 0})


@contextmanager
def no_place_for_more() -> Iterator[socket.socket]:
    """A broker's socket whose queue of clients is full: the next one's packets are not answered."""
    with ExitStack() as held:
        server = held.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        held.enter_context(socket.create_connection(server.getsockname()))
        yield server


async def test_a_connection_that_is_not_made_at_once_is_waited_for() -> None:
    with no_place_for_more() as server, trio.fail_after(30):
        upstream = Upstream("rabbit", server.getsockname())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_accept_one, server)
            channel = await upstream.dial(None)
        assert channel.sock.getpeername() == server.getsockname()
        channel.close()


async def _accept_one(server: socket.socket) -> None:
    """Once the next client is there, so that the kernel asks again for it."""
    await trio.testing.wait_all_tasks_blocked()
    server.accept()[0].close()


async def test_a_connection_that_is_never_made_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    with no_place_for_more() as server:
        assert (await fails(Upstream("rabbit", server.getsockname()))).endswith(f"no connection within {CONNECT_TIMEOUT_S:g} s")
    assert trio.current_time() == pytest.approx(CONNECT_TIMEOUT_S)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
async def test_a_broker_is_dialled_by_either_kind_of_address_and_by_its_name(host: str) -> None:
    family = socket.AF_INET6 if host == "::1" else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        channel = await Upstream("rabbit", (host, server.getsockname()[1])).dial(None)
        assert channel.sock.getpeername() == server.getsockname()
        assert channel.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == UNSENT_BYTES, "whichever way"
        assert not channel.sock.getblocking()
        channel.close()


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
        await upstream.probe()
        await trio.sleep(0.25)
    assert upstream.dials["failed"] > 30
    there = True
    await trio.sleep(MAX_BACKOFF_S)
    await upstream.probe()
    assert [record.getMessage() for record in caplog.records] == ["upstream_unreachable"] * 3 + ["upstream_reachable"]
    assert caplog.records[3].fields["unreachable_s"] == pytest.approx(150 + MAX_BACKOFF_S)  # type: ignore[attr-defined]


# ---- probes: a broker that was there, and of which nothing is heard ---------------------------------------------------------


class Silence(Heard):
    """How long nothing has come on clients' connections, as the test says."""

    def __init__(self, seconds: float = float("inf")) -> None:
        super().__init__()
        self.seconds = seconds

    def silent_s(self) -> float:
        return self.seconds


async def probed(upstream: Upstream, seconds: float) -> None:
    """As `periodic_tasks.probe_broker` does, for so long."""
    for _ in range(round(seconds * 4)):
        await upstream.probe()
        await trio.sleep(0.25)


async def test_a_broker_that_goes_while_nobody_dials_is_missed(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    there = True
    upstream = FakeUpstream(lambda: None if there else REFUSED)
    await probed(upstream, 0.25)
    there = False
    await probed(upstream, PROBE_EVERY_S + 0.5)
    assert (upstream.ok, upstream.why, upstream.why_label) == (False, "Connection refused", "refused")
    assert [record.getMessage() for record in caplog.records] == ["upstream_unreachable"]
    there = True
    await probed(upstream, MAX_BACKOFF_S + 0.5)
    assert (upstream.ok, upstream.why, upstream.why_label) == (True, "", "")


async def test_a_broker_of_which_nothing_is_heard_is_probed_every_few_seconds_and_not_in_step(
    autojump_clock: trio.testing.MockClock,
) -> None:
    upstream = FakeUpstream(lambda: None)
    await probed(upstream, 60 * PROBE_EVERY_S)
    gaps = [later - earlier for earlier, later in zip(upstream.dialled_at, upstream.dialled_at[1:], strict=False)]
    assert min(gaps) >= PROBE_EVERY_S * (1 - JITTER)
    assert max(gaps) <= PROBE_EVERY_S + 0.25
    assert len({round(gap, 2) for gap in gaps}) > 1
    assert upstream.dials == {"ok": 1, "failed": 0}


async def test_a_broker_that_hangs_is_down_within_ten_seconds_of_its_last_byte(autojump_clock: trio.testing.MockClock) -> None:
    """docs/design/reliability.md F21. Whatever the jitter, and whatever clients dial meanwhile: their connections say nothing."""
    for _ in range(50):
        upstream = FakeUpstream(lambda: None)
        upstream.question = AMQP
        upstream.ok = True
        silence = upstream.heard = Silence(0.0)
        await probed(upstream, 7)
        assert (upstream.ok, len(upstream.dialled_at)) == (True, 0), "while answers come in nothing is asked"
        stopped = trio.current_time()
        upstream.takes_s = 0.0

        async def hang(upstream: FakeUpstream = upstream) -> None:
            with pytest.raises(trio.TooSlowError), trio.fail_after(ANSWER_S):
                await trio.sleep_forever()
            raise NoAnswerError("no_answer", "it hangs")

        upstream._ask = hang  # type: ignore[method-assign]
        while upstream.ok:
            silence.seconds = trio.current_time() - stopped
            (await upstream.dial(None)).close()
            await upstream.probe()
            await trio.sleep(0.25)
            assert trio.current_time() - stopped < 10
        assert upstream.why_label == "no_answer"


async def test_a_client_is_let_through_to_a_broker_that_was_down_only_after_an_answer(autojump_clock: trio.testing.MockClock) -> None:
    upstream = FakeUpstream(lambda: None)
    upstream.question = AMQP
    answers: list[Exception | None] = [NoAnswerError("no_answer", "it hangs"), NoAnswerError("no_answer", "it hangs"), None]

    async def ask() -> None:
        error = answers.pop(0)
        if error is not None:
            raise error

    upstream._ask = ask  # type: ignore[method-assign]
    await upstream.probe()
    await trio.sleep(MAX_BACKOFF_S)
    assert "cannot be reached: it hangs" in await fails(upstream)
    assert upstream.dialled_at == []
    await trio.sleep(MAX_BACKOFF_S)
    (await upstream.dial(None)).close()
    assert (upstream.ok, answers, len(upstream.dialled_at)) == (True, [], 1)


async def test_a_broker_that_answers_others_while_it_is_asked_is_slow_and_not_down(autojump_clock: trio.testing.MockClock) -> None:
    upstream = FakeUpstream(lambda: NoAnswerError("no_answer", "it did not answer"), takes_s=3.0)
    upstream.ok = True
    silence = upstream.heard = Silence()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(upstream.probe)
        await trio.sleep(1)
        silence.seconds = 1.5
    assert upstream.ok is True
    upstream.answer = lambda: REFUSED
    silence.seconds = float("inf")
    upstream.takes_s = 0.0
    await probed(upstream, PROBE_EVERY_S + 0.5)
    assert upstream.ok is False


async def test_a_broker_that_answers_others_while_a_client_is_connected_is_slow_and_refuses_nobody_else(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """TLS with a busy JVM takes seconds. Once one handshake was too late, all clients of a broker that worked were refused."""
    late = TlsHandshakeError("timeout", "TLS: no handshake within 10 s")
    upstream = FakeUpstream(lambda: late, takes_s=10.0)
    upstream.ok = True
    silence = upstream.heard = Silence()

    async def answers_another() -> None:
        await trio.sleep(9)
        silence.seconds = 0.5

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answers_another)
        assert "no handshake within 10 s" in await fails(upstream)
    assert (upstream.ok, upstream.dials["failed"]) == (True, 1)
    upstream.alone = lambda: False
    await fails(upstream)
    assert upstream.ok is False, "another address has it in less"
    upstream.alone, upstream.ok = lambda: True, True
    silence.seconds = float("inf")
    await fails(upstream)
    assert upstream.ok is False, "nothing was heard of it"


@pytest.mark.parametrize(("alone", "handshake_s"), [(True, 10.0), (False, 5.0)])
async def test_tls_with_the_only_address_has_as_long_as_a_client_of_the_brokers_own(
    autojump_clock: trio.testing.MockClock, alone: bool, handshake_s: float
) -> None:
    autojump_clock.autojump_threshold = 0.2
    with socket.create_server((LOOPBACK, 0)) as mute:
        upstream = Upstream("rocket", mute.getsockname(), tls=upstream_hop(None, None, None, "localhost", "none"))
        upstream.alone = lambda: alone
        began = trio.current_time()
        assert f"no handshake within {handshake_s:g} s" in await fails(upstream)
    assert trio.current_time() - began == pytest.approx(handshake_s, abs=0.5)


async def test_a_probe_that_began_before_a_dial_says_nothing_against_it(autojump_clock: trio.testing.MockClock) -> None:
    answers: list[Exception | None] = [None, None, TimeoutError(errno.ETIMEDOUT, "no connection within 5 s")]
    upstream = FakeUpstream(lambda: answers.pop(0))
    await upstream.probe()
    await trio.sleep(PROBE_EVERY_S)
    async with trio.open_nursery() as nursery:
        upstream.takes_s = 3.0
        nursery.start_soon(upstream.probe)
        await trio.sleep(1)
        upstream.takes_s = 0.1
        (await upstream.dial(None)).close()
    assert (upstream.ok, len(upstream.dialled_at)) == (True, 3)


async def test_what_a_probe_of_the_address_before_finds_out_says_nothing_of_the_new_one(autojump_clock: trio.testing.MockClock) -> None:
    upstream = FakeUpstream(lambda: None, takes_s=1.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(upstream.probe)
        await trio.sleep(0.5)
        heard = upstream.heard
        upstream.move(("127.0.0.1", 5674), None)
    assert upstream.ok is None
    assert upstream.heard is not heard, "what comes on connections to the old address says nothing of the new one"


async def test_a_probe_without_a_descriptor_says_nothing_about_the_broker(autojump_clock: trio.testing.MockClock) -> None:
    answers: list[Exception | None] = [None, OSError(errno.EMFILE, "Too many open files")]
    upstream = FakeUpstream(lambda: answers.pop(0))
    await probed(upstream, PROBE_EVERY_S + 0.25)
    assert (upstream.ok, upstream.dials["failed"], answers) == (True, 0, [])


# ---- the question itself, on real sockets -----------------------------------------------------------------------------------

QUESTIONS = {"amqp": AMQP, "rocketmq": ROCKETMQ}


@pytest.mark.parametrize("name", QUESTIONS)
async def test_a_broker_that_answers_is_reached(name: str) -> None:
    with {"amqp": rabbitmq, "rocketmq": rocketmq}[name]() as broker:
        upstream = Upstream(name, (LOOPBACK, broker.port), question=QUESTIONS[name])
        await upstream.probe()
    assert (upstream.ok, upstream.why, upstream.dials) == (True, "", {"ok": 1, "failed": 0})


@pytest.mark.parametrize("name", QUESTIONS)
async def test_a_broker_that_takes_connections_and_says_nothing_is_not_reached(name: str, autojump_clock: trio.testing.MockClock) -> None:
    autojump_clock.autojump_threshold = 0.2  # the kernel's part takes real time
    with socket.create_server((LOOPBACK, 0)) as mute:
        upstream = Upstream(name, mute.getsockname(), question=QUESTIONS[name])
        await upstream.probe()
    assert (upstream.ok, upstream.why_label) == (False, "no_answer")
    assert upstream.why == f"it takes connections and did not answer {QUESTIONS[name].name} within {ANSWER_S:g} s"


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize(
    ("answer", "label", "why"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "wrong_answer", "it does not speak "),
        (b"", "closed", "it closed the connection and did not answer "),
        (b"\x00\x00\x00\x09\x00\x00\x00\x05hello", "wrong_answer", "it does not speak "),
    ],
    ids=["HTTP", "nothing", "no JSON"],
)
async def test_what_answers_otherwise_is_no_broker_of_this_protocol(name: str, answer: bytes, label: str, why: str) -> None:
    def serve(client: socket.socket) -> None:
        client.recv(1000)
        client.sendall(answer)

    with StandIn(serve) as other:
        upstream = Upstream(name, (LOOPBACK, other.port), question=QUESTIONS[name])
        await upstream.probe()
    assert (upstream.ok, upstream.why_label, upstream.why.startswith(why)) == (False, label, True), upstream.why


async def test_another_version_of_amqp_is_an_answer() -> None:
    def serve(client: socket.socket) -> None:
        client.recv(8)
        client.sendall(b"AMQP\x00\x01\x00\x00")

    with StandIn(serve) as other:
        upstream = Upstream("amqp", (LOOPBACK, other.port), question=AMQP)
        await upstream.probe()
    assert upstream.ok is True


@pytest.mark.parametrize("said", [AMQP.send, b"AMQP\x03\x01\x00\x00"], ids=["3.10", "4.0"])
async def test_a_broker_that_takes_a_proxy_header_for_another_protocol_is_told_so(said: bytes) -> None:
    """RabbitMQ says which version it speaks, and closes."""

    def serve(client: socket.socket) -> None:
        client.recv(8)
        client.sendall(said)

    with StandIn(serve) as other:
        upstream = Upstream("amqp", (LOOPBACK, other.port), question=AMQP)
        await upstream.probe()
    assert (upstream.ok, upstream.why_label) == (False, "wrong_answer")
    assert upstream.why.endswith("; does send_proxy_protocol (none) fit the broker's proxy_protocol?")


async def test_a_probe_sends_a_proxy_header_where_clients_connections_do() -> None:
    said: list[bytes] = []

    def serve(client: socket.socket) -> None:
        said.append(receive_exactly(client, 28 + len(AMQP.send)))

    with StandIn(serve) as broker:
        await Upstream("rabbit", (LOOPBACK, broker.port), send_proxy=True, question=AMQP).probe()
    assert (said[0][:12], said[0][28:]) == (proxy_protocol.SIGNATURE, AMQP.send)


async def test_a_probe_makes_the_tls_handshake_and_one_that_hangs_there_is_down(autojump_clock: trio.testing.MockClock) -> None:
    autojump_clock.autojump_threshold = 0.2
    with socket.create_server((LOOPBACK, 0)) as mute:
        upstream = Upstream("rabbit", mute.getsockname(), tls=upstream_hop(None, None, None, "localhost", "none"), question=AMQP)
        await upstream.probe()
        connection, _ = mute.accept()
        with connection:
            assert connection.recv(1) == b"\x16", "a TLS handshake"
    assert (upstream.ok, upstream.why_label) == (False, "timeout")


async def test_the_kernel_says_when_the_last_byte_came_not_when_it_was_read() -> None:
    heard = Heard()
    with socket.create_server((LOOPBACK, 0)) as server:
        channel = Channel(socket.create_connection(server.getsockname()))
        broker, _ = server.accept()
        heard.channel = channel
        with broker:
            broker.sendall(b"x")
            wait_until(lambda: heard.silent_s() > 0.2, within=30, what="silence")
            channel.read(10, memoryview(bytearray(10)))
            assert heard.silent_s() > 0.2, "reading is no answer"
            broker.sendall(b"x")
            assert heard.silent_s() < 0.2
        channel.close()
    assert heard.silent_s() == float("inf")
