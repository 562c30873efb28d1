"""RefusalLog: every error on the way in has a cause, and a flood of them is a few log lines that add up."""

from __future__ import annotations

import errno
import logging

import pytest
import trio

from gateway.admission import BY_ALL, RefusedError
from gateway.listeners.connection_errors import Refusal, RefusalLog, refusal_of
from gateway.listeners.tls_handshake import TlsHandshakeError
from gateway.listeners.unreachable import UnreachableError
from gateway.pipeline.errors import ProtocolError
from gateway.protocols.amqp.handshake import greeting
from gateway.transport.proxy_protocol import MalformedHeaderError

S = 1_000_000_000


@pytest.mark.parametrize(
    ("error", "cause", "code", "last_words"),
    [
        (RefusedError(BY_ALL, "full"), "max_connections", 320, b""),
        (UnreachableError("the broker is down"), "upstream_unreachable", 320, b""),
        (ProtocolError("x", cause="wrong_protocol_http", last_frames=b"AMQP"), "wrong_protocol_http", 0, b"AMQP"),
        (MalformedHeaderError("x"), "proxy_protocol", 0, b""),
        (TlsHandshakeError("version", "TLS: x"), "tls_handshake_failed", 0, b""),
        (trio.TooSlowError(), "handshake_timeout", 0, b""),
        (ConnectionResetError(errno.ECONNRESET, "x"), "client", 0, b""),
        (OSError(errno.EMFILE, "x"), "overload", 320, b""),
        (OSError(errno.ENOTCONN, "x"), "client", 0, b""),
        (ZeroDivisionError("x"), "gateway_error", 0, b""),
    ],
)
def test_every_error_on_the_way_in_has_a_cause_and_a_text(error: Exception, cause: str, code: int, last_words: bytes) -> None:
    refusal = refusal_of(error)
    assert (refusal.cause, refusal.code, refusal.last_words) == (cause, code, last_words)
    assert (refusal.error is error) == (cause == "gateway_error")


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, object, object]]:
    found = [(record.getMessage(), record.fields["cause"], record.fields["connections"]) for record in caplog.records]  # type: ignore[attr-defined]
    caplog.clear()
    return found


def test_the_first_of_a_cause_is_logged_at_once_then_one_line_a_second_and_the_sum_is_exact(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "sluice")
    refusals = RefusalLog("rabbit", "amqp")
    full, down = Refusal("max_connections", "full", 320), Refusal("upstream_unreachable", "down", 320)
    refusals.add(full, ("10.0.0.1", 1), 0)
    refusals.add(down, ("10.0.0.1", 1), 0)
    assert lines(caplog) == [("connections_refused", "max_connections", 1), ("connections_refused", "upstream_unreachable", 1)]
    for step in range(1, 2001):  # 2,000 a second
        refusals.add(full, ("10.0.0.1", 1), step * S // 2000)
    assert lines(caplog) == [("connections_refused", "max_connections", 2000)]
    refusals.add(full, ("10.0.0.1", 1), S + 1)
    refusals.tick(S + 2)
    assert lines(caplog) == []
    refusals.tick(2 * S)
    assert lines(caplog) == [("connections_refused", "max_connections", 1)]
    refusals.tick(3 * S)
    assert lines(caplog) == []


def test_a_probe_of_the_port_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "sluice")
    RefusalLog("rabbit", "amqp").add(Refusal("client", "gone"), ("10.0.0.1", 1), 0)
    assert lines(caplog) == []


def test_a_broker_that_stays_away_is_logged_at_once_and_then_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "sluice")
    refusals = RefusalLog("rabbit", "amqp")
    for second in range(150):
        refusals.add(Refusal("upstream_unreachable", "down", 320), ("10.0.0.1", 1), second * S)
        refusals.tick(second * S)
    assert [connections for _, _, connections in lines(caplog)] == [1, 60, 60]


def test_connections_that_a_broker_took_with_it_are_summed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "sluice")
    refusals = RefusalLog("rabbit", "amqp")
    for number in range(1000):
        refusals.add(Refusal("broker_lost", "", user="ann"), ("10.0.0.1", number), number)
    assert caplog.records[0].fields["user"] == "ann"  # type: ignore[attr-defined]
    refusals.tick(S)
    assert lines(caplog) == [("connection_closed", "broker_lost", 1), ("connection_closed", "broker_lost", 999)]


def test_remedies_of_what_speaks_something_else_are_in_the_line() -> None:
    for head, remedy in (
        (b"PROXY TC", "accept_proxy_protocol: true"),
        (b"\r\n\r\n\x00\r\nQ", "accept_proxy_protocol: true"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "set `tls:` on the listener"),
    ):
        with pytest.raises(ProtocolError) as caught:
            greeting(head)
        assert remedy in refusal_of(caught.value).text
