"""What operators see of the running gateway: the answers behind `admin.ports.Gateway`.

Reads only; everything that changes the gateway is in `app.py`. Runs on trio's thread between two sweeps, so the numbers of one answer
belong together.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from gateway import metrics
from gateway.accepting.admission import CAUSES, Caps
from gateway.build import build
from gateway.sweep import now_ns
from gateway.tls.context import CLIENT, UPSTREAM
from limiter.units import format_rate

if TYPE_CHECKING:
    from gateway.app import Gateway

VERDICTS: Final = ("ok", "limited_shadow", "limited_enforced")


def status(gateway: Gateway) -> dict[str, object]:
    """`GET /v1/status`."""
    facts = build()
    return {
        "name": gateway.settings.gateway.name,
        "version": facts.version,
        "build": facts.kind,
        "python": facts.python,
        "boot": gateway.boot,
        "pid": os.getpid(),
        "uptime_seconds": round(time.monotonic() - gateway.started, 3),
        "ready": not gateway.ready(),
        "not_ready_because": gateway.ready(),
        "draining": gateway.draining,
        "connections": len(gateway.sweeper.sessions),
        "revision": gateway.store.revision,
        "config_last_reload_successful": gateway.last_reload_ok,
        "event_loop": {
            "sweeps": gateway.sweeper.sweeps,
            "submissions": gateway.sweeper.submissions,
            "lag_ms": round(gateway.lag_s * 1e3, 3),
        },
        "memory_full": gateway.shared.memory_full,
        "access_log": None
        if gateway.access_log is None
        else {"lost_lines": gateway.access_log.lost_lines, "failed_writes": gateway.access_log.failed_writes},
    }


def listeners(gateway: Gateway) -> list[dict[str, object]]:
    """`GET /v1/listeners`."""
    return [
        {
            "name": listener.name,
            "protocol": listener.protocol,
            "bind": address(*listener.address),
            "upstream": listener.upstream.text,
            "upstream_reachable": listener.upstream.ok,
            "upstream_error": listener.upstream.why or None,
            "tls": None if listener.tls is None else listener.tls.describe(),
            "upstream_tls": None if listener.upstream.tls is None else listener.upstream.tls.describe(),
            "connections_active": listener.active,
            "connections_opened": listener.opened,
            "connections_closed": dict(listener.closed),
            "connections_refused": {cause: listener.closed[cause] for cause in CAUSES if cause in listener.closed},
            **caps(listener.admission.caps),
        }
        for listener in gateway.listening.values()
    ]


def caps(allowed: Caps) -> dict[str, object]:
    """A listener's caps under their settings' names; None: no cap."""
    return {
        "max_connections": allowed.connections,
        "max_connections_per_address": allowed.per_address,
        "max_connections_per_user": allowed.per_user,
        "max_connection_rate": None if allowed.rate is None else format_rate(allowed.rate),
    }


def address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def topics(gateway: Gateway) -> list[dict[str, object]]:
    """`GET /v1/topics`."""
    gateway.accounts.fold(now_ns())
    return [
        {
            "protocol": totals.protocol,
            "topic": totals.text,
            "operation": totals.operation,
            "received": totals.received,
            "forwarded": totals.forwarded,
            "refused": totals.refused,
            "delayed": totals.delayed,
            "dropped": totals.dropped,
            "abandoned": totals.abandoned,
            "bypassed": totals.bypassed,
            "shadow_refused": totals.shadow_refused,
            "waiting": totals.waiting,
            "bytes": totals.bytes,
            "received_per_second": round(totals.rates[0], 3),
            "forwarded_per_second": round(totals.rates[1], 3),
            "refused_per_second": round(totals.rates[2], 3),
            "bytes_per_second": round(totals.rates[3], 3),
            "idle_seconds": round((now_ns() - totals.last_seen) / 1e9, 3),
        }
        for totals in gateway.accounts.topics.values()
    ]


def metric_lines(gateway: Gateway) -> Iterator[str]:
    """Every line of `/metrics` that is the gateway's own."""
    gateway.accounts.fold(now_ns())
    facts = build()
    family = metrics.family
    labels = (("version", facts.version), ("build", facts.kind), ("python", facts.python))
    yield from family("sluice_build_info", "gauge", "Which build runs.", [(labels, 1)])
    yield from connection_lines(gateway)
    yield from tls_lines(gateway)
    yield from broker_flow_lines(gateway)
    yield from metrics.topic_lines(gateway.accounts)
    yield from limiter_lines(gateway)
    yield from metrics.histogram(
        "sluice_overhead_seconds", "From reading requests to passing them on, per submission to the judge.", ((), gateway.overhead)
    )
    yield from metrics.histogram("sluice_event_loop_lag_seconds", "How late a timer of the event loop came.", ((), gateway.lag))
    yield from family("sluice_config_last_reload_successful", "gauge", "1 if the last reload was.", [((), int(gateway.last_reload_ok))])
    yield from family("sluice_config_last_reload_timestamp_seconds", "gauge", "When.", [((), gateway.last_reload_at)])
    yield from family("sluice_config_version", "gauge", "Revision of the limits in force.", [((), gateway.store.revision)])
    if gateway.access_log is not None:
        log = gateway.access_log
        yield from family("sluice_access_log_lines_lost_total", "counter", "Lines lost to a full queue.", [((), log.lost_lines)])
        yield from family("sluice_access_log_write_failures_total", "counter", "Failed writes.", [((), log.failed_writes)])
    yield from family("sluice_log_lines_dropped_total", "counter", "Log lines dropped.", [((), gateway.log_handler.dropped)])
    yield from metrics.process_lines()


def connection_lines(gateway: Gateway) -> Iterator[str]:
    family = metrics.family
    listening = list(gateway.listening.values())

    def named(name: str, protocol: str) -> metrics.Labels:
        return (("listener", name), ("protocol", protocol))

    yield from family(
        "sluice_connections_active",
        "gauge",
        "Client connections now.",
        ((named(x.name, x.protocol), x.active + x.arriving) for x in listening),
    )
    yield from family("sluice_connections_opened_total", "counter", "Accepted.", ((named(x.name, x.protocol), x.opened) for x in listening))
    yield from family(
        "sluice_connections_closed_total",
        "counter",
        "Closed, by cause. active = opened - closed.",
        (((*named(x.name, x.protocol), ("cause", cause)), count) for x in listening for cause, count in x.closed.items()),
    )
    yield from family(
        "sluice_connections_refused_untold_total",
        "counter",
        "Of those closed on their way in: without a word, for want of words or because too many were to be told at once.",
        ((named(x.name, x.protocol), x.exit.untold) for x in listening),
    )
    yield from family(
        "sluice_upstream_connect_total",
        "counter",
        "Dials of the broker; spared: refused without one while it was known to be down.",
        (((("listener", x.name), ("result", result)), count) for x in listening for result, count in x.upstream.dials.items()),
    )
    yield from family(
        "sluice_upstream_reachable",
        "gauge",
        "1 if the last dial of the broker succeeded, 0 if it failed; absent before the first.",
        (((("listener", x.name),), int(x.upstream.ok)) for x in listening if x.upstream.ok is not None),
    )


def tls_lines(gateway: Gateway) -> Iterator[str]:
    hops = [
        ((("listener", x.name), ("hop", name)), hop)
        for x in gateway.listening.values()
        for name, hop in ((CLIENT, x.tls), (UPSTREAM, x.upstream.tls))
        if hop is not None
    ]
    yield from metrics.family(
        "sluice_certificate_expiry_timestamp_seconds",
        "gauge",
        "When the gateway's own certificate on this hop ends.",
        ((labels, hop.own.until) for labels, hop in hops if hop.own is not None),
    )
    yield from metrics.family(
        "sluice_tls_failures_total",
        "counter",
        "TLS handshakes that failed, by reason.",
        (((*labels, ("reason", reason)), count) for labels, hop in hops for reason, count in hop.failures.items()),
    )


def broker_flow_lines(gateway: Gateway) -> Iterator[str]:
    """The brokers' own flow control, by listener: of connections that are over and of those that are open."""
    family = metrics.family
    now = now_ns()
    flows = {name: listener.place.flow for name, listener in gateway.listening.items()}
    blocked = dict.fromkeys(flows, 0)
    blocked_ns = {name: flow.blocked_ns for name, flow in flows.items()}
    send_blocked_ns = {name: flow.send_blocked_ns for name, flow in flows.items()}
    for session in gateway.sweeper.sessions.values():
        name = session.place.listener
        blocked[name] += session.conversation.broker_blocked
        blocked_ns[name] += session.flow.broker_blocked_ns(now)
        send_blocked_ns[name] += session.upstream.send_blocked_ns(now)

    def by_listener(values: dict[str, int], unit: float) -> list[metrics.Sample]:
        return [((("listener", name),), value / unit) for name, value in values.items()]

    yield from family(
        "sluice_broker_blocked_connections", "gauge", "Connections whose broker has said connection.blocked.", by_listener(blocked, 1)
    )
    yield from family(
        "sluice_broker_blocked_seconds_total", "counter", "Time brokers said so, summed over connections.", by_listener(blocked_ns, 1e9)
    )
    yield from family(
        "sluice_send_blocked_seconds_total",
        "counter",
        "Time bytes waited for the broker's socket, summed over connections.",
        by_listener(send_blocked_ns, 1e9),
    )
    yield from metrics.histogram(
        "sluice_confirm_latency_seconds",
        "From forwarding a publish to the broker's confirm; at most one is sampled at a time per connection.",
        *(((("listener", x.name),), x.place.flow.confirm_latency) for x in gateway.listening.values() if x.protocol == "amqp"),
    )


def limiter_lines(gateway: Gateway) -> Iterator[str]:
    family = metrics.family
    totals = gateway.accounts.topics.values()
    enforced = sum(t.refused + t.dropped + t.delayed for t in totals)
    shadow = sum(t.shadow_refused for t in totals)
    passed = sum(t.forwarded - t.bypassed for t in totals)
    counts = (passed, shadow, enforced)
    samples = [((("result", result),), count) for result, count in zip(VERDICTS, counts, strict=True)]
    yield from family("sluice_limit_checks_total", "counter", "Messages judged, by verdict.", samples)
    rates = [
        ((("rule", rule.name), ("dimension", dimension)), rate.per_second)
        for rule in gateway.store.rules().rules
        for dimension, rate in (("messages", rule.limit.messages), ("bytes", rule.limit.bytes))
        if rate is not None
    ]
    yield from family("sluice_limit_rate", "gauge", "The rate of each rule, per second.", rates)
    now = now_ns()
    blocked = dict(gateway.blocked_ns)
    for session in gateway.sweeper.sessions.values():
        blocked["reader"] += session.decode.credit.blocked_ns(now)
        blocked["limiter"] += session.forward.credit.blocked_ns(now)
    seconds = [((("stage", stage),), ns / 1e9) for stage, ns in blocked.items()]
    yield from family("sluice_credit_blocked_seconds_total", "counter", "Time a stage waited for credit, summed over connections.", seconds)
    executor = gateway.executor
    yield from family(
        "sluice_limiter_rejections_total", "counter", "Submissions the limiter's full queue turned away.", [((), executor.rejected)]
    )
    yield from family("sluice_limiter_failures_total", "counter", "Submissions the judge failed on.", [((), executor.failed)])
