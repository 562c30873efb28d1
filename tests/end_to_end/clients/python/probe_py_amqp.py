"""The probe on py-amqp, the library below kombu and Celery."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import unquote, urlsplit

import amqp
from amqp.exceptions import AMQPError, MessageNacked
from probe import PATIENCE_S, Order, Report, described, serve

AMQP_ERRORS = (AMQPError, MessageNacked, OSError)


def told(error: Exception) -> dict[str, Any]:
    return described(error, getattr(error, "code", None), getattr(error, "reply_text", None))


def publish(channel: Any, order: Order, report: Report, number: int) -> str:
    body = order.body(number)
    message = amqp.Message(body, message_id=body.decode())
    try:
        if order.mode == "confirm":
            channel.basic_publish_confirm(message, "", order.key, mandatory=order.mandatory, confirm_timeout=PATIENCE_S)
            return "ack"
        channel.basic_publish(message, "", order.key, mandatory=order.mandatory)
    except MessageNacked:
        return "MessageNacked"
    except AMQP_ERRORS as error:
        if order.mandatory and not isinstance(error, OSError):
            report.returned(error.reply_code, error.reply_text, order.key, body)  # the exception has neither key nor body
        else:
            report.close(told(error))
        return type(error).__name__
    return "sent"


def other_channel_lives(connection: Any, other: Any, order: Order) -> Any:
    try:
        other.basic_publish_confirm(amqp.Message(b"other"), "", order.free, confirm_timeout=PATIENCE_S)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            message = other.basic_get(order.free, no_ack=True)
            if message is not None:
                connection.channel().close()
                return "ok" if bytes(message.body) == b"other" else f"got {message.body!r}"
    except AMQP_ERRORS as error:
        return told(error)
    return "nothing consumed"


def run(order: Order, report: Report) -> None:
    parts = urlsplit(order.url)

    def unblocked() -> None:
        report.unblocked += 1

    connection = amqp.Connection(
        f"{parts.hostname}:{parts.port}", unquote(parts.username or ""), unquote(parts.password or ""),
        virtual_host=unquote(parts.path[1:]), heartbeat=order.heartbeat, connect_timeout=PATIENCE_S,
        on_blocked=report.blocked.append, on_unblocked=unblocked,
    )  # fmt: skip
    try:
        connection.connect()
    except AMQP_ERRORS as error:
        report.refused = told(error)
        return
    if order.listen:
        connection.channel().basic_consume(order.listen, no_ack=True, callback=lambda _: report.hear())
    other, channel = connection.channel(), connection.channel()

    def returned(error: Any, exchange: str, key: str, message: Any) -> None:
        report.returned(error.reply_code, error.reply_text, key, bytes(message.body))

    if order.returns == "handled":
        channel.events["basic_return"].add(returned)
    if order.mode == "tx":
        channel.tx_select()
    report.seen = [publish(channel, order, report, number) for number in range(order.count)]
    if order.mode == "tx":
        try:
            channel.tx_commit()
            report.commit = "committed"
        except AMQP_ERRORS as error:
            report.close(told(error))
            report.commit = type(error).__name__
    if order.other_first:
        report.other = other_channel_lives(connection, other, order)
    until = time.monotonic() + order.linger
    beat = time.monotonic()
    while time.monotonic() < until and not report.has_seen(order):
        try:
            connection.drain_events(timeout=0.1)
        except TimeoutError:
            pass
        except AMQP_ERRORS as error:
            report.close(told(error))
        if order.heartbeat and time.monotonic() >= beat:  # the library leaves the beat to the application (kombu does it for Celery)
            connection.heartbeat_tick()
            beat += order.heartbeat / 2
    try:
        channel.queue_declare(order.free, passive=True)
    except AMQP_ERRORS as error:
        report.close(told(error))
    if not order.other_first:
        report.other = other_channel_lives(connection, other, order)
    if connection.connected:
        connection.close()


serve(run)
