"""Schedules with a spool: what a rule refuses waits in a queue whose batches hold a few hundred bytes, so nearly all goes through the disk.

The disk is the real one, with files; its two threads are played by the schedule, so each order of their work is met: a batch that is read
before the next is written, one that is taken while it is on its way, a write that fails for want of room and is tried again.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from gateway.pipeline.parts import EXPIRED, POSTPONED, REQUEST
from gateway.waiting.disk.queue import PagedQueue
from gateway.waiting.disk.waiting_disk import READ, WRITE, WaitingDisk
from gateway.waiting.lines import PAGED
from support.amqp.confirm_schedules import Schedule

if TYPE_CHECKING:
    from gateway.pipeline.parts import Part

ENDLESS = 1 << 60  # bytes; no disk has so many free


class SpoolSchedule(Schedule):
    """One connection whose refused publishes are spooled, now and then; else they are refused or held as in any schedule."""

    def __init__(self, random: Random, channels: int, acts: int, directory: Path, unrest: float = 0.0) -> None:
        least = random.choice((1, 500, 1_500))
        self.disk = WaitingDisk(directory, random.choice((4_000, 1 << 20)), 1, threads=False, least=least, most=least)
        self.unrest = unrest  # how often other rules come in force
        super().__init__(random, channels, acts)
        self.conversation.context.disk = self.disk
        self.eager = random.random()  # how often the disk is quick
        self.hurry = random.choice((0.0, 0.2))  # how often a message has waited for too long when its turn comes

    def _carry_up(self) -> None:
        if self.batch or self.conversation.budget.blocking == 0:
            super()._carry_up()
        else:  # the session does not read its client
            self._work()
            self._take_due()

    def _flush(self, said: bytes = b"") -> None:
        super()._flush(said)
        if self.random.random() < self.eager:
            self._work()

    def _work(self) -> None:
        disk = self.disk
        disk.low_watermark = ENDLESS if self.random.random() < 0.1 else 0
        disk.work(WRITE if self.random.random() < 0.5 else READ)
        self._collect()

    def _collect(self) -> None:
        """As `gateway.event_loop.sweeper` does."""
        for job in self.disk.collect():
            queue = job.owner
            assert isinstance(queue, PagedQueue)
            queue.finish_job(job)
        for _ in range(len(self.disk.out_of_room)):
            waiting = self.disk.out_of_room.popleft()
            assert isinstance(waiting, PagedQueue)
            waiting.resume_writing()

    def _look(self, batch: list[Part]) -> None:
        """As `gateway.pipeline.handlers.rate_limit` does."""
        if self.conversation.lines.has_paged:
            for part in batch:
                if part.kind == REQUEST and self.conversation.lines.waits_behind(part):
                    part.unjudged = POSTPONED

    def _refuse(self, part: Part, whim: float) -> None:
        if whim < 0.7 and self.conversation.lines.hold(part, self.now + 1 + int(whim * 10), PAGED):
            return
        super()._refuse(part, whim)

    def _take_due(self) -> None:
        if self.unrest and self.conversation.lines.has_paged and self.random.random() < self.unrest:
            self.conversation.lines.limits_changed()
        if not self.batch and self.conversation.budget.next_due <= self.now:
            self.batch = self.conversation.lines.take_due(self.now, 1 + int(self.random.random() * 8))
            for part in self.batch:
                hurried = part.kind == REQUEST and not part.paid and self.random.random() < self.hurry
                if hurried and self.conversation.lines.may_expire(part):
                    part.unjudged = EXPIRED
            self._settle()
        self.disk.low_watermark = 0
        if self.random.random() < 0.5:
            self._work()

    def _finish(self) -> None:
        self._play_out()
        assert (self.disk.used, self.disk.queues, self.disk.waiting.topics) == (0, 0, {}), "something of the spool stays"
        assert (self.conversation.budget.paged_bytes, self.conversation.budget.paged_queues) == (0, 0)
        self.disk.close(0)
        assert not list(self.disk.directory.rglob("*")), "files stay"

    def _play_out(self) -> None:
        """Everything under way arrives, on the network and on the disk."""
        for _ in range(1_000):
            super()._finish()
            self.disk.low_watermark = 0
            worked = self.disk.work(WRITE) or self.disk.work(READ)
            self._collect()
            if not worked:
                break
        super()._finish()
        super()._check_end()

    def _check_end(self) -> None:
        """What waits on the disk is not at its end yet."""


def play(seed: int, channels: int, acts: int, directory: Path) -> int:
    """Play one schedule; the number of its publishes. A failing one is played again by the same three numbers."""
    return SpoolSchedule(Random(seed), channels, acts, directory, 0.2 if seed % 2 else 0.0).run()
