"""A rank test: whether one group of numbers is larger than another, or only seems so. It asks nothing of how they are spread."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb


def chance(larger: Sequence[float], smaller: Sequence[float]) -> float:
    """How likely ranks of `larger` as high as these are, or higher, if both groups were alike: Mann and Whitney's test, one-sided, exact.

    For small groups: it looks at every way to choose the one from both.
    """
    pooled = sorted([*larger, *smaller])
    ranks = {value: pooled.index(value) + (pooled.count(value) - 1) / 2 for value in pooled}  # ties have the middle of their places
    observed = sum(ranks[value] for value in larger)
    sums = (sum(chosen) for chosen in combinations([ranks[value] for value in pooled], len(larger)))
    return sum(each >= observed for each in sums) / comb(len(pooled), len(larger))
