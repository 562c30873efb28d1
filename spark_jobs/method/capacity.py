"""Capacity: when all quotas together would be more than the broker can carry, weighted max-min shares it."""

from __future__ import annotations

import numpy as np

from spark_jobs.method.memory import Floats


def share_capacity(wanted: Floats, weights: Floats, capacity: float, least: Floats | float = 0.0) -> Floats:
    """`wanted` where it fits; else the level L with sum(min(wanted, weight x L)) = `capacity`, and each topic its part of that.

    Topics that want less than their share keep all of it; the others get the rest. NaN (no quota) stays NaN and takes nothing.
    `least` comes first, so nobody is left with nothing; where the capacity is less than that, each has the same part of it.
    """
    known = ~np.isnan(wanted)
    if not capacity or np.where(known, wanted, 0.0).sum() <= capacity:
        return wanted
    kept = np.minimum(np.broadcast_to(least, wanted.shape)[known], wanted[known])
    asked, weight = wanted[known] - kept, np.maximum(weights[known], 1e-9)
    shared = wanted.copy()
    left = capacity - kept.sum()
    if left <= 0:
        shared[known] = kept * (capacity / kept.sum())
        return shared
    order = np.argsort(asked / weight)
    asked, weight = asked[order], weight[order]
    before = np.concatenate([[0.0], np.cumsum(asked)[:-1]])
    open_weight = np.cumsum(weight[::-1])[::-1]
    levels = (left - before) / open_weight
    at = int(np.argmax(levels <= asked / weight))  # the first topic that does not get all
    found = asked.copy()
    found[at:] = weight[at:] * levels[at]
    back = np.empty_like(found)
    back[order] = found
    shared[known] = kept + back
    return shared


def share_rest(wanted: Floats, weights: Floats, capacity: float, least: Floats, fixed: Floats, elsewhere: float) -> Floats:
    """`share_capacity` of the rest that `fixed` rates (NaN: the topic has none) and `elsewhere`, both set by others, leave of `capacity`.

    Where they leave nothing, each other topic has its `least`: a quota of nothing would shut it.
    """
    if not capacity:
        return wanted
    own = np.where(np.isnan(fixed), wanted, np.nan)
    left = capacity - np.nansum(fixed) - elsewhere
    shared = share_capacity(own, weights, left, least) if left > 0 else np.fmin(own, np.where(np.isnan(own), np.nan, least))
    return np.where(np.isnan(fixed), shared, wanted)
