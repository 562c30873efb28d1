"""Schedules with a durable spool and a crash: the process ends at any moment, its files at any byte beyond their last fsync, and what is
left is read as the replay reads it.

The truth is kept by identity, as in `confirm_schedules.py`. A publish counts as committed once its client could rely on it: all of its
parts are in writes whose commit was reported, and its channel has neither confirms nor a transaction. What the gateway put on the broker's
connection counts as arrived as far as the broker's machine has it, which lags behind.

Publishes are given up meanwhile: for their age when their turn comes, and by an operator, who is answered once the disk has it. What was
given up may be missing. It must be once the operator has an answer, or the removal's commit was reported.

AssertionError: a committed publish has neither arrived nor is replayed nor was given up; one that was given up comes back, or is forwarded;
the replay is out of order, or has a publish twice, or one of which the client is told; or a file stays in good order.
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
from gateway.pipeline.spool_orders import COPYING, GIVE_UP, SpoolCopy
from gateway.protocols.amqp.publishes_again import Messages
from gateway.protocols.amqp.spool_copy import ChannelCopy
from gateway.spool.batches import Batch
from gateway.spool.disk import WRITE, Job
from gateway.spool.durable import POSITION_AT, is_durable, position_of, serial_of
from gateway.spool.left_behind import LeftStream, take_left_behind
from gateway.spool.records import RECORD, REPLAYS, batch_length
from gateway.spool.removals import REMOVED, Range, decode_removals, place_of, removed_name
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


class Removing:
    """An order whose messages are being removed. `waiting`: slices that are not on the medium, and one until all are written."""

    def __init__(self, copy: SpoolCopy, found: set[bytes]) -> None:
        self.copy = copy
        self.found = found
        self.waiting = 1


class CrashSchedule(SpoolSchedule):
    """One connection of a durable rule. `crash` ends it somewhere, `run` in good order."""

    def __init__(self, random: Random, channels: int, acts: int, directory: Path) -> None:
        super().__init__(random, channels, acts, directory)
        self.disk.max_bytes = 1 << 24  # what finds no room is not durable
        self.client = PlainClient(random, channels, self.broker.truth)
        self.hurry = random.choice((0.0, 0.1, 0.5))
        self.orders = random.choice((0.0, 0.1, 0.4))  # how often an operator gives up what waits
        self.copies: list[SpoolCopy] = []  # that an operator's answer waits for
        self.scanned: list[tuple[SpoolCopy, set[bytes]]] = []
        self.removing: list[Removing] = []
        self.given_up: list[Range] = []  # places; they may be missing
        self.removed: set[bytes] = set()  # publishes that must not come back
        self.ordered: set[bytes] = set()  # of them, those by an operator: they may be missing, and must not be forwarded
        self.places: dict[bytes, int] = {}  # where each committed publish begins
        self.sent: list[bytes] = []  # put on the broker's connection, in order
        self.queued = 0  # bytes of it
        self.acknowledged = 0
        self.synced: dict[str, int] = {}  # bytes, by file
        self.commits: dict[int, Messages] = defaultdict(Messages)
        self.begins: dict[int, int] = defaultdict(int)  # where the publish begins whose end is to come
        self.committed: list[bytes] = []

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
        if self.random.random() < self.orders:
            self._operate()

    def _tick(self) -> None:
        """As `Session.mark_off`; the broker's machine has some of what was sent."""
        if self.random.random() < 0.5:
            self.acknowledged += int(self.random.random() * (self.queued - self.acknowledged + 1))
        self.conversation.mark_off(self.queued, self.acknowledged, self.now, read=True)

    def _refuse(self, part: Part, whim: float) -> None:
        part.rule = DURABLE
        if not self.conversation.spool(part, self.now + 1 + int(whim * 10)):
            super()._refuse(part, whim)

    # ---- what is given up ------------------------------------------------------------------------------------------

    def _operate(self) -> None:
        """One of the steps of `gateway.lifecycle.spool_operations.discard`: copy, scan, remove in slices; they may be far apart, and two
        orders may be at work at once."""
        if self.disk.topics and (self.random.random() < 0.2 or not (self.copies or self.scanned or self.removing)):
            topics = sorted(self.disk.topics)
            _, topic = topics[int(self.random.random() * len(topics))]
            self.copies += self.conversation.copy_spooled(topic, only_durable=True)
        elif self.copies:
            copy = self.copies.pop()
            self.scanned.append((copy, self._scan(copy)))
        elif self.scanned:
            copy, found = self.scanned.pop()
            assert not found & self.ordered, "of two orders"
            self.ordered |= found
            self.removing.append(Removing(copy, found))
        elif self.removing:
            removing = self.removing[-1]
            removing.waiting += 1
            if not removing.copy.remove(1 + int(self.random.random() * 3), lambda: self._synced(removing)):
                self.removing.pop()
                self._synced(removing)

    def _scan(self, copy: SpoolCopy) -> set[bytes]:
        assert isinstance(copy, ChannelCopy)
        found: set[bytes] = set()
        for publish in copy._publishes(lambda ask: ask()):
            copy._count(publish)
            [message] = Messages().add(publish, "", 0)
            found.add(message.body[:IDENTITY_BYTES])
        assert len(found) == copy.messages, "copied twice"
        return found

    def _synced(self, removing: Removing) -> None:
        removing.waiting -= 1
        if removing.waiting == 0:
            self._answer(removing.copy, removing.found)

    def _answer(self, copy: SpoolCopy, found: set[bytes]) -> None:
        """The operator is told that they are given up."""
        self.removed |= found
        copy.order.left = copy.messages
        copy.order.state = GIVE_UP
        copy.release()
        self.conversation.wake_spooled(copy.order.topic)

    def _keeps(self, part: Part) -> bool:
        return part.spool_order is not None and part.spool_order.state == COPYING

    def _is_ordered(self, part: Part) -> bool:
        order = part.spool_order
        if order is None:
            return False
        if order.state == GIVE_UP and order.left >= part.count and self.conversation.may_expire(part):
            order.left -= part.count
            return True
        part.spool_order = None
        return False

    def _give_up(self, part: Part) -> bool:
        gone = super()._give_up(part)
        if not gone and part.spool_order is not None:
            part.spool_order.left += part.count
        elif gone and part.place:
            self.given_up.append((part.place + part.start, part.place + part.end))
        return gone

    def _note(self, jobs: list[Job]) -> None:
        for job in jobs:
            if job.kind == WRITE and job.removes:
                self.synced[job.name] = self.synced.get(job.name, 0) + job.length
                serial = int(job.name.removesuffix(REMOVED))
                ranges = [(place_of(serial, first), place_of(serial, end)) for first, end in decode_removals(job.data)]
                self.removed |= self._within(ranges)
            elif job.kind == WRITE and job.durable:
                self._note_commit(job)

    def _within(self, ranges: list[Range]) -> set[bytes]:
        """Committed publishes that begin there."""
        return {identity for identity, place in self.places.items() if any(first <= place < end for first, end in ranges)}

    def _note_commit(self, job: Job) -> None:
        batch = job.batch
        assert isinstance(batch, Batch)
        self.synced[job.name] = max(self.synced.get(job.name, 0), job.offset + job.length)
        data = job.data[batch.offset - job.offset :]
        at = 16
        assert batch_length(data) == len(data)
        messages = self.commits[id(job.owner)]
        begins = self.begins[id(job.owner)]
        while at < len(data):
            kind, flags, _, _, _, _, _, length = RECORD.unpack_from(data, at)
            at += RECORD.size
            place = place_of(serial_of(job.name), batch.offset + at)
            if kind == REQUEST:
                messages.begin()
                begins = place
            if kind != PLAIN and flags & REPLAYS:
                for message in messages.add(data[at : at + length], "", place):
                    identity = message.body[:IDENTITY_BYTES]
                    self.committed.append(identity)
                    self.places[identity] = begins
                    begins = message.end
            at += length
        self.begins[id(job.owner)] = begins

    # ---- the end ---------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        self.orders = 0.0
        self._play_out()
        assert not self.removed & self.broker.truth.keys(), "given up, and forwarded all the same"
        orphans = self.disk.orphans
        assert self.disk.used == sum(orphan.size for orphan in orphans), "something of the spool stays"
        assert (self.disk.queues, self.disk.topics, self.disk.used_by, self.disk.uncommitted) == (0, {}, {}, 0)
        names = {path.name for path in self.disk.directory.rglob("*") if is_durable(path.name)}
        assert names == {name for orphan in orphans for name in orphan.names}, "files stay that nobody knows"
        removed = {path.name for path in self.disk.directory.rglob(f"*{REMOVED}")}
        assert removed <= {removed_name(name) for name in names}, "removals stay of files that are gone"
        self.crash(power=False)

    def _end_round(self) -> bool:
        self.acknowledged = self.queued
        self.conversation.mark_off(self.queued, self.acknowledged, self.now, read=True)
        waits = bool(self.copies or self.scanned or self.removing)
        while self.copies or self.scanned or self.removing:
            self._operate()
        return waits

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
        lost = set(self.committed) - arrived - seen - self.ordered - self._within(self.given_up)
        assert not lost, f"lost: {sorted(lost)}"
        assert not self.removed & seen, f"given up, and replayed: {sorted(self.removed & seen)}"
        told = {identity for side in self.client.sides.values() if side.confirms for identity in side.outstanding.values()}
        assert not told & seen, "replayed, although its client waits for its confirm"
        shutil.rmtree(self.disk.directory, ignore_errors=True)

    def _damage(self, *, power: bool) -> None:
        """What was not synced is there, or a part of it, or something else; after a power cut positions may be older ones."""
        random = self.random
        for file in self.disk.directory.rglob("*"):
            removals = file.name.endswith(REMOVED)
            if not is_durable(file.name) and not removals:
                continue
            data = file.read_bytes()
            safe = self.synced.get(file.name, 0)
            rest = data[safe:]
            if power and rest:
                rest = rest[: int(random.random() * (len(rest) + 1))]
                if random.random() < 0.3:
                    rest = bytes(len(rest))
                data = data[:safe] + rest
            if power and safe and not removals and random.random() < 0.5:
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
