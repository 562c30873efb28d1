"""Listeners: their addresses, their brokers, and what holds for connections. `GET /v1/listeners`."""

from typing import Annotated, Final, Self

import msgspec
from msgspec import UNSET, UnsetType

from common.views.view import View, add, add_counts, chained, fact, first, least, least_known, merge, merge_known, merge_lists, most

STATES: Final = ("up", "untried", "held", "down")  # of a broker's address, the worst last


class UpstreamView(View, frozen=True, kw_only=True):
    """One address of a broker. Over several processes it is in the worst state that one of them sees."""

    address: str
    state: Annotated[str, fact("up, untried, held (it answers again, and waits for a while), down")] = "untried"
    error: Annotated[str | None, fact("the reason in words")] = None
    reason: Annotated[str | None, fact("the reason as a label of metrics")] = None
    held_seconds: Annotated[float, fact("left of the time for which other addresses get the new connections instead", unit="seconds")] = 0.0
    connections: Annotated[int, fact("open now", add)] = 0
    preferred: Annotated[bool, fact("whether new connections go there")] = False

    def key(self) -> object:
        return self.address

    def weight(self) -> int:
        return STATES.index(self.state)


def merge_upstreams(one: list[UpstreamView], other: list[UpstreamView]) -> list[UpstreamView]:
    """The preferred address is that of the first process."""
    preferred = {each.address for each in one if each.preferred} if one else {each.address for each in other if each.preferred}
    return [msgspec.structs.replace(each, preferred=each.address in preferred) for each in merge_lists(one, other)]


class TlsView(View, frozen=True, kw_only=True):
    """TLS on one side of a listener."""

    certificate_expires: Annotated[str | None, fact("the first of our certificates that ends")] = None
    peer_verified: Annotated[bool, fact("whether the peer's certificate is checked")] = False
    handshakes_failed: Annotated[dict[str, int], fact("by reason", add_counts)] = {}
    mode: Annotated[str | UnsetType, fact("towards clients: enforcing; permissive: those without TLS are let in too")] = UNSET


class JudgingView(View, frozen=True, kw_only=True):
    """How batches were judged since the start. A batch is one connection's requests of one turn."""

    queued: Annotated[int, fact("on a thread of the limiter", add, "batches", rank=30)] = 0
    inline: Annotated[int, fact("on the event loop", add, "batches", rank=31)] = 0
    bypassed: Annotated[int, fact("of which something passed without a verdict", add, "batches")] = 0
    bypassed_messages: Annotated[int, fact("messages that passed without a verdict", add, "messages", title="unjudged", rank=12)] = 0


class SeatsView(View, frozen=True, kw_only=True):
    """Connections, and how many there may be."""

    taken: Annotated[int, fact("open now", add, title="seats", short="connections", rank=4)] = 0
    most: Annotated[int | None, fact("at once", add, title="of", short="at most", rank=5)] = None


class CapView(View, frozen=True, kw_only=True):
    """A cap of a listener: the limit of its rule, and what it is now because the broker is slow."""

    rule: str
    limit: str
    now: str
    part: Annotated[float, fact("of the limit")] = 1.0
    reason: Annotated[str | None, fact("why it is below the limit")] = None
    seconds: Annotated[float | None, fact("since it was tightened or eased last", unit="seconds")] = None
    tightened: Annotated[dict[str, int], fact("how often, by reason")] = {}
    topics: Annotated[int, fact("that share it")] = 0
    worker: Annotated[int | UnsetType, fact("of several processes, the one whose part this is")] = UNSET


class BrokerPortsView(View, frozen=True, kw_only=True):
    """Of a name server's listener: the ports of its brokers' own listeners."""

    range: str = ""
    room: Annotated[int, fact("ports")] = 0
    taken: Annotated[int, fact("of these", most)] = 0


class ListenerView(View, frozen=True, kw_only=True):
    """A listener, with its real port."""

    name: Annotated[str, fact("as the configuration has it", title="listener", rank=0)]
    protocol: Annotated[str, fact("that its clients speak", rank=6)] = ""
    bind: Annotated[str, fact("its address", rank=2)] = ""
    upstream: Annotated[str, fact("the addresses of its broker", rank=3)] = ""
    upstream_reachable: Annotated[
        bool | None, fact("whether the last connection or probe reached the broker; null before the first", least_known)
    ] = None
    upstream_error: Annotated[str | None, fact("the reason in words")] = None
    upstream_reason: Annotated[str | None, fact("the reason as a label of metrics")] = None
    upstreams: Annotated[list[UpstreamView], fact("each address, in order of preference", merge_upstreams)] = []
    accept_proxy_protocol: Annotated[bool, fact("whether its clients are read from the PROXY protocol")] = False
    trusted_proxies: Annotated[list[str], fact("addresses that may say who their clients are")] = []
    send_proxy_protocol: Annotated[str, fact("v2, or none", title="proxy sent", rank=24)] = "none"
    tls: Annotated[TlsView | None, fact("towards clients", merge_known)] = None
    upstream_tls: Annotated[TlsView | None, fact("towards the broker", merge_known)] = None
    broker_busy: Annotated[dict[str, int], fact("what the broker refused because it was busy, by kind", add_counts, "messages")] = {}
    caps: Annotated[list[CapView], fact("the listener's caps in use; each worker tightens its own part of one", chained)] = []
    remote_admin: Annotated[bool, fact("whether the broker's own administration commands change limits")] = False
    judged: Annotated[JudgingView, fact("how its batches were judged", merge)] = JudgingView()
    connections_active: Annotated[int, fact("open now", add)] = 0
    broker_blocked_connections: Annotated[int, fact("that the broker has told to wait", add)] = 0
    broker_blocked_since: Annotated[str | None, fact("when the first of these was told; null: none is", least)] = None
    broker_blocked_reason: Annotated[str | None, fact("in the broker's words: low on memory", first)] = None
    connections_opened: Annotated[int, fact("since the start", add)] = 0
    connections_closed: Annotated[dict[str, int], fact("since the start, by cause", add_counts)] = {}
    connections_refused: Annotated[dict[str, int], fact("since the start, by cause", add_counts)] = {}
    advertise: Annotated[str | UnsetType, fact("of a name server's: the host that its clients are told")] = UNSET
    broker_ports: Annotated[BrokerPortsView | UnsetType, fact("of a name server's", first)] = UNSET
    routes: Annotated[dict[str, int] | UnsetType, fact("of a name server's: its answers, by kind")] = UNSET
    registrations_refused: int | UnsetType = UNSET
    max_connections: Annotated[int | None, fact("over all workers")] = None
    max_connections_per_address: Annotated[int | None, fact("", title="per address", rank=21)] = None
    max_connections_per_user: Annotated[int | None, fact("", title="per user", rank=22)] = None
    max_connection_rate: Annotated[str | None, fact("newcomers a second", title="rate", rank=23)] = None
    seats: Annotated[SeatsView, fact("connections, and how many there may be", merge)] = SeatsView()

    def key(self) -> object:
        return self.name

    def settled(self) -> Self:
        """`max_connections` holds over all processes, so their seats together are no more."""
        most_seats = self.seats.most
        if self.max_connections is None or most_seats is None or most_seats <= self.max_connections:
            return self
        return msgspec.structs.replace(self, seats=SeatsView(taken=self.seats.taken, most=self.max_connections))
