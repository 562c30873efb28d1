"""The words that settings of a rule may have, and the bounds of its numbers."""

from __future__ import annotations

from typing import Final

from limiter.algorithms import COUNTING, RATE_ALGORITHMS
from limiter.protocols import PROTOCOL_NAMES

COMMON_LEVELS: Final = ("topic", "rule", "listener", "client", "user", "connection")  # that every protocol has
PER: Final = (*COMMON_LEVELS, *(per for names in PROTOCOL_NAMES.values() for per in names.levels))
MODES: Final = ("enforce", "shadow", "off")
SCOPES: Final = ("fleet", "gateway")
REPLIES: Final = ("flow_control", "system_busy")
SHARED_BY_FLEETS: Final = (*RATE_ALGORITHMS, *COUNTING)  # algorithms; each gateway asks its broker for a backlog, and follows it alone
IGNORE: Final = "ignore"
REFUSE: Final = "refuse"
COPIES: Final = ("count", IGNORE, REFUSE)
MAX_WORDS: Final = 128  # words of a routing key, which has at most 255 bytes
MAX_WEIGHT: Final = 1000  # times the weight of other topics; for more there is `protected` (guess)


def reply_of(protocol: str, reply: str) -> str:
    """`reply`, or the default where `protocol` gives no choice."""
    return REPLIES[0] if PROTOCOL_NAMES[protocol].refuses_with else reply
