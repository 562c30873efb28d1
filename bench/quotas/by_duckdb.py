"""The same aggregation by DuckDB: python -m quotas.by_duckdb LOG OUTPUT DATE HEAP.

Lines are parsed with the fields that quotas need, each (gateway, boot, seq) counts once, and what passed, was refused, delayed or dropped
is added up per topic and second and written as Parquet. It neither looks for damaged lines nor makes loss surfaces, as the job does.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import duckdb

COLUMNS = {
    "v": "BIGINT", "ts": "BIGINT", "gateway": "VARCHAR", "boot": "VARCHAR", "seq": "BIGINT", "heartbeat": "BOOLEAN", "protocol": "VARCHAR",
    "topic": "VARCHAR", "operation": "VARCHAR", "messages": "BIGINT", "bytes": "BIGINT", "refused_messages": "BIGINT",
    "refused_bytes": "BIGINT", "delayed_messages": "BIGINT", "dropped_messages": "BIGINT", "max_100ms_messages": "BIGINT",
}  # fmt: skip
COUNTS = [name for name, kind in COLUMNS.items() if kind == "BIGINT" and name not in ("v", "ts", "seq")]


def main(log: str, output: str, date: str, heap: str) -> dict[str, Any]:
    names = ", ".join(f"{name}: '{kind}'" for name, kind in COLUMNS.items())
    with tempfile.TemporaryDirectory() as scratch, duckdb.connect(config={"threads": 2, "temp_directory": scratch}) as base:
        base.execute(f"SET memory_limit='{heap or '4g'}B'")
        base.execute(f"""
            CREATE TEMP TABLE lines AS
            SELECT gateway, boot, seq, count(*) AS copies, {
            ", ".join(f"any_value({name}) AS {name}" for name in COLUMNS if name not in ("v", "gateway", "boot", "seq"))
        }
            FROM read_json('{log}/dt={date}/*/*', format='newline_delimited', columns={{{names}}}) GROUP BY ALL""")
        Path(output).mkdir(parents=True, exist_ok=True)
        base.execute(f"""
            COPY (SELECT protocol, topic, ts, {", ".join(f"sum({name}) AS {name}" for name in COUNTS)},
                  max(ceil((bytes + refused_bytes) / nullif(messages + refused_messages, 0))) AS largest
                  FROM lines WHERE heartbeat IS NULL AND operation = 'produce' GROUP BY ALL)
            TO '{output}/seconds.parquet'""")
        lines, distinct = base.execute("SELECT sum(copies), count(*) FROM lines").fetchall()[0]
        found = base.execute(f"SELECT count(DISTINCT topic), sum(messages) FROM '{output}/seconds.parquet'").fetchall()[0]
    return {"lines": int(lines), "duplicates": int(lines) - distinct, "topics": found[0], "messages": int(found[1])}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
