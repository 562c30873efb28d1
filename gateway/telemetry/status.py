"""What operators see of the running gateway: the answers behind `admin.ports.OperatedGateway`.

It only reads. It runs on trio's thread between two sweeps, so the numbers of one answer are of one moment. Long lists are told in slices;
then the numbers of one slice are of one moment.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import asdict

from common.log import moment
from common.views.listeners import BrokerPortsView, ListenerView, SeatsView
from common.views.status import AccessLogView, EventLoopView, LimiterView, LimitsInUseView, MemoryLimitView, StatusView
from common.views.topics import MAX_CLIENTS_SHOWN, TROUBLE, TopicView
from config.addresses import Address
from gateway.admission import CAUSES, ConnectionLimits
from gateway.broker_load.adaptive_caps import describe as describe_cap
from gateway.build import build
from gateway.clock import now_ns
from gateway.counting.topic_numbers import KINDS, SHADOW_REFUSED, note_numbers
from gateway.session import description
from gateway.telemetry import spool
from gateway.telemetry.refused_clients import consumer_group
from limiter.units import format_rate

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from common.views.connections import ConnectionView
    from common.views.topics import ClientView
    from gateway.counting.accounts import Place, TopicTotals
    from gateway.listeners.listener import Listener
    from gateway.telemetry.ports import ObservedGateway

T = TypeVar("T")

MAX_CONNECTIONS_PER_SLICE: Final = 20  # connections; described between two turns of the event loop: 0.2 ms (measured 2026-11)
CROWDED_NS: Final = 60_000_000_000  # ns; so long after a topic found no room it is told
MAX_NUMBERS_PER_SLICE: Final = 1000  # topics; of which one number is looked up between two turns: 0.2 ms; 0.5 ms where nothing is compiled
MAX_TOPICS_PER_SLICE: Final = 50  # topics; the same: 0.2 ms (measured 2026-11)


WEIGHTS: Final = (TROUBLE["refused_per_second"], TROUBLE["waiting"], TROUBLE["received_per_second"])


def identity(name: str, boot: str, began: float) -> dict[str, Any]:
    """Which gateway this is, of which build, and which process of it; `began` is monotonic seconds."""
    facts = build()
    return {
        "name": name,
        "version": facts.version,
        "build": facts.kind,
        "python": facts.python,
        "boot": boot,
        "pid": os.getpid(),
        "uptime_seconds": round(time.monotonic() - began, 3),
    }


def of_process(gateway: ObservedGateway) -> StatusView:
    """What `GET /v1/status` has of one process; the rest is its control plane's."""
    log = gateway.access_log
    limit = gateway.memory_limit
    return StatusView(
        not_ready_because=gateway.explain_unready(),
        connections=len(gateway.sweeper.sessions),
        event_loop=EventLoopView(
            sweeps=gateway.sweeper.sweeps, submissions=gateway.sweeper.submissions, lag_ms=round(gateway.lag_s * 1e3, 3)
        ),
        limiter=limiter(gateway),
        fleet=None if gateway.fleet is None else gateway.fleet.describe(now_ns()),
        memory_full=gateway.shared.memory_full,
        memory=gateway.memory.describe(),
        memory_limit=MemoryLimitView(step=limit.step, size_bytes=limit.size, limit_bytes=limit.limit, doing=limit.doing() or None),
        spool=spool.figures(gateway.disk),
        warnings=warnings(gateway),
        access_log=None
        if log is None
        else AccessLogView(lost_lines=log.lost_lines, failed_writes=log.failed_writes, disk_low=log.disk_low, free_bytes=log.free_bytes),
        limits=LimitsInUseView(**gateway.judge.usage()),
    )


def limiter(gateway: ObservedGateway) -> LimiterView:
    batches: dict[str, int] = {}
    for listener in gateway.listening.values():
        for way, count in asdict(listener.config.judging.describe()).items():
            batches[way] = batches.get(way, 0) + count
    return LimiterView(threads=gateway.settings.limiter.threads, inline=gateway.executor.inline_mode, batches=batches)


def warnings(gateway: ObservedGateway) -> list[str]:
    """What operators should look at although traffic is served."""
    found = []
    memory, access_log = gateway.memory, gateway.access_log
    if memory.full:
        found.append(
            f"memory: {memory.held} bytes are held (memory.high_watermark: {memory.high_watermark}); {memory.stopped} connections that "
            "publish are not read; `sluice connections list` shows what holds them up"
        )
    found += [
        f"memory: {x.config.delivery_bytes} bytes wait for clients of listener {x.name} (memory.delivery_watermark: "
        f"{memory.delivery_watermark}); brokers of clients that do not read are not read"
        for x in gateway.listening.values()
        if x.config.deliveries_full
    ]
    if gateway.memory_limit.step:
        limit = gateway.memory_limit
        found.append(f"memory: the process has {limit.size} of {limit.limit} bytes (memory.limit): {limit.doing()}")
    if access_log is not None and access_log.disk_low:
        found.append(
            f"disk: {access_log.free_bytes} bytes are free (disk.low_watermark: {gateway.settings.disk.low_watermark}); the access log is "
            f"not written, {access_log.lost_lines} lines are lost so far; free some space"
        )
    crowded_at = gateway.accounts.crowded_at
    if crowded_at and now_ns() - crowded_at < CROWDED_NS:
        found.append(
            f"topics: all {gateway.settings.gateway.max_topics} that are told apart (gateway.max_topics) are in use; those beyond are "
            "limited as ever, and shown and counted as __other__; if their names are not made up, let gateway.max_topics be larger"
        )
    found += spool.warnings(gateway.disk)
    if gateway.fleet is not None and not gateway.fleet.reachable():
        found.append(gateway.fleet.warning())
    return found


def listeners(gateway: ObservedGateway) -> list[ListenerView]:
    """`GET /v1/listeners`."""
    now = now_ns()
    return [
        ListenerView(
            name=listener.name,
            protocol=listener.protocol,
            bind=str(Address(*listener.address)),
            upstream=listener.upstreams.text,
            upstream_reachable=listener.upstreams.ok,
            upstream_error=listener.upstreams.why or None,
            upstream_reason=listener.upstreams.why_label or None,
            upstreams=listener.upstreams.describe(),
            accept_proxy_protocol=listener.accept_proxy,
            trusted_proxies=list(listener.trusted_proxies.texts),
            send_proxy_protocol="v2" if listener.upstreams.send_proxy else "none",
            tls=None if listener.tls is None else listener.tls.describe(),
            upstream_tls=None if listener.upstreams.tls is None else listener.upstreams.tls.describe(),
            broker_busy=dict(listener.config.flow.busy),
            caps=[describe_cap(state, now) for state in gateway.judge.caps(listener.name, now)],
            remote_admin=listener.config.remote_admin is not None,
            judged=listener.config.judging.describe(),
            connections_active=listener.active,
            broker_blocked_connections=listener.config.flow.blocked_now,
            broker_blocked_since=moment(listener.config.flow.blocked_since) if listener.config.flow.blocked_since else None,
            broker_blocked_reason=listener.config.flow.blocked_reason or None,
            connections_opened=listener.opened,
            connections_closed=dict(listener.closed),
            connections_refused={cause: listener.closed[cause] for cause in CAUSES if cause in listener.closed},
            **brokers(gateway, listener),
            **connection_limits(listener.admission.limits),
            seats=SeatsView(taken=listener.admission.admitted, most=listener.admission.maximum),
        )
        for listener in gateway.listening.values()
    ]


def brokers(gateway: ObservedGateway, listener: Listener) -> dict[str, Any]:
    """For a name server's listener: the ports of its brokers. The brokers' own listeners are named after it."""
    known = gateway.brokers.get(listener.name)
    if known is None:
        return {}
    return {
        "advertise": known.host,
        "broker_ports": BrokerPortsView(range=str(known.entry.broker_ports), room=len(known.ports), taken=len(known.by_broker)),
        "routes": dict(known.answers),
        "registrations_refused": known.refused_registrations,
    }


def connection_limits(allowed: ConnectionLimits) -> dict[str, Any]:
    """A listener's limits on connections, under their settings' names; None: no limit."""
    return {
        "max_connections": allowed.connections,
        "max_connections_per_address": allowed.per_address,
        "max_connections_per_user": allowed.per_user,
        "max_connection_rate": None if allowed.rate is None else format_rate(allowed.rate),
    }


def listening(listener: Listener) -> dict[str, object]:
    """A listener that opens, as the log has it (`listening`)."""
    return {
        "listener": listener.name,
        "protocol": listener.protocol,
        "bind": str(Address(*listener.address)),
        "inherited": listener.inherited,
        "upstream": listener.upstreams.text,
        "tls": listener.tls is not None,
        "upstream_tls": listener.upstreams.tls is not None,
        "accept_proxy_protocol": listener.accept_proxy,
        "trusted_proxies": list(listener.trusted_proxies.texts) if listener.accept_proxy else None,
        "send_proxy_protocol": "v2" if listener.upstreams.send_proxy else "none",
        **connection_limits(listener.admission.limits),
        "seats": listener.admission.maximum,
    }


def connections(gateway: ObservedGateway, numbers: Sequence[int]) -> Iterator[list[ConnectionView]]:
    """`GET /v1/connections`, in slices. A connection that ends before its slice's turn is left out."""
    sessions = gateway.sweeper.sessions
    for first in range(0, len(numbers), MAX_CONNECTIONS_PER_SLICE):
        now = now_ns()
        wanted = numbers[first : first + MAX_CONNECTIONS_PER_SLICE]
        yield [description.describe(sessions[number], now) for number in wanted if number in sessions]


def topic_numbers(gateway: ObservedGateway, name: str, wanted: Sequence[Place] | None) -> Generator[None, None, dict[Place, float]]:
    """One of the numbers of the topics of which it is not 0 (`admin.ports.OperatedGateway.topic_numbers`), in slices."""
    accounts, kind = gateway.accounts, KINDS[name]
    known = accounts.topics
    found: dict[Place, float] = {}
    if wanted is not None:
        for places in _parts(wanted):
            note_numbers([known[place] for place in places if place in known], kind, WEIGHTS, found)
            yield
        return found
    for some in _parts(list(accounts.shadow_refused.values()) if kind == SHADOW_REFUSED else accounts.active_topics()):
        note_numbers(some, kind, WEIGHTS, found)
        yield
    return found


def _parts(items: Sequence[T]) -> Iterator[list[T]]:
    return (list(items[first : first + MAX_NUMBERS_PER_SLICE]) for first in range(0, len(items), MAX_NUMBERS_PER_SLICE))


def clients(gateway: ObservedGateway) -> list[ClientView]:
    """`GET /v1/clients`: who is refused or held, over all topics."""
    gateway.accounts.fold(now_ns())
    return gateway.client_ranking.describe()


def topics(gateway: ObservedGateway, wanted: list[TopicTotals] | None = None) -> Iterator[list[TopicView]]:
    """`GET /v1/topics`, in slices: all topics, or those `wanted` of the accounts, in their order."""
    gateway.accounts.fold(now_ns())
    known = list(gateway.accounts.topics.values()) if wanted is None else wanted
    for first in range(0, len(known), MAX_TOPICS_PER_SLICE):
        now = now_ns()
        yield [topic(gateway, totals, now) for totals in known[first : first + MAX_TOPICS_PER_SLICE]]


def topic(gateway: ObservedGateway, totals: TopicTotals, now: int) -> TopicView:
    """One topic of `GET /v1/topics`."""
    place = totals.place
    seconds = 0.0 if totals.recent is None else totals.recent.seconds
    return TopicView(
        protocol=totals.protocol,
        topic=totals.text,
        operation=totals.operation,
        group=consumer_group(totals.protocol, totals.text),
        received=totals.received,
        forwarded=totals.forwarded,
        refused=totals.refused,
        delayed=totals.delayed,
        dropped=totals.dropped,
        abandoned=totals.abandoned,
        bypassed=totals.bypassed,
        shadow_refused=totals.shadow_refused,
        redelivered=totals.redelivered,
        waiting=totals.waiting,
        wait_p99_ms=gateway.accounts.waits.p99_ms(place, now),
        spooled=spool.count_spooled(gateway.disk, *place),
        bytes=totals.bytes,
        received_per_second=round(totals.rates[0], 3),
        forwarded_per_second=round(totals.rates[1], 3),
        refused_per_second=round(totals.rates[2], 3),
        bytes_per_second=round(totals.rates[3], 3),
        received_per_second_1s=round(totals.last_rates[0], 3),
        forwarded_per_second_1s=round(totals.last_rates[1], 3),
        refused_per_second_1s=round(totals.last_rates[2], 3),
        bytes_per_second_1s=round(totals.last_rates[3], 3),
        idle_seconds=round((now - totals.last_seen) / 1e9, 3),
        clients=[client.describe(seconds) for client in gateway.refused_clients.of(place)[:MAX_CLIENTS_SHOWN]],
    )
