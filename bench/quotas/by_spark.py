"""The job's own way from the log of a day to its state: python -m quotas.by_spark LOG STATE DATE HEAP."""

from __future__ import annotations

import json
import sys
from typing import Any

from spark_jobs.day import DayTask, learn_day
from spark_jobs.days import Day
from spark_jobs.session import spark_session
from spark_jobs.sizing import estimate_lines_bytes
from spark_jobs.state.state import DayStates
from spark_jobs.storage.choice import storage_for
from spark_jobs.storage.location import Location


def main(log: str, state: str, date: str, heap: str) -> dict[str, Any]:
    where, kept = Location.of("log", log), Location.of("state", state)
    size = estimate_lines_bytes((entry.name, entry.size) for entry in storage_for(where).files(where))
    with spark_session("local[2]", log_bytes=size, driver_memory=heap or None) as spark:
        task = DayTask(where, storage_for(where, spark), Day(date), DayStates(kept, storage_for(kept, spark)), "bench", "bench")
        manifest = learn_day(spark, task)
        task.state.publish(manifest)
        topics = spark.read.parquet(str(task.state.data(manifest).child("topics"))).where("dimension = 'messages'")
        count, messages = topics.selectExpr("count(*)", "sum(passed)").collect()[0]
    return {"lines": manifest.rows, "duplicates": manifest.duplicates, "topics": count, "messages": messages}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
