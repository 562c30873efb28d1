"""The probe on pika's BlockingConnection."""

from __future__ import annotations

import time
from typing import Any

import pika
import pika.exceptions as errors
from probe import PATIENCE_S, Order, Report, described, serve


def told(error: Exception) -> dict[str, Any]:
    return described(error, getattr(error, "reply_code", None), getattr(error, "reply_text", None))


def publish(channel: Any, order: Order, report: Report, number: int) -> str:
    properties = pika.BasicProperties(message_id=order.body(number).decode())
    try:
        channel.basic_publish("", order.key, order.body(number), properties, mandatory=order.mandatory)
    except (errors.NackError, errors.UnroutableError) as error:
        for message in error.messages:
            report.returned(message.method.reply_code, message.method.reply_text, message.method.routing_key, message.body)
        return type(error).__name__
    except errors.AMQPError as error:
        report.close(told(error))
        return type(error).__name__
    return "ack" if order.mode == "confirm" else "sent"


def other_channel_lives(connection: Any, other: Any, order: Order) -> Any:
    """Publish with a confirm, consume it, and open and close one more channel."""
    try:
        other.basic_publish("", order.free, b"other")
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            method, _, body = other.basic_get(order.free, auto_ack=True)
            if method is not None:
                connection.channel().close()
                return "ok" if body == b"other" else f"got {body!r}"
    except errors.AMQPError as error:
        return told(error)
    return "nothing consumed"


def run(order: Order, report: Report) -> None:
    parameters = pika.URLParameters(order.url)
    parameters.heartbeat = order.heartbeat
    parameters.socket_timeout = parameters.stack_timeout = PATIENCE_S
    try:
        connection = pika.BlockingConnection(parameters)
    except errors.AMQPError as error:
        report.refused = told(error)
        return
    connection.add_on_connection_blocked_callback(lambda _, frame: report.blocked.append(frame.method.reason))
    connection.add_on_connection_unblocked_callback(lambda *_: setattr(report, "unblocked", report.unblocked + 1))
    if order.listen:

        def heard(listening: Any, method: Any, *_: object) -> None:
            report.hear()
            if order.back and method.redelivered:
                listening.basic_ack(method.delivery_tag)
            elif order.back:
                listening.basic_nack(method.delivery_tag, requeue=True)

        connection.channel().basic_consume(order.listen, heard, auto_ack=not order.back)
    other, channel = connection.channel(), connection.channel()
    other.confirm_delivery()
    if order.mode == "confirm":
        channel.confirm_delivery()
    elif order.mode == "tx":
        channel.tx_select()
    report.seen = [publish(channel, order, report, number) for number in range(order.count)]
    if order.mode == "tx":
        try:
            channel.tx_commit()
            report.commit = "committed"
        except errors.AMQPError as error:
            report.close(told(error))
            report.commit = type(error).__name__
    if order.other_first:
        report.other = other_channel_lives(connection, other, order)
    until = time.monotonic() + order.linger
    while time.monotonic() < until and channel.is_open and not report.has_seen(order):
        connection.process_data_events(time_limit=0.1)
    try:
        channel.queue_declare(order.free, passive=True)
    except errors.AMQPError as error:
        report.close(told(error))
    if not order.other_first:
        report.other = other_channel_lives(connection, other, order)
    if connection.is_open:
        connection.process_data_events(time_limit=0)
        connection.close()


serve(run)
