"""Marks beside a local log that a day was counted: a gateway that keeps its log there deletes no hour before (`docs/access-log.md`).

A log elsewhere was shipped, and its source was free to delete it then; so nothing is marked there.
"""

from __future__ import annotations

import json
from contextlib import suppress

from common.log_files.marks import COUNTED
from spark_jobs.storage.local import LocalStorage
from spark_jobs.storage.location import Location


def mark_counted(log: Location, date: str, start: int, end: int) -> str:
    """Note that the day from `start` to `end` (epoch seconds, end exclusive) is published. Returns a sentence about why that failed, or "".

    The mark is for the log's retention alone: a job without the right to write there does its work all the same.
    """
    if not log.is_local:
        return ""
    mark = json.dumps({"start": start, "end": end}).encode()
    try:
        LocalStorage().write(log.child(COUNTED, f"dt={date}.json"), mark)
    except OSError as error:
        kept = f"gateways there keep it for longer; let this user write to {COUNTED}/"
        return f"cannot note in {log.shown} that {date} is counted: {error}; {kept}"
    return ""


def unmark_counted(log: Location, date: str) -> None:
    """Remove the mark: the day is to be counted again."""
    if log.is_local:
        with suppress(OSError):
            LocalStorage().remove(log.child(COUNTED, f"dt={date}.json"))
