"""Copies of publishes that wait in a spool, for people and for an ordinary client: JSON Lines, one message a line.

::

    {"exchange": "orders", "routing_key": "order.created", "mandatory": false, "properties": {"message_id": "7", "headers": {"a": 1}},
     "body": "text"}

`properties` are those that are set, by the names of AMQP 0-9-1 with `_` for `-`; `timestamp` in seconds since 1970. A body that is not
UTF-8 stands as `body_base64` instead, and so do names. Bytes in headers are `{"base64": "..."}`.

Runs on a thread. Of a channel it takes what waited there when it was asked, in order, and stops at a transaction's begin: what is behind it
is the transaction's.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pamqp.frame
from pamqp import commands, header

from gateway.pipeline.parts import BODY, PLAIN, Part
from gateway.pipeline.spool_orders import OnLoop, SpoolOrder
from gateway.protocols.amqp.frames import BODY_FRAME, OVERHEAD, TX_SELECT, method_of
from gateway.protocols.amqp.refusals import is_mandatory, publish_end
from gateway.spool.queue import SpoolQueue
from gateway.spool.queue_copy import QueueCopy, WaitingPart
from gateway.spool.records import DamagedError

PROPERTIES: Final[dict[str, str]] = {  # as a line names them -> as pamqp does
    {"message_type": "type"}.get(name, name): name for name in commands.Basic.Properties.__slots__ if name != "cluster_id"
}


class ChannelCopy(QueueCopy):
    """What waits on one channel."""

    def __init__(self, order: SpoolOrder, held: list[WaitingPart], queue: SpoolQueue) -> None:
        super().__init__(order, held, queue)
        self._ours: dict[bytes, bool] = {}  # names of a topic, as on the wire -> whether it is the order's

    def scan(self, on_loop: OnLoop) -> None:
        for publish in self._publishes(on_loop):
            self._count(publish)

    def lines(self, on_loop: OnLoop) -> Iterator[bytes]:
        for publish in self._publishes(on_loop):
            self._count(publish)
            yield json.dumps(message_of(publish), default=plain, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"

    def _count(self, publish: bytes) -> None:
        self.messages += 1
        self.bytes += len(publish)

    def _publishes(self, on_loop: OnLoop) -> Iterator[bytes]:
        """Each message of the topic, whole: its method, header and body frames."""
        begun: list[bytes] | None = None  # of a message whose body comes in further parts
        first: WaitingPart | None = None  # that it begins in
        for part in self.parts(on_loop):
            if part.kind == PLAIN:
                if method_of_data(part.data) == TX_SELECT:
                    return
            elif part.kind == BODY:
                if begun is not None:
                    begun.append(part.data)
                    if part.complete and first is not None:
                        self.note(first)
                        yield b"".join(begun)
                        begun = None
            elif part.ours:
                if part.complete:
                    self.note(part)
                first = part
                at = 0
                for number in range(part.count):
                    if number == part.count - 1 and not part.complete:
                        begun = [part.data[at:]]
                        break
                    end = publish_end(part.data, at, len(part.data))
                    yield part.data[at:end]
                    at = end
            else:
                begun = None

    def is_ours(self, data: bytes, on_loop: OnLoop) -> bool:
        """The keys are the loop's, who is asked once for each name."""
        publish = data
        names = publish[13 : 14 + publish[13] + 1 + publish[14 + publish[13]]]
        known = self._ours.get(names)
        if known is None:
            known = self._ours[names] = on_loop(partial(self._has_topic, publish))
        return known

    def _has_topic(self, publish: bytes) -> bool:
        key = self.queue.key_of(publish)
        return key is not None and key.text == self.order.topic


def method_of_data(data: bytes) -> int:
    return method_of(Part(PLAIN, 0, data, 0, len(data))) if data else 0


def message_of(publish: bytes) -> dict[str, Any]:
    """A whole publish (method, header and body frames) as a line has it. Raises DamagedError where it is none of AMQP 0-9-1."""
    names = publish[13:]
    middle = 1 + names[0]
    at = int.from_bytes(publish[3:7], "big") + OVERHEAD
    try:
        size, _, content = pamqp.frame.unmarshal(publish[at:])
    except Exception as error:  # a client wrote it, and nobody has looked at it yet
        raise DamagedError(f"the properties of a message cannot be read: {error}") from error
    if not isinstance(content, header.ContentHeader):
        raise DamagedError("a message has no content header")
    found = {name: getattr(content.properties, theirs, None) for name, theirs in PROPERTIES.items()}
    return {
        **text_or_base64("exchange", names[1:middle]),
        **text_or_base64("routing_key", names[middle + 1 : middle + 1 + names[middle]]),
        "mandatory": is_mandatory(publish, 0),
        "properties": {name: value for name, value in found.items() if value is not None},
        **text_or_base64("body", body_of(publish, at + size)),
    }


def text_or_base64(name: str, value: bytes) -> dict[str, str]:
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def body_of(publish: bytes, at: int) -> bytes:
    """The payloads of the body frames from `at` on."""
    pieces = []
    while at < len(publish):
        if publish[at] != BODY_FRAME:
            raise DamagedError("there is something between the frames of a message's body")
        size = int.from_bytes(publish[at + 3 : at + 7], "big")
        pieces.append(publish[at + 7 : at + 7 + size])
        at += size + OVERHEAD
    return b"".join(pieces)


def plain(value: object) -> object:
    """What JSON has no word for."""
    if isinstance(value, datetime.datetime):
        return int(value.replace(tzinfo=value.tzinfo or datetime.UTC).timestamp())
    if isinstance(value, bytes | bytearray):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"a value of type {type(value).__name__}")
