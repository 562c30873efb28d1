"""Counts what became of a refused part: for its key, and for the limit it was over. All actions use it.

Each action returns that outcome: REFUSED, DROPPED or HELD.
"""

from __future__ import annotations

from typing import Final

from gateway.pipeline.conversation import DROPPED, REFUSED
from gateway.pipeline.parts import Part
from limiter.columns import Refusal
from limiter.decisions.caps import is_cap
from limiter.rules.rule import HAS_COPIES, TOO_LARGE

HELD: Final = 4  # outcome of an action beside REFUSED and DROPPED: the part is kept here, and judged again


def count_outcome(part: Part, outcome: int) -> bool:
    """Count `part` as refused or dropped; False, counting nothing, where it is still to be settled (UNABLE, LATER)."""
    key = part.key
    assert key is not None
    tally = key.tally
    bucket = part.bucket
    if outcome == REFUSED:
        tally.refused += part.count * part.messages
        if bucket is not None and is_cap(bucket):
            tally.refused_share += part.count * part.messages
        if part.unfit == TOO_LARGE:
            tally.refused_size += part.count * part.messages
        elif part.unfit == HAS_COPIES:
            tally.refused_copies += part.count * part.messages
        tally.refused_bytes += part.count * part.size
    elif outcome == DROPPED:
        tally.dropped += part.count * part.messages
    else:
        return False
    if bucket is not None:
        bucket.refused += part.count * part.messages
    return True


def count_refusal(refusal: Refusal) -> None:
    """Count the messages of `refusal` as refused. No cap refuses so, and no message for what it is."""
    tally = refusal.of_key.key.tally
    tally.refused += refusal.count
    tally.refused_bytes += refusal.size
    refusal.bucket.refused += refusal.count


def count_held(part: Part) -> None:
    """Count `part` as held; once, however often it is judged again. A request for messages counts one at the limit that holds it."""
    key = part.key
    assert key is not None
    key.tally.delayed += part.count * part.messages
    bucket = part.bucket
    if bucket is not None:
        bucket.held += part.count * max(part.messages, 1)
