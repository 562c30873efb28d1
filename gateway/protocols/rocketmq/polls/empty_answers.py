"""Empty answers: what a poll gets that was held here until its client could wait no longer. Always JSON, which every client reads.

A pull gets PULL_NOT_FOUND with all four fields of its header: without them Java fails on a null and C++ does not read the answer. "From
which broker to read" is what the broker has said last, or the one that is asked, where the listener knows its id: anything else could turn
the client to a slave, or away from it. The next offset is the one that was asked for, so nothing is lost or repeated. Minimum and maximum
are the last known; of an unknown queue 0 and the offset that was asked for, so that "there is nothing new" agrees with the numbers: push
and lite consumers of Java, C++, Go and ali-ons use neither of this answer, an application that pulls by itself may look at them.

A pull whose offset cannot be read gets an error, as from the broker: its client would take the offset of an empty answer for its next.

A pop gets POLLING_TIMEOUT, for which no client needs a header (a pop of light topics has one, whose three fields its client class does not
allow to be missing); a notification that there is nothing to be notified of.
"""

from __future__ import annotations

from typing import Final

from gateway.protocols.rocketmq.polls.queues import PollQueue
from gateway.protocols.rocketmq.polls.terms import NO_OFFSET, NOTIFICATION, POP_LITE_MESSAGE, POP_MESSAGE
from gateway.protocols.rocketmq.refusals import VERSION, build_refusals

PULL_NOT_FOUND: Final = 19
POLLING_TIMEOUT: Final = 210
SUCCESS: Final = 0
SYSTEM_ERROR: Final = 1


def empty_answer(code: int, opaque: int, offset: int, queue: PollQueue, broker: int) -> bytes:
    """The frame that tells the poll of `code` and `opaque`, from `offset` of `queue`, that there is nothing for now."""
    if code == POP_MESSAGE:
        return answer(POLLING_TIMEOUT, opaque, b"")
    if code == POP_LITE_MESSAGE:
        return answer(POLLING_TIMEOUT, opaque, b'"invisibleTime":"0","popTime":"0","reviveQid":"0"')
    if code == NOTIFICATION:
        return answer(SUCCESS, opaque, b'"hasMsg":"false","pollingFull":"false"')
    if offset == NO_OFFSET:
        return build_refusals([opaque], SYSTEM_ERROR, "its queueOffset cannot be read")
    fields = b'"maxOffset":"%d","minOffset":"%d","nextBeginOffset":"%d","suggestWhichBrokerId":"%d"' % (
        max(queue.maximum, offset),
        queue.minimum,
        offset,
        queue.broker if queue.broker >= 0 else broker,
    )
    return answer(PULL_NOT_FOUND, opaque, fields)


def answer(code: int, opaque: int, fields: bytes) -> bytes:
    header = b'{"code":%d,"extFields":{%b},"flag":1,"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":%d}' % (
        code,
        fields,
        opaque,
        VERSION,
    )
    size = len(header)
    return (size + 4).to_bytes(4, "big") + size.to_bytes(4, "big") + header
