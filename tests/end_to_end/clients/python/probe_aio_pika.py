"""The probe on aio-pika."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import aio_pika
import aio_pika.exceptions as errors
from pamqp.commands import Basic
from probe import PATIENCE_S, Order, Report, described, serve

AMQP_ERRORS = (errors.AMQPError, errors.ChannelInvalidStateError, asyncio.TimeoutError, ConnectionError, RuntimeError)


class BlockedLog(logging.Handler):
    """aio-pika tells of `connection.blocked` in its log only."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.report = report

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if " was blocked by: " in text:
            self.report.blocked.append(text.partition(" was blocked by: ")[2].strip("'"))
        elif "was unblocked" in text:
            self.report.unblocked += 1


def told(error: BaseException) -> dict[str, Any]:
    """The library's exceptions carry the broker's text, and a code only sometimes."""
    code = next((part for part in error.args if isinstance(part, int)), None)
    return described(error, code)


async def publish(channel: Any, order: Order, report: Report, number: int, key: str) -> str:
    body = order.body(number)
    message = aio_pika.Message(body, message_id=body.decode())
    try:
        work = channel.default_exchange.publish(message, key, mandatory=order.mandatory)
        result = await asyncio.wait_for(work, PATIENCE_S)
    except errors.PublishError as error:
        returned, frame = error.message, error.frame
        report.returned(frame.reply_code, frame.reply_text, returned.delivery.routing_key, returned.body)
        return type(error).__name__
    except errors.DeliveryError:
        return "DeliveryError"
    except AMQP_ERRORS as error:
        report.close(told(error))
        return type(error).__name__
    if order.mode not in {"confirm", "flood"}:
        return "sent"
    if isinstance(result, Basic.Ack):
        return "ack"
    report.returned(result.delivery.reply_code, result.delivery.reply_text, result.delivery.routing_key, result.body)
    return f"publish() = {type(result).__name__}"


async def other_channel_lives(connection: Any, other: Any, order: Order) -> Any:
    try:
        await asyncio.wait_for(other.default_exchange.publish(aio_pika.Message(b"other"), order.free, mandatory=False), PATIENCE_S)
        queue = await other.get_queue(order.free)
        message = await queue.get(no_ack=True, timeout=PATIENCE_S)
        await (await connection.channel()).close()
    except AMQP_ERRORS as error:
        return told(error)
    return "ok" if message.body == b"other" else f"got {message.body!r}"


async def flood(channel: Any, order: Order, report: Report) -> None:
    """All of them, at most 1000 at a time without an answer, as fast as they go."""
    window = asyncio.Semaphore(1000)

    async def one(number: int) -> str:
        key = order.every_key if (number + 1) % order.every == 0 else order.key
        try:
            return await publish(channel, order, report, number, key)
        finally:
            window.release()

    async with asyncio.TaskGroup() as group:
        tasks = []
        for number in range(order.count):
            await window.acquire()
            tasks.append(group.create_task(one(number)))
    letters = {"ack": "A", "DeliveryError": "N"}
    report.outcomes = "".join(letters.get(task.result(), "?") for task in tasks)


async def conversation(order: Order, report: Report) -> None:
    try:
        connection = await aio_pika.connect(order.url_with_heartbeat())
    except AMQP_ERRORS as error:
        report.refused = told(error)
        return
    if order.listen:
        listening = await connection.channel()

        async def heard(message: Any) -> None:
            report.hear()
            if order.back:
                await (message.ack() if message.redelivered else message.nack(requeue=True))

        await (await listening.get_queue(order.listen)).consume(heard, no_ack=not order.back)
    other = await connection.channel()
    confirms = order.mode in {"confirm", "flood"}
    channel = await connection.channel(publisher_confirms=confirms, on_return_raises=order.returns == "handled")
    channel.close_callbacks.add(lambda _, error: report.close(told(error)) if error is not None else None)
    if order.mode == "flood":
        await flood(channel, order, report)
    elif order.mode == "tx":
        transaction = channel.transaction()
        await transaction.select()
        report.seen = [await publish(channel, order, report, number, order.key) for number in range(order.count)]
        until = time.monotonic() + order.pause
        while time.monotonic() < until and report.channel == "open":
            await asyncio.sleep(0.01)
        try:
            await asyncio.wait_for(transaction.commit(), PATIENCE_S)
            report.commit = "committed"
        except AMQP_ERRORS as error:
            report.close(told(error))
            report.commit = type(error).__name__
    else:
        report.seen = [await publish(channel, order, report, number, order.key) for number in range(order.count)]
    if order.other_first:
        report.other = await other_channel_lives(connection, other, order)
    until = time.monotonic() + order.linger
    while time.monotonic() < until and not report.has_seen(order):
        await asyncio.sleep(0.05)
    try:
        await asyncio.wait_for(channel.declare_queue(order.free, passive=True), PATIENCE_S)
    except AMQP_ERRORS as error:
        report.close(told(error))
    if not order.other_first:
        report.other = await other_channel_lives(connection, other, order)
    channel.close_callbacks.clear()
    await connection.close()


def run(order: Order, report: Report) -> None:
    handler = BlockedLog(report)
    logger = logging.getLogger("aiormq")
    logger.addHandler(handler)
    try:
        asyncio.run(conversation(order, report))
    finally:
        logger.removeHandler(handler)


serve(run)
