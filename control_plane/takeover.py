"""A new process takes the place of a running one, on the same sockets and with the same state: an upgrade that refuses nobody.

::

    new process                                  running process (Unix socket gateway.takeover, mode 0600)
      hello: format, state, workers     ──►
                                        ◄──        its listening sockets (SCM_RIGHTS)
      builds itself: rules, TLS, state,
      admin; all that can fail
      ready                             ──►
                                                   stands still: accepts nobody, reads nobody, stores its fill levels, lends the state
                                        ◄──        go
      reads both, accepts clients
      serving                           ──►
                                        ◄──        done
      (systemd: the main process now)              drains, ends

Processes that ask do not wait for each other: the first that is ready takes over, and whatever only holds the connection holds up nobody.

**The running process hands over only when the new one serves.** Should the new one end after `go`, say nothing for SERVING_S, or say
anything else than `serving`, the running one takes back what it has lent, and serves on as before: its listening sockets and its
connections were open all the time. The state has one owner at any moment, whoever has locked its directory. A new process that is late is
told so and ends, or is ended. One that finds the running process gone while it waits for `done` serves on: nobody else is there.

Clients that connect between `ready` and `serving` wait in the kernel's queue, which outlives both: a few hundredths of a second. So long
messages of those that are connected wait in theirs, so that a limit is one over both processes. A message is a line of JSON.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import socket
import struct
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from admin.http.unix_socket import UnixSocket
from common import log
from common.supervised_loop import SupervisedLoop
from gateway import systemd
from gateway.systemd import Inheritance

if TYPE_CHECKING:
    from typing import Self

    Socket = socket.socket | trio.socket.SocketType

FORMAT: Final = 1
SERVING: Final = "serving"  # what a new process says last; one of version 0.3.0 and before ends with `ready`
STARTED_TO_TAKE_OVER: Final = "SLUICE_STARTED_TO_TAKE_OVER"  # a variable of a process that SIGUSR2 has started: it takes over, or ends
MAX_LINE: Final = 65_536  # bytes
MAX_SOCKETS: Final = 250  # the kernel passes 253 descriptors at once (SCM_MAX_FD)
LEAST_S: Final = 0.001  # a time-out of 0 means something else
ANSWER_S: Final = 10.0  # for the running process to answer hello; a guess
MAIN_S: Final = 1.0  # for systemd to take the word of its new main process, where it has much to read; a guess
HELLO_S: Final = 5.0  # for what connects to say why: a new process does so at once; a guess
READY_S: Final = 60.0  # for the new process to build itself; a guess
MAX_ASKING: Final = 8  # processes that ask at once; of more, one that has not said hello is let go, else the first (a guess)
GOES_ON: Final = "this gateway goes on; see the other one's log"
STOPPING: Final = "the running gateway is stopping; start this one when it has ended"
OTHER: Final = "another process was ready first and takes over from the running gateway; start this one again, if that fails"
TAKEN_BACK: Final = "the gateway before has taken its state back, as this one did not serve in time; start this one again"
RETRY_S: Final = 1.0  # after a fault: no descriptors are left, or the path is taken; a guess
GO_S: Final = 30.0  # for each answer of the running process, which may have a change and the fill levels to write; a guess
SERVING_S: Final = 30.0  # for the new process to read the state and serve; clients wait so long at most; a guess
END_S: Final = 5.0  # for a new process that has closed its connection to end by itself; a guess


class TakeoverError(Exception):
    """The running process cannot be replaced; it goes on."""


class Takeover:
    """The new process's side. It may block. Closing it before `confirm` leaves everything to the running process."""

    def __init__(self, sock: socket.socket, path: Path, inheritance: Inheritance) -> None:
        self._sock = sock
        self._path = path
        self.inheritance = inheritance
        self._notices = systemd.keep_silent()  # the running process speaks for the service

    @classmethod
    def begin(cls, path: Path, state_directory: Path, workers: int = 1) -> Self | None:
        """Ask the process that listens at `path` for its sockets; None where there is none. Raises TakeoverError."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(ANSWER_S)
        try:
            try:
                sock.connect(str(path))
            except (FileNotFoundError, ConnectionRefusedError):
                sock.close()
                return None
            _check_peer(sock)
            folder = str(state_directory.resolve())
            sock.sendall(_line({"format": FORMAT, "state_directory": folder, "pid": os.getpid(), "workers": workers, "says": SERVING}))
            answer, descriptors = _receive(sock, ANSWER_S)
            sockets = [("", systemd.listening_socket(descriptor)) for descriptor in descriptors]
        except (OSError, ValueError) as error:
            sock.close()
            raise TakeoverError(
                f"{path}: the gateway there cannot be taken over from: {_reason(error)}; stop it, then start this one"
            ) from error
        if "error" in answer:
            sock.close()
            raise TakeoverError(f"{path}: {answer['error']}")
        log.event(logging.INFO, "taking_over", pid=answer.get("pid"), sockets=len(sockets))
        return cls(sock, path, Inheritance(sockets, "the gateway that this one takes over from had it; it is not in this configuration"))

    def commit(self) -> None:
        """Everything is built: have the running process stand still and lend its state. Raises TakeoverError where it does not."""
        try:
            with suppress(BrokenPipeError):  # it may have said why
                self._sock.sendall(_line({"ready": True}))
            answer, _ = _receive(self._sock, GO_S)
        except (OSError, ValueError) as error:
            self.close()
            reason = f"the running gateway did not give its state up: {_reason(error)}"
            raise TakeoverError(f"{self._path}: {reason}; start this one again, if that has ended") from error
        if not answer.get("go"):
            self.close()
            raise TakeoverError(f"{self._path}: {answer.get('error', 'the running gateway keeps its state')}")
        if answer.get("until") != SERVING:  # of a version before: it drains already
            self._take_the_word()

    def confirm(self) -> None:
        """This process serves: have the one before drain and end, if that is there at all. Raises TakeoverError where it has taken back
        what it had lent.
        """
        if self._sock.fileno() < 0:
            return
        try:
            with suppress(BrokenPipeError):
                self._sock.sendall(_line({SERVING: True}))
            answer, _ = _receive(self._sock, GO_S)
        except (OSError, ValueError):  # it is gone, or hangs: nobody else serves
            answer = {}
        if "error" in answer:
            self.close()
            raise TakeoverError(f"{self._path}: {answer['error']}")
        self._take_the_word()

    def _take_the_word(self) -> None:
        """From now on this process speaks for the service."""
        self.close()
        systemd.speak(self._notices)

    def close(self) -> None:
        self._sock.close()

    def __repr__(self) -> str:
        return f"<Takeover {self._path} {self.inheritance!r}>"


def must_take_over(path: Path | None) -> None:
    """No process is there to be taken over from. Raises TakeoverError where SIGUSR2 has started this one, which was for that alone."""
    if STARTED_TO_TAKE_OVER in os.environ:
        why = "gateway.takeover is not set any more" if path is None else f"{path}: nobody listens there any more"
        raise TakeoverError(f"{why}; SIGUSR2 has started this process to take over, so it ends; start the gateway anew")


class Handover(Protocol):
    """What only one process can have: `control_plane.handover.Handover`."""

    async def lend(self) -> None: ...

    def give(self, process: int) -> None: ...

    async def take_back(self) -> None: ...


class Asker:
    """A process that wants to take over, at the other end of a connection."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.process = 0  # its number; 0: not known, or of another namespace of processes, which is no service manager's
        self.hello: dict[str, Any] = {}
        self._handle = -1  # by which it can be ended (pidfd); -1: it cannot
        self._held = b""

    def identify(self) -> None:
        """Which process it is. Before it is listened to, so that it is not another one's number by then. Raises OSError."""
        self.process = _check_peer(self.stream.socket)
        if self.process not in (0, os.getpid()):
            with suppress(OSError):
                self._handle = os.pidfd_open(self.process)

    async def read_line(self) -> dict[str, Any]:
        """What it says next. Raises ValueError, trio.BrokenResourceError."""
        while b"\n" not in self._held:
            data = await self.stream.receive_some(MAX_LINE)
            self._held += data
            if not data:
                raise ValueError("it has ended")
            if len(self._held) > MAX_LINE:
                raise ValueError("it says more than it should")
        line, _, self._held = self._held.partition(b"\n")
        return _parse(line)

    def tell(self, content: dict[str, object]) -> None:
        """Without waiting: one that does not read a line at once does without."""
        with suppress(OSError):
            os.write(self.stream.socket.fileno(), _line(content))

    async def end(self) -> None:
        """It was lent the state and does not serve: unless it ends by itself now, end it. It may hang, and hold what is needed here."""
        self.tell({"error": TAKEN_BACK})
        self.stream.socket.close()
        if self._handle < 0:
            return
        with trio.move_on_after(END_S):
            await trio.lowlevel.wait_readable(self._handle)
            return
        with suppress(OSError):  # it is root's
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            await trio.lowlevel.wait_readable(self._handle)

    def close(self) -> None:
        self.stream.socket.close()
        if self._handle >= 0:
            os.close(self._handle)

    def __repr__(self) -> str:
        return f"<Asker {self.process} {self.hello}>"


class TakeoverPoint:
    """The running process's side: where the next process asks. `sockets` are those to be passed; `handover` has the rest."""

    def __init__(
        self,
        path: Path,
        state_directory: Path,
        workers: int,
        sockets: Callable[[], Sequence[socket.socket]],
        handover: Handover,
        stopping: Callable[[], bool],
        serving_s: float = SERVING_S,
    ) -> None:
        self._path = path
        self._state_directory = state_directory
        self._workers = workers
        self._sockets = sockets
        self._handover = handover
        self._stopping = stopping
        self._serving_s = serving_s
        self._asking: dict[trio.CancelScope, bool] = {}  # those that ask, in their order, and whether each has said hello
        self._ready: Asker | None = None  # the first that was

    async def run(self) -> None:
        """Serve until cancelled, or until a process has taken over. While nobody can ask, the gateway runs all the same, with a warning."""
        told = False
        while True:
            try:
                unix_socket = UnixSocket(self._path, "the next process cannot ask", "gateway.takeover")
            except OSError as error:
                if not told:
                    told = True
                    log.event(
                        logging.WARNING, "takeover_unavailable", err=error.strerror or str(error),
                        remedy="until then a new process has to wait",
                    )  # fmt: skip
                await trio.sleep(RETRY_S)
                continue
            told = False
            try:
                asker = await self._first_ready(unix_socket)
            finally:
                unix_socket.remove()  # the next one listens there from now on
            if await self._hand_over_to(asker):
                return

    async def _first_ready(self, unix_socket: UnixSocket) -> Asker:
        loop = SupervisedLoop("takeover")
        self._ready = None
        async with unix_socket.listener() as listener, trio.open_nursery() as nursery:
            while self._ready is None:
                with loop:
                    stream = await listener.accept()
                    if len(self._asking) >= MAX_ASKING:  # whatever says nothing goes first
                        first = min(self._asking, key=self._asking.__getitem__)
                        del self._asking[first]
                        first.cancel()
                    scope = trio.CancelScope(deadline=trio.current_time() + READY_S)
                    self._asking[scope] = False
                    nursery.start_soon(self._serve, Asker(stream), scope, nursery.cancel_scope)
                    continue
                await trio.sleep(RETRY_S)
        assert self._ready is not None
        return self._ready

    async def _serve(self, asker: Asker, scope: trio.CancelScope, everybody: trio.CancelScope) -> None:
        """One process that wants to take over; `everybody` is done with once one is ready. Those that ask do not wait for each other."""
        with SupervisedLoop("takeover"):
            await self._hear(asker, scope, everybody)

    async def _hear(self, asker: Asker, scope: trio.CancelScope, everybody: trio.CancelScope) -> None:
        try:
            with scope:
                asker.identify()
                with trio.fail_after(HELLO_S):
                    asker.hello = await asker.read_line()
                if scope in self._asking:  # else it has just been let go
                    self._asking[scope] = True
                if not await self._pass_sockets(asker.stream, asker.hello):
                    return
                if not (await asker.read_line()).get("ready"):
                    raise ValueError("it does not say that it is ready")
                if self._stopping():
                    asker.tell({"error": STOPPING})
                elif self._ready is None:
                    self._ready = asker
                    everybody.cancel()
            if scope.cancelled_caught:
                raise trio.TooSlowError
        except Exception as error:  # whatever another process says: this one goes on
            log.event(logging.WARNING, "takeover_failed", err=_reason(error), remedy=GOES_ON)
        finally:
            self._asking.pop(scope, None)
            if self._ready is not asker:
                if self._ready is not None:
                    asker.tell({"error": OTHER})
                asker.close()

    async def _hand_over_to(self, asker: Asker) -> bool:
        """Whether it serves. Where it does not, this process has taken back everything."""
        pid, until_it_serves = asker.hello.get("pid"), asker.hello.get("says") == SERVING
        try:
            why = await self._lend_to(asker, until_it_serves=until_it_serves)
            if why:
                log.event(logging.WARNING, "taken_back", pid=pid, err=why, remedy=GOES_ON)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(asker.end)
                    await self._handover.take_back()
                return False
            log.event(logging.INFO, "taken_over", pid=pid)
            self._handover.give(asker.process)
            if asker.process:
                # Unheard, the end of this process would be that of the service. The next one's first beat came before it was the main
                # process, so it was lost: the watchdog is told here.
                systemd.notify(f"WATCHDOG=1\nMAINPID={asker.process}", patience=MAIN_S)
            systemd.keep_silent()
            asker.tell({"done": True} if until_it_serves else {"go": True})
            return True
        finally:
            asker.close()

    async def _lend_to(self, asker: Asker, *, until_it_serves: bool) -> str:
        """Lend everything, until it serves. Why it does not; "" where it does."""
        try:
            with trio.fail_after(self._serving_s):
                await self._handover.lend()
                if until_it_serves:
                    await asker.stream.send_all(_line({"go": True, "until": SERVING}))
                    if not (await asker.read_line()).get(SERVING):
                        raise ValueError("it does not say that it serves")
        except Exception as error:  # whatever another process says, and whatever fails here: this one goes on
            return _reason(error)
        return ""

    async def _pass_sockets(self, stream: trio.SocketStream, hello: dict[str, Any]) -> bool:
        sockets = self._sockets()
        refusal = ""
        if self._stopping():
            refusal = STOPPING
        elif hello.get("format") != FORMAT:
            refusal = f"the running gateway speaks format {FORMAT} of the takeover, not {hello.get('format')}; stop it, then start this one"
        elif hello.get("state_directory") != str(self._state_directory.resolve()):
            refusal = f"the running gateway has another gateway.state_directory, {self._state_directory.resolve()}; use the same"
        elif hello.get("workers", 1) != self._workers:  # the kernel spreads clients over as many sockets as there are workers
            of_both = f"gateway.workers is {self._workers} in the running gateway and {hello.get('workers', 1)} in this one"
            refusal = f"{of_both}; use the same, or stop it, then start this one"
        elif len(sockets) > MAX_SOCKETS:
            refusal = f"the running gateway has {len(sockets)} sockets, more than the kernel passes at once ({MAX_SOCKETS}); stop it first"
        if refusal:
            log.event(logging.WARNING, "takeover_failed", err=f"refused: {refusal}", remedy=GOES_ON)
            await stream.send_all(_line({"error": refusal}))
            return False
        descriptors = array("i", [each.fileno() for each in sockets])
        await stream.socket.sendmsg([_line({"pid": os.getpid()})], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        return True

    def __repr__(self) -> str:
        return f"<TakeoverPoint {self._path}>"


def _line(content: dict[str, object]) -> bytes:
    return json.dumps(content).encode() + b"\n"


def _parse(line: bytes) -> dict[str, Any]:
    """Raises ValueError."""
    try:
        content = json.loads(line)
    except RecursionError:
        raise ValueError("a line that is nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError("a line that is no object")
    return content


def _receive(sock: socket.socket, within: float) -> tuple[dict[str, Any], list[int]]:
    """One line, within so many seconds, and the descriptors that came with it. Raises OSError, ValueError."""
    line, found = b"", []
    ends_at = time.monotonic() + within
    try:
        while not line.endswith(b"\n"):
            sock.settimeout(max(ends_at - time.monotonic(), LEAST_S))
            data, descriptors, _, _ = socket.recv_fds(sock, MAX_LINE, MAX_SOCKETS)
            found += descriptors
            line += data
            if not data or len(line) > MAX_LINE:
                raise ValueError("it ended before it had answered" if not data else "its answer has no end")
            if time.monotonic() > ends_at:
                raise TimeoutError
        return _parse(line), found
    except (OSError, ValueError):
        for descriptor in found:
            os.close(descriptor)
        raise


def _check_peer(sock: Socket) -> int:
    """The process at the other end, of the same user or of root: nobody else may pass sockets or get them. Raises OSError."""
    process, user, _ = struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII")))
    if user not in (os.geteuid(), 0):
        raise PermissionError(errno.EPERM, f"the process there is of another user ({user})")
    return int(process)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, (TimeoutError, trio.TooSlowError)):
        return "it took too long"
    return "its connection broke" if isinstance(error, trio.BrokenResourceError) else str(error)
