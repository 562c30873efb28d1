"""What a limit would have refused lately, had it held: an estimate from a topic's series, for the preview of a change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from limiter.limits import Limit

SECONDS: Final = 300  # that are looked back at


class WouldHaveRefused(msgspec.Struct, frozen=True):
    """An estimate: of `of` messages that arrived in the last `seconds`, `messages` would have been over the limit.

    It is worked out from the messages of each second, with a full bucket at the beginning. Messages that clients sent again because they
    were refused count each time, and bytes are not looked at.
    """

    messages: int
    of: int
    seconds: int


def would_have_refused(received: Sequence[float | None], limit: Limit) -> WouldHaveRefused | None:
    """`received`: messages in each second, None where that is not known. None: there is nothing to tell from."""
    known = [count for count in received if count is not None]
    if not known:
        return None
    rate = limit.messages
    refused = 0.0
    if rate is not None:
        most = float(limit.messages_capacity())
        tokens = most
        for count in known:
            there = tokens + rate.per_second  # what arrives within a second also finds the tokens of that second
            passed = min(count, there)
            tokens = min(most, there - passed)
            refused += count - passed
    return WouldHaveRefused(round(refused), round(sum(known)), len(known))
