"""Turns of those that have waited: a batch, or a larger message, beside smaller ones, which take what comes in as it comes.

What one has cost is kept as a number up to which others must have got as much (`until`), in what has been let through in all (`admitted`).
"""

from __future__ import annotations


def is_turn_of(cost: int, admitted: int, until: int) -> bool:
    """Whether one that has waited may owe `cost`: at `until` others have got as much as was owed before.

    They may lack half of it, so that small ones, which wait and owe as well, do not keep a large one from its turn.
    """
    return 2 * (until - admitted) <= cost


def turns_until(cost: int, admitted: int, until: int) -> int:
    """`until` after one of `cost`, admitted already, has left a debt.

    One that costs more than a full bucket does so whatever others lack: of that, twice its cost is remembered.
    """
    lacking = max(0, until - admitted + cost)
    return admitted + max(lacking, min(lacking + cost, 2 * cost))
