"""By what key a request that is no message is judged, at a broker or a name server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.protocols.rocketmq.headers import RETRY, Header
from limiter.operations import REQUEUE
from limiter.topics import rocketmq_topic

if TYPE_CHECKING:
    from limiter.judge import Judge
    from limiter.keys import Key, Origin

SEPARATOR: Final = b"\xff"  # between the words of a raw key: no byte of UTF-8


def find_operation_key(judge: Judge, origin: Origin, header: Header, operation: str) -> Key | None:
    """The key of a request from `origin`; None: nothing limits it."""
    group = header.group.decode(errors="replace").encode()
    topic = RETRY + group if operation == REQUEUE else header.source.decode(errors="replace").encode()
    raw = SEPARATOR.join((topic, group, operation.encode()))
    key = origin.keys.get(raw)
    if key is None:
        key = judge.key(origin, raw, rocketmq_topic(topic), group or None, operation)
    return key if judge.is_limited(key) else None
