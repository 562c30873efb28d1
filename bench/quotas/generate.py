"""Writes one day of access log, quickly: topics by Zipf, several gateways, hour by hour as gateways write it.

Lines are put together column by column with Arrow, not one by one: about a microsecond of processor time each. The same arguments give
the same bytes.
"""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from datetime import date as calendar_date
from pathlib import Path
from typing import BinaryIO, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

DAY_S: Final = 86_400
HOUR_S: Final = 3_600
GATEWAYS: Final = 3
CLIENTS: Final = 5  # per topic and gateway: each is a line of its own in a second
ZIPF: Final = 1.1  # exponent; the first of 10,000 topics then has a seventh of all lines
REFUSED_SHARE: Final = 0.02  # of lines that have refused messages
ROLL_S: Final = 300  # seconds of a small file


def write_log(folder: Path, date: str, lines: int, topics: int = 10_000, *, packed: bool = False, seed: int = 17) -> int:
    """Write about `lines` lines of `date` (UTC) under `folder`; `packed` with gzip. Returns their exact number."""
    start = int(datetime.combine(calendar_date.fromisoformat(date), datetime.min.time(), UTC).timestamp())
    random = np.random.default_rng(seed)
    weights = np.cumsum(np.arange(1, topics + 1, dtype=np.float64) ** -ZIPF)
    weights /= weights[-1]
    names = pa.array([f"orders-{at:05d}" for at in np.random.default_rng(seed).permutation(topics)])  # a name says nothing of its volume
    per_hour = max(0, lines // GATEWAYS // 24 - HOUR_S)  # besides the heartbeats
    written = 0
    for gateway in range(GATEWAYS):
        seq = 0
        for hour in range(24):
            rows = _hour(random, names, weights, start + hour * HOUR_S, per_hour, gateway, seq)
            seq += len(rows)
            written += len(rows)
            _write(folder / f"dt={date}" / f"hr={hour:02d}" / f"gateway-{gateway}-b{gateway:031x}-{hour:06d}.jsonl", rows, packed)
    return written


def write_files(folder: Path, date: str, gateways: int = 70) -> int:
    """Write the day of `gateways` that roll their file every five minutes and have two lines to say. Returns the number of lines."""
    start = int(datetime.combine(calendar_date.fromisoformat(date), datetime.min.time(), UTC).timestamp())
    for gateway in range(gateways):
        for at, second in enumerate(range(0, DAY_S, ROLL_S)):
            boot = f"b{gateway:031x}"
            head = {"v": 1, "ts": start + second, "gateway": f"gateway-{gateway}", "boot": boot}
            usage = {
                "protocol": "rocketmq", "topic": f"orders-{at % 100:02}", "client": f"10.0.0.{gateway}", "user": None, "group": "p1",
                "operation": "produce", "messages": 1 + at % 7, "bytes": 700, "max_100ms_messages": 1, "revision": 42,
            }  # fmt: skip
            lines = ({**head, "seq": 2 * at, **usage}, {**head, "seq": 2 * at + 1, "heartbeat": True, "revision": 42})
            path = folder / f"dt={date}" / f"hr={second // HOUR_S:02d}" / f"gateway-{gateway}-{boot}-{at:06d}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    return 2 * gateways * DAY_S // ROLL_S


def _write(path: Path, rows: pa.StringArray, packed: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = rows.buffers()[2]
    if packed:
        with gzip.open(path.with_name(path.name + ".gz"), "wb", compresslevel=1) as file:
            cast(BinaryIO, file).write(memoryview(data))
    else:
        path.write_bytes(memoryview(data))


def _hour(
    random: np.random.Generator, names: pa.StringArray, weights: np.ndarray[tuple[int], np.dtype[np.float64]], start: int, lines: int,
    gateway: int, seq: int,
) -> pa.StringArray:  # fmt: skip
    """The lines of one hour and gateway, each with its end, in the order of their seconds; a heartbeat ends each second."""
    beats = np.arange(HOUR_S)
    second = np.concatenate([np.sort(random.integers(0, HOUR_S, lines)), beats])
    order = np.argsort(second, kind="stable")
    second = second[order]
    is_beat = order >= lines
    n = len(second)
    topic = names.take(pa.array(np.searchsorted(weights, random.random(n)).astype(np.int32)))
    client = random.integers(0, CLIENTS, n)
    messages = random.geometric(0.05, n)
    refused = np.where(random.random(n) < REFUSED_SHARE, random.geometric(0.1, n), 0)
    size = random.integers(100, 1_000, n)
    head = pc.binary_join_element_wise(
        '{"v":1,"ts":',
        _text(start + second),
        f',"gateway":"gateway-{gateway}","boot":"b{gateway:031x}","seq":',
        _text(seq + np.arange(n)),
        "",
    )
    counts = pc.binary_join_element_wise(
        head, ',"protocol":"rocketmq","topic":"', topic, f'","client":"10.0.{gateway}.', _text(client),
        '","user":null,"group":"p', _text(client),
        '","operation":"produce","messages":', _text(messages), ',"bytes":', _text(messages * size), ',"refused_messages":', _text(refused),
        ',"refused_bytes":', _text(refused * size), ',"delayed_messages":0,"dropped_messages":0,"bypassed_messages":0,'
        '"shadow_refused_messages":0,"max_100ms_messages":', _text((messages + refused + 9) // 10), ',"revision":42}\n', "",
    )  # fmt: skip
    beat = pc.binary_join_element_wise(head, ',"heartbeat":true,"revision":42}\n', "")
    return pc.if_else(pa.array(is_beat), beat, counts)


def _text(numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.StringArray:
    return pc.cast(pa.array(numbers), pa.string())
