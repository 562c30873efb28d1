"""When the messages of one line arrived within their second: the backtest's model of arrivals, for the log does not say.

A line counts the messages of one sender and topic in one second, and the most within 100 ms (`max_100ms_messages`). The naive way puts
the whole second at one instant: then a bucket of less than a second's rate refuses what it would let pass. Spread evenly, no burst within a
second is ever refused. Here the busiest 100 ms arrive at once, in the middle of the second; the rest comes in four equal parts before and
after it. The peaks of several senders fall together: the backtest refuses rather too much than too little.

Demand is what senders asked for: passed, refused and dropped. A message that was held (`delayed`) is demand of the second it came in, not
of the second it left. A refused message that is sent again would count each time, for the log cannot tell a second attempt from
another message; so no more of a topic's refused messages count in a second than for its daily state (`topic_day.find_refused_cap`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

INSTANTS_MS: Final = (100, 300, 500, 700, 900)  # ms of the second; the busiest 100 ms are the third (guess)
WINDOWS: Final = 10  # windows of 100 ms in a second: the busiest holds at least a tenth of it


def spread_over_instants(messages: int, peak: int) -> tuple[int, int, int, int, int]:
    """How many of `messages` arrive at each of INSTANTS_MS, `peak` of them (`max_100ms_messages`) at once."""
    peak = min(messages, max(peak, -(-messages // WINDOWS)))
    each, left = divmod(messages - peak, len(INSTANTS_MS) - 1)
    return each + (left > 0), each + (left > 1), peak, each + (left > 2), each


def cap_each_line(refused: Sequence[int], most: int) -> list[int]:
    """The refused messages of one topic and second that count, line by line: `most` in all, divided in proportion."""
    total = sum(refused)
    if total <= most:
        return list(refused)
    found, before, given = [], 0, 0
    for each in refused:
        before += each
        found.append(most * before // total - given)
        given += found[-1]
    return found


def count_offered(departed: int, delayed: int, waiting: int) -> tuple[int, int]:
    """Messages asked for in a second, and those that wait after it.

    `departed` passed or were refused or dropped in it, `delayed` began to wait, `waiting` did so before.
    """
    after = max(0, waiting + delayed - departed)
    return departed + after - waiting, after
