"""A client's exclusive queues, and their end while its publishes still wait here.

RabbitMQ deletes them with the connection that declared them, which here goes on. So the gateway deletes them, on a channel of its own: what
goes wrong there costs the client's channels nothing. A name alone may be somebody else's queue by now. So each is declared once more, by
the client's own arguments, which the broker answers for a queue of this connection alone; if it refuses, it closes the channel, and takes
the delete behind that for nothing. Names that the broker has made (`amq.gen-…`) are nobody else's, and cannot be declared.

What still waits for one of these queues goes nowhere, as it would with its queue.
"""

from __future__ import annotations

from typing import Final

from gateway.pipeline.empties import NO_ENTRIES, NO_ITEMS, added, put
from gateway.protocols.amqp.channel import AmqpChannel
from gateway.protocols.amqp.channel_states import CLOSE_SENT
from gateway.protocols.amqp.deliveries.subscription import Declared
from gateway.protocols.amqp.frames import (
    CHANNEL_CLOSE,
    CHANNEL_CLOSE_OK,
    CHANNEL_OPEN,
    QUEUE_DECLARE,
    QUEUE_DELETE,
    QUEUE_DELETE_OK,
    method_frame,
    read_short_string,
    short_string,
)

PASSIVE: Final = 1  # bits of queue.declare
EXCLUSIVE: Final = 4
NO_WAIT: Final = 16
MAX_QUEUES: Final = 1024  # of one connection; those beyond are deleted with it (a guess)
MAX_ARGUMENT_BYTES: Final = 4096  # of one declaration; longer ones likewise (a guess)
NONE_GONE: Final[frozenset[bytes]] = frozenset()


def is_exclusive(arguments: bytes) -> bool:
    """Whether the queue.declare with these arguments makes an exclusive queue."""
    _, at = read_short_string(arguments, 2)
    return at < len(arguments) and arguments[at] & (EXCLUSIVE | PASSIVE) == EXCLUSIVE


def is_passive(arguments: bytes) -> bool:
    """Whether the queue.declare with these arguments only asks for a queue."""
    _, at = read_short_string(arguments, 2)
    return at < len(arguments) and arguments[at] & PASSIVE != 0


class ExclusiveQueues:
    """Those of one connection."""

    def __init__(self) -> None:
        self.declared: dict[bytes, bytes] = NO_ENTRIES  # by name: the arguments
        self.unnamed: list[Declared] = NO_ITEMS  # whose names the broker makes
        self.gone = NONE_GONE  # names of those that are deleted, or will be
        self.channel: AmqpChannel | None = None  # the gateway's own; the broker's frames on it do not reach the client
        self._left: list[bytes] = NO_ITEMS  # names to be deleted
        self._asked: list[bytes] = NO_ITEMS  # those that the broker was asked to delete, and has not answered
        self._says_close_ok = False

    def declare(self, arguments: bytes, declared: Declared) -> None:
        """The client declares a queue."""
        if not is_exclusive(arguments):
            if declared.name is not None and not is_passive(arguments):
                self.declared.pop(declared.name, None)  # it was deleted meanwhile, and is another queue now
            return
        if len(self.declared) + len(self.unnamed) >= MAX_QUEUES:
            return
        if declared.name is None:
            self.unnamed = added(self.unnamed, declared)
        elif len(arguments) <= MAX_ARGUMENT_BYTES:
            self.declared = put(self.declared, declared.name, arguments)

    def leave(self) -> None:
        """The client is gone."""
        self._left = [*[each.name for each in self.unnamed if each.name is not None], *self.declared]
        self.gone = self.gone.union(self._left)

    def begin(self, channels: dict[int, AmqpChannel], most: int) -> None:
        """Take a channel up to `most` that the client has not opened; with none free the queues stay until the connection ends."""
        number = most
        while number > 0 and number in channels:
            number -= 1
        if number > 0 and self._left:
            self.channel = channels[number] = AmqpChannel(number)
            self.channel.gateway_close = CLOSE_SENT

    def waiting(self) -> bool:
        """Whether the broker is to be told more."""
        return self.channel is not None and (len(self._left) > 0 or self._says_close_ok)

    def take_words(self) -> bytes:
        """Open the channel, and delete what is left, all in one go."""
        channel = self.channel
        if channel is None:
            return b""
        words = [method_frame(channel.number, CHANNEL_CLOSE_OK, b"")] if self._says_close_ok else []
        self._says_close_ok = False
        if self._left:
            words.append(method_frame(channel.number, CHANNEL_OPEN, b"\0"))
        for name in self._left:
            arguments = self.declared.get(name)
            if arguments is not None:
                _, at = read_short_string(arguments, 2)
                waits = arguments[:at] + bytes([arguments[at] & ~NO_WAIT]) + arguments[at + 1 :]
                words.append(method_frame(channel.number, QUEUE_DECLARE, waits))
            words.append(method_frame(channel.number, QUEUE_DELETE, b"\0\0" + short_string(name) + b"\0"))
        self._asked, self._left = self._left, NO_ITEMS
        return b"".join(words)

    def hear(self, method: int) -> None:
        """The broker says `method` on the gateway's own channel."""
        if method == QUEUE_DELETE_OK:
            self._asked.pop(0)
        elif method == CHANNEL_CLOSE:  # this one is not the client's any more; the others are asked for anew
            self._left = self._asked[1:]
            self._asked = NO_ITEMS
            self._says_close_ok = True

    def takes(self, arguments: bytes, declared: Declared | None) -> bool:
        """Whether a queue method with these arguments, of a client that is gone, is about one of these queues. `declared` is the one that
        it has declared last on that channel, which it may leave unnamed."""
        name, _ = read_short_string(arguments, 2)
        if not name and declared is not None:
            if declared.name is None:
                return declared in self.unnamed
            name = declared.name
        return name in self.gone or (not name and len(self.gone) > 0)

    def takes_publish(self, data: bytes, start: int) -> bool:
        """Whether the publish at `data[start]` goes to one of these queues, and nowhere else."""
        if data[start + 13] != 0:  # an exchange
            return False
        return data[start + 15 : start + 15 + data[start + 14]] in self.gone

    def __repr__(self) -> str:
        return f"<ExclusiveQueues {len(self.declared) + len(self.unnamed)} gone={len(self.gone)}>"
