"""Delayed keys: where a message goes whose client lets it wait in the broker first.

Celery (5.5 and later, with quorum queues) and NServiceBus publish a task with an ETA to the first of 28 exchanges, one for each bit of
the delay in seconds: `celery_delayed_27` and `nsb.v2.delay-level-27` down to 0. The routing key has the 28 bits, then where the message
goes: `0.0. … .1.r.orders`. Taken as it is, each ETA would be a topic of its own, and a limit on `r.orders` would see none of them.
"""

from __future__ import annotations

import re
from typing import Final

EXCHANGES: Final = re.compile(rb"(celery_delayed|nsb\.v2\.delay-level)[_-](?:[0-9]|1[0-9]|2[0-7])")
BITS: Final = re.compile(rb"(?:[01]\.){28}")


def destination(exchange: bytes, routing_key: bytes) -> tuple[bytes, bytes]:
    """Exchange and routing key that a publish counts for: the highest of the exchanges, and the key without the bits."""
    found = EXCHANGES.fullmatch(exchange)
    bits = None if found is None else BITS.match(routing_key)
    if found is None or bits is None:
        return exchange, routing_key
    level = found.end(1)
    return b"%b%b27" % (found.group(1), exchange[level : level + 1]), routing_key[bits.end() :]
