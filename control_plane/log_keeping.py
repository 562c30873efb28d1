"""Has the access log's closed files compressed and deleted, by a child process now and then (`common/log_files/keeper.py`).

The gateway only starts the child, waits for its report and tells it: log lines, metrics, a warning while files that should go may not.
One process of a gateway does this: the one that has the state directory.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import trio

from common import log, log_files
from common.log_files.compression import ZSTD_EXTRA, choose_codec
from common.log_files.keeper import Order, Report, read_report
from common.supervised_loop import SupervisedLoop
from control_plane.child_processes import child_environment
from limiter.units import format_size

if TYPE_CHECKING:
    from config import Settings
    from gateway.telemetry.exposition import Samples

FIRST_S: Final = 10.0  # seconds; after the start, when there is much else to do (a guess)
ROUND_S: Final = 300.0  # seconds; between two rounds: 0.05 s of processor each with nothing there, 0.25 s with 30 days' files (2026-11)
MAX_ROUND_S: Final = 6 * 3600.0  # seconds; a child that takes longer hangs, on a dead mount for example (a guess)


class LogKeeping:
    """The rounds over one directory, and what the last of them found."""

    def __init__(self, settings: Settings) -> None:
        found = settings.access_log
        self.report = Report()
        self.deleted_bytes = 0  # since the start
        self.failures = 0  # rounds and files that failed, since the start
        self.order: Order | None = None
        self._held = False
        self._faults: list[str] = []  # those that were told
        if found is not None:
            codec = choose_codec(found.compress)
            self.order = Order(str(found.directory), codec, found.keep_ns // 1_000_000_000, found.keep_size, found.keep_until)
            self._asked = found.compress

    def take_settings(self, settings: Settings) -> None:
        """Keep files by these from the next round on. To turn the access log on or off, or to move it, needs a restart."""
        if self.order is None or settings.access_log is None:
            return
        before, found = self.order, settings.access_log
        self.order = Order(
            before.directory, choose_codec(found.compress), found.keep_ns // 1_000_000_000, found.keep_size, found.keep_until
        )
        self._asked = found.compress
        if self.order != before:
            self._say_how(self.order)

    async def run(self) -> None:
        """Until cancelled; a child that runs then is ended, which costs nothing."""
        if self.order is None:
            return
        self._say_how(self.order)
        loop = SupervisedLoop("access log files")
        await trio.sleep(FIRST_S)
        while True:
            with loop:
                await self.round(self.order)
            await trio.sleep(ROUND_S)

    def _say_how(self, order: Order) -> None:
        """Once. That the default has come to gzip is nothing to worry about; that what was asked for cannot be had is."""
        note = remedy = None
        if order.codec == "gzip" and self._asked == "zstd":
            remedy = f"gzip is used: zstd needs the Python package zstandard, which is missing; {ZSTD_EXTRA}, or write compress: auto"
        elif order.codec == "gzip" and self._asked == "auto":
            note = f"nothing to do: gzip is used, which needs no package; zstd takes a fifth of the processor, after {ZSTD_EXTRA}"
        log.event(
            logging.INFO if remedy is None else logging.WARNING, "access_log_kept", directory=order.directory, compress=order.codec,
            keep_seconds=order.keep_s, keep_size=order.keep_size, keep_until=order.keep_until, note=note, remedy=remedy,
        )  # fmt: skip

    async def round(self, order: Order) -> None:
        """One round, in a child. Raises OSError, ValueError, TypeError where the child does not do its part."""
        with trio.move_on_after(MAX_ROUND_S) as late:
            ended = await trio.run_process(
                [sys.executable, "-P", "-m", f"{log_files.__name__}.keeper", json.dumps(asdict(order))],
                capture_stdout=True, capture_stderr=True, check=False, env=child_environment(), stdin=subprocess.DEVNULL,
            )  # fmt: skip
        if late.cancelled_caught:
            self._fail(f"a round over {order.directory} took longer than {MAX_ROUND_S / 3600:.0f} h; is its disk there?")
        elif ended.returncode:
            self._fail(f"a round over {order.directory} ended with {ended.returncode}: {ended.stderr.decode(errors='replace')[-500:]}")
        else:
            self.take(read_report(ended.stdout.decode()))

    def take(self, report: Report) -> None:
        """Tell what a round did."""
        if report.busy:
            return
        self.report = report
        self.deleted_bytes += report.deleted_bytes
        for name in report.closed:
            log.event(logging.WARNING, "access_log_closed", file=name, remedy="a gateway did not close it; its last line may be torn")
        if report.deleted_files:
            log.event(
                logging.INFO, "access_log_deleted", files=report.deleted_files, bytes=report.deleted_bytes, to=report.deleted_to
            )  # fmt: skip
        if (report.held_files > 0) != self._held:
            self._held = report.held_files > 0
            if self._held:
                log.event(logging.WARNING, "access_log_held", files=report.held_files, bytes=report.held_bytes, remedy=self._way_out())
        for fault in report.faults:
            self.failures += 1
            if fault not in self._faults:  # once, not every round
                log.event(logging.ERROR, "access_log_keeping_failed", err=fault)
        self._faults = report.faults

    def _fail(self, why: str) -> None:
        self.failures += 1
        log.event(logging.ERROR, "access_log_keeping_failed", err=why)

    def _way_out(self) -> str:
        why = "not shipped: look why `sluice log ship` does not run"
        if self.report.waits_for == "counted":
            why = "no nightly job has counted them: look why `sluice quotas nightly` does not run"
        return f"they are older than access_log.keep or beyond keep_size, but {why}"

    def warnings(self) -> list[str]:
        """What operators should look at."""
        if not self.report.held_files:
            return []
        return [
            f"access log: {format_size(self.report.held_bytes)} in {self.report.held_files} files should be deleted and may not: "
            + self._way_out()
        ]

    def samples(self) -> Samples:
        """For `/metrics`."""
        report = self.report
        if self.order is None:
            return {}
        return {
            "sluice_access_log_bytes": [((), report.bytes)],
            "sluice_access_log_files": [((), report.files)],
            "sluice_access_log_oldest_hour_timestamp_seconds": [((), report.oldest)] if report.oldest else [],
            "sluice_access_log_unshipped_files": [((), report.unshipped_files)] if report.unshipped_files >= 0 else [],
            "sluice_access_log_held_bytes": [((), report.held_bytes)],
            "sluice_access_log_deleted_bytes_total": [((), self.deleted_bytes)],
            "sluice_access_log_keeping_failures_total": [((), self.failures)],
        }

    def __repr__(self) -> str:
        return f"<LogKeeping of {self.order.directory if self.order else 'off'}>"
