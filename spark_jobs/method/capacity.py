"""Capacity: when all quotas together would be more than the broker can carry, weighted max-min shares it."""

from __future__ import annotations

import numpy as np

from spark_jobs.method.memory import Floats


def share(wanted: Floats, weights: Floats, capacity: float) -> Floats:
    """`wanted` where it fits; else the level L with sum(min(wanted, weight x L)) = `capacity`, and each topic its part of that.

    Topics that want less than their share keep all of it; what they leave goes to the others. NaN (no quota) stays NaN and takes nothing.
    """
    known = ~np.isnan(wanted)
    if not capacity or np.where(known, wanted, 0.0).sum() <= capacity:
        return wanted
    asked, weight = wanted[known], np.maximum(weights[known], 1e-9)
    order = np.argsort(asked / weight)
    asked, weight = asked[order], weight[order]
    before = np.concatenate([[0.0], np.cumsum(asked)[:-1]])
    open_weight = np.cumsum(weight[::-1])[::-1]
    levels = (capacity - before) / open_weight
    at = int(np.argmax(levels <= asked / weight))  # the first topic that does not get all
    found = asked.copy()
    found[at:] = weight[at:] * levels[at]
    shared = wanted.copy()
    back = np.empty_like(found)
    back[order] = found
    shared[known] = back
    return shared
