"""Bad bytes in a real session: the sender is told and let go, everybody else goes on, the broker gets nothing after them (F08 to F11).

What the sender had sent before them goes on (F14).
"""

from __future__ import annotations

import socket
import tracemalloc

import pytest
from pamqp import commands

from gateway.session.description import describe
from gateway.session.states import DRAINING, HALF_CLOSED
from limiter.limits import Limit, Rate
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from support.amqp import frames as amqp
from support.amqp.bad_bytes import BAD, OPENED
from support.amqp.link import over_tcp
from support.wires.wires import Wires

GOOD = amqp.publish(2, "bills", b"good")


def opened(wires: Wires) -> tuple[socket.socket, socket.socket]:
    client, broker = wires.connect("amqp")
    client.sendall(OPENED)
    broker.sendall(amqp.broker_opens())
    wires.until(lambda: wires.sweeper.sessions[max(wires.sweeper.sessions)].conversation.handshake_done)
    for _ in range(3):
        wires.sweeper.sweep(0)
    assert wires.received(broker) == OPENED
    assert wires.received(client) == amqp.broker_opens()
    return client, broker


def ended(end: socket.socket) -> bool:
    """Whether the gateway has closed its side, everything before it having been read."""
    end.settimeout(1)
    try:
        return end.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("pieces", ["in one piece", "byte by byte"])
@pytest.mark.parametrize("name", BAD)
def test_the_sender_of_bad_bytes_is_told_and_closed_and_all_others_go_on(name: str, pieces: str) -> None:
    data, code = BAD[name]
    if pieces == "byte by byte" and "above the agreed size" in name:
        data = data[:600]  # the announced size is wrong already
    with Wires() as wires:
        bad, bad_broker = opened(wires)
        other, other_broker = opened(wires)
        if pieces == "in one piece":
            bad.sendall(data + GOOD)
        else:
            step = 1 if len(data) < 2000 else 100
            for at in range(0, len(data), step):
                bad.send(data[at : at + step])
                wires.sweeper.sweep(0)
                if 1 not in wires.sweeper.sessions or wires.session().state >= DRAINING:
                    break
        forwarded = b""
        for _ in range(20):
            wires.sweeper.sweep(0)
            forwarded += wires.received(bad_broker)
        *_, close = amqp.read(wires.received(bad))
        assert isinstance(close.value, commands.Connection.Close)
        assert close.value.reply_code == code
        assert GOOD not in forwarded
        told = amqp.read(forwarded[forwarded.rindex(b"\0\x0a\0\x32") - 7 :])[0]
        assert isinstance(told.value, commands.Connection.Close), "the broker is told in words: it handles what came before"
        bad_broker.sendall(amqp.method(0, commands.Connection.CloseOk()))
        wires.run()
        assert ended(bad_broker)
        assert ended(bad)
        other.sendall(GOOD)
        wires.until(lambda: wires.session(2).forward.messages == 1)
        assert wires.received(other_broker) == GOOD
        other_broker.sendall(amqp.deliver(2, b"still here"))
        for _ in range(5):
            wires.sweeper.sweep(0)
        assert wires.received(other) == amqp.deliver(2, b"still here")


@pytest.mark.parametrize("closes", [True, False], ids=["and closes", "and stays"])
def test_what_was_sent_before_bad_bytes_goes_on(closes: bool) -> None:
    """What waits for its limit, and what came in one read with them."""
    match = Match(protocol="amqp", routing_key="slow")
    slow = Rule("slow", match, limit=Limit(messages=Rate(10), messages_burst=1), action="delay", max_delay_ns=8_000_000_000, open_for_ns=0)
    with Wires(slow) as wires:
        link = over_tcp(wires, confirms=(1,))
        link.say(amqp.publish(1, "slow") * 10 + amqp.publish(2, "bills") * 5 + amqp.raw_frame(9, 1, b"bad") + GOOD)
        told = amqp.read(link.at_client())
        assert [frame.name for frame in told] == ["Connection.Close"]
        assert link.client.recv(1) == b"", "the FIN behind it"
        link.say(GOOD * 1000 + amqp.method(0, commands.Connection.CloseOk()))
        link.answer(amqp.ack(1, 1) + amqp.deliver(2, b"late"))
        if closes:
            link.client.close()
        wires.elapse(0.5)
        assert (link.session.state, link.cause()) == (HALF_CLOSED, "protocol_error")
        assert describe(link.session, wires.now()).state == "client_gone"
        wires.elapse(5)
        link.answer(amqp.ack(1, 10, multiple=True))
        wires.elapse(3)
        *published, close = [frame.name for frame in amqp.read(link.at_broker()) if frame.name.startswith(("Basic.P", "Connection"))]
        assert (published, close) == (["Basic.Publish"] * 15, "Connection.Close")
        link.answer(amqp.method(0, commands.Connection.CloseOk()))
        link.broker.close()
        wires.elapse(0.5 if closes else 12)
        assert not wires.sweeper.sessions
        totals = wires.totals("amqp", "%2F/amq.default/slow")
        assert (totals["forwarded"], totals["abandoned"]) == (10, 0)


@pytest.mark.parametrize("name", ["frame of 4 GiB", "header above the agreed size", "body above the agreed size", "body of 2**63"])
def test_a_size_that_is_only_announced_takes_no_memory(name: str) -> None:
    with Wires() as wires:
        bad, _ = opened(wires)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        bad.sendall(BAD[name][0])
        for _ in range(10):
            wires.sweeper.sweep(0)
        peak = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        assert peak < 100_000


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\n", b"AMQP\x00\x01\x00\x00", b"\x10\x0c\x00\x04MQTT"])
def test_another_protocol_gets_ours_and_its_end(first: bytes) -> None:
    with Wires() as wires:
        client, broker = wires.connect("amqp")
        client.sendall(first)
        for _ in range(10):
            wires.sweeper.sweep(0)
        assert wires.received(broker) == b""
        assert client.recv(100) == amqp.PROTOCOL_HEADER
        assert ended(client)


def test_a_thousand_frames_in_a_segment_and_one_byte_a_segment_mean_the_same() -> None:
    """F11, with the work counted in decoded requests rather than in time."""
    said = (amqp.publish(1, "orders") + amqp.HEARTBEAT + amqp.ack(2, 1)) * 300
    got = []
    for size in (len(said), 64, 1):
        with Wires() as wires:
            client, broker = opened(wires)
            found = b""
            for at in range(0, len(said), size):
                client.sendall(said[at : at + size])
                wires.sweeper.sweep(0)
                if at % 4096 == 0:
                    found += wires.received(broker)
            wires.run(0.005)
            got.append(found + wires.received(broker))
    assert got == [said] * 3
