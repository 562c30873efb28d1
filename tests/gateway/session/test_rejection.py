"""What the door asks of a session: permits per user, deadlines for the handshake, idle connections, other versions of AMQP."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from pamqp import commands

from gateway.admission import UNKNOWN_USER, Admission, ConnectionLimits, ConnectionPermit, ConnectionSlots
from gateway.session.listener_config import ListenerConfig
from gateway.session.states import DRAINING
from support.amqp import frames as amqp
from support.rocketmq.frames import heartbeat, send
from support.wires.wires import Wires

S = 1_000_000_000
START = amqp.broker_start()
TUNE = amqp.method(0, commands.Connection.Tune(2047, 131072, 60))
OPEN_OK = amqp.method(0, commands.Connection.OpenOk())
START_OK = amqp.method(0, commands.Connection.StartOk({}, "PLAIN", "\0shop\0secret", "en_US"))
TUNE_OK_AND_OPEN = amqp.method(0, commands.Connection.TuneOk(2047, 131072, 0)) + amqp.method(0, commands.Connection.Open("/"))
AMQP_1_0 = b"AMQP\x00\x01\x00\x00"


def admission(**limits: Any) -> Admission:
    return Admission("here", ConnectionLimits(**limits), ConnectionSlots.unbounded())


class Pair:
    """A client and its broker, handshaking step by step."""

    def __init__(self, wires: Wires, permit: ConnectionPermit | None = None, config: ListenerConfig | None = None) -> None:
        self.wires = wires
        self.client, self.broker = wires.connect("amqp", config=config, permit=permit)

    def step(self, sender: socket.socket, data: bytes) -> None:
        sender.sendall(data)
        self.wires.run()

    def authenticate(self) -> None:
        """Up to the broker's tune: the client is who it says."""
        self.step(self.client, amqp.PROTOCOL_HEADER)
        self.step(self.broker, START)
        self.step(self.client, START_OK)
        self.step(self.broker, TUNE)

    def open(self) -> None:
        self.authenticate()
        self.step(self.client, TUNE_OK_AND_OPEN)
        self.step(self.broker, OPEN_OK)

    def close_of_client(self) -> tuple[int | None, str]:
        value = amqp.read(self.wires.received(self.client))[-1].value
        assert isinstance(value, commands.Connection.Close), value
        return value.reply_code, value.reply_text


# ---- per user --------------------------------------------------------------------------------------------------------


def test_a_users_connection_beyond_the_cap_is_closed_at_open_which_never_reaches_the_broker() -> None:
    door = admission(per_user=1)
    with Wires() as wires:
        first, second = Pair(wires, door.admit("10.0.0.7", 0)), Pair(wires, door.admit("10.0.0.7", 0))
        first.open()
        assert door.by_user == {"shop": 1}
        second.authenticate()
        wires.received(second.broker)
        second.step(second.client, TUNE_OK_AND_OPEN)
        code, text = second.close_of_client()
        assert (code, text) == (
            530,
            (
                "NOT_ALLOWED - connection refused for user 'shop': max_connections_per_user of listener here (1) is reached;"
                " close some connections or raise it"
            ),
        )
        assert wires.received(second.broker) == b""
        second.client.close()
        second.broker.close()
        wires.until(lambda: len(wires.sweeper.sessions) == 1)
        (session, _) = wires.ended[0]
        assert session.cause == "max_connections_per_user"
        assert (door.admitted, door.by_user) == (1, {"shop": 1})
        first.client.close()
        first.broker.close()
        wires.until(lambda: not wires.sweeper.sessions)
        assert (door.admitted, door.by_user) == (0, {})


def test_a_name_counts_only_once_the_broker_has_believed_it_however_the_client_hurries() -> None:
    door = admission(per_user=1)
    with Wires() as wires:
        hasty = Pair(wires, door.admit("10.0.0.7", 0))
        hasty.step(hasty.client, amqp.greeting(user="shop"))  # all at once, the password not yet looked at
        hasty.step(hasty.broker, START)
        assert door.by_user == {}
        hasty.step(hasty.broker, TUNE)
        assert door.by_user == {"shop": 1}
        late = Pair(wires, door.admit("10.0.0.7", 0))
        late.step(late.client, amqp.greeting(user="shop"))
        late.step(late.broker, START + TUNE)
        assert late.close_of_client()[0] == 530


def test_clients_whose_user_cannot_be_known_count_as_one_user() -> None:
    door = admission(per_user=1)
    start_ok = amqp.method(0, commands.Connection.StartOk({}, "ANONYMOUS", "", "en_US"))
    with Wires() as wires:
        first, second = Pair(wires, door.admit("10.0.0.7", 0)), Pair(wires, door.admit("10.0.0.8", 0))
        for pair in (first, second):
            pair.step(pair.client, amqp.PROTOCOL_HEADER)
            pair.step(pair.broker, START)
            pair.step(pair.client, start_ok)
            pair.step(pair.broker, TUNE)
            pair.step(pair.client, TUNE_OK_AND_OPEN)
        code, text = second.close_of_client()
        assert code == 530
        assert text.startswith("NOT_ALLOWED - connection refused for a user this gateway cannot tell from others: max_connections_per_user")
        assert door.by_user == {UNKNOWN_USER: 1}


@pytest.mark.parametrize("how", ["crash", "reset"])
def test_a_permit_is_released_whatever_ends_the_session(how: str) -> None:
    door = admission(per_user=1)
    with Wires() as wires:
        pair = Pair(wires, door.admit("10.0.0.7", 0))
        pair.open()
        if how == "reset":
            pair.broker.close()
            pair.client.close()
        else:
            session = wires.session()
            session.abort("gateway_error", "as a crash does")
            wires.sweeper.end(session)
        wires.until(lambda: not wires.sweeper.sessions)
        assert (door.admitted, door.by_user, door.by_address) == (0, {}, {})


# ---- deadlines -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["header", "start-ok", "open"])
def test_a_handshake_that_trickles_on_is_closed_at_its_deadline(stage: str) -> None:
    """docs/design/reliability.md F01: a byte now and then is no progress."""
    with Wires() as wires:
        pair = Pair(wires)
        rest = bytearray(amqp.PROTOCOL_HEADER + START_OK + TUNE_OK_AND_OPEN)
        begun = {"header": 1, "start-ok": 12, "open": len(amqp.PROTOCOL_HEADER + START_OK) + 5}[stage]
        pair.step(pair.client, bytes(rest[:begun]))
        if stage != "header":
            pair.step(pair.broker, START)
        del rest[:begun]

        def trickle() -> None:
            if wires.sweeper.sessions and wires.session().state < DRAINING and len(rest) > 1:
                pair.client.sendall(bytes([rest.pop(0)]))

        wires.elapse(9.5, trickle)
        assert wires.sweeper.sessions
        wires.elapse(1.5, trickle)
        assert not wires.sweeper.sessions
        assert wires.ended[0][0].cause == "handshake_timeout"
        if stage != "header":
            assert pair.close_of_client() == (320, "CONNECTION_FORCED - the handshake was not over within 10 s (handshake_timeout)")


def test_the_deadline_counts_from_the_accept_not_from_the_dial() -> None:
    with Wires() as wires:
        permit = admission().admit("10.0.0.7", wires.now() - 8 * S)
        Pair(wires, permit)
        wires.elapse(1.5)
        assert wires.sweeper.sessions
        wires.elapse(1.5)
        assert not wires.sweeper.sessions


def test_an_open_connection_and_one_with_a_whole_request_have_no_handshake_deadline() -> None:
    with Wires() as wires:
        Pair(wires).open()
        client, _ = wires.connect("rocketmq")
        client.sendall(heartbeat())
        wires.run()
        wires.elapse(60)
        assert len(wires.sweeper.sessions) == 2


def idle_config(protocol: str) -> ListenerConfig:
    return ListenerConfig("here", protocol, 1 << 24, 10 * S, 30 * S)


def test_an_idle_connection_is_closed_in_its_protocol_and_any_byte_of_either_side_keeps_it() -> None:
    with Wires() as wires:
        pair = Pair(wires, config=idle_config("amqp"))
        pair.open()
        for sender in (pair.client, pair.broker, pair.client):
            wires.elapse(25)
            pair.step(sender, amqp.HEARTBEAT)
        wires.received(pair.client)
        wires.elapse(29)
        assert wires.received(pair.client) == b""
        wires.elapse(2)
        assert pair.close_of_client() == (320, "CONNECTION_FORCED - nothing was received from either side for 30 s (idle_timeout)")
        pair.client.close()
        pair.broker.close()
        wires.until(lambda: not wires.sweeper.sessions)
        assert wires.ended[0][0].cause == "idle"
        assert wires.ended[0][0].detail == "nothing was received from either side for 30 s (idle_timeout)"


def test_an_idle_rocketmq_connection_is_closed() -> None:
    with Wires() as wires:
        client, _ = wires.connect("rocketmq", config=idle_config("rocketmq"))
        client.sendall(send("orders"))
        wires.run()
        wires.elapse(31)
        assert client.recv(1) == b""


# ---- other versions of AMQP ------------------------------------------------------------------------------------------


def test_another_version_passes_both_ways_as_it_is_and_knows_no_deadline_of_ours() -> None:
    with Wires() as wires:
        pair = Pair(wires, config=ListenerConfig("here", "amqp", 1 << 24, 10 * S, 0, True))
        pair.step(pair.client, AMQP_1_0[:5])
        assert wires.received(pair.broker) == b""
        pair.step(pair.client, AMQP_1_0[5:] + b"\x00\x00\x00\x20" * 3)
        assert wires.received(pair.broker) == AMQP_1_0 + b"\x00\x00\x00\x20" * 3
        pair.step(pair.broker, AMQP_1_0 + bytes(range(256)))
        pair.step(pair.broker, b"\x01\x00\x00\xff\xff\xff\xff")
        assert wires.received(pair.client) == AMQP_1_0 + bytes(range(256)) + b"\x01\x00\x00\xff\xff\xff\xff"
        pair.step(pair.client, b"\x09\xff\xff")
        assert wires.received(pair.broker) == b"\x09\xff\xff"
        wires.elapse(60)
        assert wires.sweeper.sessions
        pair.client.shutdown(socket.SHUT_WR)
        wires.run()
        assert pair.broker.recv(1) == b""


def test_without_other_protocols_pass_another_version_is_told_ours_and_closed() -> None:
    with Wires() as wires:
        pair = Pair(wires)
        pair.step(pair.client, AMQP_1_0)
        assert wires.received(pair.client) == amqp.PROTOCOL_HEADER
        assert wires.received(pair.broker) == b""


def test_opaque_connections_drain_when_the_broker_is_quiet() -> None:
    with Wires() as wires:
        pair = Pair(wires, config=ListenerConfig("here", "amqp", 1 << 24, 10 * S, 0, True))
        pair.step(pair.client, AMQP_1_0)
        session = wires.session()
        session.begin_drain()
        assert not session.drained(wires.now(), S)
        wires.stand_still(1.5)
        assert session.drained(wires.now(), S)
