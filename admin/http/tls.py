"""TLS handshakes of the admin server: trio's own TLS, with bounds on what strangers can cost.

Without bounds they cost three things. Places: half handshakes would take those of operators, so handshakes have places of their own; when
those are taken one of the address with the most gives way, at random: the oldest would always be the one of a client that is far away.
Time: a handshake has a deadline. The processor: a signature costs 1 to 5 ms (RSA of 2,048 to 4,096 bits) on the thread that the data plane
runs on, so after each step none is made for REST times as long. Addresses take turns: a newcomer waits for one step of another address,
whatever number of handshakes that has begun.

A client that is refused is sent TLS's own alert, which trio keeps to itself; a client that speaks HTTP without TLS is told so in HTTP.
"""

from __future__ import annotations

import random
import ssl
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

import trio
import trio.abc

from admin.authentication.auth import counted_address
from common.descriptors import WHOLE

if TYPE_CHECKING:
    from admin.http.peer import Peer

HANDSHAKE_S: Final = 5.0  # seconds; for a whole handshake, waiting for its turns included (a guess)
REST: Final = 4  # times the length of a step in which no other is made: handshakes take a fifth of the processor at most
MAX_REST_S: Final = 0.02  # seconds; after one step: what else ran meanwhile must not count for long (a guess)
LINGER_S: Final = 0.5  # seconds; for a refused client to read why and close
TLS_RECORDS: Final = frozenset({0x15, 0x16})  # alert, handshake: what a TLS connection may begin with (RFC 8446, 5.1)
_PROBLEM: Final = (
    b'{"type":"urn:sluice:problem:malformed","title":"Bad Request","status":400,'
    b'"detail":"this port speaks TLS: use https:// in place of http://"}'
)
WITHOUT_TLS: Final = (  # to clients that speak HTTP without
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
) % (len(_PROBLEM), _PROBLEM)


class HandshakeError(Exception):
    """No TLS with this client, and why."""


class NotTlsError(Exception):
    """The client has begun with something else."""


class Handshakes:
    """Makes connections into TLS streams. `context` is of new connections: a reload puts another one here."""

    def __init__(self, context: ssl.SSLContext, explain: Callable[[ssl.SSLError], str] = str, most: int = WHOLE.handshakes) -> None:
        """`explain` puts OpenSSL's errors into words; `most` are under way at once."""
        self.context = context
        self._most = most
        self.failed = 0
        self._explain = explain
        self._under_way: dict[trio.CancelScope, str] = {}  # -> address
        self._pace = _Pace()

    async def shake_hands(self, stream: trio.abc.Stream, peer: Peer) -> trio.SSLStream[_Paced]:
        """The TLS stream on `stream`, which is then its own. Raises HandshakeError; then the caller closes `stream`."""
        while len(self._under_way) >= self._most:
            self._cut_one()
        address = counted_address(peer.address)
        with trio.CancelScope(deadline=trio.current_time() + HANDSHAKE_S) as scope:
            self._under_way[scope] = address
            try:
                return await self._shake_hands(stream, address)
            except HandshakeError:
                self.failed += 1
                raise
            finally:
                self._under_way.pop(scope, None)
        self.failed += 1
        raise HandshakeError(f"no handshake within {HANDSHAKE_S:g} s, or it had to give way to another one")

    def _cut_one(self) -> None:
        """End a handshake of the address that has the most."""
        address = Counter(self._under_way.values()).most_common(1)[0][0]
        scope = random.choice([scope for scope, of in self._under_way.items() if of == address])  # noqa: S311  -- no secret
        del self._under_way[scope]
        scope.cancel()

    async def _shake_hands(self, stream: trio.abc.Stream, address: str) -> trio.SSLStream[_Paced]:
        paced = _Paced(stream, self._pace, address)
        begins = _Begins(self.context)
        tls = trio.SSLStream(paced, cast("ssl.SSLContext", begins), server_side=True, https_compatible=True)
        try:
            try:
                await tls.do_handshake()
            except NotTlsError:
                await _say_goodbye(stream, WITHOUT_TLS)
                raise HandshakeError("the client does not speak TLS") from None
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                cause = error.__cause__
                if not isinstance(cause, ssl.SSLError):
                    raise HandshakeError("the client closed the connection within the handshake") from None
                await _say_goodbye(stream, begins.outgoing.read())
                raise HandshakeError(self._explain(cause)) from None
        except BaseException:
            begins.made.inner = None
            raise
        paced.pace = None
        paced.held = begins.made
        return tls

    def __repr__(self) -> str:
        return f"<Handshakes {len(self._under_way)} under way, {self.failed} failed>"


class _Begins:
    """An SSLContext that keeps the buffer its connection writes into: an alert stays there when trio gives up."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self.outgoing = ssl.MemoryBIO()
        self.made = _Released(None)

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *, server_side: bool, server_hostname: str | bytes | None
    ) -> ssl.SSLObject:
        self.outgoing = outgoing
        self.made = _Released(self._context.wrap_bio(incoming, outgoing, server_side=server_side, server_hostname=server_hostname))
        return cast("ssl.SSLObject", self.made)


class _Released:
    """An SSLObject that can be let go: trio's stream refers to itself, so its tens of KiB would stay until the garbage collector comes."""

    def __init__(self, inner: ssl.SSLObject | None) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class _Pace:
    """Whose turn it is to make a step, addresses in turn, and from when on the next may be made (trio's clock)."""

    def __init__(self) -> None:
        self.free_at = 0.0
        self._taken = False
        self._lines: OrderedDict[str, deque[trio.Event]] = OrderedDict()  # by address; the one served longest ago first

    async def turn(self, address: str) -> None:
        """Wait until a step of this address may be made."""
        await self._take(address)
        try:
            await trio.sleep_until(self.free_at)
        finally:
            self._pass_on()

    async def _take(self, address: str) -> None:
        if not self._taken:
            self._taken = True
            return
        mine = trio.Event()
        line = self._lines.setdefault(address, deque())
        line.append(mine)
        try:
            await mine.wait()
        except BaseException:
            if mine.is_set():
                self._pass_on()
            else:
                line.remove(mine)
                if not line:
                    del self._lines[address]
            raise

    def _pass_on(self) -> None:
        self._taken = bool(self._lines)
        if self._taken:
            address, line = self._lines.popitem(last=False)
            line.popleft().set()
            if line:
                self._lines[address] = line


class _Paced(trio.abc.HalfCloseableStream):
    """A stream that gives what it receives out in turns, as long as `pace` is there: each is followed by a step of a handshake."""

    def __init__(self, inner: trio.abc.Stream, pace: _Pace, address: str) -> None:
        self.inner = inner
        self._address = address
        self.pace: _Pace | None = pace
        self.held: _Released | None = None  # let go when this is closed
        self._first = True
        self._stepping_since: float | None = None

    def _step_is_over(self) -> None:
        if self._stepping_since is not None and self.pace is not None:
            now = trio.current_time()
            self.pace.free_at = now + min(REST * (now - self._stepping_since), MAX_REST_S)
        self._stepping_since = None

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        self._step_is_over()
        data = await self.inner.receive_some(max_bytes)
        if self._first and data and data[0] not in TLS_RECORDS:
            raise NotTlsError
        self._first = False
        if self.pace is not None and data:
            await self.pace.turn(self._address)
            self._stepping_since = trio.current_time()
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._step_is_over()
        await self.inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.inner.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        if isinstance(self.inner, trio.abc.HalfCloseableStream):
            await self.inner.send_eof()

    async def aclose(self) -> None:
        if self.held is not None:
            self.held.inner = None
        await self.inner.aclose()


async def _say_goodbye(stream: trio.abc.Stream, data: bytes) -> None:
    """Send `data` and FIN, then read until the client closes: the reset of unread bytes would overtake the reason."""
    with trio.move_on_after(LINGER_S):
        try:
            await stream.send_all(data)
            if isinstance(stream, trio.abc.HalfCloseableStream):
                await stream.send_eof()
            while await stream.receive_some(16_384):
                pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
