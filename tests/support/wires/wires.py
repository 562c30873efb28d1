"""A data plane without trio: real sessions in a real sweeper, over socket pairs, driven by hand.

wires = Wires(rules)
client, broker = wires.connect("rocketmq")     # our ends of the two sockets
client.sendall(...); wires.run(); broker.recv(...)
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from types import TracebackType

from gateway.admission import ConnectionPermit
from gateway.assembly import assemble
from gateway.clock import now_ns
from gateway.counting.accounts import Accounts
from gateway.counting.histogram import Histogram
from gateway.event_loop.batch_routing import split_by_session
from gateway.event_loop.sweeper import Sweeper
from gateway.session.listener_config import ListenerConfig
from gateway.session.session import Session
from gateway.session.shared import Shared
from gateway.session.states import BROKER_LEGAL, CLIENT_LEGAL, CLOSING, DRAINING
from gateway.transport.channel import Channel
from limiter.bypass import Bypass, BypassBound
from limiter.executor import TRUSTED, Executor
from limiter.judge import Judge
from limiter.limits import NEVER
from limiter.request import Request
from limiter.rules.rule_set import Rule, RuleSet

TICK_S = 0.25  # as `gateway.lifecycle.periodic_tasks`
MAX_STEP_NS = 5_000_000  # ns; what one look at the clock adds at most: a process that stood still in between has not let its sessions wait
Decide = Callable[[list[Request], int], None]


class Wires:
    """A sweeper with its judge and accounts. `wrap` may put something between the executor and the judge (a slow one, a failing one)."""

    def __init__(
        self,
        *rules: Rule,
        threads: int = 0,
        queue: int = 10_000,
        on_rejection: str = "pass",
        max_bypass: BypassBound | None = None,
        inline: str = TRUSTED,
        hold_bytes: int = 1 << 20,
        backlog_bytes: int = 1 << 18,
        wrap: Callable[[Decide], Decide] | None = None,
    ) -> None:
        self.judge = Judge(RuleSet(tuple(rules)))
        decide = self.judge.decide if wrap is None else wrap(self.judge.decide)
        bound = None if max_bypass is None else Bypass(max_bypass, self.judge.count_judged)
        self.executor = Executor(decide, threads, queue, on_rejection, bound=bound, split=split_by_session, inline=inline)
        self.accounts = Accounts()
        self.shared = Shared(self.judge, self.accounts, 400, 200, hold_bytes, backlog_bytes, backlog_bytes)
        self.ended: list[tuple[Session, BaseException | None]] = []
        self.at_end: Callable[[Session, BaseException | None], None] | None = None
        self.sweeper = Sweeper(self.executor, self._ended, Histogram((1.0,)))
        self._sockets: list[socket.socket] = []
        self._number = 0
        self._clock = self._looked_at = now_ns()  # ns: the sessions' clock, and the real one when it was last looked at

    def connect(
        self, protocol: str, address: str = "10.0.0.7", *, config: ListenerConfig | None = None, permit: ConnectionPermit | None = None
    ) -> tuple[socket.socket, socket.socket]:
        """A new session: (the client's end, the broker's end)."""
        client, ours_client = socket.socketpair()
        broker, ours_upstream = socket.socketpair()
        for end in (client, broker):
            end.settimeout(60)
        self._sockets += [client, broker]
        self.join(protocol, Channel(ours_client), Channel(ours_upstream), address, config=config, permit=permit)
        return client, broker

    def join(
        self,
        protocol: str,
        client: Channel,
        upstream: Channel,
        address: str = "10.0.0.7",
        *,
        config: ListenerConfig | None = None,
        permit: ConnectionPermit | None = None,
    ) -> None:
        """A new session over these two channels."""
        self._number += 1
        config = config or ListenerConfig("here", protocol, 1 << 24, 10_000_000_000)
        session = assemble(self._number, client, (address, 1), upstream, config, self.shared, permit)
        self.sweeper.add(session, self.now())

    def tcp_pair(self) -> tuple[socket.socket, socket.socket]:
        """Two ends of a loopback TCP connection, which knows RST; closed with the wires."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            ours = socket.create_connection(listener.getsockname())
            theirs, _ = listener.accept()
        for end in (ours, theirs):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else two writes in a row come up to 40 ms apart
        self._sockets += [ours, theirs]
        return ours, theirs

    def enforce(self, rules: RuleSet) -> None:
        """Put other rules in force, as the gateway does."""
        keys_change = self.judge.replace(rules)
        for session in self.sweeper.sessions.values():
            if keys_change:
                session.conversation.renew_keys()
            if session.conversation.lines.has_paged:
                session.conversation.lines.limits_changed()

    def session(self, number: int = 1) -> Session:
        return self.sweeper.sessions[number]

    def _ended(self, session: Session, error: BaseException | None) -> None:
        self.ended.append((session, error))
        if self.at_end is not None:
            self.at_end(session, error)

    def sweep(self, wait_s: float = 0.0) -> None:
        """One sweep, after which every session is in a state that the tables have."""
        if not self.sweeper.sweep(self.now()) and wait_s:
            time.sleep(wait_s)  # not within the sweep, which adds to its clock how long it really waited
        for session in self.sweeper.sessions.values():
            assert_legal(session)

    def run(self, seconds: float = 0.02) -> None:
        """Sweep until nothing has happened for `seconds`, nor in a whole sweep: this process may have stood still for so long itself."""
        quiet_since = time.monotonic()
        while True:
            before = self._progress()
            self.sweep(0.001)
            if self._progress() != before:
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since >= seconds:
                return

    def until(self, condition: Callable[[], bool], within: float = 60.0) -> None:
        """Sweep until `condition` holds."""
        deadline = time.monotonic() + within
        while not condition():
            assert time.monotonic() < deadline, f"not within {within} s: {self.sweeper}"
            self.sweep(0.001)

    def now(self) -> int:
        """The sessions' clock, ns: the real one without the times this process stood still, plus what `elapse` has put on."""
        real = now_ns()
        self._clock += min(real - self._looked_at, MAX_STEP_NS)
        self._looked_at = real
        return self._clock

    def stand_still(self, seconds: float) -> None:
        """The process is stopped for so long: the clock goes on, nothing happens."""
        self._clock += int(seconds * 1e9)

    def elapse(self, seconds: float, each: Callable[[], None] | None = None) -> None:
        """Let so much time pass for the sessions, in ticks as in the gateway; `each` is called between them. Takes no real time."""
        for _ in range(round(seconds / TICK_S)):
            self._clock += int(TICK_S * 1e9)
            self.sweeper.tick(self.now())
            for _ in range(3):  # what was written must be announced, read and passed on
                self.sweep()
            if each is not None:
                each()

    def _progress(self) -> tuple[int, ...]:
        sessions = self.sweeper.sessions.values()
        moved = sum(s.client.received + s.client.sent + s.upstream.received + s.upstream.sent for s in sessions)
        return moved, len(sessions), self.judge.count_judged()  # not submissions: what waits for a slot is judged again every few ms

    def received(self, end: socket.socket) -> bytes:
        """Everything that has arrived at `end` by now."""
        found = b""
        end.setblocking(False)
        try:
            while data := end.recv(1 << 20):
                found += data
        except BlockingIOError:
            pass
        finally:
            end.settimeout(60)
        return found

    def totals(self, protocol: str, topic: str, operation: str = "produce") -> dict[str, int]:
        self.accounts.fold(now_ns())
        totals = self.accounts.topics[protocol, topic, operation]
        names = ("received", "forwarded", "refused", "dropped", "abandoned", "bypassed", "delayed", "waiting")
        return {name: getattr(totals, name) for name in names}

    def __enter__(self) -> Wires:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for end in self._sockets:
            end.close()
        self.sweeper.close()
        self.executor.close(60)


def assert_legal(session: Session) -> None:
    """A session that has settled is in one of the combinations of `gateway/session/states.py`."""
    client, upstream = session.client, session.upstream
    assert (client.read_state, client.write_state) in CLIENT_LEGAL[session.state], repr(session)
    assert (upstream.read_state, upstream.write_state) in BROKER_LEGAL[session.state], repr(session)
    assert session.conversation.draining == (session.state >= CLOSING), repr(session)
    assert session.state >= CLOSING or not (session.client_silent or session.broker_silent), repr(session)
    assert session.state >= DRAINING or session.close_due == NEVER, repr(session)
