"""The addresses behind a listener, in order of preference: a client's connection goes to the first that takes new connections.

The naive way takes the next address when a dial fails. Then each client finds out about a broker that hangs by itself, with a timeout of
its own, and all return to a broker that comes and goes each time it is there. So health is known beforehand: every address is probed in
its protocol (`upstream.py`), one that fails is left for a growing time (`hold_down.py`), and where there are several addresses a client is
led only to one that has been heard of within FRESH_S, or answers before the client's own connection is made. A client whose address fails
meanwhile is led to the next one; it is told of a failure only where no address takes it within DIAL_S.

Connections that are open stay where they are. Where no address is in use, holds are void: the first that answers is taken, as with one
address alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

import trio

from common import log
from common.tls.context import Hop
from common.views.listeners import UpstreamView
from gateway.listeners.unreachable import SparedError, UnreachableError
from gateway.listeners.upstream import Upstream
from gateway.protocols.question import Question
from gateway.transport.channel import Channel, Heard
from gateway.transport.proxy_protocol import Ends

DIAL_S: Final = 10.0  # seconds; for a client, over all addresses: two that hang (ANSWER_S), and time for a third


class Upstreams:
    """One listener's addresses, at least one of them."""

    def __init__(self, listener: str, members: Sequence[Upstream], tls: Hop | None = None) -> None:
        self.listener = listener
        self.members: list[Upstream] = list(members)  # in order of preference
        self.tls = tls  # towards all of them; each member has it with its own host's name
        self.preferred = self.members[0]  # new connections went there last
        self.switched = 0  # times that they began to go to another one
        self._spared = 0  # clients refused because addresses are known to be down: once each, of however many
        self._gone: dict[str, int] = {}  # dials of members that are not here any more
        self._heard: dict[tuple[str, int], Heard] = {}  # of addresses that a reload took out, while connections to them are open
        self._adopt()

    @classmethod
    def at(
        cls,
        listener: str,
        addresses: Sequence[tuple[str, int]],
        *,
        send_proxy: bool = False,
        tls: Hop | None = None,
        question: Question | None = None,
    ) -> Upstreams:
        """Those of a configuration."""
        members = [Upstream(listener, address, send_proxy=send_proxy, tls=hop_to(tls, address), question=question) for address in addresses]
        return cls(listener, members, tls)

    async def dial(self, ends: Ends | None, greeting: bytes = b"") -> Channel:
        """A connection for the client with these ends (None: for the gateway itself), TLS included, to the first address that has one,
        and whose broker begins to answer `greeting`, where the protocol has one.

        Raises UnreachableError; OSError where this process is out of descriptors.
        """
        if len(self.members) == 1:
            try:
                return await self.members[0].dial(ends, greeting)
            except SparedError:
                self._spared += 1
                raise
        with trio.move_on_after(DIAL_S):
            return await self._dial_first(ends, greeting)
        known = [f"{upstream.text}: {upstream.why}" for upstream in self.members if upstream.why]
        raise UnreachableError("; ".join([f"none of the brokers behind this gateway has answered within {DIAL_S:g} s", *known]))

    async def _dial_first(self, ends: Ends | None, greeting: bytes) -> Channel:
        tried: list[Upstream] = []
        failure: UnreachableError | None = None
        while True:
            upstream = next((each for each in self.members if each.ok is not False and each not in tried), None)
            if upstream is None:
                break
            tried.append(upstream)
            if await upstream.confirm():
                try:
                    return await upstream.dial(ends, greeting)
                except UnreachableError as error:
                    failure = error
        try:
            return await self._dial_any(ends, greeting, tried)
        except UnreachableError:
            if failure is None or self.ok is False:
                raise
            raise failure from None  # they are in use, and this client has found none

    async def _dial_any(self, ends: Ends | None, greeting: bytes, tried: Sequence[Upstream]) -> Channel:
        """None is in use: whoever's turn it is probes one of them for all, the others hear at once why there is none. Those that
        this client has `tried` are not asked again."""
        spared = False
        for upstream in [each for each in self.members if each not in tried]:
            try:
                return await upstream.dial(ends, greeting)
            except SparedError:
                spared = True
            except UnreachableError:
                continue
        self._spared += spared
        raise UnreachableError(f"none of the brokers behind this gateway can be reached: {self.why}")

    # ---- what is known of them -------------------------------------------------------------------------------------

    @property
    def ok(self) -> bool | None:
        """Whether new connections have somewhere to go; None where nothing is known yet of one, and none of the others is in use."""
        states = {upstream.ok for upstream in self.members}
        return True if True in states else None if None in states else False

    @property
    def why(self) -> str:
        """Why not; "" where `ok` is not False."""
        if self.ok is not False:
            return ""
        if len(self.members) == 1:
            return self.members[0].why
        return "; ".join(f"{upstream.text}: {upstream.why}" for upstream in self.members)

    @property
    def why_label(self) -> str:
        """The same as one of REASONS, of the first address."""
        return self.members[0].why_label if self.ok is False else ""

    @property
    def text(self) -> str:
        return ", ".join(upstream.text for upstream in self.members)

    @property
    def send_proxy(self) -> bool:
        return self.members[0].send_proxy

    def has(self, heard: Heard) -> bool:
        """Whether a connection with this peer's `heard` leads to one of these addresses, and to none that they have left."""
        return any(upstream.heard is heard for upstream in self.members)

    def connections(self) -> int:
        """Clients' that are open to these addresses."""
        return sum(upstream.heard.connections for upstream in self.members)

    def dials(self) -> dict[str, int]:
        """Dials by result, since the start."""
        counts = {**self._gone, "spared": self._spared}
        for upstream in self.members:
            _add(counts, upstream.dials)
        return counts

    def describe(self) -> list[UpstreamView]:
        """For `GET /v1/listeners`: the addresses in order of preference."""
        return [upstream.describe(preferred=upstream is self.preferred) for upstream in self.members]

    # ---- what a reload changes -------------------------------------------------------------------------------------

    def move(self, addresses: Sequence[tuple[str, int]], tls: Hop | None) -> None:
        """The brokers are at these addresses from now on. What is known of those that stay is kept; nothing is known of the others."""
        self.tls = tls
        self._heard.update({_place(upstream.address): upstream.heard for upstream in self.members})
        self._move(addresses)
        for upstream in self.members:
            upstream.heard = self._heard.pop(_place(upstream.address), upstream.heard)
        self._heard = {address: heard for address, heard in self._heard.items() if heard.connections}

    def _move(self, addresses: Sequence[tuple[str, int]]) -> None:
        if len(addresses) == len(self.members) == 1:
            if tuple(addresses[0]) != tuple(self.members[0].address):
                self.members[0].move(addresses[0], hop_to(self.tls, addresses[0]))
            return
        known = {tuple(upstream.address): upstream for upstream in self.members}
        first = self.members[0]
        kept = [known.pop(tuple(address), None) for address in addresses]
        for upstream in known.values():
            _add(self._gone, upstream.dials)
            upstream.leave()
        self.members = [
            upstream or Upstream(self.listener, address, send_proxy=first.send_proxy, question=first.question)
            for upstream, address in zip(kept, addresses, strict=True)
        ]
        self.take_tls(self.tls)
        self._adopt()
        self._review()

    def take_tls(self, tls: Hop | None) -> None:
        """New connections begin with this."""
        self.tls = tls
        for upstream in self.members:
            upstream.tls = hop_to(tls, upstream.address)

    # ---- which one is in use ---------------------------------------------------------------------------------------

    def _adopt(self) -> None:
        for upstream in self.members:
            upstream.alone = partial(self._is_alone, upstream)
            upstream.changed = self._review

    def _is_alone(self, upstream: Upstream) -> bool:
        """Whether no other address takes new connections."""
        return all(each is upstream or each.ok is False for each in self.members)

    def _review(self) -> None:
        """An address has failed, or is in use again."""
        if all(upstream.ok is False for upstream in self.members):
            held = next((upstream for upstream in self.members if upstream.held), None)
            if held is not None:
                held.release()  # comes back here
            return
        first = next(upstream for upstream in self.members if upstream.ok is not False)
        before = self.preferred
        if first is before:
            return
        self.preferred = first
        self.switched += 1
        reason = before.why_label or None if before in self.members else "removed"
        log.event(
            logging.WARNING, "upstream_switched", listener=self.listener, upstream=first.text, before=before.text, reason=reason,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<Upstreams {self.members}>"


def hop_to(tls: Hop | None, address: tuple[str, int]) -> Hop | None:
    """TLS towards the broker at `address`: its certificate must name that host, unless `tls` has a name already."""
    return None if tls is None else tls.copy_for_host(address[0])


def _place(address: tuple[str, int]) -> tuple[str, int]:
    """The same where a configuration has it as a list."""
    host, port = address
    return host, port


def _add(counts: dict[str, int], more: dict[str, int]) -> None:
    for result, count in more.items():
        counts[result] = counts.get(result, 0) + count
