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
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pamqp.frame
from pamqp import commands, header

from gateway.pipeline.parts import BODY, PLAIN, REQUEST, Part
from gateway.pipeline.spool_orders import OnLoop, SpoolCopy, SpoolOrder
from gateway.protocols.amqp.frames import BODY_FRAME, OVERHEAD, TX_SELECT, method_of
from gateway.protocols.amqp.refusals import is_mandatory, publish_end
from gateway.spool.batches import WaitingBatch
from gateway.spool.queue import SpoolQueue
from gateway.spool.records import BATCH, RECORD, DamagedError
from gateway.spool.removals import Range

PROPERTIES: Final[dict[str, str]] = {  # as a line names them -> as pamqp does
    {"message_type": "type"}.get(name, name): name for name in commands.Basic.Properties.__slots__ if name != "cluster_id"
}

HEADS: Final = (RECORD.size, BATCH.size + RECORD.size)  # bytes between the data of two records of a file, in a batch or where one begins


class WaitingPart:
    """A part as it was when the copy was ordered: the loop may change the part meanwhile. `ours`: of the topic; `original`: in memory."""

    __slots__ = ("complete", "count", "data", "kind", "original", "ours", "place")

    def __init__(self, part: Part, original: Part | None = None, *, ours: bool) -> None:
        self.kind = part.kind
        self.data = part.data[part.start : part.end]
        self.count = int(part.count)
        self.complete = part.complete
        self.ours = ours
        self.original = original
        self.place = part.place + part.start if part.place and part.replays else 0


class ChannelCopy(SpoolCopy):
    """What waits on one channel: `held` in memory before its queue, then the queue's batches. `order` is for the messages of the topic."""

    def __init__(self, order: SpoolOrder, held: list[WaitingPart], queue: SpoolQueue) -> None:
        super().__init__(order)
        self.held = held
        self.queue = queue
        self.at = queue.messages.gone  # place of the first message of `batches`
        self.batches: list[WaitingBatch] = queue.hold_files()
        self.places: list[Range] = []  # of what was found in durable files
        self.originals: list[Part] = []  # of what was found in memory
        self.removed = 0  # of these, and then of `places`
        self._ours: dict[bytes, bool] = {}  # names of a topic, as on the wire -> whether it is the order's

    def release(self) -> None:
        """On the loop: the files may go."""
        self.queue.release_files(self.batches)
        self.batches = []

    def remove(self, most: int, on_synced: Callable[[], None]) -> bool:
        first = self.removed
        self.removed += most
        behind = max(first - len(self.originals), 0)
        places = self.places[behind : max(self.removed - len(self.originals), 0)]
        self.queue.remove_all(self.originals[first : self.removed], places, on_synced)
        return self.removed < len(self.originals) + len(self.places)

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
        for part in self._parts(on_loop):
            if part.kind == PLAIN:
                if method_of_data(part.data) == TX_SELECT:
                    return
            elif part.kind == BODY:
                if begun is not None:
                    begun.append(part.data)
                    if part.complete and first is not None:
                        self._note(first)
                        yield b"".join(begun)
                        begun = None
            elif part.ours:
                if part.complete:
                    self._note(part)
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

    def _note(self, part: WaitingPart) -> None:
        """All messages that begin in `part` are whole."""
        if part.original is not None:
            self.originals.append(part.original)
        elif part.place:
            end = part.place + len(part.data)
            if self.places and part.place - self.places[-1][1] in HEADS:  # one behind the other: one range
                self.places[-1] = (self.places[-1][0], end)
            else:
                self.places.append((part.place, end))

    def _parts(self, on_loop: OnLoop) -> Iterator[WaitingPart]:
        yield from self.held
        at = self.at
        for batch in self.batches:
            for index, part in enumerate(batch.read(self.queue.disk, self.queue.ordering_key)):
                ours = False
                if part.kind == REQUEST:
                    if at >= self.order.place:
                        return
                    ours = at >= self.order.begins and self._is_ours(part.data, on_loop)
                    at += int(part.count) * int(part.messages)
                yield WaitingPart(part, batch.originals[index] if batch.batch is None else None, ours=ours)

    def _is_ours(self, publish: bytes, on_loop: OnLoop) -> bool:
        """Whether it is of the topic; the keys are the loop's, who is asked once for each name."""
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
