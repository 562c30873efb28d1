"""The graceful stop: no new clients, what is in flight goes its way, clients are told in their protocol, then the end.

With `drain.hold: until_clients_leave` all that comes later. A sidecar is told to stop together with its application, which may still work
off what its consumers have got last, acknowledge it and publish results, on new connections too. So nobody is told anything (`hold`):
clients are served, new ones as well, and only /readyz says that the gateway goes. When none is left, or the time is nearly over, the drain
begins, with what is left of it. `drain.delay` serves all for a fixed time first, while those who send clients here hear of the stop.

Held messages go on passing as their limits allow, and so do parked deliveries that the
broker has forgotten (no-ack). Shortly before the deadline they pass without a limit: a burst of what memory could hold is a smaller harm
than messages lost without a word. Clients that are left at the deadline are told all the same; what is abandoned then is counted and
logged.

Brokers that have words for it have said by then that they have handled all that was forwarded: their answers to connection.close are
waited for, as long as there is time.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import trio

from common import log
from gateway.clock import now_ns
from gateway.ports import RunningGateway
from gateway.session import description
from gateway.session.ending import send_close
from gateway.session.graceful_close import advance_graceful_close, begin_graceful_close, finish_graceful_close
from gateway.session.states import CLOSING, HALF_CLOSED, OPEN
from limiter.rules.rule_set import RuleSet

if TYPE_CHECKING:
    from gateway.lifecycle.fill_levels import FillLevelsFile
    from gateway.session.session import Session

AFTER_S: Final = 3.0  # seconds; from the end of `drain.timeout` until the process is gone: CLOSE_S, and the executor's second
LAST_S: Final = 5.0  # seconds; before the end of `drain.timeout`, from when on clients that were left are told; at most half of it
EMPTY_NS: Final = 500_000_000  # ns; without a client until nobody is waited for: one that ends may connect once more; a guess
HELD_ROUND_S: Final = 0.05  # seconds; between two looks whether all have left
RELEASE_S: Final = 2.0  # seconds; before the deadline, from when on what is held passes
FREEZE_S: Final = 0.5  # seconds; of these, for the fill levels to be written before: the disk may hang (a guess)
LATECOMERS_S: Final = 1.0  # seconds; for clients that were accepted just before another process took over, to come in; a guess
CLOSE_S: Final = 2.0  # seconds; for clients to close after the gateway has sent its close
CLOSE_REASON: Final = "the gateway is stopping"
QUIET_NS: Final = 1_000_000_000  # ns; where answers cannot be counted, a broker silent for so long has answered everything; a guess


class DrainedGateway(RunningGateway, Protocol):
    """A running gateway, and what a drain ends."""

    fill_levels: FillLevelsFile | None  # None: the parent of several workers keeps them
    handed_over: bool  # another process has taken over
    limits_lifted: bool
    orphaned: bool


async def drain(gateway: DrainedGateway, asked: int) -> None:
    """Let what is in flight go its way, tell the clients, then stop, within `drain.timeout` of `asked` (monotonic ns).

    The drain was asked for earlier than now where a broker was being dialled for a client (`Listener._arrive`).
    """
    for listener in gateway.listening.values():
        listener.close()
    started = now_ns()
    deadline = asked + gateway.settings.drain.timeout_ns
    accounts = gateway.accounts
    accounts.fold(started)
    before = (accounts.everything.abandoned, accounts.unsent, accounts.unanswered)
    sessions = gateway.sweeper.sessions
    begin = begin_drain_once_open if gateway.handed_over else begin_drain
    for session in list(sessions.values()):
        gateway.sweeper.attempt(session, partial(begin, session, started))
    released = False
    while sessions and now_ns() < deadline:
        now = now_ns()
        if not released and now > deadline - RELEASE_S * 1e9:
            released = True
            await release_held(gateway)
        for session in list(sessions.values()):
            gateway.sweeper.attempt(session, partial(close_when_drained, session, now))
            gateway.sweeper.end(session)
        gateway.event_loop.wake()
        if all(is_close_sent(session) and not session.conversation.awaits_close_ok for session in sessions.values()):
            break  # and the brokers have handled all that was forwarded
        await trio.sleep(0.02)
    await send_closes(gateway)
    gateway.event_loop.stop()
    gateway.sweeper.close()
    gateway.executor.close(1.0)
    await trio.to_thread.run_sync(gateway.disk.close, 1.0)
    if gateway.fill_levels is not None:
        await trio.to_thread.run_sync(gateway.fill_levels.save)
    accounts.fold(now_ns())
    if gateway.access_log is not None:
        gateway.access_log.close_second(int(time.time()))
        await trio.to_thread.run_sync(gateway.access_log.stop, 5.0)
    after = (accounts.everything.abandoned, accounts.unsent, accounts.unanswered)
    lost = {
        name: late - early for name, early, late in zip(("abandoned", "unsent", "unanswered"), before, after, strict=True) if late > early
    }
    log.event(logging.WARNING if lost else logging.INFO, "stopped", after_ms=round((now_ns() - asked) / 1e6), **lost)


async def hold(gateway: DrainedGateway, asked: int) -> None:
    """For `drain.delay`; with `until_clients_leave`, until all clients have left by themselves, or it is time to tell them."""
    settings = gateway.settings.drain
    least = asked + settings.delay_ns
    until = asked + settings.timeout_ns - min(int(LAST_S * 1e9), settings.timeout_ns // 2)
    if settings.hold == "at_once":
        until = least
        if not settings.delay_ns:
            return
    log.event(logging.INFO, "drain_held", connections=_clients(gateway), at_most_s=round((until - now_ns()) / 1e9, 3))
    empty_since = asked - EMPTY_NS if _clients(gateway) == 0 else 0  # nobody is there to come again
    while (now := now_ns()) < until and not gateway.orphaned:
        if _clients(gateway):
            empty_since = 0
        elif not empty_since:
            empty_since = now
        elif now >= least and now - empty_since >= EMPTY_NS:
            return
        await trio.sleep(HELD_ROUND_S)


def _clients(gateway: DrainedGateway) -> int:
    """Those that are served, and those on their way in."""
    return len(gateway.sweeper.sessions) + sum(listener.arriving for listener in gateway.listening.values())


def begin_drain(session: Session, now: int) -> None:
    """Take nothing new from the client; what is in flight goes its way."""
    if session.conversation.has_close_frames:
        session.begin_drain()
    else:
        begin_graceful_close(session, CLOSE_REASON, "drain", now)


def begin_drain_once_open(session: Session, now: int) -> None:
    """As `begin_drain`, but let a client that has just come log in first: to be told then is what it knows how to deal with."""
    begun = session.state != OPEN or session.graceful_close is not None
    if not begun and (session.conversation.handshake_done or now - session.opened_at > LATECOMERS_S * 1e9):
        begin_drain(session, now)


def is_close_sent(session: Session) -> bool:
    """Whether the session only waits for its peers to close: of a client that was told, or has gone, nothing waits here any more."""
    if session.state >= CLOSING:
        return True
    return session.state == HALF_CLOSED and session.budget.held_messages == 0 and session.upstream.backlog == 0


def close_when_drained(session: Session, now: int) -> None:
    if session.state == OPEN and session.graceful_close is None:
        begin_drain_once_open(session, now)
    elif session.graceful_close is not None:
        advance_graceful_close(session, now)
    elif session.drained(now, QUIET_NS):
        send_close(session, CLOSE_REASON, "drain", now)


def close_overdue(session: Session, now: int) -> None:
    if not is_close_sent(session):
        log.event(logging.WARNING, "drain_deadline", conn=session.number, state=description.state(session, now))
        if session.graceful_close is None:
            send_close(session, CLOSE_REASON, "drain", now)
        else:
            finish_graceful_close(session, now)


async def release_held(gateway: DrainedGateway) -> None:
    """Let everything held pass: it is judged again within a tenth of a second, and no rule is in force then."""
    conversations = [session.conversation for session in gateway.sweeper.sessions.values()]
    messages = sum(conversation.budget.held_messages for conversation in conversations)
    deliveries = sum(conversation.budget.parked_messages for conversation in conversations)
    if messages or deliveries:
        log.event(logging.WARNING, "held_messages_released", messages=messages, deliveries=deliveries)
        if gateway.fill_levels is not None:
            with trio.move_on_after(FREEZE_S):
                await trio.to_thread.run_sync(gateway.fill_levels.freeze, abandon_on_cancel=True)
        gateway.limits_lifted = True
        gateway.judge.replace(RuleSet(()))


async def send_closes(gateway: DrainedGateway) -> None:
    """Send their close to the sessions that are left, and give all clients a moment to close."""
    sessions = gateway.sweeper.sessions
    now = now_ns()
    for session in list(sessions.values()):
        gateway.sweeper.attempt(session, partial(close_overdue, session, now))
        gateway.sweeper.end(session)
    gateway.event_loop.wake()
    with trio.move_on_after(CLOSE_S):
        while sessions:
            await trio.sleep(0.01)
