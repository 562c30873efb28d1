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


def counter(name: str, text: str, *labels: str, workers: str = SUM) -> Metric:
    return Metric(name, COUNTER, text, labels, workers)


def gauge(name: str, text: str, *labels: str, workers: str) -> Metric:
    return Metric(name, GAUGE, text, labels, workers)


def histogram(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, HISTOGRAM, text, labels, SUM)


LISTENER: Final = ("listener", "protocol")
TOPIC: Final = ("protocol", "topic", "operation")

CONNECTIONS: Final = (
    gauge("sluice_connections_active", "Client connections that are open now.", *LISTENER, workers=SUM),
    counter("sluice_connections_opened_total", "Client connections accepted. Those open now are opened minus closed.", *LISTENER),
    counter(
        "sluice_connections_closed_total",
        "Client connections closed, by cause (docs/reference/close-causes.md). Every known cause is shown from the start, at 0.",
        *LISTENER,
        "cause",
    ),
    counter(
        "sluice_connections_refused_untold_total",
        "Client connections refused without telling the client why. Its protocol has no words for it, it had not got that far, or too many "
        "were being told. They are among sluice_connections_closed_total.",
        *LISTENER,
    ),
    counter(
        "sluice_connections_unanswered_total",
        "Connections that ended before their broker had answered connection.close: it may not have handled all that was forwarded.",
    ),
)

BROKER: Final = (
    counter(
        "sluice_upstream_connect_total",
        "Connection attempts to the broker, by result: ok; failed, failed health probes included; spared, clients that were refused "
        "without one because the broker, or one of several, was known to be down.",
        "listener",
        "result",
    ),
    gauge(
        "sluice_upstream_reachable",
        "1 if the broker at this address has answered in its protocol when it was asked last, at most 5 s after its last byte on any "
        "connection; 0 if it has not, or is held for having failed; absent before the first time. A listener with several addresses serves "
        "clients while one of them is at 1.",
        "listener",
        "upstream",
        workers=EACH,
    ),
    gauge(
        "sluice_upstream_unreachable",
        "1 for the reason that a broker cannot be reached, else 0: refused, timeout (no connection), no_answer (it takes connections and "
        "hangs), wrong_answer (not in the listener's protocol), closed, name (does not resolve), tls, other; held: it answers again, and "
        "another address is used until it has done so for a while.",
        "listener",
        "upstream",
        "reason",
        workers=EACH,
    ),
    gauge("sluice_upstream_connections", "Clients' connections to the broker at this address.", "listener", "upstream", workers=SUM),
    counter(
        "sluice_upstream_switched_total",
        "Times that new connections began to go to another address of `upstream`, because one failed or was in use again.",
        "listener",
    ),
    gauge(
        "sluice_broker_blocked_connections",
        "Connections whose broker has sent connection.blocked and has not taken it back: RabbitMQ is short of memory or disk.",
        "listener",
        workers=SUM,
    ),
    counter(
        "sluice_broker_blocked_seconds_total",
        "Seconds during which connections were blocked by connection.blocked, summed over connections.",
        "listener",
    ),
    counter(
        "sluice_send_blocked_seconds_total",
        "Seconds during which bytes waited because the broker's socket took no more, summed over connections: the broker or the network "
        "is slow.",
        "listener",
    ),
    histogram(
        "sluice_confirm_latency_seconds",
        "Seconds from forwarding a publish to the broker's confirm. One publish at a time is measured per connection.",
        "listener",
    ),
    counter(
        "sluice_broker_busy_total",
        "Answers by which a RocketMQ broker said that it is overloaded, by its reason. They reach the client unaltered.",
        "listener",
        "reason",
    ),
    histogram(
        "sluice_broker_queue_period_seconds",
        "Seconds that requests had waited in a RocketMQ broker's queue when it gave them up, as its answers say.",
        "listener",
    ),
)

TLS: Final = (
    gauge(
        "sluice_tls_cert_expiry_timestamp_seconds",
        "Unix time at which the gateway's own certificate on this hop (client or upstream) expires. Alert while there is time to renew it.",
        "listener",
        "hop",
        workers=EACH,
    ),
    counter(
        "sluice_tls_failures_total",
        "TLS handshakes that failed, by hop (client or upstream) and reason.",
        "listener",
        "hop",
        "reason",
    ),
)

NAME_SERVERS: Final = (
    counter(
        "sluice_route_answers_total",
        "Name server's answers with routes to brokers, by result: rewritten, the routes lead through this gateway; failed, they could not, "
        "and the client got an error instead.",
        "listener",
        "result",
    ),
    counter(
        "sluice_broker_registrations_refused_total",
        "Requests that only brokers send (registrations, heartbeats) and that were refused: brokers talk to the name server directly.",
        "listener",
    ),
    gauge(
        "sluice_broker_ports",
        "Ports of the setting broker_ports, by state: taken by a broker, or free. Widen the range before none is free.",
        "listener",
        "state",
        workers=EACH,
    ),
)

MESSAGES: Final = (
    counter("sluice_messages_received_total", "Messages decoded. It equals forwarded + refused + dropped + abandoned + waiting.", *TOPIC),
    counter("sluice_messages_forwarded_total", "Messages passed on, to the broker or (operation consume) to the consumer.", *TOPIC),
    counter(
        "sluice_messages_refused_total",
        "Messages refused in the protocol's own words, by reason: limit, the topic's own limit; share, its share of its listener's cap; "
        "size, a rule's max_message_size; copies, a rule's copies: refuse.",
        *TOPIC,
        "reason",
    ),
    counter(
        "sluice_messages_delayed_total",
        "Messages that a limit made wait at least once. They are counted as forwarded, refused or abandoned later.",
        *TOPIC,
    ),
    counter("sluice_messages_dropped_total", "Messages dropped without an answer, as the rule's action drop says.", *TOPIC),
    counter(
        "sluice_messages_bypassed_total",
        "Messages passed without a verdict because the limiter was overloaded or failed. They are among those forwarded.",
        *TOPIC,
    ),
    counter(
        "sluice_messages_abandoned_total",
        "Messages neither forwarded nor refused because their client or broker went away first.",
        *TOPIC,
    ),
    counter(
        "sluice_messages_unsent_total",
        "Messages passed on whose bytes the broker's socket had not taken when their connection ended. They count as forwarded.",
    ),
    counter(
        "sluice_messages_shadow_refused_total",
        "Messages that passed, but that a rule in shadow mode would have refused. Look here before you enforce it.",
        *TOPIC,
    ),
    counter(
        "sluice_messages_redelivered_total",
        "Deliveries that had been made before: consumers give messages back, or their channels end. Of RocketMQ those that its broker has "
        "counted (RECONSUME). They are among those received. Only queues and topics that have had any.",
        *TOPIC,
    ),
    gauge("sluice_messages_waiting", "Messages with the limiter, or held by a limit, now.", *TOPIC, workers=SUM),
    gauge(
        "sluice_topic_spooled_messages",
        "Messages that wait in the spool (`action: spool`) now. They are among sluice_messages_waiting.",
        *TOPIC,
        workers=SUM,
    ),
    counter("sluice_message_bytes_total", "Bytes of the messages passed on, to the broker or to the consumer.", *TOPIC),
    counter(
        "sluice_message_copies_total",
        "Copies that messages passed on have named beside their own topic (AMQP's headers CC and BCC), counted by a rule or not.",
        *TOPIC,
    ),
    counter(
        "sluice_retries_refused_total",
        "Retries refused or dropped, by RocketMQ consumer group: what consumers send back, and what is sent to %RETRY% topics.",
        "group",
    ),
    gauge(
        "sluice_retries_worst_client_ratio",
        "Of the retries refused in the last 10 s, the part (0 to 1) that one client sent. `sluice topics` and the log name the client.",
        "group",
        workers=EACH,
    ),
)

LIMITS: Final = (
    gauge(
        "sluice_quotas_raised",
        "Published quotas that are raised now (quotas.hourly_raise, quotas.surge_raise), not counting those they stand "
        "behind: rules that name the topic, live changes.",
        workers=SAME,
    ),
    gauge(
        "sluice_topic_limit",
        "Limit in force for a topic, in messages or bytes per second (dimension), and where it comes from (origin). Live changes and "
        "quotas are included. Compare it with the rate of sluice_messages_forwarded_total or sluice_message_bytes_total.",
        *TOPIC,
        "dimension",
        "origin",
        workers=ONE,
    ),
    counter(
        "sluice_topic_limited_seconds_total",
        "Seconds in which a topic was at a limit: a message was refused, dropped or delayed. Several workers count each their own.",
        *TOPIC,
    ),
    counter(
        "sluice_rule_messages_total",
        "Messages under each rule, by result: passed, refused, dropped, delayed; shadow_refused, passed, but the rule, in shadow mode, "
        "would have refused them. Where several rules refuse messages of a client and topic in a second, they count for the last.",
        "rule",
        "result",
    ),
    gauge(
        "sluice_limit_rate",
        "Rate of each rule, in messages or bytes per second (dimension), and its mode: only enforce refuses anything. What a rule in mode "
        'shadow would refuse: sluice_rule_messages_total{result="shadow_refused"}.',
        "rule",
        "dimension",
        "mode",
        workers=SAME,
    ),
    counter(
        "sluice_limit_checks_total",
        "Messages judged by at least one rule, once each, by the first verdict: ok; limited_shadow, passed, but a rule in shadow mode "
        "would have refused it; limited_enforced, refused, delayed or dropped.",
        "result",
    ),
    counter(
        "sluice_candidate_messages_total",
        "Messages that a rule's candidate limit would have admitted or refused since it came into force. Nothing of it is enforced.",
        "rule",
        "result",
        workers=SAME,
    ),
    gauge("sluice_limit_in_flight", "Requests that hold a slot of a rule that limits those in flight.", "rule", workers=SUM),
    gauge(
        "sluice_cap_rate",
        "What a listener's cap lets through now, in messages or bytes per second (dimension): the rate of its rule, or less while its "
        "broker is overloaded.",
        "listener",
        "rule",
        "dimension",
        workers=SUM,
    ),
    counter(
        "sluice_cap_tightened_total",
        "Times that a listener's cap was tightened, by the sign of overload that its broker gave.",
        "listener",
        "rule",
        "reason",
    ),
    gauge(
        "sluice_backlog_messages",
        "Messages waiting in the broker for the consumers whose backlog the limit follows, when the broker was asked last.",
        "topic",
        "rule",
        workers=SAME,
    ),
    gauge(
        "sluice_backlog_rate", "Messages per second that a limit that follows a backlog lets through now.", "topic", "rule", workers=SAME
    ),
    counter(
        "sluice_backlog_looks_total",
        "Times that a broker was asked how long a backlog is, by result: ok or failed.",
        "result",
        workers=SAME,
    ),
)

LIMITER: Final = (
    counter(
        "sluice_credit_blocked_seconds_total",
        "Seconds during which a stage waited for credit, summed over connections. reader: the client is not read because the limiter is "
        "busy; limiter: because the broker does not take what is passed on.",
        "stage",
    ),
    counter(
        "sluice_limiter_batches_total",
        "Batches (one connection's requests, read at once) by the way they were judged: queued, by a thread of the limiter; inline, on the "
        "event loop; bypassed, some of it passed without a verdict.",
        "listener",
        "way",
    ),
    counter(
        "sluice_limiter_bypassed_messages_total",
        "Messages that passed without a verdict: sluice_messages_bypassed_total by listener.",
        "listener",
    ),
    counter(
        "sluice_limiter_rejections_total",
        "Submissions that the limiter's full queue turned away; limiter.on_rejection says what becomes of them.",
    ),
    gauge("sluice_limiter_queued_requests", "Requests in the queues of the limiter's threads now.", workers=SUM),
    counter("sluice_limiter_failures_total", "Submissions that failed in the limiter because of a fault in it; the log has judge_failed."),
    histogram(
        "sluice_overhead_seconds",
        "Seconds from reading requests to passing them on, per submission to the limiter: what the gateway adds. Delays by limits are not "
        "in it.",
    ),
)

FLEET: Final = (
    gauge("sluice_fleet_reachable", "1 while Redis answers, 0 during an outage.", "fleet", workers=EACH),
    gauge(
        "sluice_fleet_gateways",
        "Gateways of the fleet that Redis knew at its last answer, this one included.",
        "fleet",
        workers=EACH,
    ),
    counter("sluice_fleet_asks_total", "Requests for tokens of a shared bucket that Redis has answered.", "fleet"),
    counter("sluice_fleet_put_off_total", "Requests for tokens that waited for a later round because one round was full.", "fleet"),
    counter("sluice_fleet_failures_total", "Rounds that Redis did not answer, by reason.", "fleet", "reason"),
    gauge(
        "sluice_fleet_orphaned_buckets",
        "Buckets in use that go on with this gateway's last share because Redis does not answer.",
        "fleet",
        workers=EACH,
    ),
    counter("sluice_fleet_outage_seconds_total", "Seconds during which this gateway was without Redis, of each worker.", "fleet"),
    histogram("sluice_fleet_round_trip_seconds", "Seconds of the round trips to Redis that were answered.", "fleet"),
)

TRACING: Final = (
    counter(
        "sluice_spans_total",
        "Spans of refused, delayed and spooled messages: `exported` to the collector, `failed` there, or lost because too many waited for "
        "it (`queue_full`).",
        "result",
    ),
    counter(
        "sluice_spans_skipped_requests_total",
        "Requests refused, delayed or spooled that were not looked at for a trace context because the second's budget was used up "
        "(`tracing.max_per_second`).",
    ),
)

PROCESS: Final = (
    gauge("sluice_build_info", "1; the labels say which build runs: sluice's version, compiled or pure Python, Python's version.",
          "version", "build", "python", workers=SAME),
    gauge("sluice_ready", "1 while /readyz answers 200, else 0: a broker is away, a worker is not running, or a drain goes on.",
          workers=SAME),
    histogram(
        "sluice_event_loop_lag_seconds",
        "Seconds by which a timer of the event loop came late. All connections wait that long. Above 0.05 the process has too much to do.",
    ),
    gauge("sluice_config_last_reload_successful", "1 if the last reload of the configuration succeeded, 0 if the last good one stays.",
          workers=SAME),
    gauge("sluice_config_last_reload_timestamp_seconds", "Unix time of the last reload, failed or not; until the first one, of the start.",
          workers=SAME),
    gauge("sluice_config_version", "Revision of the limits in force. It rises with every live change.", workers=SAME),
    gauge("sluice_buffer_bytes", "Bytes that all connections hold, measured every 0.25 s. Compare memory.high_watermark.", workers=SUM),
    gauge("sluice_memory_full", "1 while memory is above memory.high_watermark and publishing connections are not read.", workers=EACH),
    counter("sluice_memory_full_seconds_total", "Seconds spent above memory.high_watermark."),
    gauge("sluice_memory_stopped_connections", "Connections that are not read because memory is above memory.high_watermark.",
          workers=SUM),
    gauge("sluice_memory_limit_bytes", "Bytes the process may take: memory.limit, or less where the machine allows less.",
          workers=EACH),
    gauge("sluice_memory_limit_step", "Steps taken near memory.limit: 1 impatient, 2 publishers stopped, 3 no newcomers, 4 closing.",
          workers=EACH),
    counter("sluice_memory_closed_connections_total", "Connections closed because the gateway was short of memory."),
    gauge("sluice_delivery_bytes", "Bytes that wait for the clients of a listener. Compare memory.delivery_watermark.", "listener",
          workers=SUM),
    gauge("sluice_deliveries_full", "1 while they are above memory.delivery_watermark: brokers of clients that do not read are not read.",
          "listener", workers=EACH),
    counter("sluice_access_log_lines_lost_total",
            "Lines of the access log that were lost: the queue was full, the disk low, or a write failed. Demand is undercounted."),
    counter("sluice_access_log_write_failures_total", "Writes to the access log that failed. The log has access_log_failed and why."),
    gauge("sluice_access_log_bytes", "Bytes of the access log's files on disk. Compare access_log.keep_size.", workers=SAME),
    gauge("sluice_access_log_files", "Files of the access log on disk.", workers=SAME),
    gauge("sluice_access_log_oldest_hour_timestamp_seconds", "Unix time at which the oldest hour on disk began.", workers=SAME),
    gauge("sluice_access_log_unshipped_files",
          "Closed files of hours that are over which no target has yet. Shown once something was shipped from here.", workers=SAME),
    gauge("sluice_access_log_held_bytes",
          "Bytes that access_log.keep or keep_size would delete, were they shipped or counted. Above 0: look why that does not happen.",
          workers=SAME),
    counter("sluice_access_log_deleted_bytes_total", "Bytes of old files that were deleted.", workers=SAME),
    counter("sluice_access_log_keeping_failures_total",
            "Files that could not be compressed or deleted, and rounds that failed. The log has access_log_keeping_failed.", workers=SAME),
    gauge("sluice_spool_bytes", "Bytes of the spool's files on disk, and of those about to be written. Compare sluice_spool_size_bytes.",
          workers=SUM),
    gauge("sluice_spool_size_bytes", "Bytes that the spool's files may take: spool.max_size.", workers=SUM),
    gauge("sluice_spool_disk_messages", "Of the messages that wait in the spool: those on disk, of which nothing is in memory.",
          workers=SUM),
    gauge("sluice_spool_messages", "Messages that wait in the spool, on disk or in memory, until their limit lets them pass.",
          workers=SUM),
    counter("sluice_spool_written_bytes_total", "Bytes that were written to the spool. Short bursts wait in memory and are not in it."),
    counter("sluice_spool_read_bytes_total", "Bytes that were read back from the spool."),
    counter("sluice_spool_damaged_batches_total",
            "Batches of messages that could not be read back from the spool. Their connections were closed (spool_damaged)."),
    counter("sluice_spool_expired_messages_total",
            "Messages in the spool that were given up because they had waited for too long (max_age, drop_expired of a rule)."),
    gauge("sluice_spool_blocked",
          "1 while the spool cannot be written: clients whose messages are to be spooled are not read. The log has spool_trouble and why.",
          workers=EACH),
    gauge("sluice_disk_low", "1 while less than disk.low_watermark is free: the access log is not written.", workers=EACH),
    gauge("sluice_disk_free_bytes", "Bytes free on the access log's disk.", workers=EACH),
    counter("sluice_log_lines_dropped_total", "Lines of the log dropped because stderr took no more or failed."),
    gauge("process_resident_memory_bytes", "Bytes of resident memory.", workers=SUM),
    gauge("process_virtual_memory_bytes", "Bytes of virtual memory.", workers=SUM),
    gauge("process_open_fds", "File descriptors that are open now.", workers=EACH),
    gauge("process_max_fds", "Most file descriptors that may be open.", workers=EACH),
    gauge("process_start_time_seconds", "Unix time, in seconds, at which the process started.", workers=EACH),
    counter("process_cpu_seconds_total", "Seconds of processor time used, user and system."),
)  # fmt: skip

WORKERS: Final = (
    gauge("sluice_workers", "Worker processes that serve now. Fewer than gateway.workers: one is being replaced.", workers=SAME),
    counter("sluice_workers_replaced_total", "Worker processes that ended and were replaced. The log has worker_ended.", workers=SAME),
    counter(
        "sluice_slices_total",
        "Requests of workers for tokens of a shared bucket, by result: full, as many as asked for; short, fewer.",
        "result",
        workers=SAME,
    ),
)

ADMIN: Final = (
    counter(
        "sluice_takeovers_taken_back_total",
        "Next processes that were ready and did not come to serve, so that this one went on. The log has taken_back.",
        workers=SAME,
    ),
    counter("sluice_admin_requests_total", "Requests of the admin API, by route and status.", "route", "method", "code", workers=SAME),
    counter(
        "sluice_admin_auth_failures_total",
        "Requests without a good token. A burst is somebody guessing, or a client with an old token.",
        workers=SAME,
    ),
    gauge("sluice_admin_connections_active", "Admin connections that are open now.", workers=SAME),
    counter("sluice_admin_connections_opened_total", "Admin connections accepted.", workers=SAME),
    counter("sluice_admin_connections_refused_total", "Admin connections refused because too many were open.", workers=SAME),
    counter(
        "sluice_admin_connections_gave_way_total",
        "Admin connections closed for new ones when all places were taken: answered without a token, idle, slow, or half a request.",
        workers=SAME,
    ),
    gauge("sluice_admin_streams", "Streams (`/v1/stream`) that are open.", workers=SAME),
    gauge(
        "sluice_admin_tls_cert_expiry_timestamp_seconds",
        "Unix time at which the certificate of the admin port (`admin.tls`) expires; without TLS there is none. Those of listeners: "
        "sluice_tls_cert_expiry_timestamp_seconds.",
        workers=SAME,
    ),
    counter("sluice_admin_tls_failures_total", "TLS handshakes on the admin port that failed.", workers=SAME),
    gauge("sluice_probe_connections_active", "Connections of the listener for probes that are open now.", workers=SAME),
    counter("sluice_probe_connections_opened_total", "Connections of the listener for probes accepted.", workers=SAME),
    counter("sluice_probe_connections_refused_total", "Connections of the listener for probes closed for newer ones.", workers=SAME),
    counter("sluice_admin_slow_readers_total", "Admin connections closed because their client did not read the answer.", workers=SAME),
    counter(
        "sluice_state_write_failures_total",
        "Live changes and audit lines that could not be written to the state directory. Such a change is not in force.",
        workers=SAME,
    ),
    gauge(
        "sluice_quota_age_seconds",
        "Seconds since the quotas in force were computed; no series without quotas. Alert at a day and a half: two nights have failed.",
        workers=SAME,
    ),
    gauge(
        "sluice_quota_last_success_timestamp_seconds",
        "Unix time at which quotas were last published, to be enforced or only tried.",
        workers=SAME,
    ),
    gauge(
        "sluice_quota_refused_ratio",
        "Share (0 to 1) of the messages offered to topics with a published quota that were refused, dropped or delayed, since these quotas "
        "were published (or since the gateway started). Compare it with sluice_quota_target_ratio.",
        workers=SAME,
    ),
    gauge(
        "sluice_quota_target_ratio",
        "Share (0 to 1) of the messages that the quotas in force may refuse, over all topics and nights, as their night computed them "
        "(target_refused_ppm). No series where the snapshot does not say.",
        workers=SAME,
    ),
    gauge(
        "sluice_quota_shadow_refused_ratio",
        "The same of quotas in shadow mode: the share of what passed that they would have refused.",
        workers=SAME,
    ),
    gauge(
        "sluice_quota_return_ratio",
        "The share of refused messages beyond which the quotas before are put back, where these were published with one.",
        workers=SAME,
    ),
    gauge(
        "sluice_state_read_only",
        "1 where the state directory could not be written at the start: live changes are refused until it can, and the next start.",
        workers=SAME,
    ),
    gauge("sluice_state_revision", "Revision of the live changes.", workers=SAME),
    gauge("sluice_state_keys", "Keys with a live change of their limit.", workers=SAME),
    gauge("sluice_state_warnings", "Problems found in the state directory at the start. The log has state_warning for each.", workers=SAME),
    counter(
        "sluice_remote_admin_requests_total",
        "Limit requests of RocketMQ consoles (remote_admin), by the code of the request and that of the answer.",
        "code",
        "answer",
    ),
)

WEBHOOKS: Final = (
    counter(
        "sluice_webhook_requests_total",
        "Posts to the receivers of alerts, by result: ok; failed, to be tried again (no answer, 5xx, 429); rejected, not sent again (any "
        "other answer).",
        "webhook",
        "result",
        workers=SAME,
    ),
    gauge(
        "sluice_webhook_pending_alerts",
        "Alerts whose latest state the receiver has not been told. Above 0 for long: it is away, and the log has webhook_failed.",
        "webhook",
        workers=SAME,
    ),
    counter(
        "sluice_webhook_alerts_dropped_total",
        "Alerts that began and ended while the receiver was away and that it will not be told of, because too many did.",
        "webhook",
        workers=SAME,
    ),
)

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

SECTIONS: Final[dict[str, tuple[Metric, ...]]] = {
    "Connections": CONNECTIONS,
    "Messages": MESSAGES,
    "Limits": LIMITS,
    "The limiter": LIMITER,
    "The broker": BROKER,
    "RocketMQ's name server": NAME_SERVERS,
    "TLS": TLS,
    "Tracing": TRACING,
    "The process": PROCESS,
    "Several workers": WORKERS,
    "A fleet of gateways": FLEET,
    "The admin API": ADMIN,
    "Webhooks": WEBHOOKS,
}
METRICS: Final[dict[str, Metric]] = {metric.name: metric for metric in chain.from_iterable(SECTIONS.values())}
