"""The broker's own topics, which a broad rule must not touch: limiting RocketMQ's breaks transactions, delays, traces or request-reply.

A system topic is limited only by a rule that names it exactly. Which they are, each protocol's record says (`limiter.protocols`).
"""

from __future__ import annotations

from typing import Final

from limiter.protocols import PROTOCOL_NAMES

NAMES: Final = {name: names.system_topics.names for name, names in PROTOCOL_NAMES.items() if names.system_topics.names}
PREFIXES: Final = {name: names.system_topics.prefixes for name, names in PROTOCOL_NAMES.items()}
SUFFIXES: Final = {name: names.system_topics.suffixes for name, names in PROTOCOL_NAMES.items()}


def is_system_topic(protocol: str, topic: str) -> bool:
    names = NAMES.get(protocol)
    return names is not None and (topic in names or topic.startswith(PREFIXES[protocol]) or topic.endswith(SUFFIXES[protocol]))
