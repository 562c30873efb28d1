"""Every metric of `/metrics`: name, type, help, labels, and what becomes of it where several workers have one each.

This is the one place to add a metric. `exposition.family(name, samples)` writes it: it takes the label names from here, so a sample with
too few or too many labels is an error, and so is a name that is not here. The values are collected in `collector.py` (the gateway's),
`topic_metrics.py` (one series per topic), `spool.py`, `fleet_metrics.py`, `refused_clients.py`, `control_plane/workers/parent.py`,
`control_plane/control_plane.py`, `admin/alerting/webhooks.py` and `admin/app.py`.
`docs/reference/metrics.md` is generated from it (`make docs`).

A help text says what is counted, in which unit, and what to compare it with where that helps. Names follow Prometheus' rules: base units,
the unit in the name, `_total` for counters, no client's name or address as a label (they come and go without end).
"""

from __future__ import annotations

from itertools import chain
from typing import Final, NamedTuple

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"

SUM: Final = "sum"  # of all workers; of counters and histograms those that have ended included
SAME: Final = "same"  # in all processes, or known to one only: told once, by the parent
ONE: Final = "one"  # the same in all processes that know it: told once, by whichever reported last
EACH: Final = "each"  # one series per worker, with the label `worker`: a sum would mean nothing


class Metric(NamedTuple):
    """One family of series. `labels` in the order in which they are written; `le` of a histogram is none of them."""

    name: str
    kind: str  # COUNTER, GAUGE or HISTOGRAM
    help: str
    labels: tuple[str, ...]
    workers: str  # SUM, SAME, ONE or EACH


def counter(name: str, labels: str, workers: str, text: str) -> Metric:
    return Metric(name, COUNTER, text, tuple(labels.split()), workers)


def gauge(name: str, labels: str, workers: str, text: str) -> Metric:
    return Metric(name, GAUGE, text, tuple(labels.split()), workers)


def histogram(name: str, labels: str, text: str) -> Metric:
    return Metric(name, HISTOGRAM, text, tuple(labels.split()), SUM)


TOPIC: Final = ("protocol", "topic", "operation")
SECTIONS: Final[dict[str, tuple[Metric, ...]]] = {
    "Connections": (
        gauge("sluice_connections_active", "listener protocol", SUM, "Client connections that are open now."),
        counter("sluice_connections_opened_total", "listener protocol", SUM,
            "Client connections accepted. Those open now are opened minus closed."),
        counter("sluice_connections_closed_total", "listener protocol cause", SUM,
            "Client connections closed, by cause (docs/reference/close-causes.md). Every known cause is shown from the start, at 0."),
        counter("sluice_connections_refused_untold_total", "listener protocol", SUM,
            "Client connections refused without telling the client why. Its protocol has no words for it, it had not got that far, or too "
            "many were being told. They are among sluice_connections_closed_total."),
        counter("sluice_connections_unanswered_total", "", SUM,
            "Connections that ended before their broker had answered connection.close: it may not have handled all that was forwarded."),
    ),
    "Messages": (
        counter("sluice_messages_received_total", "protocol topic operation", SUM,
            "Messages decoded. It equals forwarded + refused + dropped + abandoned + waiting."),
        counter("sluice_messages_forwarded_total", "protocol topic operation", SUM,
            "Messages passed on, to the broker or (operation consume) to the consumer."),
        counter("sluice_messages_refused_total", "protocol topic operation reason", SUM,
            "Messages refused in the protocol's own words, by reason: limit, the topic's own limit; share, its share of its listener's "
            "cap; size, a rule's max_message_size; copies, a rule's copies: refuse."),
        counter("sluice_messages_delayed_total", "protocol topic operation", SUM,
            "Messages that a limit made wait at least once. They are counted as forwarded, refused or abandoned later."),
        counter("sluice_messages_dropped_total", "protocol topic operation", SUM,
            "Messages dropped without an answer, as the rule's action drop says."),
        counter("sluice_messages_bypassed_total", "protocol topic operation", SUM,
            "Messages passed without a verdict because the limiter was overloaded or failed. They are among those forwarded."),
        counter("sluice_messages_abandoned_total", "protocol topic operation", SUM,
            "Messages neither forwarded nor refused because their client or broker went away first."),
        counter("sluice_messages_unsent_total", "", SUM,
            "Messages passed on whose bytes the broker's socket had not taken when their connection ended. They count as forwarded."),
        counter("sluice_messages_shadow_refused_total", "protocol topic operation", SUM,
            "Messages that passed, but that a rule in shadow mode would have refused. Look here before you enforce it."),
        counter("sluice_messages_redelivered_total", "protocol topic operation", SUM,
            "Deliveries that had been made before: consumers give messages back, or their channels end. Of RocketMQ those that its broker "
            "has counted (RECONSUME). They are among those received. Only queues and topics that have had any."),
        gauge("sluice_messages_waiting", "protocol topic operation", SUM, "Messages with the limiter, or held by a limit, now."),
        gauge("sluice_topic_spooled_messages", "protocol topic operation", SUM,
            "Messages that wait in the spool (`action: spool`) now. They are among sluice_messages_waiting."),
        counter("sluice_message_bytes_total", "protocol topic operation", SUM,
            "Bytes of the messages passed on, to the broker or to the consumer."),
        counter("sluice_message_copies_total", "protocol topic operation", SUM,
            "Copies that messages passed on have named beside their own topic (AMQP's headers CC and BCC), counted by a rule or not."),
        counter("sluice_retries_refused_total", "group", SUM,
            "Retries refused or dropped, by RocketMQ consumer group: what consumers send back, and what is sent to %RETRY% topics."),
        gauge("sluice_retries_worst_client_ratio", "group", EACH,
            "Of the retries refused in the last 10 s, the part (0 to 1) that one client sent. `sluice topics` and the log name the "
            "client."),
    ),
    "Limits": (
        gauge("sluice_quotas_raised", "", SAME,
            "Published quotas that are raised now (quotas.hourly_raise, quotas.surge_raise), not counting those they stand behind: rules "
            "that name the topic, live changes."),
        gauge("sluice_topic_limit", "protocol topic operation dimension origin", ONE,
            "Limit in force for a topic, in messages or bytes per second (dimension), and where it comes from (origin). Live changes and "
            "quotas are included. Compare it with the rate of sluice_messages_forwarded_total or sluice_message_bytes_total."),
        counter("sluice_topic_limited_seconds_total", "protocol topic operation", SUM,
            "Seconds in which a topic was at a limit: a message was refused, dropped or delayed. Several workers count each their own."),
        counter("sluice_rule_messages_total", "rule result", SUM,
            "Messages under each rule, by result: passed, refused, dropped, delayed; shadow_refused, passed, but the rule, in shadow "
            "mode, would have refused them. Where several rules refuse messages of a client and topic in a second, they count for the "
            "last."),
        gauge("sluice_limit_rate", "rule dimension mode", SAME,
            "Rate of each rule, in messages or bytes per second (dimension), and its mode: only enforce refuses anything. What a rule in "
            "mode shadow would refuse: sluice_rule_messages_total{result=\"shadow_refused\"}."),
        counter("sluice_limit_checks_total", "result", SUM,
            "Messages judged by at least one rule, once each, by the first verdict: ok; limited_shadow, passed, but a rule in shadow mode "
            "would have refused it; limited_enforced, refused, delayed or dropped."),
        counter("sluice_candidate_messages_total", "rule result", SAME,
            "Messages that a rule's candidate limit would have admitted or refused since it came into force. Nothing of it is enforced."),
        gauge("sluice_limit_in_flight", "rule", SUM, "Requests that hold a slot of a rule that limits those in flight."),
        gauge("sluice_cap_rate", "listener rule dimension", SUM,
            "What a listener's cap lets through now, in messages or bytes per second (dimension): the rate of its rule, or less while its "
            "broker is overloaded."),
        counter("sluice_cap_tightened_total", "listener rule reason", SUM,
            "Times that a listener's cap was tightened, by the sign of overload that its broker gave."),
        gauge("sluice_backlog_messages", "topic rule", SAME,
            "Messages waiting in the broker for the consumers whose backlog the limit follows, when the broker was asked last."),
        gauge("sluice_backlog_rate", "topic rule", SAME, "Messages per second that a limit that follows a backlog lets through now."),
        counter("sluice_backlog_looks_total", "result", SAME,
            "Times that a broker was asked how long a backlog is, by result: ok or failed."),
    ),
    "The limiter": (
        counter("sluice_credit_blocked_seconds_total", "stage", SUM,
            "Seconds during which a stage waited for credit, summed over connections. reader: the client is not read because the limiter "
            "is busy; limiter: because the broker does not take what is passed on."),
        counter("sluice_limiter_batches_total", "listener way", SUM,
            "Batches (one connection's requests, read at once) by the way they were judged: queued, by a thread of the limiter; inline, "
            "on the event loop; bypassed, some of it passed without a verdict."),
        counter("sluice_limiter_bypassed_messages_total", "listener", SUM,
            "Messages that passed without a verdict: sluice_messages_bypassed_total by listener."),
        counter("sluice_limiter_rejections_total", "", SUM,
            "Submissions that the limiter's full queue turned away; limiter.on_rejection says what becomes of them."),
        gauge("sluice_limiter_queued_requests", "", SUM, "Requests in the queues of the limiter's threads now."),
        counter("sluice_limiter_failures_total", "", SUM,
            "Submissions that failed in the limiter because of a fault in it; the log has judge_failed."),
        histogram("sluice_overhead_seconds", "",
            "Seconds from reading requests to passing them on, per submission to the limiter: what the gateway adds. Delays by limits are "
            "not in it."),
    ),
    "The broker": (
        counter("sluice_upstream_connect_total", "listener result", SUM,
            "Connection attempts to the broker, by result: ok; failed, failed health probes included; spared, clients that were refused "
            "without one because the broker, or one of several, was known to be down."),
        gauge("sluice_upstream_reachable", "listener upstream", EACH,
            "1 if the broker at this address has answered in its protocol when it was asked last, at most 5 s after its last byte on any "
            "connection; 0 if it has not, or is held for having failed; absent before the first time. A listener with several addresses "
            "serves clients while one of them is at 1."),
        gauge("sluice_upstream_unreachable", "listener upstream reason", EACH,
            "1 for the reason that a broker cannot be reached, else 0: refused, timeout (no connection), no_answer (it takes connections "
            "and hangs), wrong_answer (not in the listener's protocol), closed, name (does not resolve), tls, other; held: it answers "
            "again, and another address is used until it has done so for a while."),
        gauge("sluice_upstream_connections", "listener upstream", SUM, "Clients' connections to the broker at this address."),
        counter("sluice_upstream_switched_total", "listener", SUM,
            "Times that new connections began to go to another address of `upstream`, because one failed or was in use again."),
        gauge("sluice_broker_blocked_connections", "listener", SUM,
            "Connections whose broker has sent connection.blocked and has not taken it back: RabbitMQ is short of memory or disk."),
        counter("sluice_broker_blocked_seconds_total", "listener", SUM,
            "Seconds during which connections were blocked by connection.blocked, summed over connections."),
        counter("sluice_send_blocked_seconds_total", "listener", SUM,
            "Seconds during which bytes waited because the broker's socket took no more, summed over connections: the broker or the "
            "network is slow."),
        histogram("sluice_confirm_latency_seconds", "listener",
            "Seconds from forwarding a publish to the broker's confirm. One publish at a time is measured per connection."),
        counter("sluice_broker_busy_total", "listener reason", SUM,
            "Answers by which a RocketMQ broker said that it is overloaded, by its reason. They reach the client unaltered."),
        histogram("sluice_broker_queue_period_seconds", "listener",
            "Seconds that requests had waited in a RocketMQ broker's queue when it gave them up, as its answers say."),
    ),
    "RocketMQ's name server": (
        counter("sluice_route_answers_total", "listener result", SUM,
            "Name server's answers with routes to brokers, by result: rewritten, the routes lead through this gateway; failed, they could "
            "not, and the client got an error instead."),
        counter("sluice_broker_registrations_refused_total", "listener", SUM,
            "Requests that only brokers send (registrations, heartbeats) and that were refused: brokers talk to the name server directly."),
        gauge("sluice_broker_ports", "listener state", EACH,
            "Ports of the setting broker_ports, by state: taken by a broker, or free. Widen the range before none is free."),
    ),
    "TLS": (
        gauge("sluice_tls_cert_expiry_timestamp_seconds", "listener hop", EACH,
            "Unix time at which the gateway's own certificate on this hop (client or upstream) expires. Alert while there is time to "
            "renew it."),
        counter("sluice_tls_failures_total", "listener hop reason", SUM,
            "TLS handshakes that failed, by hop (client or upstream) and reason."),
    ),
    "Tracing": (
        counter("sluice_spans_total", "result", SUM,
            "Spans of refused, delayed and spooled messages: `exported` to the collector, `failed` there, or lost because too many waited "
            "for it (`queue_full`)."),
        counter("sluice_spans_skipped_requests_total", "", SUM,
            "Requests refused, delayed or spooled that were not looked at for a trace context because the second's budget was used up "
            "(`tracing.max_per_second`)."),
    ),
    "The process": (
        gauge("sluice_build_info", "version build python", SAME,
            "1; the labels say which build runs: sluice's version, compiled or pure Python, Python's version."),
        gauge("sluice_ready", "", SAME,
            "1 while /readyz answers 200, else 0: a broker is away, a worker is not running, or a drain goes on."),
        histogram("sluice_event_loop_lag_seconds", "",
            "Seconds by which a timer of the event loop came late. All connections wait that long. Above 0.05 the process has too much to "
            "do."),
        gauge("sluice_config_last_reload_successful", "", SAME,
            "1 if the last reload of the configuration succeeded, 0 if the last good one stays."),
        gauge("sluice_config_last_reload_timestamp_seconds", "", SAME,
            "Unix time of the last reload, failed or not; until the first one, of the start."),
        gauge("sluice_config_version", "", SAME, "Revision of the limits in force. It rises with every live change."),
        gauge("sluice_buffer_bytes", "", SUM, "Bytes that all connections hold, measured every 0.25 s. Compare memory.high_watermark."),
        gauge("sluice_memory_full", "", EACH, "1 while memory is above memory.high_watermark and publishing connections are not read."),
        counter("sluice_memory_full_seconds_total", "", SUM, "Seconds spent above memory.high_watermark."),
        gauge("sluice_memory_stopped_connections", "", SUM, "Connections that are not read because memory is above memory.high_watermark."),
        gauge("sluice_memory_limit_bytes", "", EACH, "Bytes the process may take: memory.limit, or less where the machine allows less."),
        gauge("sluice_memory_limit_step", "", EACH,
            "Steps taken near memory.limit: 1 impatient, 2 publishers stopped, 3 no newcomers, 4 closing."),
        counter("sluice_memory_closed_connections_total", "", SUM, "Connections closed because the gateway was short of memory."),
        gauge("sluice_delivery_bytes", "listener", SUM,
            "Bytes that wait for the clients of a listener. Compare memory.delivery_watermark."),
        gauge("sluice_deliveries_full", "listener", EACH,
            "1 while they are above memory.delivery_watermark: brokers of clients that do not read are not read."),
        counter("sluice_access_log_lines_lost_total", "", SUM,
            "Lines of the access log that were lost: the queue was full, the disk low, or a write failed. Demand is undercounted."),
        counter("sluice_access_log_write_failures_total", "", SUM,
            "Writes to the access log that failed. The log has access_log_failed and why."),
        gauge("sluice_access_log_bytes", "", SAME, "Bytes of the access log's files on disk. Compare access_log.keep_size."),
        gauge("sluice_access_log_files", "", SAME, "Files of the access log on disk."),
        gauge("sluice_access_log_oldest_hour_timestamp_seconds", "", SAME, "Unix time at which the oldest hour on disk began."),
        gauge("sluice_access_log_unshipped_files", "", SAME,
            "Closed files of hours that are over which no target has yet. Shown once something was shipped from here."),
        gauge("sluice_access_log_held_bytes", "", SAME,
            "Bytes that access_log.keep or keep_size would delete, were they shipped or counted. Above 0: look why that does not happen."),
        counter("sluice_access_log_deleted_bytes_total", "", SAME, "Bytes of old files that were deleted."),
        counter("sluice_access_log_keeping_failures_total", "", SAME,
            "Files that could not be compressed or deleted, and rounds that failed. The log has access_log_keeping_failed."),
        gauge("sluice_spool_bytes", "", SUM,
            "Bytes of the spool's files on disk, and of those about to be written. Compare sluice_spool_size_bytes."),
        gauge("sluice_spool_size_bytes", "", SUM, "Bytes that the spool's files may take: spool.max_size."),
        gauge("sluice_spool_disk_messages", "", SUM,
            "Of the messages that wait in the spool: those on disk, of which nothing is in memory."),
        gauge("sluice_spool_messages", "", SUM, "Messages that wait in the spool, on disk or in memory, until their limit lets them pass."),
        counter("sluice_spool_written_bytes_total", "", SUM,
            "Bytes that were written to the spool. Short bursts wait in memory and are not in it."),
        counter("sluice_spool_read_bytes_total", "", SUM, "Bytes that were read back from the spool."),
        counter("sluice_spool_damaged_batches_total", "", SUM,
            "Batches of messages that could not be read back from the spool. Their connections were closed (spool_damaged)."),
        counter("sluice_spool_expired_messages_total", "", SUM,
            "Messages in the spool that were given up because they had waited for too long (max_age, drop_expired of a rule)."),
        gauge("sluice_spool_blocked", "", EACH,
            "1 while the spool cannot be written: clients whose messages are to be spooled are not read. The log has spool_trouble and "
            "why."),
        gauge("sluice_disk_low", "", EACH, "1 while less than disk.low_watermark is free: the access log is not written."),
        gauge("sluice_disk_free_bytes", "", EACH, "Bytes free on the access log's disk."),
        counter("sluice_log_lines_dropped_total", "", SUM, "Lines of the log dropped because stderr took no more or failed."),
        gauge("process_resident_memory_bytes", "", SUM, "Bytes of resident memory."),
        gauge("process_virtual_memory_bytes", "", SUM, "Bytes of virtual memory."),
        gauge("process_open_fds", "", EACH, "File descriptors that are open now."),
        gauge("process_max_fds", "", EACH, "Most file descriptors that may be open."),
        gauge("process_start_time_seconds", "", EACH, "Unix time, in seconds, at which the process started."),
        counter("process_cpu_seconds_total", "", SUM, "Seconds of processor time used, user and system."),
    ),
    "Several workers": (
        gauge("sluice_workers", "", SAME, "Worker processes that serve now. Fewer than gateway.workers: one is being replaced."),
        counter("sluice_workers_replaced_total", "", SAME, "Worker processes that ended and were replaced. The log has worker_ended."),
        counter("sluice_slices_total", "result", SAME,
            "Requests of workers for tokens of a shared bucket, by result: full, as many as asked for; short, fewer."),
    ),
    "A fleet of gateways": (
        gauge("sluice_fleet_reachable", "fleet", EACH, "1 while Redis answers, 0 during an outage."),
        gauge("sluice_fleet_gateways", "fleet", EACH, "Gateways of the fleet that Redis knew at its last answer, this one included."),
        counter("sluice_fleet_asks_total", "fleet", SUM, "Requests for tokens of a shared bucket that Redis has answered."),
        counter("sluice_fleet_put_off_total", "fleet", SUM,
            "Requests for tokens that waited for a later round because one round was full."),
        counter("sluice_fleet_failures_total", "fleet reason", SUM, "Rounds that Redis did not answer, by reason."),
        gauge("sluice_fleet_orphaned_buckets", "fleet", EACH,
            "Buckets in use that go on with this gateway's last share because Redis does not answer."),
        counter("sluice_fleet_outage_seconds_total", "fleet", SUM, "Seconds during which this gateway was without Redis, of each worker."),
        histogram("sluice_fleet_round_trip_seconds", "fleet", "Seconds of the round trips to Redis that were answered."),
    ),
    "The admin API": (
        counter("sluice_takeovers_taken_back_total", "", SAME,
            "Next processes that were ready and did not come to serve, so that this one went on. The log has taken_back."),
        counter("sluice_admin_requests_total", "route method code", SAME, "Requests of the admin API, by route and status."),
        counter("sluice_admin_auth_failures_total", "", SAME,
            "Requests without a good token. A burst is somebody guessing, or a client with an old token."),
        gauge("sluice_admin_connections_active", "", SAME, "Admin connections that are open now."),
        counter("sluice_admin_connections_opened_total", "", SAME, "Admin connections accepted."),
        counter("sluice_admin_connections_refused_total", "", SAME, "Admin connections refused because too many were open."),
        counter("sluice_admin_connections_gave_way_total", "", SAME,
            "Admin connections closed for new ones when all places were taken: answered without a token, idle, slow, or half a request."),
        gauge("sluice_admin_streams", "", SAME, "Streams (`/v1/stream`) that are open."),
        gauge("sluice_admin_tls_cert_expiry_timestamp_seconds", "", SAME,
            "Unix time at which the certificate of the admin port (`admin.tls`) expires; without TLS there is none. Those of listeners: "
            "sluice_tls_cert_expiry_timestamp_seconds."),
        counter("sluice_admin_tls_failures_total", "", SAME, "TLS handshakes on the admin port that failed."),
        gauge("sluice_probe_connections_active", "", SAME, "Connections of the listener for probes that are open now."),
        counter("sluice_probe_connections_opened_total", "", SAME, "Connections of the listener for probes accepted."),
        counter("sluice_probe_connections_refused_total", "", SAME, "Connections of the listener for probes closed for newer ones."),
        counter("sluice_admin_slow_readers_total", "", SAME, "Admin connections closed because their client did not read the answer."),
        counter("sluice_state_write_failures_total", "", SAME,
            "Live changes and audit lines that could not be written to the state directory. Such a change is not in force."),
        gauge("sluice_quota_age_seconds", "", SAME,
            "Seconds since the quotas in force were computed; no series without quotas. Alert at a day and a half: two nights have "
            "failed."),
        gauge("sluice_quota_last_success_timestamp_seconds", "", SAME,
            "Unix time at which quotas were last published, to be enforced or only tried."),
        gauge("sluice_quota_refused_ratio", "", SAME,
            "Share (0 to 1) of the messages offered to topics with a published quota that were refused, dropped or delayed, since these "
            "quotas were published (or since the gateway started). Compare it with sluice_quota_target_ratio."),
        gauge("sluice_quota_target_ratio", "", SAME,
            "Share (0 to 1) of the messages that the quotas in force may refuse, over all topics and nights, as their night computed them "
            "(target_refused_ppm). No series where the snapshot does not say."),
        gauge("sluice_quota_shadow_refused_ratio", "", SAME,
            "The same of quotas in shadow mode: the share of what passed that they would have refused."),
        gauge("sluice_quota_return_ratio", "", SAME,
            "The share of refused messages beyond which the quotas before are put back, where these were published with one."),
        gauge("sluice_state_read_only", "", SAME,
            "1 where the state directory could not be written at the start: live changes are refused until it can, and the next start."),
        gauge("sluice_state_revision", "", SAME, "Revision of the live changes."),
        gauge("sluice_state_keys", "", SAME, "Keys with a live change of their limit."),
        gauge("sluice_state_warnings", "", SAME, "Problems found in the state directory at the start. The log has state_warning for each."),
        counter("sluice_remote_admin_requests_total", "code answer", SUM,
            "Limit requests of RocketMQ consoles (remote_admin), by the code of the request and that of the answer."),
    ),
    "Webhooks": (
        counter("sluice_webhook_requests_total", "webhook result", SAME,
            "Posts to the receivers of alerts, by result: ok; failed, to be tried again (no answer, 5xx, 429); rejected, not sent again "
            "(any other answer)."),
        gauge("sluice_webhook_pending_alerts", "webhook", SAME,
            "Alerts whose latest state the receiver has not been told. Above 0 for long: it is away, and the log has webhook_failed."),
        counter("sluice_webhook_alerts_dropped_total", "webhook", SAME,
            "Alerts that began and ended while the receiver was away and that it will not be told of, because too many did."),
    ),
}  # fmt: skip
METRICS: Final[dict[str, Metric]] = {metric.name: metric for metric in chain.from_iterable(SECTIONS.values())}

LABELS: Final[dict[str, str]] = {  # label: what its values are
    "listener": "Name of a listener, as configured. A broker's listener behind a name server is called after both.",
    "protocol": "What the listener speaks; of a topic, `amqp` or `rocketmq`.",
    "topic": "RocketMQ's topic, or `vhost/exchange/routing_key`, each percent-encoded. `__other__`: all topics beyond the cap.",
    "operation": "`produce`, or `consume` for what goes to consumers.",
    "group": "RocketMQ's consumer group. `__other__`: all groups beyond the cap.",
    "rule": "Name of a rule. `__other__`: all rules that are gone beyond the cap.",
    "dimension": "`messages` or `bytes`.",
    "origin": "Where a limit comes from: `override`, `file`, `quota`, `quota+hour` or `default`.",
    "cause": "Why a connection ended (close-causes.md).",
    "upstream": "Address of a broker, as configured or as a route has named it.",
    "reason": "Why; each metric has a few fixed words, shown from the start at 0.",
    "mode": "Of a rule: `enforce`, `shadow` (only counted) or `off`.",
    "result": "How it went; the metric's meaning lists the words.",
    "state": "`taken` or `free`.",
    "hop": "`client` or `upstream`: the side of the gateway.",
    "stage": "`reader` or `limiter`.",
    "way": "`queued`, `inline` or `bypassed`.",
    "fleet": "Name of the fleet (`fleet.redis.name`).",
    "version": "Version of sluice.",
    "build": "`compiled` or `pure Python`.",
    "python": "Version of Python.",
    "route": "Path of the admin API with its placeholders. `none`: no such path.",
    "method": "HTTP method.",
    "code": "Status of the answer; of a console's request, its RocketMQ code.",
    "answer": "RocketMQ's code of the answer.",
    "webhook": "Name of a receiver of alerts (`webhooks`), or its host and port.",
    "worker": "Number of a worker, from 1.",
}
