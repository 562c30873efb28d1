"""The range of the share that a month of such nights refuses, from how much the past nights differed.

One figure is no promise where few events decide: a fleet of two topics that refused 0.02 % of a month may refuse 0.2 % of the next one. So
the share of the next LONG_NIGHTS nights is predicted as lognormal: the middle is the share of all past nights, the spread comes from how
far single nights were from it. It counts twice, because the past month is as much a sample as the next one.

k goes on towards the target meanwhile. A fleet of sparse topics that refused 0.29 % while k went from 2 to 3 refused 0.17 % in the month
in which it went on. So the range is that of the past nights at the k of today; where k rises it begins at nothing, and where k falls
it reaches to their refusals at the mean k of a month that lowers it as far as it may (`scale.predict_change`).

No range holds what no night has shown. A month of one topic with events refused up to 70 times what the one before did, or a seventieth of
it. So on less than LEAST_EVIDENCE only an upper end is promised, from chance alone: the worst event of the month to come is as likely as
not worse than that of the past month, and TAIL times worse in one of ten months, where ten times as much comes a tenth as often. And a
month without an event is as likely as one with it where a few nights are all that was refused: then the range begins at nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

LONG_NIGHTS: Final = 28
LEAST_NIGHTS: Final = 14  # two of each weekday; before that a spread is a guess
SIGMAS: Final = 2.0  # nine of ten months hold with it where events come in one of four nights; with 1.64, four of five
LEAST_EVIDENCE: Final = 100.0  # nights x topics, as the guard's (a guess; of 96 generated months 72 have less)
TAIL: Final = 9.0  # times what was refused and the target, which is the doubt of k: exceeded with a chance of 1 / (1 + TAIL)
FEW_NIGHTS: Final = 5.0  # equal ones that all refusals are worth; with fewer a month may refuse nothing (a guess)


class NightShare(NamedTuple):
    """A past night: the refused share, the offered messages, and how many topics of equal size they are worth."""

    share: float
    offered: float
    topics: float


def predict_interval(nights: Sequence[NightShare], target: float, to_come: tuple[float, float] = (1.0, 1.0)) -> tuple[float, float] | None:
    """Past nights, newest last → the range of the share that nine of ten months of such nights refuse; None where too few are known, or
    many topics refused nothing. `to_come`: the least and the greatest factor of these refusals, as far as k is another by then."""
    recent = [night for night in nights[-LONG_NIGHTS:] if night.offered > 0]
    lost = [night.share * night.offered for night in recent]
    refused = sum(lost)
    if len(recent) < LEAST_NIGHTS:
        return None
    middle = refused / sum(night.offered for night in recent)
    least, most = to_come
    if sum(night.topics for night in recent) < LEAST_EVIDENCE:
        return 0.0, min(TAIL * (middle * max(most, 1.0) + target), 1.0)
    if refused <= 0:
        return None
    variance = sum(((night.share - middle) * night.offered) ** 2 for night in recent) * len(recent) / (len(recent) - 1) / refused**2
    both = variance * (1 + LONG_NIGHTS / len(recent)) * len(recent) / LONG_NIGHTS  # variance of the past nights and of the month to come
    width = math.exp(SIGMAS * math.sqrt(math.log1p(both)))
    few = refused**2 / sum(each**2 for each in lost) < FEW_NIGHTS
    return 0.0 if few else middle * least / width, min(middle * most * width, 1.0)
