"""What became of a refused part, and how it is counted. The common ground of the actions that end it."""

from __future__ import annotations

from gateway.conversation import DROPPED, REFUSED
from gateway.messages import Part


def counted(part: Part, outcome: int) -> bool:
    """Count `part` as refused or dropped; False, counting nothing, where it is still to be settled (UNABLE, LATER)."""
    key = part.key
    assert key is not None
    tally = key.tally
    if outcome == REFUSED:
        tally.refused += part.count * part.messages
        tally.refused_bytes += part.count * part.size
    elif outcome == DROPPED:
        tally.dropped += part.count * part.messages
        tally.dropped_bytes += part.count * part.size
    else:
        return False
    return True
