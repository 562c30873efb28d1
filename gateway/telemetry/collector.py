"""Collects the gateway's metrics for a scrape (`metrics.py` has their names, labels and help texts).

Reads only, and all at once: see `exposition.py`. `status.py` tells the same to people.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, product
from typing import TYPE_CHECKING

from common.tls.context import CLIENT, REASONS, UPSTREAM
from gateway.clock import now_ns
from gateway.close_causes import by_cause
from gateway.counting.accounts import MAX_TOPICS_SHOWN
from gateway.listeners.unreachable import REASONS as UNREACHABLE
from gateway.protocols import PROTOCOLS
from gateway.remote_admin import ANSWERS
from gateway.session.totals import SessionTotals, session_totals
from gateway.telemetry import spool
from gateway.telemetry.exposition import Sample, Samples, families, family, histogram, single
from gateway.telemetry.fleet_metrics import fleet_lines
from gateway.telemetry.process_metrics import process_lines
from gateway.telemetry.refused_clients import retry_samples
from gateway.telemetry.topic_limits import rates
from gateway.telemetry.topic_metrics import topic_lines

if TYPE_CHECKING:
    from gateway.broker_load.lag_watch import LagWatch
    from gateway.telemetry.ports import ObservedGateway
    from limiter.buckets.candidate import CandidateCounts
    from limiter.rules.rule_set import RuleSet


def metric_lines(gateway: ObservedGateway) -> Iterator[str]:
    """What one process has of `/metrics`; the rest is its control plane's.

    All values are read before the first line is asked for: while the lines are written, in pieces, traffic goes on.
    """
    now = now_ns()
    gateway.accounts.fold(now)
    sums = session_totals(gateway.sweeper.sessions, now)
    parts = [
        connection_lines(gateway),
        tls_lines(gateway),
        broker_flow_lines(gateway, sums),
        route_lines(gateway),
        topic_lines(gateway.accounts),
        family("sluice_topic_spooled_messages", spool.topic_samples(gateway.disk, gateway.accounts.shown)),
        gateway.topic_limits.lines(gateway.rule_source.rules()),
        limiter_lines(gateway, sums),
    ]
    if gateway.fleet is not None:
        parts.append(fleet_lines(gateway.fleet, now))
    parts += [
        families(retry_samples(gateway.refused_clients)),
        family("sluice_remote_admin_requests_total", remote_admin_samples(gateway)),
        single("sluice_messages_unsent_total", gateway.accounts.unsent),
        single("sluice_connections_unanswered_total", gateway.accounts.unanswered),
        histogram("sluice_overhead_seconds", ((), gateway.overhead)),
        histogram("sluice_event_loop_lag_seconds", ((), gateway.lag)),
    ]
    if gateway.access_log is not None:
        written = gateway.access_log
        parts += [
            single("sluice_access_log_lines_lost_total", written.lost_lines),
            single("sluice_access_log_write_failures_total", written.failed_writes),
            single("sluice_disk_low", written.disk_low),
        ]
        if written.free_bytes >= 0:
            parts.append(single("sluice_disk_free_bytes", written.free_bytes))
    if gateway.span_export is not None:
        spans = gateway.span_export
        parts += [
            family("sluice_spans_total", [((result,), count) for result, count in spans.counts().items()]),
            single("sluice_spans_skipped_requests_total", spans.recorder.not_looked_at),
        ]
    parts += [
        memory_lines(gateway),
        spool.metric_lines(gateway.disk),
        single("sluice_log_lines_dropped_total", gateway.log_handler.dropped),
        process_lines(),
    ]
    return chain.from_iterable(parts)


def memory_lines(gateway: ObservedGateway) -> Iterator[str]:
    memory = gateway.memory
    return chain(
        single("sluice_buffer_bytes", memory.held),
        single("sluice_memory_full", memory.full),
        single("sluice_memory_full_seconds_total", memory.full_ns(now_ns()) / 1e9),
        single("sluice_memory_stopped_connections", memory.stopped),
        single("sluice_memory_closed_connections_total", memory.closed),
        single("sluice_memory_limit_bytes", gateway.memory_limit.limit or 0),
        single("sluice_memory_limit_step", gateway.memory_limit.step),
        families(
            {
                "sluice_delivery_bytes": [((x.name,), x.config.delivery_bytes) for x in gateway.listening.values()],
                "sluice_deliveries_full": [((x.name,), int(x.config.deliveries_full)) for x in gateway.listening.values()],
            }
        ),
    )


def remote_admin_samples(gateway: ObservedGateway) -> list[Sample]:
    """By the codes of request and answer; where a listener has remote admin, also those that could occur and did not yet, at 0."""
    permissions = [listener.config.remote_admin for listener in gateway.listening.values()]
    codes = {code for permission in permissions if permission is not None for code in permission.codes}
    counts = {**dict.fromkeys(product(sorted(codes), ANSWERS), 0), **({} if gateway.remote_admin is None else gateway.remote_admin.counts)}
    return [((str(asked), str(answered)), count) for (asked, answered), count in counts.items()]


def connection_lines(gateway: ObservedGateway) -> Iterator[str]:
    listening = [((x.name, x.protocol), x) for x in gateway.listening.values()]
    closed = [((*labels, cause), count) for labels, x in listening for cause, count in by_cause(x.protocol, x.closed).items()]
    dials = [((x.name, result), count) for _, x in listening for result, count in x.upstreams.dials().items()]
    upstreams = [(x.name, each) for _, x in listening for each in x.upstreams.members]
    away = [((name, x.text, why), int(x.why_label == why)) for name, x in upstreams for why in UNREACHABLE]
    return families({
        "sluice_connections_active": [(labels, x.active + x.arriving) for labels, x in listening],
        "sluice_connections_opened_total": [(labels, x.opened) for labels, x in listening],
        "sluice_connections_closed_total": closed,
        "sluice_connections_refused_untold_total": [(labels, x.rejecter.rejected_silently) for labels, x in listening],
        "sluice_upstream_connect_total": dials,
        "sluice_upstream_reachable": [((name, x.text), int(x.ok)) for name, x in upstreams if x.ok is not None],
        "sluice_upstream_unreachable": away,
        "sluice_upstream_connections": [((name, x.text), x.heard.connections) for name, x in upstreams],
        "sluice_upstream_switched_total": [((x.name,), x.upstreams.switched) for _, x in listening],
    })  # fmt: skip


def tls_lines(gateway: ObservedGateway) -> Iterator[str]:
    hops = [
        ((x.name, name), hop)
        for x in gateway.listening.values()
        for name, hop in ((CLIENT, x.tls), (UPSTREAM, x.upstreams.tls))
        if hop is not None
    ]
    none = dict.fromkeys(REASONS, 0)
    return families({
        "sluice_tls_cert_expiry_timestamp_seconds": [(labels, hop.own.until) for labels, hop in hops if hop.own is not None],
        "sluice_tls_failures_total": [
            ((*labels, reason), count) for labels, hop in hops for reason, count in {**none, **hop.failures}.items()
        ],
    })  # fmt: skip


def broker_flow_lines(gateway: ObservedGateway, sums: SessionTotals) -> Iterator[str]:
    """The brokers' own flow control, by listener: of connections that are over and of those that are open (`sums`)."""
    flows = [((name,), listener.config.flow, sums.flow(name)) for name, listener in gateway.listening.items()]
    confirming = [x for x in gateway.listening.values() if PROTOCOLS[x.protocol].confirms]
    saying_busy = [(x, PROTOCOLS[x.protocol].busy_reasons) for x in gateway.listening.values()]
    blocked: dict[str, list[Sample]] = {
        "sluice_broker_blocked_connections": [(name, now.blocked) for name, _, now in flows],
        "sluice_broker_blocked_seconds_total": [(name, (over.blocked_ns + now.blocked_ns) / 1e9) for name, over, now in flows],
        "sluice_send_blocked_seconds_total": [(name, (over.send_blocked_ns + now.send_blocked_ns) / 1e9) for name, over, now in flows],
    }
    busy = [((x.name, reason), x.config.flow.busy.get(reason, 0)) for x, reasons in saying_busy for reason in reasons]
    return chain(
        families(blocked),
        histogram("sluice_confirm_latency_seconds", *(((x.name,), x.config.flow.confirm_latency) for x in confirming)),
        family("sluice_broker_busy_total", busy),
        histogram(
            "sluice_broker_queue_period_seconds", *(((x.name,), x.config.flow.queue_period) for x, reasons in saying_busy if reasons)
        ),
    )


def route_lines(gateway: ObservedGateway) -> Iterator[str]:
    """Name servers' listeners: what became of routes, and the ports of their brokers."""
    brokers = gateway.brokers.items()
    ports = [
        ((name, state), count)
        for name, each in brokers
        for state, count in (("taken", len(each.by_broker)), ("free", len(each.ports) - len(each.by_broker)))
    ]
    return families({
        "sluice_route_answers_total": [((name, result), count) for name, each in brokers for result, count in each.answers.items()],
        "sluice_broker_registrations_refused_total": [((name,), each.refused_registrations) for name, each in brokers],
        "sluice_broker_ports": ports,
    })  # fmt: skip


def candidate_samples(candidates: dict[str, CandidateCounts]) -> list[Sample]:
    """Per rule with a candidate."""
    return [
        ((rule, result), count)
        for rule, counts in candidates.items()
        for result, count in (("admitted", counts.admitted), ("refused", counts.refused))
    ]


def rate_samples(rules: RuleSet) -> list[Sample]:
    """The rates of every rule, by its mode."""
    return [((rule.name, dimension, rule.mode), rate) for rule in rules.rules for dimension, rate in rates(rule.limit)]


def cap_lines(gateway: ObservedGateway) -> Iterator[str]:
    """The caps of listeners that are in use: how much of each holds now."""
    now_rates: list[Sample] = []
    tightened: list[Sample] = []
    now = now_ns()
    for name, listener in gateway.listening.items():
        for cap in gateway.judge.caps(name, now):
            now_rates += [((name, cap.rule, dimension), rate) for dimension, rate in rates(cap.now)]
            if cap.limit.adapt is not None:
                counts = {**dict.fromkeys(PROTOCOLS[listener.protocol].adapt_reasons, 0), **cap.counts}
                tightened += [((name, cap.rule, reason), count) for reason, count in counts.items()]
    return families({"sluice_cap_rate": now_rates, "sluice_cap_tightened_total": tightened})


def backlog_samples(watch: LagWatch) -> Samples:
    """Limits that follow a backlog; as many as topics have series of their own."""
    followed = sorted(watch.followed.values(), key=lambda one: -one.waiting)[:MAX_TOPICS_SHOWN]
    labelled = [((one.bucket.effective.thing, one.bucket.rule.name), one) for one in followed]
    return {
        "sluice_backlog_messages": [(labels, one.waiting) for labels, one in labelled if one.looked_at >= 0],
        "sluice_backlog_rate": [(labels, round(one.controller.rate, 3)) for labels, one in labelled],
        "sluice_backlog_looks_total": [((result,), count) for result, count in watch.looks.items()],
    }


def limiter_lines(gateway: ObservedGateway, sums: SessionTotals) -> Iterator[str]:
    judge, executor = gateway.judge, gateway.executor
    waiting = {"reader": sums.reader_ns, "limiter": sums.limiter_ns}
    judging = {name: listener.config.judging for name, listener in gateway.listening.items()}
    batches = [
        ((name, way), count)
        for name, each in judging.items()
        for way, count in (("queued", each.queued), ("inline", each.inline), ("bypassed", each.bypassed))
    ]
    return chain(
        family("sluice_limit_checks_total", [((result,), count) for result, count in judge.checks().items()]),
        family("sluice_rule_messages_total", gateway.topic_limits.rule_samples(gateway.rule_source.rules())),
        family("sluice_limit_in_flight", [((name,), taken) for name, taken in judge.in_flight().items()]),
        cap_lines(gateway),
        family(
            "sluice_credit_blocked_seconds_total",
            [((stage,), (over_ns + waiting[stage]) / 1e9) for stage, over_ns in gateway.blocked_ns.items()],
        ),
        family("sluice_limiter_batches_total", batches),
        family("sluice_limiter_bypassed_messages_total", [((name,), each.bypassed_messages) for name, each in judging.items()]),
        single("sluice_limiter_rejections_total", executor.rejected),
        single("sluice_limiter_queued_requests", executor.depth),
        single("sluice_limiter_failures_total", executor.failed),
    )
