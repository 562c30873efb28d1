"""Schedules with a durable spool and a crash: the process ends at any moment, its files at any byte beyond their last fsync, and what is
left is read as the replay reads it.

The truth is kept by identity, as in `confirm_schedules.py`. A publish counts as committed once its client could rely on it: all of its
parts are in writes whose commit was reported, and its channel has neither confirms nor a transaction. What the gateway put on the broker's
connection counts as arrived as far as the broker's machine has it, which lags behind.

AssertionError: a committed publish has neither arrived nor is replayed; the replay is out of order, or has a publish twice, or one of which
the client is told; or a file stays in good order.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from gateway.pipeline.parts import PLAIN, REQUEST
from gateway.protocols.amqp.publishes_again import Messages
from gateway.spool.disk import READ, WRITE, Job
from gateway.spool.durable import POSITION_AT, is_durable, position_of
from gateway.spool.left_behind import LeftStream, take_left_behind
from gateway.spool.queue import Batch, SpoolQueue
from gateway.spool.records import RECORD, REPLAYS, batch_length
from support.amqp.confirm_schedules import RULE
from support.amqp.pretend_client import PretendClient
from support.amqp.pretend_wire import OPEN, SELECT, TX_SELECT, Side, cut_frames, frame
from support.amqp.spool_schedules import SpoolSchedule

if TYPE_CHECKING:
    from gateway.pipeline.parts import Part

DURABLE = replace(RULE, action="spool", durable=True)
PUBLISH = b"\x00\x3c\x00\x28"
IDENTITY_BYTES = 6  # number and life of the channel, and the publish's number in it


class PlainClient(PretendClient):
    """One whose channels mostly have no confirms."""

    def _open(self, number: int) -> list[bytes]:
        self.lives[number] += 1
        side = self.sides[number] = Side(self.lives[number])
        frames = [frame(1, number, OPEN + b"\x00")]
        whim = self.random.random()
        for _ in range(int(whim * 4)):
            frames += self._publish(number, side)
        if whim < 0.1:
            side.confirms = True
            frames.append(frame(1, number, SELECT + b"\x00"))
        elif whim < 0.15:
            side.tx = True
            frames.append(frame(1, number, TX_SELECT))
        return frames


class CrashSchedule(SpoolSchedule):
    """One connection of a durable rule. `crash` ends it somewhere, `run` in good order."""

    def __init__(self, random: Random, channels: int, acts: int, directory: Path) -> None:
        super().__init__(random, channels, acts, directory)
        self.disk.max_bytes = 1 << 24  # what finds no room is not durable
        self.client = PlainClient(random, channels, self.broker.truth)
        self.hurry = 0.0  # nothing is dropped: what vanishes is lost
        self.sent: list[bytes] = []  # put on the broker's connection, in order
        self.queued = 0  # bytes of it
        self.acknowledged = 0
        self.synced: dict[str, int] = {}  # bytes, by file
        self.commits: dict[int, Messages] = defaultdict(Messages)
        self.committed: list[bytes] = []
        self.reported: set[int] = set()

    # ---- as a schedule ---------------------------------------------------------------------------------------------

    def _flush(self, said: bytes = b"") -> None:
        data = b"".join([part.data[part.start : part.end] for part in self.conversation.outbox])
        self.sent.append(data)
        self.queued += len(data)
        super()._flush(said)
        while self.random.random() < self.eager:
            self._work()
        if self.random.random() < 0.3:
            self._tick()

    def _tick(self) -> None:
        """As `Session.mark_off`; the broker's machine has some of what was sent."""
        if self.random.random() < 0.5:
            self.acknowledged += int(self.random.random() * (self.queued - self.acknowledged + 1))
        self.conversation.mark_off(self.queued, self.acknowledged, self.now, read=True)

    def _refuse(self, part: Part, whim: float) -> None:
        part.rule = DURABLE
        if not self.conversation.spool(part, self.now + 1 + int(whim * 10)):
            super()._refuse(part, whim)

    def _collect(self) -> None:
        jobs = self.disk.collect()
        for job in jobs:
            if job.kind == WRITE and job.durable:
                self._note_commit(job)
        for job in jobs:
            queue = job.owner
            assert isinstance(queue, SpoolQueue)
            queue.done(job)
        for _ in range(len(self.disk.out_of_room)):
            waiting = self.disk.out_of_room.popleft()
            assert isinstance(waiting, SpoolQueue)
            waiting.room_again()

    def _note_commit(self, job: Job) -> None:
        batch = job.batch
        assert isinstance(batch, Batch)
        self.synced[job.name] = max(self.synced.get(job.name, 0), job.offset + job.length)
        data = job.data[batch.offset - job.offset :]
        at = 16
        assert batch_length(data) == len(data)
        messages = self.commits[id(job.owner)]
        while at < len(data):
            kind, flags, _, _, _, _, length = RECORD.unpack_from(data, at)
            at += RECORD.size
            if kind == REQUEST:
                messages.begin()
            if kind != PLAIN and flags & REPLAYS:
                self.committed += [message.body[:IDENTITY_BYTES] for message in messages.add(data[at : at + length], "", 0)]
            at += length

    # ---- the end ---------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        for _ in range(1_000):
            super(SpoolSchedule, self)._finish()
            self.disk.low_watermark = 0
            self.acknowledged = self.queued
            self.conversation.mark_off(self.queued, self.acknowledged, self.now, read=True)
            worked = self.disk.work(WRITE) or self.disk.work(READ)
            self._collect()
            if not worked and not self.conversation.needs_ticks():
                break
        super(SpoolSchedule, self)._check_end()
        orphans = self.disk.orphans
        assert self.disk.used == sum(orphan.size for orphan in orphans), "something of the spool stays"
        assert (self.disk.queues, self.disk.topics, self.disk.used_by, self.disk.uncommitted) == (0, {}, {}, 0)
        names = {path.name for path in self.disk.directory.rglob("*") if is_durable(path.name)}
        assert names == {name for orphan in orphans for name in orphan.names}, "files stay that nobody knows"
        self.crash(power=False)

    def crash(self, *, power: bool) -> None:
        """End here, and look what is left."""
        random = self.random
        disk = self.disk
        disk._forget_own()  # as the kernel does with the lock, and with what is open
        for _, descriptor in disk._unsynced:
            if descriptor >= 0:
                os.close(descriptor)
        disk._unsynced.clear()
        disk.close(0)
        self._damage(power=power)
        arrived = self._arrived(self.acknowledged + int(random.random() * (self.queued - self.acknowledged + 1)))
        found = take_left_behind(self.disk.directory)
        seen: set[bytes] = set()
        for left in found.left:
            for stream in left.streams:
                replayed = read(stream)
                assert replayed == sorted(replayed), f"out of order: {replayed}"
                assert len(set(replayed)) == len(replayed), "one stream has a message twice"
                assert not seen & set(replayed), "two streams have the same message"
                seen.update(replayed)
                stream.delete()
            left.close()
        lost = set(self.committed) - arrived - seen
        assert not lost, f"lost: {sorted(lost)}"
        told = {identity for side in self.client.sides.values() if side.confirms for identity in side.outstanding.values()}
        assert not told & seen, "replayed, although its client waits for its confirm"
        shutil.rmtree(self.disk.directory, ignore_errors=True)

    def _damage(self, *, power: bool) -> None:
        """What was not synced is there, or a part of it, or something else; after a power cut positions may be older ones."""
        random = self.random
        for file in self.disk.directory.rglob("*"):
            if not is_durable(file.name):
                continue
            data = file.read_bytes()
            safe = self.synced.get(file.name, 0)
            rest = data[safe:]
            if power and rest:
                rest = rest[: int(random.random() * (len(rest) + 1))]
                if random.random() < 0.3:
                    rest = bytes(len(rest))
                data = data[:safe] + rest
            if power and safe and random.random() < 0.5:
                position = bytes(12) if random.random() < 0.3 else position_of(0)
                data = data[:POSITION_AT] + position + data[POSITION_AT + len(position) :]
            if power and not safe and random.random() < 0.3:
                file.unlink()  # its name was not synced
            else:
                file.write_bytes(data)

    def _arrived(self, size: int) -> set[bytes]:
        """Publishes whose last byte is among the first `size` that were sent."""
        frames, _ = cut_frames(b"".join(self.sent)[:size].removeprefix(b"AMQP\x00\x00\x09\x01"))
        channels: dict[int, Messages] = defaultdict(Messages)
        found: set[bytes] = set()
        for kind, number, payload in frames:
            again = frame(kind, number, payload)
            found.update(message.body[:IDENTITY_BYTES] for message in channels[number].add(again, "", 0))
        return found


def read(stream: LeftStream) -> list[bytes]:
    """The publishes of a stream, as the replayer takes them."""
    messages = Messages()
    found: list[bytes] = []
    while (batch := stream.read()) is not None:
        records, damages = batch
        file = stream.names[stream.reading]
        if damages:
            messages.begin()
        for record in records:
            if not record.replays or record.kind == PLAIN:
                continue
            if record.kind == REQUEST:
                messages.begin()
            found += [message.body[:IDENTITY_BYTES] for message in messages.add(record.data, file, record.at)]
    return found


def play(seed: int, channels: int, acts: int, directory: Path, *, power: bool) -> int:
    """Play one schedule that ends in a crash after `acts` acts; the number of publishes that were committed."""
    schedule = CrashSchedule(Random(seed), channels, acts, directory)
    schedule._finish = lambda: schedule.crash(power=power)  # type: ignore[method-assign]
    schedule.run()
    return len(schedule.committed)


def play_out(seed: int, channels: int, acts: int, directory: Path) -> int:
    """Play one schedule to its end in good order; the number of publishes."""
    return CrashSchedule(Random(seed), channels, acts, directory).run()
