"""The metrics with one series per topic and operation: most of a scrape, so they have a writer of their own.

The text of a topic's labels is made once for all its metrics. Series are capped: MAX_TOPICS_SHOWN topics have their own, and the others are
summed under `__other__`. Which, and how no counter goes back when they change, is said in `gateway/counting/accounts.py`.

The naive way shows the busiest. Then a topic that grows into them takes what it had counted out of `__other__`, which goes back: Prometheus
takes that for a restart and computes a rate from all that is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from gateway.counting.accounts import Accounts, TopicTotals
from gateway.telemetry.exposition import escape, heading
from gateway.telemetry.metrics import METRICS, Metric

REFUSED: Final = "sluice_messages_refused_total"
REDELIVERED: Final = "sluice_messages_redelivered_total"
COLUMNS: Final[dict[str, Callable[[TopicTotals], float]]] = {  # in the order in which they are written
    "sluice_messages_received_total": lambda totals: totals.received,
    "sluice_messages_forwarded_total": lambda totals: totals.forwarded,
    REFUSED: lambda totals: totals.refused - totals.refused_share - totals.refused_size - totals.refused_copies,
    "sluice_messages_delayed_total": lambda totals: totals.delayed,
    "sluice_messages_dropped_total": lambda totals: totals.dropped,
    "sluice_messages_bypassed_total": lambda totals: totals.bypassed,
    "sluice_messages_abandoned_total": lambda totals: totals.abandoned,
    "sluice_messages_shadow_refused_total": lambda totals: totals.shadow_refused,
    REDELIVERED: lambda totals: totals.redelivered,
    "sluice_messages_waiting": lambda totals: totals.waiting,
    "sluice_message_bytes_total": lambda totals: totals.bytes,
    "sluice_message_copies_total": lambda totals: totals.copies,
    "sluice_topic_limited_seconds_total": lambda totals: totals.limited_ns / 1e9,
}
BY_LIMIT: Final = ',reason="limit"'  # behind the labels of the topic in sluice_messages_refused_total
OTHER_REASONS: Final[dict[str, Callable[[TopicTotals], int]]] = {
    ',reason="share"': lambda totals: totals.refused_share,
    ',reason="size"': lambda totals: totals.refused_size,
    ',reason="copies"': lambda totals: totals.refused_copies,
}
Reasons = Sequence[Sequence[tuple[str, int]]]  # of each topic


def topic_lines(accounts: Accounts) -> Iterator[str]:
    """Every per-topic metric, as of now. `accounts` was folded just before.

    Only the numbers are copied, a metric at a time: copies of the topics took twice as long (2026-11).
    """
    topics = [*(totals.count_since_shown() for totals in accounts.shown.values()), *accounts.list_others()]
    others = [[(reason, count) for reason, column in OTHER_REASONS.items() if (count := column(totals))] for totals in topics]
    none: Reasons = [()] * len(topics)
    columns = [(METRICS[name], [*map(column, topics)], others if name == REFUSED else none) for name, column in COLUMNS.items()]
    return _lines(topics, columns)


def _lines(topics: list[TopicTotals], columns: list[tuple[Metric, list[float], Reasons]]) -> Iterator[str]:
    """One series per topic; where something was refused for another reason than its limit, one more for each of these."""
    labels = [f'protocol="{each.protocol}",topic="{escape(each.text)}",operation="{each.operation}"' for each in topics]
    for metric, values, others in columns:
        yield heading(metric)
        name, reason = metric.name, BY_LIMIT if metric.name == REFUSED else ""
        for topic, value, counts in zip(labels, values, others, strict=True):
            if name == REDELIVERED and not value:  # most topics never have any
                continue
            yield f"{name}{{{topic}{reason}}} {value}\n"
            for other, count in counts:
                yield f"{name}{{{topic}{other}}} {count}\n"
