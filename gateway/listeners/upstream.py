"""An upstream: the address of a broker behind a listener, and whether it can be reached. Where a listener has several: `upstreams.py`.

The gateway dials once for every client and tells it the result; dialling again is the client's affair. The naive way dials for each client
even while the broker is known to be down: 2,000 clients a second then each wait for a timeout of their own, and the first packets a
restarting broker sees are a storm. So while it is down, one dial at a time is a **probe**, and all other clients are refused at once with
the reason of the last one. Probes are spaced by 0.1 s, doubling up to MAX_BACKOFF_S, each after a random part of that (full jitter). While
the broker is up, at most MAX_DIALS dials are under way; more wait for one of them. What those under way at the same time find out is one
finding: a broker that goes while a hundred are dialled has failed once, and is probed as soon as after a single dial.

That a broker takes connections says little: the kernel does that for a process that hangs. So where the protocol has a question that any
broker answers (`gateway/protocols/question.py`), only the answer counts, on a connection of its own, PROXY header and TLS included. It is
asked at the start, then every PROBE_EVERY_S, a little earlier at random, so that gateways do not ask in step, and before a client is let
through to a broker that was down. While answers come in on clients' connections nothing is asked: the kernel says when it received the
last byte on the one that was read last (TCP_INFO), which is not when the gateway found time to read it. A broker that hangs is down
PROBE_EVERY_S + ANSWER_S after its last byte at the latest, and one that has said something on any connection while it was asked is not.
Nor is one that does so while a client's connection or its handshake takes too long: that client fails alone, unless another address is
there to lead all to.
A probe counts as a dial only where it changes something. A connection that ends without a word of the broker's is a reason to ask at once.

What that costs, measured on RabbitMQ 3.10.8 (100 probes, 2026-11-25): 0.9 ms of processor here, and in the broker's log two lines at info
and warning ("accepting AMQP connection", "client unexpectedly closed TCP connection"); `log.connection.level = error` in rabbitmq.conf
silences them.
"""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import Callable
from typing import Final

import trio

from common import log
from common.tls.context import Hop
from common.views.listeners import UpstreamView
from gateway.listeners.connecting import CONNECT_TIMEOUT_S, connect, exchange, greet, hint
from gateway.listeners.hold_down import GOOD_EVERY_S, HoldDown
from gateway.listeners.unreachable import (
    HELD,
    NO_ANSWER,
    SHORTAGES,
    TIMEOUT,
    NoAnswerError,
    SparedError,
    UnreachableError,
    errno_of,
    label,
    reason,
)
from gateway.protocols.question import Question
from gateway.transport.channel import Channel, Heard
from gateway.transport.proxy_protocol import Ends

MAX_DIALS: Final = 128  # at a time per listener; a broker's own accept backlog is 128 (RabbitMQ's default)
# Between probes of a broker that is down: 0.1 to 5 s (docs/design/reliability.md F22); a little less than 5, so that clients are back
# within 5 s of the broker (F20)
MIN_BACKOFF_S: Final = 0.1
MAX_BACKOFF_S: Final = 4.5
# Both together, and two of the ticks at which is looked, are less than the 10 s after which a broker that hangs must not count as ready.
PROBE_EVERY_S: Final = 5.0  # between the last answer of a broker that is up and the next question
ANSWER_S: Final = 3.5  # for a probe: connection, TLS and answer; a JVM's longest pauses are shorter (a guess)
HANDSHAKE_S: Final = 10.0  # TLS with the only address: as long as RocketMQ's own clients and brokers wait for it (Netty's default)
JITTER: Final = 0.2  # of PROBE_EVERY_S, at most so much earlier
FRESH_S: Final = 0.25  # a broker that was heard of within it lives; after less, clients that come one by one would all have it asked
DOUBT_EVERY_S: Final = 1.0  # between questions because connections ended without a word (a guess)
LOG_EVERY_S: Final = 60.0  # between log lines that the broker still cannot be reached (a guess)


class Upstream:
    """One broker's address, and whether it is known to be there."""

    def __init__(
        self,
        listener: str,
        address: tuple[str, int],
        *,
        send_proxy: bool = False,
        tls: Hop | None = None,
        question: Question | None = None,
    ) -> None:
        self.listener = listener
        self.address = address
        self.send_proxy = send_proxy  # a PROXY header, version 2, before anything else
        self.tls = tls  # a reload may put another one here
        self.question = question  # what a broker is asked to see that it lives; None: that it takes connections suffices
        self.ok: bool | None = None  # whether the last dial or probe succeeded; with a question, whether it was answered; None before that
        self.why = ""  # of the last failure
        self.why_label = ""  # of the same; one of REASONS
        self.heard = Heard(self.text)  # of the connections to it; those that `move` leaves behind have another one
        self.hold_down = HoldDown()
        self.alone: Callable[[], bool] = _always  # whether no other address takes new connections: then holds are void
        self.changed: Callable[[], None] = _ignored  # called when `ok` has become another one
        self.dials: dict[str, int] = {"ok": 0, "failed": 0}
        self._failures = 0  # failed findings in a row
        self._findings = 0  # since the start; a dial that began before the last one finds out nothing newer
        self._retry_at = 0.0  # trio's clock
        self._probe_at = 0.0  # the same: one that is up is not probed before
        self._down_since = 0.0  # the same
        self._logged_at = 0.0
        self._probing = False
        self._looked_at = float("-inf")  # the same: when it was asked last
        self._looking: trio.Event | None = None  # while it is asked
        self._cut_short = False  # the last time it was asked was cancelled, and says nothing
        self._dial_slots = trio.CapacityLimiter(MAX_DIALS)

    async def dial(self, ends: Ends | None, greeting: bytes = b"") -> Channel:
        """A connection for the client with these ends (None: for the gateway itself), TLS included, whose broker has begun to answer
        `greeting`, if there is one.

        Raises UnreachableError, SparedError among them; OSError where this process is out of descriptors.
        """
        self._spare()
        try:
            self._dial_slots.acquire_nowait()  # `async with` gives all other tasks a turn first
        except trio.WouldBlock:
            await self._dial_slots.acquire()
        try:
            return await self._dial(ends, greeting)
        finally:
            self._dial_slots.release()

    async def _dial(self, ends: Ends | None, greeting: bytes) -> Channel:
        self._spare()  # the dials before this one may have failed meanwhile
        probes = self.ok is False  # then it is the only one under way
        if probes:
            self._probing = True
        findings = self._findings
        began = trio.current_time()
        try:
            if probes and self.question is not None:
                await self._ask()
            channel = await self._open(ends)
        except Exception as error:  # also what a resolver or TLS makes of a name: to the client it is all the same
            if errno_of(error) in SHORTAGES:  # nothing is known about the broker
                raise
            self.dials["failed"] += 1
            if findings == self._findings and not (self.alone() and self._is_slow(error, began)):
                self._note_failure(error)
            raise UnreachableError(self._unreachable(reason(error))) from error
        finally:
            if probes:
                self._probing = False
        if greeting:
            await self._greet(channel, greeting)
        self.dials["ok"] += 1
        if probes or self.question is None:
            self._note_answer()
        return channel

    async def _greet(self, channel: Channel, greeting: bytes) -> None:
        """See that the broker begins to answer. One that dies resets the connections in its accept queue: then the client can still be led
        to another address. Whether the broker is down the next question tells. Raises UnreachableError.
        """
        try:
            with trio.fail_after(ANSWER_S):
                await greet(channel, greeting, hint(send_proxy=self.send_proxy, tls=self.tls))
        except BaseException as error:
            channel.close()
            if not isinstance(error, OSError | trio.TooSlowError):
                raise
            self.dials["failed"] += 1
            self.heard.doubted = True
            why = f"it takes connections and said nothing within {ANSWER_S:g} s" if isinstance(error, trio.TooSlowError) else reason(error)
            raise UnreachableError(self._unreachable(why)) from error

    def move(self, address: tuple[str, int], tls: Hop | None) -> None:
        """The broker is at another address from now on. Nothing is known about that one."""
        self.address = address
        self.tls = tls
        self.ok = None
        self.why = self.why_label = ""
        self.heard = Heard(self.text)
        self.hold_down = HoldDown()
        self._failures = 0
        self._retry_at = 0.0
        self._findings += 1  # what dials under way find out is of the old address

    def leave(self) -> None:
        """It is not of the listener's any more: what dials under way find out is nobody's affair."""
        self._findings += 1
        self.alone, self.changed = _always, _ignored

    async def confirm(self) -> bool:
        """See that the broker lives, before a client is led to it: ask, unless it was heard of within FRESH_S. Returns whether it does.

        Clients that come while it is asked wait for the same answer.
        """
        if self.question is None or (not self.heard.doubted and self.heard.silent_s() < FRESH_S):
            return self.ok is not False
        while self._looking is not None:
            await self._looking.wait()
            if not self._cut_short:
                return self.ok is not False
        await self._look()
        return self.ok is not False

    def _must_wait(self) -> bool:
        return self.ok is False and (self._probing or trio.current_time() < self._retry_at)

    def _spare(self) -> None:
        if self._must_wait():
            raise SparedError(self._unreachable(self.why))

    def _unreachable(self, why: str) -> str:
        return f"the broker behind this gateway ({self.text}) cannot be reached: {why}"

    async def _open(self, ends: Ends | None) -> Channel:
        handshake_s = HANDSHAKE_S if self.alone() else CONNECT_TIMEOUT_S
        return await connect(self.address, self.heard, ends, send_proxy=self.send_proxy, tls=self.tls, handshake_s=handshake_s)

    def _note_answer(self) -> None:
        """It has answered: it is in use, or held."""
        now = trio.current_time()
        self._failures = 0
        self._findings += 1
        if self.ok is False and not self.hold_down.note_answer(now) and not self.alone():
            self.why, self.why_label = "it answers again, and is watched before new connections go there", HELD
            self._retry_at = now + GOOD_EVERY_S
            return
        self.release()

    @property
    def held(self) -> bool:
        """Whether it answers, and takes no new connections all the same."""
        return self.why_label == HELD

    def release(self) -> None:
        """New connections may go there from now on."""
        now = trio.current_time()
        before = self.ok
        if before is False:
            away_s = round(now - self._down_since, 3)
            log.event(logging.INFO, "upstream_reachable", listener=self.listener, upstream=self.text, unreachable_s=away_s)
        self.ok = True
        self.why = self.why_label = ""
        self.hold_down.note_use(now)
        self._probe_later(PROBE_EVERY_S)
        if not before:
            self.changed()

    def _probe_later(self, seconds: float) -> None:
        """Ask next in so many seconds, or a little earlier."""
        self._probe_at = trio.current_time() + seconds - random.uniform(0, JITTER * PROBE_EVERY_S)  # noqa: S311  -- jitter

    def _note_failure(self, error: BaseException) -> None:
        first = self.ok is not False
        now = trio.current_time()
        self.ok = False
        self.why = reason(error)
        self.why_label = label(error)
        self.hold_down.note_failure(now)
        self._findings += 1
        ceiling = min(MAX_BACKOFF_S, MIN_BACKOFF_S * 2 ** min(self._failures, 16))
        self._retry_at = now + random.uniform(0, ceiling)  # noqa: S311  -- jitter
        self._failures += 1
        self._log_failed(now, first=first)
        if first:
            self.changed()

    def _log_failed(self, now: float, *, first: bool) -> None:
        """Log the change of state, and then a line a minute while it lasts. The naive way logs every probe, for as long as a broker is
        away."""
        if first:
            self._down_since = now
        elif now - self._logged_at < LOG_EVERY_S:
            return
        self._logged_at = now
        log.event(
            logging.WARNING, "upstream_unreachable", listener=self.listener, upstream=self.text, reason=self.why_label,
            err=self.why, since_s=round(now - self._down_since, 3), dials_failed=self.dials["failed"],
        )  # fmt: skip

    async def probe(self) -> None:
        """Find out whether the broker is there, where that is not known, it was not at last, or nothing was heard of it for a while; unless
        it is too early for that. Raises nothing that comes of the broker.
        """
        if self.ok is not True:
            if not self._must_wait():
                self._probing = True
                try:
                    if await self._look():
                        self.dials["ok"] += 1
                finally:
                    self._probing = False
        elif self._doubtful():
            self._probe_later(PROBE_EVERY_S)
            await self._look()
        elif trio.current_time() >= self._probe_at:
            silent_s = self.heard.silent_s()
            if silent_s < PROBE_EVERY_S * (1 - JITTER):
                self._probe_later(PROBE_EVERY_S - silent_s)
            else:
                self._probe_later(PROBE_EVERY_S)
                await self._look()

    def _doubtful(self) -> bool:
        return self.heard.doubted and trio.current_time() - self._looked_at >= DOUBT_EVERY_S

    async def _look(self) -> bool:
        """Ask, and take the answer for the state of the broker; whether that is in use now. What was found out meanwhile is newer."""
        self._looked_at = trio.current_time()
        self.heard.doubted = False
        looking = self._looking = trio.Event()
        self._cut_short = True
        try:
            found = await self._find_out()
            self._cut_short = False
        finally:
            looking.set()
            if self._looking is looking:
                self._looking = None
        return found

    async def _find_out(self) -> bool:
        findings = self._findings
        began = trio.current_time()
        try:
            await self._ask()
        except Exception as error:  # as in `dial`
            if findings != self._findings or errno_of(error) in SHORTAGES:
                return False
            if self._is_slow(error, began):
                return False
            self.dials["failed"] += 1
            self._note_failure(error)
            return False
        if findings != self._findings:
            return False
        self._note_answer()
        return self.ok is True

    def _is_slow(self, error: BaseException, began: float) -> bool:
        """Whether it has said something to others since `began`, while this failed: it is slow, or has no place for one more, and does not
        hang."""
        return self.ok is True and label(error) in (TIMEOUT, NO_ANSWER) and self.heard.silent_s() < trio.current_time() - began

    async def _ask(self) -> None:
        """Ask the question on a connection of its own. Raises as a dial does, and NoAnswerError."""
        connected = False
        try:
            with trio.fail_after(ANSWER_S):
                channel = await self._open(None)
                try:
                    connected = True
                    if self.question is not None:
                        await exchange(channel, self.question, hint(send_proxy=self.send_proxy, tls=self.tls))
                finally:
                    channel.close()
        except trio.TooSlowError as error:
            if connected:
                assert self.question is not None
                text = f"it takes connections and did not answer {self.question.name} within {ANSWER_S:g} s"
                raise NoAnswerError(NO_ANSWER, text) from error
            what = "connection" if self.tls is None else "connection, or no TLS handshake,"
            raise TimeoutError(errno.ETIMEDOUT, f"no {what} within {ANSWER_S:g} s") from error

    @property
    def text(self) -> str:
        host, port = self.address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def describe(self, *, preferred: bool) -> UpstreamView:
        """For `GET /v1/listeners`."""
        state = "untried" if self.ok is None else "up" if self.ok else "held" if self.held else "down"
        left_s = self.hold_down.left_s(trio.current_time()) if self.ok is False and not self.alone() else 0.0
        return UpstreamView(
            address=self.text,
            state=state,
            error=self.why or None,
            reason=self.why_label or None,
            held_seconds=round(left_s, 3),
            connections=self.heard.connections,
            preferred=preferred and self.ok is not False,
        )

    def __repr__(self) -> str:
        state = "untried" if self.ok is None else "up" if self.ok else f"down: {self.why}"
        return f"<Upstream {state} {self.text}>"


def _always() -> bool:
    return True


def _ignored() -> None:
    pass
