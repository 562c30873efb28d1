"""A sweep: what the event loop does between two turns of trio.

One `select.epoll` set holds every socket of every session, edge-triggered, and the limiter's eventfd. A sweep asks it, lets each session
that has something to do take its turn, and submits what all of them decoded to the limiter as **one** submission, or one for each
MAX_IN_HAND_BYTES that were read. The verdicts come back through the eventfd in this or a later sweep. Sessions that want more are on the
list of the next sweep, so a busy one cannot keep the others waiting: the cap per turn is Decode's MAX_MESSAGES_PER_TURN and one read of
RECEIVE_BYTES per side.

A session's exception closes that session, is counted and logged once, and never reaches the loop.
"""

from __future__ import annotations

import heapq
import select
import sys
from collections.abc import Callable
from typing import Any, Final

from common import log
from gateway.clock import now_ns
from gateway.counting.histogram import Histogram
from gateway.event_loop.batch_routing import unjudged_messages
from gateway.event_loop.idle_sessions import SLOT_NS, IdleSessions
from gateway.pipeline.errors import ProtocolError
from gateway.pipeline.pipeline import Batch
from gateway.session.deadlines import quiet_until, tick
from gateway.session.ending import fail_on_protocol_error, propagate_ends
from gateway.session.heartbeats import PAUSE_NS
from gateway.session.session import Session
from gateway.session.shared import Shared
from gateway.session.states import CLOSING, OVER
from gateway.transport.channel_states import READ_EOF, READ_OPEN, WRITE_FAILED
from gateway.waiting.disk.queue import PagedQueue
from gateway.waiting.disk.waiting_disk import WaitingDisk
from limiter.executor import QUEUED, Executor, Submission
from limiter.limits import NEVER
from limiter.request import Request

IDLE: Final = 0
DONE: Final = 1
MORE: Final = 2
RECEIVE_BYTES: Final = 262_144  # of the loop's one buffer; 64 KiB costs a third more system calls when streaming, 1 MiB spills the L2 cache
# Read before the judge is asked. What was read stays in memory until then: 32 publishers' windows of 100 kB are more than the processor's
# cache holds, and more than the allocator keeps, so that each sweep pays for new pages.
MAX_IN_HAND_BYTES: Final = 131_072
MAX_EVENTS: Final = 512  # taken from the kernel per sweep
# The same after a sweep that found fewer. `epoll.poll` allocates room for as many events as it is asked for, of 12 bytes each: 42 fit into
# the 512 bytes that pymalloc, Python's own allocator, serves from its pools; more is malloc's.
MAX_FEW_EVENTS: Final = 42
# How long a sweep waits for its own verdicts (epoll counts in ms): cheaper than going through trio, and it frees the GIL
MAX_VERDICT_WAIT_NS: Final = 1_000_000
MAX_TURN_NS: Final = 4_000_000  # of sweeping while other tasks want their turn: admin and timers lag no more (goal: p99 under 5 ms)
# Stale timers that are kept, beside two for each session: those of a session whose next moment comes and goes, as while the judge has what
# is held, would stay until they are due, which may be in an hour.
MAX_STALE_TIMERS: Final = 1_000
EDGE: Final = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
# What the kernel announces, as epoll_ctl(2) numbers it: compiled code would look `select`'s names up for each event.
EVENT_OUT: Final = 0x004  # EPOLLOUT
EVENT_ERROR: Final = 0x008  # EPOLLERR
EVENT_HANGUP: Final = 0x2018  # EPOLLRDHUP | EPOLLHUP | EPOLLERR


class Sweeper:
    """All sessions of one loop. Not a task: `EventLoop` calls `turns` while other tasks want their turn, and `serve` while none does."""

    def __init__(self, executor: Executor, on_end: Callable[[Session, BaseException | None], None], overhead: Histogram) -> None:
        self.executor = executor
        self.overhead = overhead  # seconds each submission took from its sweep to being passed on
        self.on_end = on_end  # called with every session that is over, and the exception that ended it, if any
        self.sessions: dict[int, Session] = {}
        self.sweeps = 0  # in which a session had a turn
        self.turned = 0  # turns of sessions
        self.submissions = 0
        self.called = False  # the loop has something to do other than sweeping: `serve` returns
        self._call_fd = -1  # readable when that is so
        self._epoll = select.epoll()
        self._poll: Any = self._epoll.poll  # looked up once
        self._max_events = MAX_EVENTS  # to be taken from the kernel by the next sweep
        self._now = 0  # for `serve`: the clock when last read
        self._by_descriptor: list[Session | None] = []  # indexed by the number of either socket, which the kernel keeps small
        self._ready: list[Session] = []
        self._timers: list[tuple[int, int]] = []  # (due, session number); stale entries are skipped
        self._active: dict[int, Session] = {}  # all that are not idle, by number
        self._idle = IdleSessions()
        self._ticked_at = 0
        self.check_after_bytes = sys.maxsize  # see `watch_volume`
        self._shared: Shared | None = None
        self._check: Callable[[int], None] | None = None
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._disk: WaitingDisk | None = None
        self._disk_fd = -1
        self._wake_fd = executor.fileno()
        if self._wake_fd >= 0:
            self._epoll.register(self._wake_fd, select.EPOLLIN | select.EPOLLET)

    def fileno(self) -> int:
        """The epoll set's descriptor: readable when a sweep has something to do."""
        return self._epoll.fileno()

    def add(self, session: Session, now: int) -> None:
        """Take a session in; its first turn is in the next sweep."""
        session.opened_at = now
        for channel in (session.client, session.upstream):
            channel.received_at = channel.sent_at = now
        self.sessions[session.number] = self._active[session.number] = session
        self._register(session.client.fd, session)
        self._register(session.upstream.fd, session)
        try:
            self._epoll.register(session.client.fd, EDGE)
            self._epoll.register(session.upstream.fd, EDGE)
        except OSError as error:  # ENOSPC (fs.epoll.max_user_watches), ENOMEM: this client only
            self._end_crashed(session, error)
            return
        self.wake(session)

    def _register(self, descriptor: int, session: Session | None) -> None:
        missing = descriptor + 1 - len(self._by_descriptor)
        if missing > 0:
            self._by_descriptor.extend([None] * missing)
        self._by_descriptor[descriptor] = session

    def wake(self, session: Session) -> None:
        """Let `session` take a turn in the next sweep."""
        if not session.queued and session.state != OVER:
            session.queued = True
            self._ready.append(session)

    def waiting(self) -> bool:
        """Whether a session waits for the next sweep."""
        return bool(self._ready)

    def next_due(self) -> int:
        """Monotonic ns of the earliest timer; NEVER without one."""
        return self._timers[0][0] if self._timers else NEVER

    def listen_for(self, descriptor: int) -> None:
        """From now on `called` is set, and `serve` returns, when `descriptor` is readable."""
        self._call_fd = descriptor
        self._epoll.register(descriptor, select.EPOLLIN)

    def turns(self) -> None:
        """Sweep until there is nothing more to do at once, until `called`, or for MAX_TURN_NS."""
        started = now = now_ns()
        while self.sweep(now) != IDLE and not self.called and now - started < MAX_TURN_NS:
            now = now_ns()

    def serve(self, until: int) -> None:
        """Sweep, and sleep while nothing happens, until `until` (monotonic ns) or until `called`."""
        self._now = now_ns()
        while not self.called and self._now < until:
            wait_ns = 0 if self._ready else min(until, self.next_due()) - self._now
            events = self._look(wait_ns)
            began = self._now = now_ns()
            self._sweep(events, began)
            if self._now == began:  # no verdicts came, after which the clock is read anyway; the sweep may have been long
                self._now = now_ns()

    def sweep(self, now: int, wait_s: float = 0.0) -> int:
        """One sweep: IDLE when nothing had happened, DONE when all was done, MORE when there is more to do at once.

        Waits up to `wait_s` for something to happen, in whole milliseconds as epoll counts; pass 0 after MORE.
        """
        asked = now_ns() if wait_s > 0 else 0
        events = self._look(int(wait_s * 1e9))
        return self._sweep(events, now + now_ns() - asked if asked else now)

    def _look(self, wait_ns: int) -> list[tuple[int, int]]:
        """What has happened, or happens within `wait_ns`: descriptors and what the kernel announces of them."""
        events: list[tuple[int, int]] = self._poll(wait_ns / 1e9, self._max_events) if wait_ns > 0 else self._poll(0, self._max_events)
        self._max_events = MAX_EVENTS if len(events) >= MAX_FEW_EVENTS else MAX_FEW_EVENTS
        return events

    def _sweep(self, events: list[tuple[int, int]], now: int) -> int:
        for descriptor, mask in events:
            self._note(descriptor, mask, now)
        if self._timers and self._timers[0][0] <= now:
            self._take_timers(now)
        ready = self._ready
        if not ready:
            return DONE if events else IDLE
        self.sweeps += 1
        self.turned += len(ready)
        self._ready = []
        batches: list[Batch] = []
        in_hand = 0  # bytes that these sessions have read
        for session in ready:
            session.queued = False
            session.settled_in = 0  # it may have been, as one whose verdict has just come
            asking = len(batches)
            before = session.client.received
            self._turn(session, now, batches)
            shared = self._shared
            if shared is not None and shared.unchecked_bytes >= self.check_after_bytes:
                self._check_volume(now)
            if len(batches) == asking:  # now rather than after all others' turns: what a session is made of is still in the cache
                self._settle(session, now)
                continue
            in_hand += session.client.received - before
            if in_hand >= MAX_IN_HAND_BYTES:
                self._submit(batches, now, last=False)
                batches = []
                in_hand = 0
        if batches:
            self._submit(batches, now, last=True)
        return MORE if self._ready else DONE

    def _check_volume(self, now: int) -> None:
        assert self._shared is not None
        assert self._check is not None
        self._shared.unchecked_bytes = 0
        self._check(now)

    def _note(self, descriptor: int, mask: int, now: int) -> None:
        if descriptor == self._wake_fd:
            self._collect(now, settling=False)
            return
        if descriptor == self._call_fd:
            self.called = True
            return
        if descriptor == self._disk_fd:
            self._collect_paged()
            return
        session = self._by_descriptor[descriptor]
        if session is None:
            return
        channel = session.client
        if channel.fd != descriptor:
            channel = session.upstream
        if mask & EVENT_OUT:
            channel.writable = channel.write_state != WRITE_FAILED
        if mask & EVENT_HANGUP:
            channel.hangup_pending = True
            if mask & EVENT_ERROR and channel is session.client and (channel.read_state == READ_EOF or session.withheld()):
                channel.check()
        if mask != EVENT_OUT and channel.read_state == READ_OPEN:
            channel.readable = True
        if not session.queued and session.state != OVER:
            session.queued = True
            self._ready.append(session)

    def take_disk(self, disk: WaitingDisk) -> None:
        """From now on sessions go on when the disk has written or read what is theirs."""
        self._disk = disk
        self._disk_fd = disk.fileno()
        self._epoll.register(self._disk_fd, select.EPOLLIN | select.EPOLLET)

    def _collect_paged(self) -> None:
        """Hand what the disk's threads have done to the sessions it belongs to."""
        disk = self._disk
        assert disk is not None
        for job in disk.collect():
            queue = job.owner
            assert isinstance(queue, PagedQueue)
            session = self.sessions.get(queue.connection)
            try:
                queue.finish_job(job)
            except Exception as error:  # let it crash: this session only
                if session is None:
                    raise
                self._end_crashed(session, error)
                continue
            if session is not None:
                self.wake(session)
        self.offer_room()

    def offer_room(self) -> None:
        """Let those go on that found no room on the disk: there may be some."""
        disk = self._disk
        assert disk is not None
        for _ in range(len(disk.out_of_room)):
            waiting = disk.out_of_room.popleft()
            assert isinstance(waiting, PagedQueue)
            waiting.resume_writing()

    def _take_timers(self, now: int) -> None:
        timers = self._timers
        while timers and timers[0][0] <= now:
            due, number = heapq.heappop(timers)
            session = self.sessions.get(number)
            if session is not None and session.due == due:
                session.timed = NEVER  # what is due next may be due at the same moment: that needs a timer of its own
                self.wake(session)

    def _turn(self, session: Session, now: int, batches: list[Batch]) -> None:
        if session.state == OVER:
            return
        try:
            if session.turn(now, self._buffer):
                batch = session.batch
                assert batch is not None
                batches.append(batch)
            if session.budget.ask_due <= now:
                deliveries = session.deliveries.ask(session, now)
                if deliveries is not None:
                    batches.append(deliveries)
        except ProtocolError as broken:  # a name of its own: mypyc would give `error` this type below as well
            self._end_broken(session, broken, now)
        except Exception as error:  # let it crash: this session only
            self._end_crashed(session, error)

    def _submit(self, batches: list[Batch], now: int, *, last: bool) -> None:
        """Have `batches` judged, and settle their sessions. `last`: of this sweep, which then waits for verdicts if there is nothing else
        to do."""
        mixed = False
        if len(batches) == 1:
            requests: list[Request] = list(batches[0].requests)
            mixed = batches[0].mixed
        else:
            requests = []
            for batch in batches:
                mixed = mixed or batch.mixed
                for request in batch.requests:  # one by one: most batches have one, and `extend` is made for more
                    requests.append(request)
        self.submissions += 1
        if self.executor.submit(Submission(requests, now, batches, mixed)):
            self._collect(now, settling=True)  # of this submission, and of an earlier one that a thread has just finished
        elif last and not self._ready:
            for descriptor, mask in self._look(MAX_VERDICT_WAIT_NS):
                self._note(descriptor, mask, now)
        for batch in batches:
            owner = batch.owner
            assert isinstance(owner, Session)
            if owner.settled_in != self.sweeps:
                self._settle(owner, now)

    def _collect(self, now: int, *, settling: bool) -> None:
        """Resume every session whose verdicts are there, and settle it, or let it take its turn first."""
        for submission in self.executor.collect():
            batches = submission.owner
            assert isinstance(batches, list)
            queued = submission.way == QUEUED
            for batch in batches:
                assert isinstance(batch, Batch)
                session = batch.owner
                assert isinstance(session, Session)
                judging = session.listener_config.judging
                bypassed = unjudged_messages(batch) if submission.unjudged else 0
                if bypassed:
                    judging.bypassed += 1
                    judging.bypassed_messages += bypassed
                elif queued:
                    judging.queued += 1
                else:
                    judging.inline += 1
                deliveries = session.deliveries.batch is batch
                if session.state == OVER or not (deliveries or session.batch is batch):
                    session.give_up(batch)
                    continue
                try:
                    if deliveries:
                        session.resume_deliveries(now, submission.now)
                    else:
                        session.resume(now, submission.now)
                except ProtocolError as broken:
                    session.give_up(batch)
                    self._end_broken(session, broken, now)
                except Exception as error:  # let it crash: this session only
                    session.give_up(batch)
                    self._end_crashed(session, error)
                if settling:
                    self._settle(session, now)
                else:
                    self.end(session)
            done = now_ns()
            if settling:
                self._now = done
            self.overhead.observe((done - submission.now) / 1e9)

    def _settle(self, session: Session, now: int) -> None:
        session.settled_in = self.sweeps
        if session.idle_until:
            self._mark_active(session)
        try:
            session.settle(now)
            propagate_ends(session, now)
        except Exception as error:  # let it crash: this session only
            self._end_crashed(session, error)
        if session.state == OVER:
            self._remove(session, None)
            return
        if session.again:
            self.wake(session)
        due = session.due
        if due != session.timed and due < NEVER:
            if len(self._timers) > MAX_STALE_TIMERS + 2 * len(self.sessions):
                self._timers = [(each.timed, number) for number, each in self.sessions.items() if each.timed < NEVER]
                heapq.heapify(self._timers)
            heapq.heappush(self._timers, (due, session.number))
        session.timed = due

    def _end_broken(self, session: Session, broken: ProtocolError, now: int) -> None:
        try:
            fail_on_protocol_error(session, broken, now)
        except Exception as error:  # let it crash: this session only
            self._end_crashed(session, error)

    def _end_crashed(self, session: Session, error: Exception) -> None:
        """Every fault of a session ends here; and so does the session, whatever else may fail on the way."""
        session.abort("gateway_error", f"{type(error).__name__}: {error}")
        self._remove(session, error)

    def tick(self, now: int) -> None:
        """A few times a second: deadlines and heartbeats of every session that is not idle."""
        asleep = now - self._ticked_at
        self._ticked_at = now
        if asleep > PAUSE_NS:
            for session in self.sessions.values():
                session.heartbeats.excuse(asleep, now)
                session.frame_due = 0
        for number in self._idle.take_due(now):
            idle = self.sessions.get(number)
            if idle is not None and 0 < idle.idle_until <= now + SLOT_NS:
                self._mark_active(idle)
        for session in list(self._active.values()):
            try:
                tick(session, now)
                until = quiet_until(session, now)
                if until:
                    self._idle.add(session, until)
                    del self._active[session.number]
            except Exception as error:  # let it crash: this session only
                self._end_crashed(session, error)
                continue
            if session.state == OVER:
                self._remove(session, None)
            elif session.again or session.client.hangup_pending or session.state == CLOSING:
                self.wake(session)

    def _mark_active(self, session: Session) -> None:
        """Something happens to an idle session: look at it again."""
        self._idle.remove(session)
        self._active[session.number] = session

    def attempt(self, session: Session, what: Callable[[], None]) -> None:
        """Do something with a session outside of its turn; should that fail, it is the end of this session only."""
        if session.idle_until:
            self._mark_active(session)
        try:
            what()
        except Exception as error:  # let it crash: this session only
            self._end_crashed(session, error)

    def buffered(self) -> int:
        """Bytes all sessions keep in memory."""
        return self._idle.buffered + sum(session.buffered() for session in self._active.values())

    def sum_up(self) -> int:
        """Bytes from clients that all sessions keep in memory. Those for clients are added to `ListenerConfig.delivery_bytes`."""
        total = self._idle.buffered  # an idle session keeps nothing for its client
        for session in list(self._active.values()):
            try:
                total += session.bytes_from_client()
                session.listener_config.delivery_bytes += session.bytes_for_client()
            except Exception as error:  # let it crash: this session only
                self._end_crashed(session, error)
        return total

    def watch_volume(self, shared: Shared, check: Callable[[int], None]) -> None:
        """Call `check` with the time whenever `shared.unchecked_bytes` has reached `check_after_bytes`, within a sweep."""
        self._shared = shared
        self._check = check
        self.check_after_bytes = 0  # at first at once, as a flood may come before the first tick; each check says when the next is due

    def poke_all(self) -> None:
        """Let every session take a turn: something all of them wait for has changed."""
        for session in self.sessions.values():
            self.wake(session)

    def end(self, session: Session) -> None:
        """Take out a session that has ended outside of a turn (`abort`, `send_close`, a batch that broke); wake it if it has not."""
        if session.state == OVER:
            self._remove(session, None)
        else:
            self.wake(session)

    def _remove(self, session: Session, error: BaseException | None) -> None:
        if self.sessions.pop(session.number, None) is None:
            return
        if session.idle_until:
            self._idle.remove(session)
        else:
            del self._active[session.number]
        self._register(session.client.fd, None)
        self._register(session.upstream.fd, None)
        try:
            session.close()  # closing a descriptor takes it out of the epoll set
        except Exception as fault:  # it is out of the epoll set all the same, and nothing waits for it
            if error is None:
                error = fault
            else:
                log.failure("session_failed", fault, conn=session.number, while_closing=True)
        try:
            self.on_end(session, error)
        except Exception as unsaid:
            log.failure("session_failed", unsaid, conn=session.number, while_closing=True)

    def close(self) -> None:
        """End every session at once."""
        for session in list(self.sessions.values()):
            session.abort("shutdown", "the gateway stops")
            self._remove(session, None)
        self._epoll.close()

    def __repr__(self) -> str:
        return f"<Sweeper {len(self.sessions)} sessions, {len(self._ready)} ready, {self.sweeps} sweeps>"
