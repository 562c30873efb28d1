"""What operators see of the spool: its figures, the topics that wait in it, its metrics and what is wrong with it.

Reads only. What waits does so in memory or on disk; of a topic both are told. Its bytes are those of its publishes; `used_bytes` are those
of files, which are deleted as a whole and hold records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from common.views.spool import SpooledTopicView, SpoolView
from gateway.counting.accounts import OTHER, PRODUCE, Place
from gateway.telemetry.exposition import Sample, families
from gateway.waiting.disk import UNWRITABLE

if TYPE_CHECKING:
    from gateway.waiting.disk.waiting_disk import WaitingDisk
    from gateway.waiting.disk.waiting_messages import Waiting

MAX_TOPICS_PER_SLICE: Final = 200  # topics; described between two turns of the event loop: 0.2 ms; a guess


def figures(disk: WaitingDisk) -> SpoolView:
    """The spool of this process as a whole."""
    return SpoolView(
        directory=str(disk.directory),
        size_bytes=disk.max_bytes,
        used_bytes=disk.used,
        messages=disk.waiting.messages,
        disk_messages=disk.waiting.disk_messages,
        topics=len(disk.waiting.topics),
        written_bytes=disk.written,
        read_bytes=disk.read,
        damaged_batches=disk.lost_batches,
        expired=disk.expired,
        full=is_full(disk),
        trouble=disk.trouble or None,
    )


def is_full(disk: WaitingDisk) -> bool:
    """Whether something that is to be written finds no room below `spool.max_size`."""
    return bool(disk.out_of_room)


def topics(disk: WaitingDisk, now: int) -> Iterator[list[SpooledTopicView]]:
    """The topics that wait, in slices. One that has gone meanwhile is told as it was."""
    known = [(*place, waiting) for place, waiting in disk.waiting.topics.items()]
    for first in range(0, len(known), MAX_TOPICS_PER_SLICE):
        yield [_topic(*each, now) for each in known[first : first + MAX_TOPICS_PER_SLICE]]


def _topic(protocol: str, text: str, waiting: Waiting, now: int) -> SpooledTopicView:
    return SpooledTopicView(
        protocol=protocol,
        topic=text,
        messages=waiting.messages,
        bytes=waiting.bytes,
        disk_messages=waiting.disk_messages,
        disk_bytes=waiting.disk_bytes,
        waiting_seconds=round(max(0, now - waiting.since) / 1e9, 3),
    )


def count_spooled(disk: WaitingDisk, protocol: str, topic: str, operation: str) -> int:
    """Messages of a topic that wait in the spool."""
    waiting = disk.waiting.topics.get((protocol, topic)) if operation == PRODUCE else None
    return 0 if waiting is None else waiting.messages


def metric_lines(disk: WaitingDisk) -> Iterator[str]:
    """The metrics of the spool as a whole. They are read now."""
    return families({
        "sluice_spool_bytes": [((), disk.used)],
        "sluice_spool_size_bytes": [((), disk.max_bytes)],
        "sluice_spool_messages": [((), disk.waiting.messages)],
        "sluice_spool_disk_messages": [((), disk.waiting.disk_messages)],
        "sluice_spool_written_bytes_total": [((), disk.written)],
        "sluice_spool_read_bytes_total": [((), disk.read)],
        "sluice_spool_damaged_batches_total": [((), disk.lost_batches)],
        "sluice_spool_blocked": [((), int(bool(disk.trouble)))],
        "sluice_spool_expired_messages_total": [((), disk.expired)],
    })  # fmt: skip


def topic_samples(disk: WaitingDisk, shown: Iterable[Place]) -> list[Sample]:
    """`sluice_topic_spooled_messages`: of each topic with series of its own, the sum of all others under `__other__`."""
    samples: list[Sample] = []
    others = dict(disk.waiting.messages_by_protocol)  # of all that have ever spooled something
    for place in shown:
        if place[0] in others and place[2] == PRODUCE:
            found = count_spooled(disk, *place)
            others[place[0]] -= found
            samples.append((place, found))
    return [*samples, *(((protocol, OTHER, PRODUCE), messages) for protocol, messages in others.items())]


def warnings(disk: WaitingDisk) -> list[str]:
    """What is wrong with the spool, and the way out."""
    found = []
    if disk.trouble:
        found.append(f"spool: it cannot be written ({disk.trouble}); {UNWRITABLE}")
    if is_full(disk):
        found.append(
            f"spool: it is full ({disk.used} of {disk.max_bytes} bytes, spool.max_size); clients whose messages are to be spooled are not "
            "read until it drains; `sluice spool list` shows what waits"
        )
    return found
