"""The probe on AMQPStorm."""

from __future__ import annotations

import logging
import time
from typing import Any
from urllib.parse import unquote, urlsplit

import amqpstorm
from amqpstorm.exception import AMQPError
from probe import PATIENCE_S, Order, Report, described, serve


class BlockedLog(logging.Handler):
    """AMQPStorm shows `connection.blocked` as the flag `is_blocked` and in its log."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.report = report

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "blocked by remote server: " in text:
            self.report.blocked.append(text.partition("blocked by remote server: ")[2])
        elif "no longer blocked" in text:
            self.report.unblocked += 1


def told(error: Exception) -> dict[str, Any]:
    return described(error, getattr(error, "error_code", None))


def publish(channel: Any, order: Order, report: Report, number: int) -> str:
    body = order.body(number)
    try:
        confirmed = channel.basic.publish(body, order.key, "", {"message_id": body.decode()}, mandatory=order.mandatory)
    except AMQPError as error:
        if isinstance(error, amqpstorm.AMQPMessageError):
            report.returned(error.error_code, str(error), order.key, body)  # the exception has neither key nor body
        else:
            report.close(told(error))
        return type(error).__name__
    if order.mode != "confirm":
        return "sent"
    return "ack" if confirmed else f"publish() = {confirmed}"


def other_channel_lives(connection: Any, other: Any, order: Order) -> Any:
    try:
        if not other.basic.publish("other", order.free):
            return "not confirmed"
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            message = other.basic.get(order.free, no_ack=True)
            if message is not None:
                connection.channel().close()
                return "ok" if message.body == "other" else f"got {message.body!r}"
    except AMQPError as error:
        return told(error)
    return "nothing consumed"


def run(order: Order, report: Report) -> None:
    parts = urlsplit(order.url)
    logger = logging.getLogger("amqpstorm.channel0")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.handlers[:] = [BlockedLog(report)]
    where = {"port": parts.port, "virtual_host": unquote(parts.path[1:]), "heartbeat": order.heartbeat}
    try:
        connection = amqpstorm.Connection(
            parts.hostname, unquote(parts.username or ""), unquote(parts.password or ""), timeout=PATIENCE_S, **where
        )
    except AMQPError as error:
        report.refused = told(error)
        return
    if order.listen:
        listening = connection.channel()
        listening.basic.consume(lambda _: report.hear(), order.listen, no_ack=True)
    other, channel = connection.channel(), connection.channel()
    other.confirm_deliveries()
    if order.mode == "confirm":
        channel.confirm_deliveries()
    elif order.mode == "tx":
        channel.tx.select()
    report.seen = [publish(channel, order, report, number) for number in range(order.count)]
    if order.mode == "tx":
        until = time.monotonic() + order.pause
        while time.monotonic() < until and channel.is_open:
            time.sleep(0.01)
        try:
            channel.check_for_errors()
            channel.tx.commit()
            report.commit = "committed"
        except AMQPError as error:
            report.close(told(error))
            report.commit = type(error).__name__
    if order.other_first:
        report.other = other_channel_lives(connection, other, order)
    until = time.monotonic() + order.linger
    while time.monotonic() < until and channel.is_open and not report.has_seen(order):
        time.sleep(0.05)
        if order.listen:
            listening.process_data_events()
    try:
        channel.check_for_errors()  # without this it would send on a closed channel, and the broker would close the connection (504)
        channel.queue.declare(order.free, passive=True)
    except AMQPError as error:
        report.close(told(error))
    if not order.other_first:
        report.other = other_channel_lives(connection, other, order)
    if connection.is_open:
        connection.close()


serve(run)
