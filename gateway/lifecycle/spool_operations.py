"""What an operator does with messages that wait in the spool of one process: pause a topic, discard what waits of it.

Everything takes hold when the turn of a message comes (`gateway/pipeline/spool_orders.py`); here the sessions are told, and woken.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from gateway import log
from gateway.clock import now_ns
from gateway.log_files.durable import sync_folder
from gateway.pipeline.spool_orders import CALLED_OFF, GIVE_UP, PREVIEW, Pause
from gateway.spool.records import DamagedError
from limiter.limits import NEVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from gateway.pipeline.spool_orders import SpoolCopy, SpooledTopic, SpoolOrder
    from gateway.ports import RunningGateway
    from gateway.session.session import Session

FOLDER: Final = "drained"  # in the state directory
MAX_CONNECTIONS_TOLD: Final = 100  # numbers, the lowest ones; a guess
REMOVE_S: Final = 10.0  # seconds; until the disk has taken what is given up, a guess: its topic waits meanwhile
REMOVE_SLICE: Final = 256  # stretches of durable messages, written down between two turns of the event loop: 0.2 ms (2026-11)


def act(gateway: RunningGateway, action: str, topic: SpooledTopic, arguments: dict[str, Any]) -> dict[str, object]:
    """Do one of these by its name, as a parent asks it of its workers; what came of it."""
    if action == "pause":
        pause(gateway, topic, **arguments)
        return {}
    assert action == "resume", action
    return {"resumed": resume(gateway, topic)}


async def give_up(gateway: RunningGateway, action: str, topic: SpooledTopic, arguments: dict[str, Any]) -> dict[str, object]:
    """The same of those that take their time. A fault of our own is answered, too: it ends neither the worker nor the parent's question."""
    assert action in ("discard", "drain"), action
    try:
        return await (drain(gateway, topic, **arguments) if action == "drain" else discard(gateway, topic, **arguments))
    except Exception as error:
        log.failure("spool_operation_failed", error, action=action, topic=topic[1])
        unknown = f"{type(error).__name__}: {error}; whether anything is given up is not known: look at what waits"
        return {**described({}), "files": [], "faults": [unknown]}


def pause(gateway: RunningGateway, topic: SpooledTopic, until: float | None, ends: str, reason: str, by: str) -> None:
    """Let nothing of `topic` through before `until` (seconds since 1970; None: until it is resumed), which is `ends` as text. The last one
    holds; once the gateway stops none does."""
    if gateway.shared.spool_control.stopping:
        return
    over_at = NEVER if until is None else now_ns() + int((until - time.time()) * 1e9)
    gateway.shared.spool_control.paused[topic] = Pause(over_at, ends, reason, by)
    _wake(gateway, topic)


def resume(gateway: RunningGateway, topic: SpooledTopic) -> bool:
    """Let `topic` go on; whether it was paused."""
    control = gateway.shared.spool_control
    control.forget_over(now_ns())
    if control.paused.pop(topic, None) is None:
        return False
    _wake(gateway, topic)
    return True


def resume_all(gateway: RunningGateway) -> None:
    """Let everything go on, for good: the gateway stops."""
    gateway.shared.spool_control.stopping = True
    for topic in list(gateway.shared.spool_control.paused):
        resume(gateway, topic)


async def discard(gateway: RunningGateway, topic: SpooledTopic, *, dry_run: bool) -> dict[str, object]:
    """Give up what waits of `topic` now, each message when its turn comes; a dry run only looks. How much that is, and `faults`: why
    durable messages were not given up, or may come back. Before it says that they are given up it is on the disk which ones.
    """
    if dry_run:
        return {**described(order(gateway, topic, PREVIEW)), "faults": []}
    found: dict[int, list[SpoolOrder | SpoolCopy]] = {number: [*several] for number, several in order(gateway, topic, GIVE_UP).items()}
    _wake(gateway, topic)
    copies = _copies(gateway, topic, only_durable=True)
    faults: list[str] = []
    if copies:
        for number, several in (await _give_up_copies(gateway, topic, copies, _scan, faults)).items():
            found[number] = [*found.get(number, []), *several]
    return {**described(found), "faults": faults}


async def drain(gateway: RunningGateway, topic: SpooledTopic, file: str, *, dry_run: bool = False) -> dict[str, object]:
    """Write what waits of `topic` to a new file in FOLDER, and then give it up. How much that is, the `files`, and `faults`: why nothing
    was given up.

    Nothing is given up that is not on the disk. Until it is there, what waits stays where it is, with what is behind it on its channels.
    Raises FileExistsError (`check_new`).
    """
    path = gateway.settings.gateway.state_directory / FOLDER / file
    check_new(path)
    if dry_run:
        return {**described(order(gateway, topic, PREVIEW)), "files": [], "faults": []}
    copies = _copies(gateway, topic)
    faults: list[str] = []
    written = False

    def write(copies: list[SpoolCopy]) -> None:
        nonlocal written
        _write(path, copies)
        written = True

    done = await _give_up_copies(gateway, topic, copies, write, faults) if copies else {}
    if copies and not done and written:
        path.unlink(missing_ok=True)
    return {**described(done), "files": [str(path)] if done else [], "faults": faults}


def _copies(gateway: RunningGateway, topic: SpooledTopic, *, only_durable: bool = False) -> dict[int, list[SpoolCopy]]:
    """Of what waits of `topic` now, by connection: it stays where it is until the order of each says what becomes of it."""
    copies: dict[int, list[SpoolCopy]] = {}

    def ask(session: Session) -> None:
        found = session.conversation.copy_spooled(topic[1], only_durable=only_durable)
        if found:
            copies[session.number] = found

    for session in _spooling(gateway, topic):
        gateway.sweeper.attempt(session, partial(ask, session))
    return copies


async def _give_up_copies(
    gateway: RunningGateway,
    topic: SpooledTopic,
    copies: dict[int, list[SpoolCopy]],
    work: Callable[[list[SpoolCopy]], None],
    faults: list[str],
) -> dict[int, list[SpoolCopy]]:
    """Do `work` with them on a thread, see to it that none of them is replayed, and give them up: `copies`, or none of them.

    Also where a connection has ended meanwhile: what is given up then is what would be replayed.
    """
    every = [each for several in copies.values() for each in several]
    rules = gateway.rule_source.revision
    state = CALLED_OFF
    try:
        await trio.to_thread.run_sync(work, every)
        if gateway.rule_source.revision == rules:
            state = GIVE_UP  # from here on, whatever comes: what is written down is not replayed, so it must not wait on, either
            await _remove(every, faults)
        else:  # which topic its messages are of may be another matter now
            faults.append("the rules were changed meanwhile, and nothing is given up; do it again")
    except (OSError, DamagedError) as error:
        faults.append(f"{error}; nothing is given up")
    except Exception as error:  # let it crash: this order only
        log.failure("spool_operation_failed", error, topic=topic[1])
        what = "nothing is given up" if state == CALLED_OFF else "durable messages of it may be replayed"
        faults.append(f"{type(error).__name__}: {error}; {what}")
    finally:
        for each in every:
            each.order.left = each.messages
            each.order.state = state
        for each in every:
            each.release()
        _wake(gateway, topic)
    return copies if state == GIVE_UP else {}


async def _remove(copies: list[SpoolCopy], faults: list[str]) -> None:
    """Let none of what is in `copies` be replayed: when this is over that is on the medium, unless `faults` say otherwise.

    In slices: 100,000 places would keep the event loop for 100 ms.
    """
    waiting = 1  # slices, and one until all are counted
    over = trio.Event()

    def synced() -> None:
        nonlocal waiting
        waiting -= 1
        if waiting == 0:
            over.set()

    for each in copies:
        more = True
        while more:
            waiting += 1
            more = each.remove(REMOVE_SLICE, synced)
            await trio.lowlevel.cancel_shielded_checkpoint()
    synced()
    with trio.move_on_after(REMOVE_S) as late:
        await over.wait()
    if late.cancelled_caught:
        faults.append(f"the disk does not take it that durable messages are given up ({REMOVE_S:g} s): killed now, they are replayed")


def check_new(path: Path) -> None:
    """Raises FileExistsError, with the way out, where a drain's file is there already."""
    if path.exists():
        raise FileExistsError(
            f"{path} is there already; an earlier drain may have written it, and what is in it was given up then. Nothing is given up now: "
            "drain to another name, or move that file away"
        )


def of_worker(file: str, worker: int) -> str:
    """The name of a worker's part: `orders-w1.jsonl` of `orders.jsonl`."""
    stem, dot, ending = file.rpartition(".")
    return f"{stem}-w{worker}.{ending}" if dot else f"{file}-w{worker}"


def _scan(copies: list[SpoolCopy]) -> None:
    """On a thread: find where the messages stand; or OSError or DamagedError."""
    for copy in copies:
        copy.scan(trio.from_thread.run_sync)


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


def order(gateway: RunningGateway, topic: SpooledTopic, state: int) -> dict[int, list[SpoolOrder]]:
    """Orders for what waits of `topic` now, by connection; those without any are left out."""
    found: dict[int, list[SpoolOrder]] = {}

    def ask(session: Session) -> None:
        orders = session.order_spooled(topic[1], state)
        if orders:
            found[session.number] = orders

    for session in _spooling(gateway, topic):
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


def described(orders: Mapping[int, Sequence[SpoolOrder | SpoolCopy]]) -> dict[str, object]:
    """How much these are for: `messages`, `bytes` of their publishes, `connections` in all, and the numbers of the first of them."""
    every = [each for several in orders.values() for each in several]
    return {
        "messages": sum(each.messages for each in every),
        "bytes": sum(each.bytes for each in every),
        "connections": len(orders),
        "connection_ids": sorted(orders)[:MAX_CONNECTIONS_TOLD],
    }


def _spooling(gateway: RunningGateway, topic: SpooledTopic) -> list[Session]:
    """The sessions in the topic's protocol of which a rule has spooled something, and that are not over."""
    return [
        session
        for session in list(gateway.sweeper.sessions.values())
        if session.conversation.has_spooled and session.listener_config.protocol == topic[0]
    ]


def _wake(gateway: RunningGateway, topic: SpooledTopic) -> None:
    """Let the sessions look at once at what waits of `topic`."""
    for session in _spooling(gateway, topic):
        gateway.sweeper.attempt(session, partial(session.conversation.wake_spooled, topic[1]))
        gateway.sweeper.wake(session)
    gateway.event_loop.wake()
