"""The quick answer: a contender's refusals, from the loss surfaces of the daily states instead of the logs.

A surface knows one token bucket per topic, fed once a second, without a breaker. So rules of other levels are left out, blackouts and
clients are not known, and the messages of a second come at once; the larger share counts, that of messages or of bytes. The exact answer
may differ from it, for one bucket of a second's rate or more, as far as is stated here, and a test holds that:

* The exact one refuses no less than a bucket with one second's rate more of burst would, fed once a second. (Take all that the limiter let
  pass, and move each message to the beginning of its second: in no stretch of time is it more than burst + rate x (its length + 1 s).)
* Without a breaker it refuses no more than a bucket with one second's rate less of burst would. (The same the other way round.)
* A breaker adds at most the rate x its time, and one message, each time it opens. (When it opens the bucket is empty; when it closes
  no token was lost. While it is open a bucket without one would have let the messages pass.) It opens at most once per second in which
  something was refused.

The surface's own error between its grid points (`state.loss_surface`) comes on top. Both count the same demand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from limiter.limits import SECOND
from spark_jobs.backtest.reserve import topic_limit
from spark_jobs.backtest.result import Outcome
from spark_jobs.state.loss_surface import Surface, Surfaces
from spark_jobs.state.topic_day import read_surface

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spark_jobs.backtest.contender import Contender

NO_TOTAL: Final = Surface(0, np.zeros((0, 5), np.float32), 0.0)


class StateDay:
    """The table `topics` of one day, both dimensions of a topic side by side."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        by_topic: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
        for row in rows:
            by_topic.setdefault((row["protocol"], row["topic"]), {})[row["dimension"]] = row
        self.topics = sorted(by_topic)
        self.totals = [tuple(_read_total(by_topic[name].get(dimension)) for dimension in ("messages", "bytes")) for name in self.topics]
        self.surfaces = {
            dimension: Surfaces([_read_surface(by_topic[name].get(dimension)) for name in self.topics])
            for dimension in ("messages", "bytes")
        }


def _read_total(row: Mapping[str, Any] | None) -> int:
    return 0 if row is None else int(row["total"])


def _read_surface(row: Mapping[str, Any] | None) -> Surface:
    return NO_TOTAL if row is None else read_surface(dict(row))


def judge_quickly(day: StateDay, contender: Contender) -> tuple[list[Outcome], list[str]]:
    """One outcome per topic of the day (`days` 0, no reserve), and a sentence where rules of the contender are left out."""
    rules = contender.rule_set()
    others = sorted({rule.name for rule in rules.rules if rule.per != "topic" and rule.mode == "enforce"})
    notes = [f"the quick answer leaves out rules that are not per topic: {', '.join(others)}"] if others else []
    limits = [topic_limit(rules, protocol, topic) for protocol, topic in day.topics]
    lost = []
    for dimension in ("messages", "bytes"):
        rates = [limit.messages if dimension == "messages" else limit.bytes for limit in limits]
        bursts = [limit.messages_capacity() if dimension == "messages" else limit.bytes_capacity() for limit in limits]
        per_second = np.array([np.nan if rate is None else rate.amount * SECOND / rate.per_ns for rate in rates], np.float64)
        lost.append(np.nan_to_num(day.surfaces[dimension].interpolate_loss(per_second, np.array(bursts, np.float64))))
    found = []
    for at, (protocol, topic) in enumerate(day.topics):
        messages, size = day.totals[at]
        shares = [lost[0][at] / messages if messages else 0.0, lost[1][at] / size if size else 0.0]
        share = min(1.0, max(shares))
        found.append(
            Outcome(
                contender.name, protocol, topic, offered=messages, offered_bytes=size,
                refused=round(share * messages), refused_bytes=round(share * size), limited_seconds=None, blackout=None,
            )
        )  # fmt: skip
    return found, notes
