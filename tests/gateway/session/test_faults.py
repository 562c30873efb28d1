"""Faults that a review of the data plane found (2026-11), each as it was shown; none may come back.

Sessions in a real sweeper over socket pairs or loopback TCP (where a RST matters), the time of deadlines as an argument.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import time
from typing import Any

import pytest

from gateway.admission import Admission, ConnectionLimits, ConnectionPermit, ConnectionSlots
from gateway.assembly import assemble
from gateway.clock import now_ns
from gateway.listeners.listener import LOG_EVERY_S, Listener
from gateway.listeners.upstreams import Upstreams
from gateway.pipeline.errors import ProtocolError
from gateway.protocols.amqp.conversation import AmqpConversation
from gateway.protocols.amqp.frames import NOT_ALLOWED, client_error
from gateway.session.ending import send_close
from gateway.session.listener_config import ListenerConfig
from gateway.session.session import Session
from gateway.transport.channel import Channel
from gateway.transport.channel_states import READ_EOF
from limiter.limits import NEVER, Limit, Rate
from limiter.rules.rule_set import Match, Rule
from support.amqp import frames as amqp
from support.builds import build_of
from support.rocketmq.frames import heartbeat, send
from support.wires.wires import Wires

S = 1_000_000_000


def rule(topic: str, rate: int = 1, burst: int | None = None, protocol: str = "rocketmq", **more: Any) -> Rule:
    match = Match(protocol=protocol, **{"routing_key" if protocol == "amqp" else "topic": topic})
    return Rule(f"r-{topic}", match, "topic", Limit(messages=Rate(rate), messages_burst=burst), open_for_ns=0, **more)


def test_a_held_send_never_goes_into_the_middle_of_a_streamed_frame() -> None:
    with Wires(rule("slow", 10, 1, action="delay", max_delay_ns=S), threads=0) as w:
        client, broker = w.connect("rocketmq")
        first, held = send("slow", opaque=1), send("slow", opaque=2)
        big = send("big", b"B" * (2 << 20), opaque=3)
        client.sendall(first + held)
        w.run()
        got = b""
        # the beginning of a large frame, rest comes later (slow link)
        head, rest = big[: 1 << 20], big[1 << 20 :]
        client.setblocking(False)
        sent = 0
        while sent < len(head):
            with contextlib.suppress(BlockingIOError):
                sent += client.send(head[sent:])
            w.sweeper.sweep(now_ns(), 0.001)
            got += w.received(broker)
            client.setblocking(False)
        end = time.monotonic() + 0.4  # held one comes due after 100 ms
        while time.monotonic() < end:
            w.sweeper.sweep(now_ns(), 0.001)
            got += w.received(broker)
        client.setblocking(False)
        sent = 0
        end = time.monotonic() + 60
        while time.monotonic() < end and len(got) < len(first + held + big):
            try:
                if sent < len(rest):
                    sent += client.send(rest[sent:])
            except BlockingIOError:
                pass
            w.sweeper.sweep(now_ns(), 0.001)
            got += w.received(broker)
            client.setblocking(False)
        assert len(got) == len(first + held + big)
        assert got in (first + held + big, first + big + held), (
            f"held frame found at {got.find(held)} inside the frame that begins at {len(first)}"
        )


def test_drain_waits_for_the_answer_to_a_request_just_forwarded() -> None:
    with Wires(threads=0) as w:
        client, broker = w.connect("rocketmq")
        w.run()
        w.session().upstream.received_at = now_ns() - S  # connected a second ago, quiet since
        client.sendall(send("orders", opaque=7))
        w.run(0.005)
        assert broker.recv(1 << 20) == send("orders", opaque=7)  # forwarded, broker is working on it
        session = w.session()
        session.begin_drain()
        assert not session.drained(now_ns(), 200_000_000), "told to go although the answer to a request forwarded 5 ms ago is outstanding"


def test_a_frame_that_began_to_flow_ends_although_the_budget_is_full() -> None:
    with Wires(rule("slow", 50, 1, protocol="amqp"), threads=0, hold_bytes=20_000) as w:
        client, broker = w.connect("amqp")
        client.sendall(amqp.greeting(frame_max=0, heartbeat=0, channels=(1, 2)))
        broker.sendall(amqp.broker_opens())
        w.run()
        big = amqp.publish(2, "free", b"B" * 600_000, cut=600_000)
        slow = b"".join(amqp.publish(1, "slow", b"%d" % i * 300) for i in range(40))
        len(w.received(broker))
        data = slow + big
        client.setblocking(False)
        sent = 0
        got = b""
        end = time.monotonic() + 60
        while time.monotonic() < end and len(got) < len(data):
            try:
                if sent < len(data):
                    sent += client.send(data[sent:])
            except BlockingIOError:
                pass
            w.sweeper.sweep(now_ns(), 0.001)
            got += w.received(broker)
            client.setblocking(False)
        s = w.session()
        assert len(got) == len(data), (len(got), len(data), s.conversation.budget.held_bytes, s.withheld(), s.due == NEVER)


def test_heartbeats_of_the_gateway_keep_no_session_alive_whose_client_has_gone() -> None:
    with Wires(rule("never", 0, protocol="amqp"), threads=0) as w:
        client, broker = w.connect("amqp")
        client.sendall(amqp.greeting(heartbeat=10, channels=(1,)) + amqp.publish(1, "never"))
        broker.sendall(amqp.broker_opens())
        w.run()
        client.shutdown(socket.SHUT_WR)
        w.run()
        session = w.session()
        assert session.client.read_state == READ_EOF
        now = now_ns()
        for _ in range(4 * 600):  # ten minutes of ticks
            now += S // 4
            w.sweeper.tick(now)
            w.received(broker)
            if not w.sweeper.sessions:
                break
        assert not w.sweeper.sessions, "ten minutes after the client closed"


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_a_client_that_goes_while_it_is_not_read_is_noticed(how: str) -> None:
    with Wires(rule("never", 0, protocol="amqp"), threads=0, hold_bytes=5_000) as w:
        client, ours = w.tcp_pair()
        broker, ours_b = w.tcp_pair()
        s = assemble(1, Channel(ours), ("10.0.0.7", 1), Channel(ours_b), ListenerConfig("here", "amqp", 1 << 24, 10 * S), w.shared)
        w.sweeper.add(s, now_ns())
        client.sendall(amqp.greeting(heartbeat=60, channels=(1,)) + amqp.publish(1, "never", b"x" * 100) * 100)
        broker.sendall(amqp.broker_opens())
        w.run()
        assert s.withheld()
        if how == "rst":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        w.run()
        now = now_ns()
        for _ in range(4 * 600):
            now += S // 4
            w.sweeper.tick(now)
            w.sweeper.sweep(now, 0)
            try:
                broker.setblocking(False)
                broker.recv(1 << 20)
            except BlockingIOError:
                pass
            if not w.sweeper.sessions:
                break
        broker.close()
        assert not w.sweeper.sessions, f"ten minutes after the client's {how}: {s} held={s.conversation.budget.held_messages}"


def test_small_slices_in_the_backlog_keep_no_whole_reads_alive() -> None:
    with Wires(rule("flood", 1, 1), threads=0) as w:
        client, _broker = w.connect("rocketmq")
        w.run()
        # the broker reads nothing. Fill its socket first
        plain = heartbeat(opaque=1)
        s = w.session()
        client.setblocking(False)
        fill = plain * 400
        while s.upstream.writable:
            with contextlib.suppress(BlockingIOError):
                client.send(fill)
            w.sweeper.sweep(now_ns(), 0)
            w.received(client)
            client.setblocking(False)
        block = plain + b"".join(send("flood", b"x" * 60, opaque=i) for i in range(240))
        n = 0
        data = b""
        while not s.withheld() and n < 600:
            if not data:
                data = block
                n += 1
            with contextlib.suppress(BlockingIOError):
                data = data[client.send(data) :]
            w.sweeper.sweep(now_ns(), 0)
            w.received(client)
            client.setblocking(False)
        kept = {id(x.obj): memoryview(x.obj).nbytes for x in s.upstream._backlog if isinstance(x, memoryview)}
        pinned = sum(kept.values())
        assert pinned < 4 * s.upstream.backlog + (1 << 20), (
            f"backlog {s.upstream.backlog} bytes keeps {pinned} bytes alive after {n} blocks ({pinned // max(1, s.upstream.backlog)}x)"
        )


def test_replies_waiting_for_the_broker_count_against_the_budget() -> None:
    with Wires(rule("flood", 1, 1, protocol="amqp"), threads=0, hold_bytes=50_000) as w:
        client, broker = w.connect("amqp")
        client.sendall(amqp.greeting(channels=(1,), confirms=(1,)))
        broker.sendall(amqp.broker_opens())
        w.run()
        broker.sendall(amqp.deliver(1, b"d" * 1000)[:-500])
        w.run()  # the broker stalls within a delivery
        w.received(client)
        client.setblocking(False)
        block = amqp.publish(1, "flood", b"x" * 1000, mandatory=True) * 50
        data = b""
        blocked = 0
        while blocked < 1000:  # sweeps in a row in which nothing more is taken
            data = data or block
            try:
                data = data[client.send(data) :]
                blocked = 0
            except BlockingIOError:
                blocked += 1
            w.sweeper.sweep(now_ns(), 0)
        conversation = w.session().conversation
        assert isinstance(conversation, AmqpConversation)
        replies = conversation.channels[1].replies
        assert replies is not None
        kept = len(replies)
        assert 50_000 < kept < 1_000_000
        assert conversation.broker_stream.replies.reply_bytes == kept


def test_the_broker_hears_heartbeats_while_draining() -> None:
    with Wires(threads=0) as w:
        client, broker = w.connect("amqp")
        client.sendall(amqp.greeting(heartbeat=4, channels=(1,), confirms=(1,)) + amqp.publish(1, "q"))
        broker.sendall(amqp.broker_opens())
        w.run()
        w.received(broker)
        s = w.session()
        s.begin_drain()
        now = now_ns()
        assert not s.drained(now + S, 200_000_000)  # a confirm is outstanding
        client.sendall(amqp.HEARTBEAT)  # the client does its part, but is not read
        for _ in range(40):
            now += S // 4
            w.sweeper.tick(now)
        w.run()
        assert amqp.HEARTBEAT in w.received(broker), "10 s of drain without a heartbeat, 4 s were agreed on"


def over_tcp(w: Wires) -> tuple[Session, socket.socket, socket.socket]:
    """A session over TCP, which knows RST, with channel 1 open: the session and our ends."""
    client, ours = w.tcp_pair()
    broker, ours_b = w.tcp_pair()
    session = assemble(1, Channel(ours), ("10.0.0.7", 1), Channel(ours_b), ListenerConfig("here", "amqp", 1 << 24, 10 * S), w.shared)
    w.sweeper.add(session, now_ns())
    client.sendall(amqp.greeting(channels=(1,)))
    broker.sendall(amqp.broker_opens())
    w.run()
    return session, client, broker


def test_a_close_reaches_a_client_that_is_still_sending() -> None:
    with Wires(threads=0) as w:
        s, client, broker = over_tcp(w)
        broker.recv(1 << 20)
        client.recv(1 << 20)
        s.begin_drain()
        client.sendall(amqp.publish(1, "q", b"x" * 100_000) * 6)  # sent before it received the close
        send_close(s, "stop", "drain", now_ns())
        w.sweeper.end(s)
        broker.recv(1 << 20)
        broker.close()  # the broker answers at once
        w.run()
        try:
            data = client.recv(1 << 20)
            client.sendall(b"x")
            time.sleep(0.02)
            client.sendall(b"x")
            clean = True
        except OSError as e:
            clean = False
            data = repr(e).encode()
        assert clean, data


def test_a_client_that_is_turned_away_is_counted_as_opened_and_closed() -> None:
    listener = Listener(ListenerConfig("x", "amqp", 1 << 20, S), ("127.0.0.1", 0), Upstreams.at("x", [("127.0.0.1", 1)]))
    listener.open()
    client = socket.create_connection(listener.address)
    reserve = listener._shed(listener.sockets()[0], os.open("/dev/null", os.O_RDONLY), OSError(errno.EMFILE, "x"))
    assert listener.opened - sum(listener.closed.values()) == listener.active + listener.arriving
    assert listener.closed == {"overload": 1}
    os.close(reserve)
    client.close()
    listener.close()


def test_running_out_of_descriptors_is_logged_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    """A client is shed every 100 ms. `times` adds up to all of them."""
    listener = Listener(ListenerConfig("x", "amqp", 1 << 20, S), ("127.0.0.1", 0), Upstreams.at("x", [("127.0.0.1", 1)]))
    listener.open()
    reserve = -1
    for _ in range(10):
        reserve = listener._shed(listener.sockets()[0], reserve, OSError(errno.EMFILE, "x"))
    listener._shed_log._logged_at -= LOG_EVERY_S
    reserve = listener._shed(listener.sockets()[0], reserve, OSError(errno.EMFILE, "x"))
    assert [vars(record)["fields"]["times"] for record in caplog.records if record.getMessage() == "out_of_descriptors"] == [1, 10]
    os.close(reserve)
    listener.close()


@pytest.mark.parametrize(
    ("number", "event", "remedy"),
    [
        (errno.EMFILE, "out_of_descriptors", "of this process"), (errno.ENFILE, "out_of_descriptors", "the whole machine"),
        (errno.ENOMEM, "out_of_socket_memory", "memory for a socket"), (errno.ENOBUFS, "out_of_socket_memory", "memory for a socket"),
    ],
)  # fmt: skip
def test_a_shortage_is_named_as_what_it_is(caplog: pytest.LogCaptureFixture, number: int, event: str, remedy: str) -> None:
    listener = Listener(ListenerConfig("x", "amqp", 1 << 20, S), ("127.0.0.1", 0), Upstreams.at("x", [("127.0.0.1", 1)]))
    listener.open()
    reserve = listener._shed(listener.sockets()[0], -1, OSError(number, os.strerror(number)))
    ((told, fields),) = [(record.getMessage(), vars(record)["fields"]) for record in caplog.records]
    assert (told, remedy in fields["remedy"], os.strerror(number) in fields["err"]) == (event, True, True)
    os.close(reserve)
    listener.close()


def test_two_bytes_of_a_frame_are_no_handshake() -> None:
    with Wires(threads=0) as w:
        client, _broker = w.connect("rocketmq")
        client.sendall(b"\0\0")
        w.run()
        now = now_ns()
        for _ in range(4 * 60):
            now += S // 4
            w.sweeper.tick(now)
        assert not w.sweeper.sessions, "60 s after two bytes of a frame"


def test_a_publish_that_is_half_in_does_not_keep_the_drain() -> None:
    with Wires(threads=0) as w:
        client, broker = w.connect("amqp")
        m = amqp.publish(1, "q", b"x" * 16_384, cut=8_000)
        client.sendall(amqp.greeting(channels=(1,), confirms=(1,)) + m + m[:9000])  # a read ends within a body: the usual case above 4 KiB
        broker.sendall(amqp.broker_opens())
        w.run()
        broker.sendall(amqp.ack(1, 1))
        w.run()
        s = w.session()
        s.begin_drain()
        client.sendall(m[9000:])
        w.run()
        broker.recv(1 << 20)
        assert amqp.names(w.received(client))[-1] == "Basic.Ack"
        assert s.drained(now_ns() + 25 * S, 200_000_000), "25 s later: the half publish counts as outstanding, its rest is not read"


def test_the_close_after_a_protocol_error_reaches_a_client_that_is_still_sending() -> None:
    with Wires(threads=0) as w:
        _, client, _ = over_tcp(w)
        client.recv(1 << 20)
        client.sendall(amqp.raw_frame(9, 1, b"bad") + amqp.publish(1, "q", b"x" * 100_000) * 5)
        w.run()
        time.sleep(0.02)
        try:
            client.sendall(b"more")
            clean = b"Close" in b"".join(n.encode() for n in amqp.names(client.recv(1 << 20)))
        except OSError as e:
            clean = False
            print(repr(e))
        assert clean


def test_a_failing_add_does_not_reach_the_accept_nursery() -> None:
    with Wires(threads=0) as w:
        a, b = w.tcp_pair()
        c, d = w.tcp_pair()
        s = assemble(1, Channel(a), ("x", 1), Channel(c), ListenerConfig("here", "amqp", 1 << 24, S), w.shared)
        a.close()  # any failing epoll_ctl: ENOSPC (max_user_watches), ENOMEM
        raised: OSError | None = None
        try:
            w.sweeper.add(s, now_ns())
        except OSError as e:
            raised = e
        left = len(w.sweeper.sessions)
        w.sweeper.sessions.clear()
        s.close()
        b.close()
        d.close()
        assert raised is None
        assert left == 0


# ---- a fault in cleaning up ------------------------------------------------------------------------------------------


class BadSocket(socket.socket):
    """Cannot be closed without complaint."""

    def close(self) -> None:
        super().close()
        raise OSError(errno.EIO, "cannot close")


class BadPermit(ConnectionPermit):
    """A permit that cannot be given back."""

    def release(self) -> None:
        raise RuntimeError("cannot release")


def faulty(w: Wires, fault: str) -> tuple[socket.socket, socket.socket]:
    """A session that cannot be cleaned up: (the client's end, the broker's end)."""
    if fault == "permit":
        return w.connect("rocketmq", permit=BadPermit(Admission("here", ConnectionLimits(), ConnectionSlots.unbounded()), now_ns()))
    if fault == "listener":

        def refuse(session: Session, error: BaseException | None) -> None:
            raise RuntimeError("cannot count")

        w.at_end = refuse
        return w.connect("rocketmq")
    client, ours_client = w.tcp_pair()
    broker, ours_upstream = w.tcp_pair()
    bad = BadSocket(fileno=(ours_client if fault == "client" else ours_upstream).detach())
    w.join("rocketmq", Channel(bad if fault == "client" else ours_client), Channel(bad if fault == "upstream" else ours_upstream))
    return client, broker


@pytest.mark.parametrize("fault", ["permit", "client", "upstream", "listener"])
def test_a_session_that_cannot_be_cleaned_up_ends_alone_with_both_connections(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    with Wires(threads=0) as w:
        client, broker = faulty(w, fault)
        w.run()
        session = w.session()
        other, others_broker = w.connect("rocketmq")
        w.run()
        client.close()
        broker.close()
        w.until(lambda: list(w.sweeper.sessions) == [2])
        assert (session.client.closed, session.upstream.closed) == (True, True)
        ((_, error),) = w.ended
        said = error if fault != "listener" else caplog.records[-1].exc_info[1]  # type: ignore[index]
        assert "cannot" in str(said)
        other.sendall(send("orders"))
        w.run()
        assert others_broker.recv(1 << 16) == send("orders")


@pytest.mark.skipif(build_of("gateway.session.session")[0] == "compiled", reason="the compiled build lets nothing go wrong in this way")
def test_a_fault_in_telling_a_client_of_its_own_ends_that_session_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with Wires(threads=0) as w:
        for _ in range(2):
            w.connect("amqp")
        w.run()
        conversation = w.session().conversation
        assert isinstance(conversation, AmqpConversation)

        def fail(_error: ProtocolError) -> bytes:
            raise RuntimeError("boom")

        monkeypatch.setattr(conversation, "last_frames", fail)
        conversation.held_parts.fail(client_error(NOT_ALLOWED, "too many connections"))
        w.sweeper.wake(w.session())
        w.run()
        ((_, error),) = w.ended
        assert (str(error), list(w.sweeper.sessions)) == ("boom", [2])


def test_a_fault_outside_of_a_turn_ends_that_session_only() -> None:
    with Wires(threads=0) as w:
        w.connect("rocketmq")
        w.connect("rocketmq")
        w.run()

        def fail() -> None:
            raise RuntimeError("boom")

        w.sweeper.attempt(w.session(1), fail)
        ((session, error),) = w.ended
        assert (session.cause, session.detail, str(error), list(w.sweeper.sessions)) == ("gateway_error", "RuntimeError: boom", "boom", [2])
        assert w.sweeper.buffered() == 0
