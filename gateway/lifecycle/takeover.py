"""A new process takes the place of a running one, on the same sockets and with the same state: an upgrade that refuses nobody.

::

    new process                                  running process (Unix socket gateway.takeover, mode 0600)
      hello: format, state, workers     ──►
                                        ◄──        its listening sockets (SCM_RIGHTS)
      builds itself: rules, TLS, state,
      admin; all that can fail
      ready                             ──►
                                                   accepts nobody any more, stores its fill levels, gives the state directory up
                                        ◄──        go
      reads both, serves                           drains, ends (systemd: the new process is the main one now)

Processes that ask do not wait for each other: the first that is ready takes over, and whatever only holds the connection holds up nobody.

Until `ready` the running process serves as if nothing were, and it goes on if the new one ends before that. Clients that connect between
`ready` and `serves` wait in the kernel's queue, which outlives both: a few hundredths of a second. A message is a line of JSON.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import struct
from array import array
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from admin.http.unix_socket import UnixSocket
from gateway import log, systemd
from gateway.lifecycle.scheduling import SupervisedLoop
from gateway.systemd import Inheritance

if TYPE_CHECKING:
    from typing import Self

    Socket = socket.socket | trio.socket.SocketType

FORMAT: Final = 1
STARTED_TO_TAKE_OVER: Final = "SLUICE_STARTED_TO_TAKE_OVER"  # a variable of a process that SIGUSR2 has started: it takes over, or ends
MAX_LINE: Final = 65_536  # bytes
MAX_SOCKETS: Final = 250  # the kernel passes 253 descriptors at once (SCM_MAX_FD)
ANSWER_S: Final = 10.0  # for the running process to answer hello; a guess
MAIN_S: Final = 1.0  # for systemd to take the word of its new main process, where it has much to read; a guess
HELLO_S: Final = 5.0  # for what connects to say why: a new process does so at once; a guess
READY_S: Final = 60.0  # for the new process to build itself; a guess
MAX_ASKING: Final = 8  # processes that ask at once; of more, one that has not said hello is let go, else the first (a guess)
GOES_ON: Final = "this gateway goes on; see the other one's log"
STOPPING: Final = "the running gateway is stopping; start this one when it has ended"
RETRY_S: Final = 1.0  # after a fault: no descriptors are left; a guess
GO_S: Final = 30.0  # for the running process to give up its state: a change that is being written, the fill levels; a guess


class TakeoverError(Exception):
    """The running process cannot be replaced; it goes on."""


class Takeover:
    """The new process's side. It may block: nothing is served yet. Closing it before `commit` leaves everything to the running process."""

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
            sock.sendall(_line({"format": FORMAT, "state_directory": folder, "pid": os.getpid(), "workers": workers}))
            answer, descriptors = _receive(sock)
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
        """Everything is built: have the running process stop accepting and give up its state. Raises TakeoverError where it does not."""
        self._sock.settimeout(GO_S)
        try:
            self._sock.sendall(_line({"ready": True}))
            answer, _ = _receive(self._sock)
        except (OSError, ValueError) as error:
            reason = f"the running gateway did not give its state up: {_reason(error)}"
            raise TakeoverError(f"{self._path}: {reason}; start this one again, if that has ended") from error
        finally:
            self.close()
        if not answer.get("go"):
            raise TakeoverError(f"{self._path}: {answer.get('error', 'the running gateway keeps its state')}")
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


class TakeoverPoint:
    """The running process's side: where the next process asks. `sockets` are those to be passed; `hand_over` gives everything up."""

    def __init__(
        self,
        path: Path,
        state_directory: Path,
        workers: int,
        sockets: Callable[[], Sequence[socket.socket]],
        hand_over: Callable[[int], Awaitable[None]],
        stopping: Callable[[], bool],
    ) -> None:
        self._path = path
        self._state_directory = state_directory
        self._workers = workers
        self._sockets = sockets
        self._hand_over = hand_over
        self._stopping = stopping
        self._socket: UnixSocket | None = None
        self._asking: dict[trio.CancelScope, bool] = {}  # those that ask, in their order, and whether each has said hello
        self._handed_over = False

    async def run(self) -> None:
        """Serve until cancelled, or until a process has taken over. Where nobody can ask, the gateway runs all the same, with a warning."""
        try:
            self._socket = UnixSocket(self._path, "the next process cannot ask", "gateway.takeover")
        except OSError as error:
            log.event(
                logging.WARNING, "takeover_unavailable", err=error.strerror or str(error), remedy="until then a new process has to wait"
            )
            return
        try:
            loop = SupervisedLoop("takeover")
            async with self._socket.listener() as listener, trio.open_nursery() as nursery:
                while True:
                    with loop:
                        stream = await listener.accept()
                        if len(self._asking) >= MAX_ASKING:  # whatever says nothing goes first
                            first = min(self._asking, key=self._asking.__getitem__)
                            del self._asking[first]
                            first.cancel()
                        scope = trio.CancelScope(deadline=trio.current_time() + READY_S)
                        self._asking[scope] = False
                        nursery.start_soon(self._serve, stream, scope, nursery.cancel_scope)
                        continue
                    await trio.sleep(RETRY_S)
        finally:
            self._socket.remove()

    async def _serve(self, stream: trio.SocketStream, scope: trio.CancelScope, everybody: trio.CancelScope) -> None:
        """One process that wants to take over; when it has, nobody else can. Those that ask do not wait for each other."""
        with SupervisedLoop("takeover"):
            await self._serve_one(stream, scope, everybody)

    async def _serve_one(self, stream: trio.SocketStream, scope: trio.CancelScope, everybody: trio.CancelScope) -> None:
        async with stream:
            try:
                with scope:
                    try:
                        process = _check_peer(stream.socket)
                        with trio.fail_after(HELLO_S):
                            hello = await _read(stream)
                        if scope in self._asking:  # else it has just been let go
                            self._asking[scope] = True
                        if not await self._pass_sockets(stream, hello):
                            return
                        if not (await _read(stream)).get("ready"):
                            raise ValueError("it does not say that it is ready")
                        if self._stopping() or self._handed_over:
                            await stream.send_all(_line({"error": STOPPING}))
                            return
                        self._handed_over = True
                    finally:
                        self._asking.pop(scope, None)
                if scope.cancelled_caught:
                    raise trio.TooSlowError
            except Exception as error:  # whatever another process says: this one goes on
                log.event(logging.WARNING, "takeover_failed", err=_reason(error), remedy=GOES_ON)
                return
            assert self._socket is not None
            self._socket.remove()  # the next one listens there from now on
            log.event(logging.INFO, "taken_over", pid=hello.get("pid"))
            await self._hand_over(process)
            if process:  # 0: of another namespace of processes, which is no service manager's
                # Unheard, the end of this process would be that of the service. The next one's first beat came before it was the main
                # process, so it was lost: the watchdog is told here.
                systemd.notify(f"WATCHDOG=1\nMAINPID={process}", patience=MAIN_S)
            systemd.keep_silent()
            with suppress(trio.BrokenResourceError):
                await stream.send_all(_line({"go": True}))
            everybody.cancel()

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


def _parsed(line: bytes) -> dict[str, Any]:
    """Raises ValueError."""
    try:
        content = json.loads(line)
    except RecursionError:
        raise ValueError("a line that is nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError("a line that is no object")
    return content


def _receive(sock: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """One line, and the descriptors that came with it. Raises OSError, ValueError."""
    line, found = b"", []
    try:
        while not line.endswith(b"\n"):
            data, descriptors, _, _ = socket.recv_fds(sock, MAX_LINE, MAX_SOCKETS)
            found += descriptors
            line += data
            if not data or len(line) > MAX_LINE:
                raise ValueError("it ended before it had answered" if not data else "its answer has no end")
        return _parsed(line), found
    except (OSError, ValueError):
        for descriptor in found:
            os.close(descriptor)
        raise


async def _read(stream: trio.SocketStream) -> dict[str, Any]:
    """One line. Raises ValueError, trio.BrokenResourceError."""
    line = b""
    while not line.endswith(b"\n"):
        data = await stream.receive_some(MAX_LINE)
        line += data
        if not data:
            raise ValueError("it ended before it was ready")
        if len(line) > MAX_LINE:
            raise ValueError("it says more than it should")
    return _parsed(line)


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
    return str(error)
