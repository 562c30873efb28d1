"""What operators see of the spool: its figures, the topics that wait in it, its metrics and what is wrong with it.

Reads only. The bytes of a topic are those of its publishes; `used_bytes` are those of files, which are deleted as a whole and hold records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from gateway.counting.accounts import OTHER, PRODUCE, Place
from gateway.spool import UNWRITABLE
from gateway.telemetry.exposition import Sample, families

if TYPE_CHECKING:
    from gateway.pipeline.spool_orders import SpoolControl
    from gateway.spool.disk import SpoolDisk, Waiting

MAX_TOPICS_PER_SLICE: Final = 200  # topics; described between two turns of the event loop: 0.2 ms; a guess
MAX_PAUSES_NAMED: Final = 3  # in warnings; a guess
COUNTS: Final = (  # summed over workers
    "size_bytes", "used_bytes", "messages", "topics", "written_bytes", "read_bytes", "damaged_batches", "given_up", "expired", "commits",
    "accepted", "accepted_refused", "accepted_lost", "accepted_given_up",
    "uncommitted_bytes", "replaying_bytes", "replayed_messages", "set_aside_messages", "set_aside_damages",
)  # fmt: skip


def figures(disk: SpoolDisk, control: SpoolControl) -> dict[str, object]:
    """The spool of this process as a whole; what is counted, since the start. `trouble`: why it cannot be written."""
    return {
        "directory": str(disk.directory),
        "size_bytes": disk.max_bytes,
        "used_bytes": disk.used,
        "messages": disk.messages,
        "topics": len(disk.topics),
        "written_bytes": disk.written,
        "read_bytes": disk.read,
        "damaged_batches": disk.lost_batches,
        "commits": disk.commits,
        "uncommitted_bytes": disk.uncommitted,
        "replaying_bytes": disk.replay.waiting_bytes,
        "replayed_messages": disk.replay.replayed,
        "set_aside_messages": disk.replay.set_aside,
        "set_aside_damages": disk.replay.damages,
        "given_up": control.given_up,
        "expired": control.expired + disk.replay.expired,
        "accepted": control.accepted,
        "accepted_refused": control.accepted_refused,
        "accepted_lost": control.accepted_lost,
        "accepted_given_up": control.accepted_given_up,
        "paused": sorted(text for _, text in control.paused),
        "full": is_full(disk),
        "trouble": disk.trouble or None,
        "replay_trouble": "; ".join(disk.replay.troubles) or None,
    }


def is_full(disk: SpoolDisk) -> bool:
    """Whether something that is to be written finds no room below `spool.max_size`."""
    return bool(disk.out_of_room)


def summed(several: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The figures of several workers as one: those of one that cannot write its part say so for all. {} of none."""
    found = list(several)
    if not found:
        return {}
    return {
        **found[0],
        **{name: sum(each[name] for each in found) for name in COUNTS},
        "paused": sorted({topic for each in found for topic in each["paused"]}),
        "full": any(each["full"] for each in found),
        "trouble": next((each["trouble"] for each in found if each["trouble"]), None),
        "replay_trouble": next((each["replay_trouble"] for each in found if each["replay_trouble"]), None),
    }


def topics(disk: SpoolDisk, control: SpoolControl, now: int) -> Iterator[list[dict[str, object]]]:
    """The topics that wait, and those that are paused, in slices. One that has gone meanwhile is told as it was."""
    control.forget_over(now)
    known: list[tuple[str, str, Waiting | None]] = [(*place, waiting) for place, waiting in disk.topics.items()]
    known += [(*place, None) for place in control.paused if place not in disk.topics]
    for first in range(0, len(known), MAX_TOPICS_PER_SLICE):
        yield [_topic(*each, control, now) for each in known[first : first + MAX_TOPICS_PER_SLICE]]


def _topic(protocol: str, text: str, waiting: Waiting | None, control: SpoolControl, now: int) -> dict[str, object]:
    pause = control.paused.get((protocol, text))
    return {
        "protocol": protocol,
        "topic": text,
        "messages": 0 if waiting is None else waiting.messages,
        "bytes": 0 if waiting is None else waiting.bytes,
        "waiting_seconds": 0.0 if waiting is None else round(max(0, now - waiting.since) / 1e9, 3),
        "paused": None if pause is None else {"until": pause.ends or None, "reason": pause.reason, "by": pause.by},
    }


def summed_topics(views: Iterable[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The topics that wait in several workers, each once; the wait is the longest of any worker."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for view in views:
        for item in view:
            place = item["protocol"], item["topic"]
            known = found.get(place)
            if known is None:
                found[place] = item
                continue
            found[place] = {
                **item,
                "messages": known["messages"] + item["messages"],
                "bytes": known["bytes"] + item["bytes"],
                "waiting_seconds": max(known["waiting_seconds"], item["waiting_seconds"]),
                "paused": known["paused"] or item["paused"],
            }
    return list(found.values())


def spooled(disk: SpoolDisk, protocol: str, topic: str, operation: str) -> int:
    """Messages of a topic that wait in the spool."""
    waiting = disk.topics.get((protocol, topic)) if operation == PRODUCE else None
    return 0 if waiting is None else waiting.messages


def metric_lines(disk: SpoolDisk, control: SpoolControl) -> Iterator[str]:
    """The metrics of the spool as a whole. They are read now."""
    return families({
        "sluice_spool_bytes": [((), disk.used)],
        "sluice_spool_size_bytes": [((), disk.max_bytes)],
        "sluice_spool_messages": [((), disk.messages)],
        "sluice_spool_written_bytes_total": [((), disk.written)],
        "sluice_spool_read_bytes_total": [((), disk.read)],
        "sluice_spool_damaged_batches_total": [((), disk.lost_batches)],
        "sluice_spool_blocked": [((), int(bool(disk.trouble)))],
        "sluice_spool_commits_total": [((), disk.commits)],
        "sluice_spool_replaying_bytes": [((), disk.replay.waiting_bytes)],
        "sluice_spool_waiting_replays": [((), disk.replay.waiting)],
        "sluice_spool_replayed_messages_total": [((), disk.replay.replayed)],
        "sluice_spool_set_aside_messages_total": [((), disk.replay.set_aside)],
        "sluice_spool_set_aside_damages_total": [((), disk.replay.damages)],
        "sluice_spool_paused_topics": [((), len(control.paused))],
        "sluice_spool_given_up_messages_total": [((), control.given_up)],
        "sluice_spool_expired_messages_total": [((), control.expired + disk.replay.expired)],
        "sluice_spool_accepted_messages_total": [((), control.accepted)],
        "sluice_spool_accepted_refused_messages_total": [((), control.accepted_refused)],
        "sluice_spool_accepted_lost_messages_total": [((), control.accepted_lost)],
        "sluice_spool_accepted_given_up_messages_total": [((), control.accepted_given_up)],
    })  # fmt: skip


def topic_samples(disk: SpoolDisk, shown: Iterable[Place]) -> list[Sample]:
    """`sluice_topic_spooled_messages`: of each topic with series of its own, the sum of all others under `__other__`."""
    samples: list[Sample] = []
    others = dict(disk.messages_by_protocol)  # of all that have ever spooled something
    for place in shown:
        if place[0] in others and place[2] == PRODUCE:
            found = spooled(disk, *place)
            others[place[0]] -= found
            samples.append((place, found))
    return [*samples, *(((protocol, OTHER, PRODUCE), messages) for protocol, messages in others.items())]


def warnings(disk: SpoolDisk, control: SpoolControl) -> list[str]:
    """What is wrong with the spool, and the way out."""
    found = []
    for (_, topic), pause in list(control.paused.items())[:MAX_PAUSES_NAMED]:
        ends = f"until {pause.ends}" if pause.ends else "until it is resumed"
        found.append(f"spool: {topic} is paused {ends}, by {pause.by} ({pause.reason}); `sluice spool resume` ends it")
    if len(control.paused) > MAX_PAUSES_NAMED:
        found.append(f"spool: {len(control.paused) - MAX_PAUSES_NAMED} more topics are paused; `sluice spool list` shows them")
    if disk.trouble:
        found.append(f"spool: it cannot be written ({disk.trouble}); {UNWRITABLE}")
    found += [f"spool: messages of a durable rule cannot be replayed for now: {trouble}" for trouble in disk.replay.troubles]
    if is_full(disk):
        found.append(
            f"spool: it is full ({disk.used} of {disk.max_bytes} bytes, spool.max_size); clients whose messages are to be spooled are not "
            "read until it drains; `sluice spool list` shows what waits"
        )
    return found
