"""Namespaces: the first part of a RocketMQ name, where its client is configured with one.

A client with a namespace writes it before every name, with `%` between (`orders` of namespace `shop` is `shop%orders` on the wire); in the
names of retry and dead-letter topics it stands behind their prefix: `%RETRY%shop%billing`. Source: NamespaceUtil.getNamespaceFromResource
of Apache RocketMQ, whose 5.3.3 gives the same answers for the names in the tests (measured 2026-11).

The later kind of namespace (`namespaceV2` of clients since 5.1), which is sent beside an unchanged topic, is ignored.
"""

from __future__ import annotations

from typing import Final

from limiter.protocols import DEAD_LETTER_PREFIX, RETRY_PREFIX

SYSTEM_PREFIXES: Final = ("rmq_sys_", "CID_RMQ_SYS_")  # RocketMQ's own names are in no namespace


def namespace_of(topic: str) -> str | None:
    """The namespace of a topic as on the wire; None where it has none."""
    if topic.startswith(SYSTEM_PREFIXES):
        return None
    name = topic.removeprefix(RETRY_PREFIX) if topic.startswith(RETRY_PREFIX) else topic.removeprefix(DEAD_LETTER_PREFIX)
    at = name.find("%")
    return name[:at] if at > 0 else None
