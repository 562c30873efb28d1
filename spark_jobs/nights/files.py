"""The files of each night, under `STATE/nights/dt=DATE`: a night that was cut off goes on where it stopped, one that is done stays so.

| file | written | holds |
|---|---|---|
| `begun.json`, `previous.json` | at the begin | the snapshots that were live then, and all as one: the rails of this night are around it. |
| | | A missed day that a later night computes has the first alone, and is empty |
| `quotas.json` | by the computation | the snapshot as computed; from publishing on, as published: within its rails, and whole |
| `plan.json` | before publishing | the changes, the held rates, the faults that stop it, and the snapshot for each gateway |
| `applied.json` | after publishing | the snapshot of each gateway |
| `report.html`, `.md`, `.json` | at the end | for people |

Beside the nights, `trials.json` says how many shadow nights each gateway's quotas have passed. A gateway itself forgets a trial when the
quotas that came of it are taken back.

Without `previous.json` a second run would take the night's own result for the night before, and let each quota take its step again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from common.failures import FAILED, Failure
from limiter.quota_snapshot import Snapshot, SnapshotError, dump, load

if TYPE_CHECKING:
    from spark_jobs.storage.location import Location
    from spark_jobs.storage.storage import Storage

FOLDER: Final = "nights"
BEGUN: Final = "begun.json"
PREVIOUS: Final = "previous.json"
QUOTAS: Final = "quotas.json"
PLAN: Final = "plan.json"
APPLIED: Final = "applied.json"
REPORT: Final = "report.html"
TRIALS: Final = "trials.json"


class Nights:
    """The folder of nights, and the days that have a state."""

    def __init__(self, storage: Storage, state: Location) -> None:
        self._storage = storage
        self._state = state

    def file(self, date: str, name: str) -> Location:
        return self._state.child(FOLDER, f"dt={date}", name)

    def read(self, date: str, name: str) -> bytes | None:
        """The file's bytes; None where there is none."""
        try:
            return self._storage.read(self.file(date, name))
        except FileNotFoundError:
            return None

    def write(self, date: str, name: str, data: bytes) -> None:
        self._storage.write(self.file(date, name), data)

    def write_json(self, date: str, name: str, value: object) -> None:
        self.write(date, name, json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False).encode() + b"\n")

    def read_snapshot(self, date: str, name: str) -> Snapshot | None:
        """The snapshot in a file; None where there is none. Raises Failure where it is damaged."""
        data = self.read(date, name)
        if data is None:
            return None
        try:
            return load(data)
        except SnapshotError as error:
            raise Failure(FAILED, f"{self.file(date, name).shown}: {error}; remove it and run the night again") from None

    def write_snapshot(self, date: str, name: str, snapshot: Snapshot) -> None:
        self.write(date, name, dump(snapshot))

    def read_json(self, date: str, name: str) -> dict[str, Any]:
        """A JSON file of the night; {} where there is none, or a damaged one."""
        try:
            found = json.loads(self.read(date, name) or b"{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def read_applied(self, date: str) -> dict[str, Any]:
        """The published snapshots, by the gateways' addresses under `gateways`; {} where none was published."""
        return self.read_json(date, APPLIED)

    def forget(self, date: str, *, state: bool = False) -> None:
        """Let the night be computed and published anew; the snapshot that was live before it stays. `state`: the day is forgotten, too, so
        the next night computes it as one it has missed."""
        for name in (QUOTAS, PLAN, APPLIED):
            self._storage.remove(self.file(date, name))
        if state:
            self._storage.remove(self._state.child(f"dt={date}", "manifest.json"))

    def count_passed_nights(self, urls: Iterable[str]) -> int:
        """The shadow nights that the quotas of all these gateways have passed; 0 where one of them has finished no trial."""
        found = self._read_trials()
        return min((each if isinstance(each := found.get(url), int) else 0 for url in urls), default=0)

    def keep_trial(self, urls: Iterable[str], nights: int) -> None:
        """Note that the quotas of these gateways have passed so many shadow nights, unless they have passed more before."""
        found = self._read_trials()
        for url in urls:
            found[url] = max(nights, self.count_passed_nights([url]))
        place = self._state.child(FOLDER, TRIALS)
        self._storage.write(place, json.dumps(found, sort_keys=True, indent=1).encode() + b"\n")

    def _read_trials(self) -> dict[str, Any]:
        try:
            found = json.loads(self._storage.read(self._state.child(FOLDER, TRIALS)))
        except (FileNotFoundError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def list_computed_days(self) -> set[str]:
        """The days that were computed: those with a manifest, which is written last."""
        days = set()
        for entry in self._storage.list(self._state):
            day = parse_day(entry.name)
            if day and entry.is_folder and any(each.name == "manifest.json" for each in self._storage.list(entry.location)):
                days.add(day)
        return days

    def read_manifest(self, date: str) -> dict[str, Any]:
        """The manifest of a day's state; {} where there is none that can be read."""
        try:
            found = json.loads(self._storage.read(self._state.child(f"dt={date}", "manifest.json")))
        except (FileNotFoundError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def list_log_days(storage: Storage, log: Location) -> set[str]:
    """The days (UTC) that the log has a folder for."""
    return {day for entry in storage.list(log) if entry.is_folder and (day := parse_day(entry.name))}


def parse_day(name: str) -> str:
    """`2026-11-20` of `dt=2026-11-20`; "" of another name."""
    found = re.fullmatch(r"dt=(\d{4}-\d\d-\d\d)", name)
    return found[1] if found else ""


def find_missed_days(in_log: set[str], with_state: set[str], date: str, first: str) -> list[str]:
    """The days before `date`, from `first` on, that the log has and no state: oldest first.

    Days before the first state are not among them where there are states: nobody computed them when that was begun, and their log may be
    half deleted by now.
    """
    begin = max(first, min(with_state, default=first))
    return sorted(day for day in in_log - with_state if begin <= day < date)
