"""The state of a day by plain Python, one line at a time: what the Spark part of the nightly job is held against."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from spark_jobs.days import Day
from spark_jobs.state.topic_day import TopicSeconds, make_topic_rows


class OracleDay(NamedTuple):
    """Counts of the day, and its rows of the table `topics` by (protocol, topic, dimension)."""

    lines: int
    corrupt: int
    duplicates: int
    missing_lines: int
    observed_seconds: int
    gateways: dict[str, int]  # name -> seconds
    topics: dict[tuple[str, str, str], dict[str, Any]]


NEEDED = ("v", "ts", "gateway", "boot", "seq")
SUMS = {
    "passed": "messages", "refused": "refused_messages", "delayed": "delayed_messages", "dropped": "dropped_messages",
    "passed_bytes": "bytes", "refused_bytes": "refused_bytes", "peak_100ms": "max_100ms_messages",
}  # fmt: skip


def oracle(texts: Iterable[str], day: Day) -> OracleDay:
    """`texts` are lines in any order; those of which one is no good line of the day must be no JSON."""
    lines, corrupt = 0, 0
    kept: dict[tuple[str, str, int], dict[str, Any]] = {}
    copies = 0
    for text in texts:
        lines += 1
        try:
            line = json.loads(text)
        except ValueError:
            corrupt += 1
            continue
        identity = (line["gateway"], line["boot"], line["seq"])
        copies += identity in kept
        kept.setdefault(identity, line)
    runs: dict[tuple[str, str], list[int]] = defaultdict(list)
    seconds: dict[str, set[int]] = defaultdict(set)
    usage: dict[tuple[str, str], dict[int, dict[str, int]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
    shares: dict[tuple[str, str], dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for (gateway, boot, seq), line in kept.items():
        runs[gateway, boot].append(seq)
        seconds[gateway].add(line["ts"])
        if line.get("heartbeat") or line["operation"] != "produce":
            continue
        key = (line["protocol"], line["topic"])
        total = usage[key][line["ts"]]
        for name, field in SUMS.items():
            total[name] += line.get(field) or 0
        offered = line["messages"] + (line.get("refused_messages") or 0)
        if offered:
            total["largest"] = max(total["largest"], -(-(line["bytes"] + (line.get("refused_bytes") or 0)) // offered))
        shares[key][gateway][0] += line["messages"]
        shares[key][gateway][1] += line["bytes"]
    observed = sorted(set().union(*seconds.values()))
    tick = {second: at for at, second in enumerate(observed)}
    batch = []
    for (protocol, topic), found in sorted(usage.items()):
        if topic.startswith(("%RETRY%", "%DLQ%", "rmq_sys_")):
            continue
        own = sorted(found)
        columns: dict[str, Any] = {name: np.array([found[second][name] for second in own], np.int64) for name in (*SUMS, "largest")}
        gateways = sorted((name, counts[0], counts[1]) for name, counts in shares[protocol, topic].items())
        ticks = np.array([tick[second] for second in own], np.int64)
        batch.append(TopicSeconds(protocol, topic, np.array(own, np.int64), ticks, **columns, gateways=gateways))
    table = make_topic_rows(batch, day, len(observed)).to_pylist()
    return OracleDay(
        lines, corrupt, copies,
        sum(max(numbers) - min(numbers) + 1 - len(numbers) for numbers in runs.values()),
        len(observed), {name: len(found) for name, found in seconds.items()},
        {(row["protocol"], row["topic"], row["dimension"]): row for row in table},
    )  # fmt: skip
