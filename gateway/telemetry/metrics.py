"""What a scrape tells: the running gateway's numbers as metrics (names: `docs/design/contract.md` 7).

Reads only, and all at once: see `exposition.py`. `status.py` tells the same to people.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, product
from typing import TYPE_CHECKING

from gateway.build import build
from gateway.clock import now_ns
from gateway.close_causes import by_cause
from gateway.protocols import PROTOCOLS
from gateway.remote_admin import ANSWERS
from gateway.session.totals import SessionTotals, session_totals
from gateway.telemetry import exposition
from gateway.telemetry.fleet_metrics import fleet_lines
from gateway.telemetry.refused_clients import retry_lines
from gateway.transport.tls.context import CLIENT, REASONS, UPSTREAM

if TYPE_CHECKING:
    from gateway.app import Gateway
    from limiter.decisions.candidate import CandidateCounts


def metric_lines(gateway: Gateway) -> Iterator[str]:
    """Every line of `/metrics` that is the gateway's own.

    What it tells is read before the first line is asked for, all of it: while the lines are written, in pieces, traffic goes on.
    """
    parts: list[Iterator[str]] = []
    now = now_ns()
    gateway.accounts.fold(now)
    sums = session_totals(gateway.sweeper.sessions, now)
    facts = build()
    family = exposition.family
    labels = (("version", facts.version), ("build", facts.kind), ("python", facts.python))
    parts.append(family("sluice_build_info", "gauge", "Which build runs.", [(labels, 1)]))
    parts.append(connection_lines(gateway))
    parts.append(tls_lines(gateway))
    parts.append(broker_flow_lines(gateway, sums))
    parts.append(route_lines(gateway))
    parts.append(exposition.topic_lines(gateway.accounts))
    parts.append(limiter_lines(gateway, sums))
    if gateway.fleet is not None:
        parts.append(fleet_lines(gateway.fleet, now))
    parts.append(retry_lines(gateway.accounts, gateway.refused_clients))
    parts.append(
        family(
            "sluice_remote_admin_requests_total",
            "counter",
            "Limit requests of RocketMQ consoles, by their code and the answer's.",
            remote_admin_samples(gateway),
        )
    )
    parts.append(
        exposition.histogram(
            "sluice_overhead_seconds", "From reading requests to passing them on, per submission to the judge.", ((), gateway.overhead)
        )
    )
    parts.append(exposition.histogram("sluice_event_loop_lag_seconds", "How late a timer of the event loop came.", ((), gateway.lag)))
    parts.append(family("sluice_config_last_reload_successful", "gauge", "1 if the last reload was.", [((), int(gateway.reloads.last_ok))]))
    parts.append(family("sluice_config_last_reload_timestamp_seconds", "gauge", "When.", [((), gateway.reloads.last_at)]))
    parts.append(family("sluice_config_version", "gauge", "Revision of the limits in force.", [((), gateway.store.revision)]))
    if gateway.access_log is not None:
        log = gateway.access_log
        text = "Lines lost: the queue was full, the disk low, or a write failed."
        parts.append(family("sluice_access_log_lines_lost_total", "counter", text, [((), log.lost_lines)]))
        parts.append(family("sluice_access_log_write_failures_total", "counter", "Failed writes.", [((), log.failed_writes)]))
        text = "1 while less than disk.low_watermark is free: the access log is not written."
        parts.append(family("sluice_disk_low", "gauge", text, [((), log.disk_low)]))
        if log.free_bytes >= 0:
            parts.append(family("sluice_disk_free_bytes", "gauge", "Free on the access log's disk.", [((), log.free_bytes)]))
    parts.append(memory_lines(gateway))
    parts.append(family("sluice_log_lines_dropped_total", "counter", "Log lines dropped.", [((), gateway.log_handler.dropped)]))
    parts.append(exposition.process_lines())
    return chain.from_iterable(parts)


def memory_lines(gateway: Gateway) -> Iterator[str]:
    memory = gateway.memory
    family = exposition.family
    parts = [
        family("sluice_buffer_bytes", "gauge", "Bytes all connections hold, at the last look (every 0.25 s).", [((), memory.held)]),
        family("sluice_memory_full", "gauge", "1 while that is above memory.high_watermark: publishers are not read.", [((), memory.full)]),
        family("sluice_memory_full_seconds_total", "counter", "How long it was.", [((), memory.full_ns(now_ns()) / 1e9)]),
        family("sluice_memory_stopped_connections", "gauge", "Connections that are not read for it.", [((), memory.stopped)]),
    ]
    return chain.from_iterable(parts)


def remote_admin_samples(gateway: Gateway) -> list[exposition.Sample]:
    """By what was asked and answered; with what is asked nowhere but could be, where a listener has remote admin."""
    permissions = [listener.config.remote_admin for listener in gateway.listening.values()]
    codes = {code for permission in permissions if permission is not None for code in permission.codes}
    counts = {**dict.fromkeys(product(sorted(codes), ANSWERS), 0), **gateway.remote_admin.counts}
    return [((("code", str(asked)), ("answer", str(answered))), count) for (asked, answered), count in counts.items()]


def connection_lines(gateway: Gateway) -> Iterator[str]:
    parts: list[Iterator[str]] = []
    family = exposition.family
    listening = list(gateway.listening.values())

    def named(name: str, protocol: str) -> exposition.Labels:
        return (("listener", name), ("protocol", protocol))

    parts.append(
        family(
            "sluice_connections_active",
            "gauge",
            "Client connections now.",
            ((named(x.name, x.protocol), x.active + x.arriving) for x in listening),
        )
    )
    parts.append(
        family("sluice_connections_opened_total", "counter", "Accepted.", ((named(x.name, x.protocol), x.opened) for x in listening))
    )
    parts.append(
        family(
            "sluice_connections_closed_total",
            "counter",
            "Closed, by cause. active = opened - closed.",
            (
                ((*named(x.name, x.protocol), ("cause", cause)), count)
                for x in listening
                for cause, count in by_cause(x.protocol, x.closed).items()
            ),
        )
    )
    parts.append(
        family(
            "sluice_connections_refused_untold_total",
            "counter",
            "Of those closed on their way in: without a word, for want of words or because too many were to be told at once.",
            ((named(x.name, x.protocol), x.rejecter.rejected_silently) for x in listening),
        )
    )
    parts.append(
        family(
            "sluice_upstream_connect_total",
            "counter",
            "Dials of the broker; failed: looks for it, too; spared: refused without one while it was known to be down.",
            (((("listener", x.name), ("result", result)), count) for x in listening for result, count in x.upstream.dials.items()),
        )
    )
    parts.append(
        family(
            "sluice_upstream_reachable",
            "gauge",
            "1 if the last dial of the broker succeeded, 0 if it, or a look since, failed; absent before the first.",
            (((("listener", x.name),), int(x.upstream.ok)) for x in listening if x.upstream.ok is not None),
        )
    )
    return chain.from_iterable(parts)


def tls_lines(gateway: Gateway) -> Iterator[str]:
    parts: list[Iterator[str]] = []
    hops = [
        ((("listener", x.name), ("hop", name)), hop)
        for x in gateway.listening.values()
        for name, hop in ((CLIENT, x.tls), (UPSTREAM, x.upstream.tls))
        if hop is not None
    ]
    parts.append(
        exposition.family(
            "sluice_tls_cert_expiry_timestamp_seconds",
            "gauge",
            "When the gateway's own certificate on this hop ends.",
            ((labels, hop.own.until) for labels, hop in hops if hop.own is not None),
        )
    )
    parts.append(
        exposition.family(
            "sluice_tls_failures_total",
            "counter",
            "TLS handshakes that failed, by reason.",
            (
                ((*labels, ("reason", reason)), count)
                for labels, hop in hops
                for reason, count in {**dict.fromkeys(REASONS, 0), **hop.failures}.items()
            ),
        )
    )
    return chain.from_iterable(parts)


def broker_flow_lines(gateway: Gateway, sums: SessionTotals) -> Iterator[str]:
    """The brokers' own flow control, by listener: of connections that are over and of those that are open (`sums`)."""
    parts: list[Iterator[str]] = []
    family = exposition.family
    flows = [(name, listener.config.flow, sums.flow(name)) for name, listener in gateway.listening.items()]
    blocked = {name: now.blocked for name, _, now in flows}
    blocked_ns = {name: over.blocked_ns + now.blocked_ns for name, over, now in flows}
    send_blocked_ns = {name: over.send_blocked_ns + now.send_blocked_ns for name, over, now in flows}

    def by_listener(values: dict[str, int], unit: float) -> list[exposition.Sample]:
        return [((("listener", name),), value / unit) for name, value in values.items()]

    parts.append(
        family(
            "sluice_broker_blocked_connections", "gauge", "Connections whose broker has said connection.blocked.", by_listener(blocked, 1)
        )
    )
    parts.append(
        family(
            "sluice_broker_blocked_seconds_total", "counter", "Time brokers said so, summed over connections.", by_listener(blocked_ns, 1e9)
        )
    )
    parts.append(
        family(
            "sluice_send_blocked_seconds_total",
            "counter",
            "Time bytes waited for the broker's socket, summed over connections.",
            by_listener(send_blocked_ns, 1e9),
        )
    )
    parts.append(
        exposition.histogram(
            "sluice_confirm_latency_seconds",
            "From forwarding a publish to the broker's confirm; at most one is sampled at a time per connection.",
            *(
                ((("listener", x.name),), x.config.flow.confirm_latency)
                for x in gateway.listening.values()
                if PROTOCOLS[x.protocol].confirms
            ),
        )
    )
    busy = [(listener, PROTOCOLS[listener.protocol].busy_reasons) for listener in gateway.listening.values()]
    parts.append(
        family(
            "sluice_broker_busy_total",
            "counter",
            "Answers by which a RocketMQ broker said that it is overloaded; they pass unaltered.",
            (((("listener", x.name), ("reason", reason)), x.config.flow.busy.get(reason, 0)) for x, reasons in busy for reason in reasons),
        )
    )
    parts.append(
        exposition.histogram(
            "sluice_broker_queue_period_seconds",
            "How long a request that the broker gave up had waited in its queue, as it says.",
            *(((("listener", x.name),), x.config.flow.queue_period) for x, reasons in busy if reasons),
        )
    )
    return chain.from_iterable(parts)


def route_lines(gateway: Gateway) -> Iterator[str]:
    """Name servers' listeners: what became of routes, and the ports of their brokers."""
    parts: list[Iterator[str]] = []
    brokers = gateway.brokers
    answers = [((("listener", name), ("result", result)), n) for name, each in brokers.items() for result, n in each.answers.items()]
    refused = [((("listener", name),), each.refused_registrations) for name, each in brokers.items()]
    ports = [
        ((("listener", name), ("state", state)), count)
        for name, each in brokers.items()
        for state, count in (("taken", len(each.assigned)), ("free", len(each.ports) - len(each.assigned)))
    ]
    text = "Answers with routes to brokers; failed: the client got an error instead, because they could not be led through this gateway."
    parts.append(exposition.family("sluice_route_answers_total", "counter", text, answers))
    text = "Requests that only brokers send (registrations, heartbeats), refused."
    parts.append(exposition.family("sluice_broker_registrations_refused_total", "counter", text, refused))
    parts.append(exposition.family("sluice_broker_ports", "gauge", "Ports of broker_ports, by whether a broker has them.", ports))
    return chain.from_iterable(parts)


def candidate_samples(candidates: dict[str, CandidateCounts]) -> list[exposition.Sample]:
    """Per rule with a candidate."""
    return [
        ((("rule", rule), ("result", result)), count)
        for rule, counts in candidates.items()
        for result, count in (("admitted", counts.admitted), ("refused", counts.refused))
    ]


def cap_lines(gateway: Gateway) -> Iterator[str]:
    """The caps of listeners that are in use: how much of each holds now."""
    rates: list[exposition.Sample] = []
    tightened: list[exposition.Sample] = []
    now = now_ns()
    for name, listener in gateway.listening.items():
        for cap in gateway.judge.caps(name, now):
            labels = (("listener", name), ("rule", cap.rule))
            for dimension, rate in (("messages", cap.now.messages), ("bytes", cap.now.bytes)):
                if rate is not None:
                    rates.append(((*labels, ("dimension", dimension)), rate.per_second))
            if cap.limit.adapt is not None:
                counts = {**dict.fromkeys(PROTOCOLS[listener.protocol].adapt_reasons, 0), **cap.counts}
                tightened += [((*labels, ("reason", reason)), count) for reason, count in counts.items()]
    text = "What a listener's cap is now, per second: what its rule says, or less while its broker has too much to do."
    return chain(
        exposition.family("sluice_cap_rate", "gauge", text, rates),
        exposition.family("sluice_cap_tightened_total", "counter", "Times a cap was tightened, by what its broker showed.", tightened),
    )


def backlog_lines(gateway: Gateway) -> Iterator[str]:
    """Limits that follow a backlog; as many as topics have labels."""
    followed = sorted(gateway.backlogs.followed.values(), key=lambda one: -one.waiting)[: exposition.TOPICS_SHOWN]
    labelled = [((("topic", one.bucket.effective.thing), ("rule", one.bucket.rule.name)), one) for one in followed]
    waiting = [(labels, one.waiting) for labels, one in labelled if one.looked_at >= 0]
    rates = [(labels, round(one.steering.rate, 3)) for labels, one in labelled]
    looks = [((("result", result),), count) for result, count in gateway.backlogs.looks.items()]
    return chain(
        exposition.family("sluice_backlog_messages", "gauge", "Messages waiting for the consumers that a limit follows.", waiting),
        exposition.family("sluice_backlog_rate", "gauge", "Messages per second that such a limit lets through now.", rates),
        exposition.family("sluice_backlog_looks_total", "counter", "Times a broker was asked for a backlog.", looks),
    )


def limiter_lines(gateway: Gateway, sums: SessionTotals) -> Iterator[str]:
    parts: list[Iterator[str]] = []
    family = exposition.family
    checks = [((("result", result),), count) for result, count in gateway.judge.checks().items()]
    parts.append(
        family(
            "sluice_limit_checks_total",
            "counter",
            "Messages judged by at least one rule, once each, by the first verdict: ok; limited_shadow: passed, a rule in shadow mode "
            "would have refused it; limited_enforced: refused, delayed or dropped.",
            checks,
        )
    )
    parts.append(
        family(
            "sluice_candidate_messages_total",
            "counter",
            "Messages that a rule's candidate would have admitted or refused, since it came into force; nothing of it is enforced.",
            candidate_samples(gateway.judge.candidates(now_ns())),
        )
    )
    rates = [
        ((("rule", rule.name), ("dimension", dimension)), rate.per_second)
        for rule in gateway.store.rules().rules
        for dimension, rate in (("messages", rule.limit.messages), ("bytes", rule.limit.bytes))
        if rate is not None
    ]
    parts.append(family("sluice_limit_rate", "gauge", "The rate of each rule, per second.", rates))
    flying: list[exposition.Sample] = [((("rule", name),), taken) for name, taken in gateway.judge.in_flight().items()]
    parts.append(family("sluice_limit_in_flight", "gauge", "Requests that hold a slot of a rule which limits those in flight.", flying))
    parts.append(cap_lines(gateway))
    parts.append(backlog_lines(gateway))
    waiting = {"reader": sums.reader_ns, "limiter": sums.limiter_ns}
    seconds = [((("stage", stage),), (over_ns + waiting[stage]) / 1e9) for stage, over_ns in gateway.blocked_ns.items()]
    parts.append(
        family("sluice_credit_blocked_seconds_total", "counter", "Time a stage waited for credit, summed over connections.", seconds)
    )
    executor = gateway.executor
    judged = {name: listener.config.judging for name, listener in gateway.listening.items()}
    parts.append(
        family(
            "sluice_limiter_batches_total",
            "counter",
            "Batches (one connection's requests of one sweep) by the way they were judged: queued, by a thread of the limiter's; inline, "
            "on the event loop; bypassed: some of it passed without a verdict.",
            [
                ((("listener", name), ("way", way)), number)
                for name, each in judged.items()
                for way, number in (("queued", each.queued), ("inline", each.inline), ("bypassed", each.bypassed))
            ],
        )
    )
    parts.append(
        family(
            "sluice_limiter_bypassed_messages_total",
            "counter",
            "Messages that passed without a verdict, as sluice_messages_bypassed_total, by listener.",
            [((("listener", name),), each.bypassed_messages) for name, each in judged.items()],
        )
    )
    parts.append(
        family("sluice_limiter_rejections_total", "counter", "Submissions the limiter's full queue turned away.", [((), executor.rejected)])
    )
    parts.append(family("sluice_limiter_queued_requests", "gauge", "Requests in the limiter's queues.", [((), executor.depth)]))
    parts.append(family("sluice_limiter_failures_total", "counter", "Submissions the judge failed on.", [((), executor.failed)]))
    return chain.from_iterable(parts)
