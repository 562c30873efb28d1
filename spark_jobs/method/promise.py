"""What a month of such nights refuses: a range, from how much the past nights differed.

One figure is no promise where few events decide: a fleet of two topics that refused 0.02 % of a month may refuse 0.2 % of the next one. So
the share of the next LONG_NIGHTS nights is foreseen as lognormal: the middle is what was refused of all that was offered, the spread comes
from how far single nights were from it. It counts twice, because the past month is as much a sample as the next one. What no night has
shown is in no range: it says what can be seen, not what can happen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

LONG_NIGHTS: Final = 28
LEAST_NIGHTS: Final = 14  # two of each weekday; before that a spread is a guess
SIGMAS: Final = 2.0  # nine of ten months hold with it where events come in one of four nights; with 1.64, four of five


def promise(nights: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """(share refused, offered) of past nights, newest last → the range of the share that nine of ten months of such nights refuse; None
    where too few nights are known, or none of them refused anything."""
    recent = [(share, offered) for share, offered in nights[-LONG_NIGHTS:] if offered > 0]
    refused = sum(share * offered for share, offered in recent)
    if len(recent) < LEAST_NIGHTS or refused <= 0:
        return None
    middle = refused / sum(offered for _, offered in recent)
    variance = sum(((share - middle) * offered) ** 2 for share, offered in recent) * len(recent) / (len(recent) - 1) / refused**2
    both = variance * (1 + LONG_NIGHTS / len(recent)) * len(recent) / LONG_NIGHTS  # of the past nights, and of the month to come
    width = math.exp(SIGMAS * math.sqrt(math.log1p(both)))
    return middle / width, min(middle * width, 1.0)
