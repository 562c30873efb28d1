"""The replayer: publishes again what durable rules have let wait for connections that are over.

It looks for the directories of processes that are gone, at the start and then now and then, because with several workers, or where another
process takes over, one may go while this one runs. From the spool of its own process it takes the queues of connections that ended before
their messages were through. Each queue is a stream, replayed in order by a task of its own, over a connection and a channel of its own; new
messages of the same client may come between.

A message is marked off when the broker has acked it, with all before it. One that the broker does not take (nack, return, a closed channel)
is set aside in a file, and those behind it go on. A closed channel does not say which message it was for. So what was under way is
published again one by one; that repeats some, and finds the one.

When the broker cannot be reached, or does not let the gateway in, the stream waits and tries again. Its place is another's meanwhile.
"""

from __future__ import annotations

import logging
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio
from pamqp import commands

from gateway import log
from gateway.pipeline.parts import PLAIN, REQUEST
from gateway.protocols.amqp.publishes_again import AgainMessage, Messages
from gateway.protocols.rocketmq.sends_again import SendAgain, SendsAgain
from gateway.replay.frame_stream import ReplayError
from gateway.replay.sends import Patience, SendSession
from gateway.replay.session import ChannelClosedError, ReplaySession
from gateway.replay.set_aside import SetAside
from gateway.spool.durable import serial_of
from gateway.spool.left_behind import LeftBehind, LeftStream, streams_of, take_left_behind
from limiter.protocols import ROCKETMQ

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gateway.broker_load.lag_watch import Login
    from gateway.listeners.listener import Handover, Listener
    from gateway.session.session import Session
    from gateway.spool.disk import SpoolDisk

LOOK_S: Final = 5.0  # seconds; between two looks for directories of processes that are gone (a guess)
ORPHANS_S: Final = 0.2  # seconds; between two looks at the own process's queues
AT_ONCE: Final = 16  # streams; each has a connection, and up to WINDOW_BYTES in memory (a guess)
WINDOW: Final = 512  # messages without an answer: as many are repeated after a crash (a guess)
MAX_TOGETHER: Final = 64  # messages; sent with one call (a guess)
WINDOW_BYTES: Final = 1 << 20
MARK_S: Final = 0.1  # seconds; from one mark to the next: it costs two system calls on a thread, and a crash repeats so much (a guess)
FAULTS: Final = range(501, 507)  # that close a connection for what a message is (specification 1.2, "constants")
RETRY_S: Final = 1.0  # seconds; before the second try, doubled up to
MAX_RETRY_S: Final = 15.0
NO_LOGIN: Final = "the listener has no own_login, with which they are published again"
UNREADABLE: Final = "give the gateway's user the folder and all in it (chown); it is tried again all the time"
NO_LISTENER: Final = "there is no listener of that name any more, so nobody knows their broker: bring it back"


class Waiting:
    """A message that was published again. `answer`: None, "" once acked, or why the broker does not take it."""

    __slots__ = ("answer", "message", "returned")

    def __init__(self, message: AgainMessage) -> None:
        self.message = message
        self.answer: str | None = None
        self.returned = ""


class Replay:
    """One stream on its way."""

    def __init__(self, stream: LeftStream, on_freed: Callable[[int], None]) -> None:
        self.stream = stream
        self.on_freed = on_freed  # called with the bytes of files that were deleted
        self.trouble = ""
        self.settled: AgainMessage | SendAgain | None = None  # the last that was answered, with all before it, and is not marked off
        self.marked_at = 0.0  # seconds, trio's clock
        self.one_by_one = 0  # so many messages, for one of them closes the channel
        self.window: deque[Waiting] = deque()  # published, oldest first
        self.first_tag = 1  # of the oldest
        self.window_bytes = 0
        self.sends = stream.origin.get("protocol") == ROCKETMQ.name  # else AMQP's publishes
        self.ready: deque[Any] = deque()  # AgainMessage, or SendAgain: read, not yet published
        self.patience = Patience()  # with what a broker refuses of sends
        self.messages: Messages | SendsAgain = SendsAgain() if self.sends else Messages()
        self.expires = 0  # when what is read next is too old (ns since 1970); 0: never
        self.expired_until = (0, 0)  # number of the file, and the byte: what was too old before it is counted
        self.damages: set[tuple[str, int]] = set()  # file and offset: they are kept already, and are read again after a rewind
        self.at_end = False

    def rewind(self) -> None:
        """Begin again with the first message that is not marked off."""
        self.window.clear()
        self.window_bytes = 0
        self.first_tag = 1
        self.ready.clear()
        self.messages = SendsAgain() if self.sends else Messages()
        self.at_end = False

    def tell_apart(self, first: bytes) -> None:
        """Nobody knows whose these are: which protocol is told by the `first` bytes. An AMQP publish begins with its kind, a method; a send
        with its length, of which the first byte is 0, since longer ones never wait."""
        self.sends = first[0] == 0
        self.messages = SendsAgain() if self.sends else Messages()

    def may_publish(self) -> bool:
        most = 1 if self.one_by_one else WINDOW
        return len(self.window) < most and (self.window_bytes < WINDOW_BYTES or not self.window)

    def __repr__(self) -> str:
        return f"<Replay {self.stream} window={len(self.window)} {self.trouble}>"


class Replayer:
    """Of one process. Counts since the start."""

    def __init__(self, disk: SpoolDisk, listening: dict[str, Listener], logins: dict[str, Login], handover: Handover) -> None:
        self.disk = disk
        self.listening = listening
        self.logins = logins
        self.handover = handover
        self.replays: list[Replay] = []  # what is to be replayed, or just is
        self.counts = disk.replay
        self.left_behind: list[LeftBehind] = []  # directories of which something is left
        self._told: dict[Path, str] = {}  # directories that could not be taken at the last look, and why
        self._aside = SetAside(disk.directory, disk.name())
        self._places = trio.CapacityLimiter(AT_ONCE)
        self._scope = trio.CancelScope()

    def _recount(self) -> None:
        counts, orphans = self.counts, self.disk.orphans
        counts.streams = len(self.replays) + len(orphans)
        counts.waiting_bytes = sum(replay.stream.size for replay in self.replays) + sum(orphan.size for orphan in orphans)
        counts.waiting = sum(bool(replay.trouble) for replay in self.replays)
        counts.troubles = sorted({replay.trouble for replay in self.replays if replay.trouble})

    def stop(self) -> None:
        """The gateway stops: what is left is the next process's."""
        self._scope.cancel()

    async def run(self) -> None:
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._look_for_orphans, nursery)
                while True:
                    await self._look(nursery)
                    await trio.sleep(LOOK_S)

    async def _look(self, nursery: trio.Nursery) -> None:
        """Take what processes that are gone have left."""
        found = await trio.to_thread.run_sync(take_left_behind, self.disk.directory)
        for folder, why in found.faults.items():
            if self._told.get(folder) != why:
                log.event(logging.WARNING, "spool_unreadable", folder=str(folder), err=why, remedy=UNREADABLE)
        self._told = found.faults
        streams = [stream for left in found.left for stream in left.streams]
        if found.files or streams:
            kept = sum(stream.size for stream in streams)
            log.event(
                logging.WARNING, "spool_left_behind", files=found.files, bytes=found.size,
                recovered_files=sum(len(stream.names) for stream in streams), recovered_bytes=kept,
            )  # fmt: skip
        for left in found.left:
            self.left_behind.append(left)
            self.disk.used += sum(stream.size for stream in left.streams)
            for stream in left.streams:
                nursery.start_soon(self._replay, stream, left)

    async def _look_for_orphans(self, nursery: trio.Nursery) -> None:
        """Take the queues of this process's connections that are over."""
        while True:
            while self.disk.orphans:
                own = self.disk.own()
                if own is None:
                    break
                self._recount()
                orphan = self.disk.orphans.popleft()
                try:
                    streams = await trio.to_thread.run_sync(streams_of, own, orphan.names)
                except OSError as error:  # somebody has tidied up
                    log.event(logging.WARNING, "replay_waits", err=f"{error}; its messages are not replayed before the next start")
                    continue
                for stream in streams:  # one
                    stream.position = orphan.position
                    stream.rewind()
                    nursery.start_soon(self._replay, stream, None)
            await trio.sleep(ORPHANS_S)

    async def _replay(self, stream: LeftStream, left: LeftBehind | None) -> None:
        """One stream, from its beginning to its end, however often that takes a new connection."""
        replay = Replay(stream, self.disk.release)
        self.replays.append(replay)
        pause = RETRY_S
        try:
            while True:
                self._recount()
                before = self.counts.replayed + self.counts.set_aside
                try:
                    async with self._places:
                        await self._play(replay)
                    break
                except (ReplayError, OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
                    self._note(replay, str(error))
                except Exception as error:  # let it crash: this stream only, and not for ever
                    self._note(replay, f"{type(error).__name__}: {error}")
                    log.failure("replay_failed", error)
                pause = RETRY_S if self.counts.replayed + self.counts.set_aside > before else min(2 * pause, MAX_RETRY_S)
                await trio.sleep(pause)
        finally:
            self.replays.remove(replay)
            self._recount()
        if left is not None:
            left.streams.remove(stream)
            if not left.streams:
                self.left_behind.remove(left)
                await trio.to_thread.run_sync(left.close)

    def _note(self, replay: Replay, trouble: str) -> None:
        origin = replay.stream.origin
        said = f"{origin.get('listener', '?')} {origin.get('topic') or origin.get('vhost', '?')}: {trouble}"
        if said != replay.trouble:
            log.event(
                logging.WARNING,
                "replay_waits",
                listener=origin.get("listener"),
                vhost=origin.get("vhost"),
                topic=origin.get("topic"),
                err=trouble,
            )
        replay.trouble = said
        self._recount()

    async def _play(self, replay: Replay) -> None:
        """Publish a stream until its end. Raises what `_replay` takes for a reason to try again."""
        origin = replay.stream.origin
        if not origin:  # nobody knows whose these are
            await self._set_all_aside(replay)
            return
        listener = self.listening.get(origin.get("listener", ""))
        login = self.logins.get(origin.get("listener", ""))
        if listener is None:
            raise ReplayError(NO_LISTENER)
        if replay.sends:
            await self._play_sends(replay, listener)
            return
        if login is None:
            raise ReplayError(NO_LOGIN)
        user, password = await trio.to_thread.run_sync(login)
        async with self._connect(replay, listener) as (stream, _):
            session = ReplaySession(stream)
            await session.begin(user, password, origin.get("vhost", "/"))
            replay.trouble = ""
            while not await self._publish(replay, session):
                await self._mark(replay)
                await self._rewind(replay)
                await session.reopen()
            await self._end(replay)
            await session.close()

    async def _play_sends(self, replay: Replay, listener: Listener) -> None:
        """The same of RocketMQ's sends, one after the other. Raises ReplayError."""
        async with self._connect(replay, listener) as (stream, served):
            session = SendSession(stream, served.conversation.settled, replay.patience)
            await session.begin()
            while (message := await self._next(replay)) is not None:
                refused = await session.send(message)
                if refused:
                    await self._set_aside(replay, message, refused)
                else:
                    self.counts.replayed += message.messages()
                replay.trouble = ""
                replay.settled = message
                if refused or trio.current_time() - replay.marked_at >= MARK_S:
                    await self._mark(replay)
            await self._end(replay)

    @asynccontextmanager
    async def _connect(self, replay: Replay, listener: Listener) -> AsyncIterator[tuple[trio.SocketStream, Session]]:
        """A connection as a client of `listener`, and the session that serves it; what is settled on it is marked off in the end.

        The stream is at its first message that is not marked off. Raises ReplayError.
        """
        await self._rewind(replay)
        ours, theirs = socket.socketpair()
        async with trio.SocketStream(trio.socket.from_stdlib_socket(ours)) as stream:
            served = await listener.let_in(theirs, self.handover)
            if served is None:
                raise ReplayError("its broker cannot be reached")
            try:
                yield stream, served
            finally:
                await self._mark(replay)

    async def _rewind(self, replay: Replay) -> None:
        """Begin again with the first message that is not marked off."""
        await trio.to_thread.run_sync(replay.stream.rewind)
        replay.rewind()

    async def _end(self, replay: Replay) -> None:
        """All of the stream is settled: mark it off, and delete its files."""
        await self._mark(replay)
        replay.on_freed(await trio.to_thread.run_sync(replay.stream.delete))

    async def _publish(self, replay: Replay, session: ReplaySession) -> bool:
        """Publish what is left, on one channel; False where that was closed, and is to be opened again. Raises ReplayError."""
        answered = trio.Event()
        closed: list[ChannelClosedError | ReplayError] = []
        failed: list[str] = []  # in vain: the connection is gone, or a file cannot be read or written

        async def listen() -> None:
            nonlocal answered
            try:
                while True:
                    self._take(replay, await session.next_answer())
                    answered.set()
            except (ChannelClosedError, ReplayError) as error:
                closed.append(error)
                answered.set()

        async def say() -> None:
            nonlocal answered
            try:
                while not closed:  # a frame that has begun is sent to its end, also when the channel is closed meanwhile
                    await self._settle(replay)
                    messages: list[AgainMessage] = []
                    while replay.may_publish() and len(messages) < MAX_TOGETHER:
                        message = await self._next(replay)
                        if message is None:
                            break
                        messages.append(message)
                        replay.window.append(Waiting(message))
                        replay.window_bytes += len(message.body)
                    if messages:
                        await session.publish(messages)
                        continue
                    if not replay.window:
                        break
                    if replay.window[0].answer is None and not closed:
                        answered = trio.Event()
                        await answered.wait()
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
                failed.append(f"{type(error).__name__}: {error}")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            await say()
            nursery.cancel_scope.cancel()
        if failed and not closed:
            raise ReplayError(failed[0])
        if not closed:
            return True
        await self._settle(replay)
        [error] = closed
        if isinstance(error, ChannelClosedError) or error.code in FAULTS:
            if len(replay.window) == 1:
                replay.window[0].answer = str(error)
                await self._settle(replay)
            replay.one_by_one = max(replay.one_by_one, len(replay.window))
        if isinstance(error, ReplayError):
            raise error
        return False

    def _take(self, replay: Replay, answer: commands.Basic.Ack | commands.Basic.Nack | commands.Basic.Return) -> None:
        """The broker, or the gateway, has answered."""
        if isinstance(answer, commands.Basic.Return):
            where = (str(answer.exchange).encode(), str(answer.routing_key).encode())
            for waiting in replay.window:
                message = waiting.message
                if (
                    waiting.answer is None
                    and not waiting.returned
                    and message.mandatory
                    and (message.exchange, message.routing_key) == where
                ):
                    waiting.returned = f"returned: {answer.reply_code} {answer.reply_text}"
                    break
            return
        nacked = isinstance(answer, commands.Basic.Nack)
        last = answer.delivery_tag - replay.first_tag
        for index in range(last if not answer.multiple else 0, last + 1):
            if 0 <= index < len(replay.window):
                waiting = replay.window[index]
                if waiting.answer is None:
                    waiting.answer = waiting.returned or ("nack: the broker, or a rule of this gateway, does not take it" if nacked else "")

    async def _settle(self, replay: Replay) -> None:
        """Take out what was answered, up to the first message that was not; what the broker does not take is set aside."""
        while replay.window and replay.window[0].answer is not None:
            waiting = replay.window[0]
            if waiting.answer:
                await self._set_aside(replay, waiting.message, waiting.answer)
            else:
                self.counts.replayed += 1
            replay.settled = waiting.message
            replay.window.popleft()
            replay.window_bytes -= len(waiting.message.body)
            replay.first_tag += 1
            replay.one_by_one = max(replay.one_by_one - 1, 0)
            if waiting.answer:
                await self._mark(replay)
        if trio.current_time() - replay.marked_at >= MARK_S:
            await self._mark(replay)

    async def _mark(self, replay: Replay) -> None:
        """Mark off all that was taken out."""
        last = replay.settled
        replay.marked_at = trio.current_time()
        if last is not None:
            replay.settled = None
            with trio.CancelScope(shield=True):
                replay.on_freed(await trio.to_thread.run_sync(replay.stream.done, last.file, last.end))
            self._recount()

    async def _next(self, replay: Replay) -> Any:
        """The next message; None at the end."""
        while not replay.ready and not replay.at_end:
            batch = await trio.to_thread.run_sync(replay.stream.read)
            if batch is None:
                replay.at_end = True
                break
            records, damages = batch
            file = replay.stream.names[replay.stream.reading]
            for damage in damages:
                replay.messages.begin()
                if (damage.file, damage.offset) in replay.damages:
                    continue
                await trio.to_thread.run_sync(self._aside.add_damage, replay.stream.directory.name, damage)
                replay.damages.add((damage.file, damage.offset))
                self.counts.damages += 1
                log.event(
                    logging.WARNING, "spool_damaged_bytes", file=str(replay.stream.directory / damage.file), offset=damage.offset,
                    bytes=len(damage.data), err=damage.why, torn=damage.torn, kept_in=str(self._aside.directory),
                )  # fmt: skip
            for record in records:
                if not record.replays or record.kind == PLAIN:
                    continue
                if record.kind == REQUEST:
                    if not replay.stream.origin:
                        replay.tell_apart(record.data)
                    replay.messages.begin()
                    replay.expires = record.expires
                found = replay.messages.add(record.data, file, record.at)
                if 0 < replay.expires <= time.time_ns():
                    self._count_expired(replay, found)
                else:
                    replay.ready.extend(found)
        return replay.ready.popleft() if replay.ready else None

    def _count_expired(self, replay: Replay, found: Sequence[AgainMessage | SendAgain]) -> None:
        """These are too old by now. After a rewind they are read again, and not counted again."""
        for message in found:
            place = serial_of(message.file), message.end
            if place > replay.expired_until:
                replay.expired_until = place
                self.counts.expired += message.messages() if isinstance(message, SendAgain) else 1

    async def _set_all_aside(self, replay: Replay) -> None:
        await self._rewind(replay)
        while (message := await self._next(replay)) is not None:
            await self._set_aside(replay, message, "the beginning of its file is damaged: its listener and virtual host are not known")
            replay.settled = message
            await self._mark(replay)
        await self._end(replay)

    async def _set_aside(self, replay: Replay, message: AgainMessage | SendAgain, reason: str) -> None:
        if isinstance(message, SendAgain):
            await self._keep(partial(self._aside.add_send, message, replay.stream.origin, reason), reason)
            self.counts.set_aside += message.messages()
            log.event(
                logging.WARNING, "replay_set_aside", listener=replay.stream.origin.get("listener"), topic=replay.stream.origin.get("topic"),
                err=reason, kept_in=str(self._aside.file),
            )  # fmt: skip
            return
        await self._keep(partial(self._aside.add, message, replay.stream.origin, reason), reason)
        self.counts.set_aside += 1
        exchange, routing_key = message.exchange.decode("utf-8", "replace"), message.routing_key.decode("utf-8", "replace")
        log.event(
            logging.WARNING, "replay_set_aside", listener=replay.stream.origin.get("listener"), exchange=exchange, routing_key=routing_key,
            err=reason, kept_in=str(self._aside.file),
        )  # fmt: skip

    async def _keep(self, write: Callable[[], None], reason: str) -> None:
        """Set a message aside by `write`. Raises ReplayError where the disk does not take it: it stays where it is, and is tried again."""
        try:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(write)
        except OSError as error:
            raise ReplayError(f"what the broker does not take ({reason}) cannot be set aside: {error}") from error

    def __repr__(self) -> str:
        return f"<Replayer {len(self.replays)} replayed={self.counts.replayed} set_aside={self.counts.set_aside}>"
