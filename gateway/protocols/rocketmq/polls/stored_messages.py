"""Stored messages: counted as they pass, in the body of an answer to a pull or a pop (`docs/design/rocketmq.md` 4.5).

The body is a row of messages as they lie in the commit log::

    4 TOTALSIZE | 4 MAGIC | 4 CRC | 4 QUEUEID | 4 FLAG | 8 QUEUEOFFSET | 8 PHYOFFSET | 4 SYSFLAG | 8 BORN | host | 8 STORED | host
    | 4 RECONSUME | 8 PREPARED | 4 length, body | topic | 2 length, properties

A message counts one, and as many bytes as its body has on the wire, compressed or not, as with sends. Where the queue keeps batches
(INNER_BATCH), one entry holds as many messages as its property INNER_NUM says.

The bytes come in pieces cut anywhere. Only the head of a message is kept until it is whole, and of an inner batch its tail, the bytes
behind the body. Bytes that do not look like a message end the counting, not the passing: the client will see for itself.
"""

from __future__ import annotations

import re
from typing import Final

from mypy_extensions import i64

from common.octets import u16, u32

FIXED_HEAD: Final = 88  # bytes up to the body, with two addresses of IPv4
SYSFLAG_AT: Final = 36
RECONSUME_BEFORE: Final = 16  # bytes from RECONSUME to the body
LONGER_ADDRESS: Final = 12  # bytes that an address of IPv6 has more
BORN_HOST_V6: Final = 0x10  # bits of SYSFLAG (MessageSysFlag)
STORE_HOST_V6: Final = 0x20
INNER_BATCH: Final = 0x80
MAX_TAIL_BYTES: Final = 40_000  # behind a body: a topic and properties of at most 32,767
INNER_NUM: Final = re.compile(rb"INNER_NUM\x01([0-9]{1,9})(?=\x02|$)")
NEXT: Final = 2  # the byte between two properties
BROKEN: Final = -1


class StoredMessages:
    """Counts one body."""

    __slots__ = ("bytes", "head", "head_size", "left", "messages", "redelivered", "tail", "tail_size")

    def __init__(self) -> None:
        self.messages: i64 = 0  # so far
        self.bytes: i64 = 0  # of their bodies
        self.redelivered: i64 = 0  # of the messages, those that a consumer has given back before: RECONSUME says how often
        self.left: i64 = 0  # bytes still to come of the message under way; BROKEN: this is no row of messages
        self.head = b""  # what there is of a head that is not whole
        self.head_size: i64 = SYSFLAG_AT + 4  # how much of it is needed to get further
        self.tail: list[bytes] = []  # what has come of the tail (what stands behind the body) of the inner batch under way
        self.tail_size: i64 = 0  # how long that tail is; 0: the message under way is no inner batch

    def add(self, data: bytes, start: i64, end: i64) -> None:
        """The body's next bytes are `data[start:end]`."""
        at: i64 = start
        while at < end and self.left >= 0:
            if self.left > 0:
                at = self._pass(data, at, end)
            elif not self.head and end - at >= FIXED_HEAD + 2 * LONGER_ADDRESS:
                at = self._read_head(data, at)
            else:
                at = self._collect_head(data, at, end)

    def _pass(self, data: bytes, at: i64, end: i64) -> i64:
        """What is there of the message under way, behind its head."""
        step: i64 = min(self.left, end - at)
        if self.tail_size > 0 and self.left - step < self.tail_size:
            first: i64 = self.left - self.tail_size  # so much of its body is still to come
            self.tail.append(data[at + first : at + step] if first > 0 else data[at : at + step])
        self.left -= step
        if self.left == 0 and self.tail_size > 0:
            self.messages += inner_number(b"".join(self.tail))
            self.tail = []
            self.tail_size = 0
        return at + step

    def _collect_head(self, data: bytes, at: i64, end: i64) -> i64:
        step: i64 = min(self.head_size - len(self.head), end - at)
        self.head += data[at : at + step]
        if len(self.head) == self.head_size:
            if self.head_size == SYSFLAG_AT + 4:
                self.head_size = head_size(u32(self.head, SYSFLAG_AT))
            else:
                head = self.head
                self.head = b""
                self.head_size = SYSFLAG_AT + 4
                self._read_head(head, 0)
        return at + step

    def _read_head(self, data: bytes, at: i64) -> i64:
        """A message begins at `data[at]`, and its head is there. Returns the index of the first byte behind that."""
        total: i64 = u32(data, at)
        flags: i64 = u32(data, at + SYSFLAG_AT)
        size: i64 = head_size(flags)
        body: i64 = u32(data, at + size - 4)
        if total < size + body:
            self.left = BROKEN
            return at + size
        self.left = total - size
        self.bytes += body
        tail: i64 = self.left - body
        if flags & INNER_BATCH and 0 < tail <= MAX_TAIL_BYTES:
            self.tail_size = tail
        else:
            self.messages += 1
            if u32(data, at + size - RECONSUME_BEFORE) > 0:
                self.redelivered += 1
        return at + size

    def __repr__(self) -> str:
        return f"<StoredMessages {self.messages} messages, {self.bytes} bytes>"


def inner_number(tail: bytes) -> int:
    """How many messages the inner batch holds that ends with `tail`; 1 where that does not say it."""
    for found in INNER_NUM.finditer(tail):
        at = found.start()
        if at >= 2 and (tail[at - 1] == NEXT or u16(tail, at - 2) == len(tail) - at):  # else it is the end of another name
            return int(found.group(1))
    return 1


def head_size(flags: i64) -> i64:
    """Bytes from TOTALSIZE to the body."""
    size: i64 = FIXED_HEAD
    if flags & BORN_HOST_V6:
        size += LONGER_ADDRESS
    if flags & STORE_HOST_V6:
        size += LONGER_ADDRESS
    return size
