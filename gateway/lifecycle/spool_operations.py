"""What an operator does with messages that wait in the spool of one process: pause a topic, discard what waits of it.

Everything takes hold when the turn of a message comes (`gateway/pipeline/spool_orders.py`); here the sessions are told, and woken.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from gateway.clock import now_ns
from gateway.log_files.durable import sync_folder
from gateway.pipeline.spool_orders import CALLED_OFF, GIVE_UP, PREVIEW, Pause
from gateway.spool.records import DamagedError
from limiter.limits import NEVER

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from gateway.pipeline.spool_orders import SpoolCopy, SpoolOrder
    from gateway.ports import RunningGateway
    from gateway.session.session import Session

FOLDER: Final = "drained"  # in the state directory
MAX_CONNECTIONS_TOLD: Final = 100  # numbers, the lowest ones; a guess


def act(gateway: RunningGateway, action: str, topic: str, arguments: dict[str, Any]) -> dict[str, object]:
    """Do one of these by its name, as a parent asks it of its workers; what came of it."""
    match action:
        case "pause":
            pause(gateway, topic, **arguments)
            return {}
        case "resume":
            return {"resumed": resume(gateway, topic)}
        case _:
            assert action == "discard", action
            return discard(gateway, topic, **arguments)


def pause(gateway: RunningGateway, topic: str, until: float | None, ends: str, reason: str, by: str) -> None:
    """Let nothing of `topic` through before `until` (seconds since 1970; None: until it is resumed), which is `ends` as text. The last one
    holds."""
    over_at = NEVER if until is None else now_ns() + int((until - time.time()) * 1e9)
    gateway.shared.spool_control.paused[topic] = Pause(over_at, ends, reason, by)
    _wake(gateway, topic)


def resume(gateway: RunningGateway, topic: str) -> bool:
    """Let `topic` go on; whether it was paused."""
    control = gateway.shared.spool_control
    control.forget_over(now_ns())
    if control.paused.pop(topic, None) is None:
        return False
    _wake(gateway, topic)
    return True


def resume_all(gateway: RunningGateway) -> None:
    """Let everything go on."""
    for topic in list(gateway.shared.spool_control.paused):
        resume(gateway, topic)


def discard(gateway: RunningGateway, topic: str, *, dry_run: bool) -> dict[str, object]:
    """Give up what waits of `topic` now, each message when its turn comes; a dry run only looks. How much that is."""
    found = order(gateway, topic, PREVIEW if dry_run else GIVE_UP)
    if not dry_run:
        _wake(gateway, topic)
    return described(found)


async def drain(gateway: RunningGateway, topic: str, file: str, *, dry_run: bool = False) -> dict[str, object]:
    """Write what waits of `topic` to a new file in FOLDER, and then give it up. How much that is, the `files`, and `faults`: why nothing
    was given up.

    Nothing is given up that is not on the disk. Until it is there, what waits stays where it is, with what is behind it on its channels.
    """
    if dry_run:
        return {**described(order(gateway, topic, PREVIEW)), "files": [], "faults": []}
    path = gateway.settings.gateway.state_directory / FOLDER / file
    copies: dict[int, list[SpoolCopy]] = {}

    def ask(session: Session) -> None:
        found = session.conversation.copy_spooled(topic)
        if found:
            copies[session.number] = found

    for session in _spooling(gateway):
        gateway.sweeper.attempt(session, partial(ask, session))
    every = [each for several in copies.values() for each in several]
    rules = gateway.rule_source.revision
    state, faults = CALLED_OFF, []
    try:
        if every:
            await trio.to_thread.run_sync(_write, path, every)
        if gateway.rule_source.revision == rules:
            state = GIVE_UP
        else:  # which topic its messages are of may be another matter now
            path.unlink(missing_ok=True)
            faults.append("the rules were changed meanwhile; drain again")
    except (OSError, DamagedError) as error:
        faults.append(f"{error}; nothing is given up")
    finally:
        for each in every:
            each.order.left = each.messages
            each.order.state = state
            each.release()
        _wake(gateway, topic)
    done = {number: several for number, several in copies.items() if state == GIVE_UP}
    return {
        "messages": sum(each.messages for several in done.values() for each in several),
        "bytes": sum(each.bytes for several in done.values() for each in several),
        "connections": len(done),
        "connection_ids": sorted(done)[:MAX_CONNECTIONS_TOLD],
        "files": [str(path)] if done else [],
        "faults": faults,
    }


def of_worker(file: str, worker: int) -> str:
    """The name of a worker's part: `orders-w1.jsonl` of `orders.jsonl`."""
    stem, dot, ending = file.rpartition(".")
    return f"{stem}-w{worker}.{ending}" if dot else f"{file}-w{worker}"


def _write(path: Path, copies: list[SpoolCopy]) -> None:
    """On a thread: a new file that is on the disk; or OSError or DamagedError, and there is none."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for copy in copies:
                file.writelines(copy.lines(trio.from_thread.run_sync))
            file.flush()
            os.fsync(file.fileno())
        for folder in (path.parent, path.parent.parent):
            sync_folder(folder)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def order(gateway: RunningGateway, topic: str, state: int) -> dict[int, list[SpoolOrder]]:
    """Orders for what waits of `topic` now, by connection; those without any are left out."""
    found: dict[int, list[SpoolOrder]] = {}

    def ask(session: Session) -> None:
        orders = session.order_spooled(topic, state)
        if orders:
            found[session.number] = orders

    for session in _spooling(gateway):
        gateway.sweeper.attempt(session, partial(ask, session))
    return found


def summed(several: Iterable[dict[str, Any]]) -> dict[str, object]:
    """What several workers have discarded, or would, as one."""
    found = list(several)
    numbers = sorted(number for each in found for number in each["connection_ids"])
    return {
        **{name: sum(each[name] for each in found) for name in ("messages", "bytes", "connections")},
        "connection_ids": numbers[:MAX_CONNECTIONS_TOLD],
        **{name: [text for each in found for text in each[name]] for name in ("files", "faults") if all(name in each for each in found)},
    }


def described(orders: dict[int, list[SpoolOrder]]) -> dict[str, object]:
    """How much the orders are for: `messages`, `bytes` of their publishes, `connections` in all, and the numbers of the first of them."""
    every = [each for several in orders.values() for each in several]
    return {
        "messages": sum(each.messages for each in every),
        "bytes": sum(each.bytes for each in every),
        "connections": len(orders),
        "connection_ids": sorted(orders)[:MAX_CONNECTIONS_TOLD],
    }


def _spooling(gateway: RunningGateway) -> list[Session]:
    """The sessions of which a rule has spooled something, and that are not over."""
    return [session for session in list(gateway.sweeper.sessions.values()) if session.conversation.has_spooled]


def _wake(gateway: RunningGateway, topic: str) -> None:
    """Let the sessions look at once at what waits of `topic`."""
    for session in _spooling(gateway):
        gateway.sweeper.attempt(session, partial(session.conversation.wake_spooled, topic))
        gateway.sweeper.wake(session)
    gateway.event_loop.wake()
