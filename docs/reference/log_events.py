"""Every event of the log: its levels, its fields, and what it means and asks for.

A test holds this table complete: it reads the events and fields from the code, and every line that a test makes the gateway log is held
against it. `docs/reference/log-events.md` is generated from here (`make docs`). Nothing reads it at run time.

Events and fields are names that outsiders rely on (`docs/design/contract.md` 8). To add one, log it and describe it here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway.protocols.rocketmq.busy import REASONS as BUSY_REASONS

ALWAYS: Final[dict[str, str]] = {
    "ts": "Time of the line, RFC 3339 in UTC, with milliseconds.",
    "level": "`debug`, `info`, `warning`, `error` or `critical`.",
    "event": "The event's name.",
    "worker": "With several workers: whose line it is. The parent's lines have none.",
    "suppressed": "Lines of this event that were left out since the one before: 20 a second are written of each event.",
}


OFTEN: Final[dict[str, str]] = {
    "err": "What went wrong, or the traceback of a fault in the gateway.",
    "remedy": "What to do about it, or what happens meanwhile.",
}


class LogEvent(NamedTuple):
    """One event. `fields` are those beside ALWAYS; a field that would be null is left out of the line."""

    levels: tuple[str, ...]
    fields: tuple[str, ...]
    meaning: str


def lines(*levels: str, fields: str = "", meaning: str) -> LogEvent:
    return LogEvent(levels, tuple(fields.split()), meaning)


LISTENING: Final = "listener protocol bind inherited upstream tls upstream_tls accept_proxy_protocol trusted_proxies send_proxy_protocol"
CONNECTION_LIMITS: Final = "max_connections max_connections_per_address max_connections_per_user max_connection_rate seats"
LIMIT: Final = "listener protocol topic group per thing rule place origin limit reason since"
BUSY: Final = " ".join(sorted(BUSY_REASONS))  # how often each was said

LIFE: Final = {
    "started": lines("info", fields="after_ms build workers", meaning="The gateway serves. `after_ms`: since it was called."),
    "listening": lines(
        "info", fields=f"{LISTENING} {CONNECTION_LIMITS}", meaning="A listener accepts connections, under these settings."),
    "cannot_start": lines("critical", fields="err", meaning="The gateway ends at once; `err` says what to mend."),
    "taking_over": lines(
        "info", fields="pid sockets",
        meaning="A process was running at `gateway.takeover`: this one has its sockets and will serve in its place."),
    "taken_over": lines("info", fields="pid", meaning="Another process has taken over and serves: this one drains and ends."),
    "taken_back": lines(
        "warning", fields="pid err remedy",
        meaning="A process that was ready to take over did not come to serve: this one has taken everything back and goes on."),
    "state_not_taken_back": lines(
        "error", fields="err remedy",
        meaning="After `taken_back` the state directory cannot be had again: the other process still has it, or it is damaged. Changes are "
        "refused; it is tried every second, and a next process may take over meanwhile."),
    "state_taken_back": lines(
        "info", meaning="After `state_not_taken_back` the state directory is had again: changes are taken."),
    "next_process_started": lines(
        "info", fields="command", meaning="SIGUSR2 came: the next process is started by this command, and will take over."),
    "next_process_asked_again": lines(
        "info", fields="pid",
        meaning="SIGUSR2 came while the next process was under way: it starts the one after it when it has taken over; should it end "
        "before that, this one starts another."),
    "next_process_ended": lines(
        "warning", fields="pid remedy",
        meaning="The process that has taken over has ended while this one still works off what it held. Its own lines say why."),
    "takeover_failed": lines(
        "warning", fields="err remedy",
        meaning="A process that was to take over did not come up, or was not started. This one goes on."),
    "takeover_unavailable": lines(
        "warning", fields="err remedy",
        meaning="The socket at `gateway.takeover` cannot be opened: until it can, no process can take over from this one."),
    "stopping": lines("info", fields="signal by", meaning="A graceful stop was asked for: by a signal, or by the token of this name."),
    "stopped": lines(
        "info", "warning", fields="after_ms abandoned unsent unanswered workers",
        meaning="The gateway ends. `abandoned`: messages that went nowhere because it stopped; `unsent`: passed on, and not taken by the "
        "broker's socket; `unanswered`: connections whose broker has not answered `connection.close`. A warning where there are some."),
    "stopped_at_once": lines(
        "warning", fields="signal again",
        meaning="SIGTERM or SIGINT came a second time (`again`), or before the gateway served: the process ends without a graceful stop, "
        "with exit code 143 or 130."),
    "event_loop_stuck": lines(
        "critical", fields="silent_s stacks remedy",
        meaning="The event loop has not turned for `gateway.watchdog`: the process ends with exit code 70. `stacks`: what it was doing, as "
        "of `stacks`."),
    "stacks": lines(
        "warning", fields="signal stacks",
        meaning="What the process was doing when SIGUSR1 or SIGQUIT came: the stack of each thread and task, as files, lines and "
        "functions. After SIGQUIT it ends with exit code 131."),
    "log_lines_dropped": lines(
        "warning", fields="lines remedy",
        meaning="Stderr took no lines for a while, or failed, and more came than are kept (1,000): so many are missing before this one."),
    "signal_ignored": lines(
        "warning", fields="signal remedy", meaning="SIGALRM came, or SIGUSR2 without `gateway.takeover`: they mean nothing here."),
    "signal_failed": lines("error", fields="signal err", meaning="A fault while a signal was handled: please report it."),
    "drain_held": lines(
        "info", fields="connections at_most_s",
        meaning="A graceful stop serves clients as before until they leave by themselves (`drain.hold`), or for `drain.delay`; so long "
        "at most."),
    "drain_deadline": lines(
        "warning", fields="conn state",
        meaning="A graceful stop did not wait longer for this connection, whose `state` says what it was waiting for."),
    "held_messages_released": lines(
        "warning", fields="messages deliveries",
        meaning="A graceful stop let pass what limits held, so that nothing is lost: the broker gets so many at once."),
    "spool_left_behind": lines(
        "warning", fields="files bytes",
        meaning="A process that is gone has left messages in the spool. `files` were deleted: the clients know of none of their messages "
        "that it was forwarded."),
    "spool_unreadable": lines(
        "warning", fields="folder err remedy",
        meaning="What a process that is gone has left in the spool cannot be deleted. Told at the start, once for each folder."),
    "spool_not_ours": lines(
        "warning", fields="folders remedy",
        meaning="The spool has folders with files of a build that was never released. They are left alone. Told once, at the start."),
    "spool_trouble": lines(
        "error", "info", fields="err remedy",
        meaning="The spool cannot be written: clients whose messages are to be spooled are not read. Or (info) it is written again."),
    "files_changed": lines(
        "info", fields="files", meaning="Files of the configuration changed (`gateway.reload_on_change`); a reload follows."),
    "reloaded": lines(
        "info", fields="in_force needs_restart", meaning="The configuration was read again: what holds now, and what needs a restart."),
    "reload_failed": lines("error", fields="err remedy", meaning="The configuration could not be put in force; `remedy` says what holds."),
    "certificate_ending": lines("warning", fields="setting err remedy", meaning="A certificate of the configuration expires soon."),
    "few_open_files": lines(
        "warning", fields="err remedy", meaning="The limit of open files leaves room for few connections; the line says how many."),
    "memory_watermark": lines(
        "warning", "info", fields="full held_bytes high_watermark stopped_connections delivery_bytes",
        meaning="Memory went above `memory.high_watermark`: publishing connections are not read. Or (info) it is below again."),
    "memory_limit": lines(
        "warning", "info", fields="step size_bytes limit",
        meaning="The process came near `memory.limit`, or what the machine allows; `step` is what is done. Or (info, step 0) it is over."),
    "out_of_descriptors": lines(
        "error", fields="listener err times remedy",
        meaning="No connection can be accepted for want of file descriptors, of this process (EMFILE) or of the machine (ENFILE). `times`: "
        "since the line before."),
    "out_of_socket_memory": lines(
        "error", fields="listener err times remedy",
        meaning="No connection can be accepted because the kernel has no memory for its socket. `times`: since the line before."),
    "inherited_socket_unused": lines(
        "warning", fields="socket bind remedy", meaning="Systemd passed a socket that no listener wants."),
    "inherited_socket_unusable": lines(
        "warning", fields="fd socket err remedy", meaning="Systemd passed something other than a listening TCP socket."),
    "inherited_sockets_not_ours": lines(
        "warning", fields="err remedy",
        meaning="The variables of systemd (LISTEN_FDS) are not for this process; its sockets are left alone."),
    "fill_levels_unreadable": lines(
        "warning", fields="err remedy", meaning="The fill levels of the run before cannot be read; buckets start full."),
}  # fmt: skip

CONNECTIONS: Final = {
    "connection_closed": lines(
        "debug", "warning", fields="listener protocol conn client user cause detail connections",
        meaning="A connection ended, by `cause` (close-causes.md). A warning unless it is a normal end. With `connections`: so many "
        "ended for this cause since the line before, and `client` is the last of them."),
    "connections_refused": lines(
        "warning", fields="listener protocol client user cause detail connections",
        meaning="Clients were refused, by `cause`; one line a second at most, and `client` is the last of them."),
}  # fmt: skip

LIMITS: Final = {
    "limit_reached": lines(
        "warning",
        fields=f"{LIMIT} seconds rate refused delayed waiting retry_after_ms clients client_refused client user consumer operation",
        meaning="A bucket is over its limit, `since` then without a pause of two seconds; once, and then once a minute while it lasts. "
        "`seconds`: since the line before; in these `rate`: messages per second offered to it; `refused` and `delayed`; `clients`: how "
        "many were over it; `client`: the worst, with `client_refused` messages. `waiting`: a topic's messages that wait now. "
        "`operation`: what that client was over it with; a rule for several has one limit for all. "
        "`consumer`: the tag of its AMQP consumer, where what is given back is over the limit."),
    "limit_recovered": lines(
        "info", fields=f"{LIMIT} refused delayed clients client_refused client user consumer operation",
        meaning="A bucket has not been over its limit for two seconds; `refused` and `delayed` since its first `limit_reached`, `clients` "
        "and `client_refused` since the last."),
    "limits_reached": lines(
        "warning", fields="messages remedy",
        meaning="So many messages were over the limits of buckets that have no line of their own: too many are over at once. Once a "
        "minute while it lasts."),
    "changed": lines(
        "info", fields="by role action revision reason targets changes",
        meaning="A live change is durable and in force, as `revision`: by whom and why. `targets` are the first of what was changed."),
    "quotas_raised": lines(
        "info", fields="hour raised of surges observed_s protocol topic factor",
        meaning="A new hour has begun, or another topic has a surge: `raised` of the published quotas are raised by the demand of the "
        "`observed_s` seconds before, or are among the `surges` of the last ten; `topic` is raised most, to `factor` times its quota. "
        "Without `factor`: none is any more."),
    "cap_tightening": lines(
        "warning", fields="listener rule reason limit now",
        meaning="The broker shows overload (`reason`), so the listener's cap is lowered from `limit` to `now`."),
    "cap_recovered": lines("info", fields="listener rule reason limit now", meaning="The listener's cap is whole again."),
    "backlog_unknown": lines(
        "warning", fields="topic rule listener err remedy",
        meaning="The broker does not say how long the backlog is that a limit follows."),
    "backlog_known": lines("info", fields="topic rule listener", meaning="The broker says it again."),
    "judge_failed": lines(
        "error", fields="err remedy", meaning="A fault in the limiter. Messages pass without a verdict: please report it."),
    "remote_admin_refused": lines(
        "warning", fields="client user code suppressed err",
        meaning="A RocketMQ console asked for limits and may not; once a second, `suppressed` others since."),
    "remote_admin_failed": lines(
        "error", fields="code err", meaning="A fault while a console's limit request was answered: please report it."),
}  # fmt: skip

BROKERS: Final = {
    "upstream_unreachable": lines(
        "warning", fields="listener upstream reason since_s dials_failed err",
        meaning="The broker takes no connection, or does not answer; once, and then a line a minute while it lasts. `reason` is as in "
        "`sluice_upstream_unreachable`."),
    "upstream_switched": lines(
        "warning", fields="listener upstream before reason",
        meaning="New connections go to another address of `upstream` from now on: the one before has failed, and why, or a preferred "
        "one is in use again (no `reason`). Open connections stay."),
    "upstream_reachable": lines("info", fields="listener upstream unreachable_s", meaning="The broker answers again."),
    "broker_busy": lines(
        "warning", fields=f"listener upstream {BUSY}",
        meaning="A RocketMQ broker said that it is overloaded: how many answers since the line before, by reason."),
    "broker_listener_opened": lines(
        "info", fields="listener protocol bind upstream advertised",
        meaning="A route named a new broker. A listener was opened for it, at a port of `broker_ports`."),
    "broker_moved": lines(
        "info", fields="listener upstream before",
        meaning="A broker has another address; its listener keeps its port. Connections to the old one are closed (cause `broker_moved`)."),
    "broker_port_replaced": lines(
        "warning", fields="listener upstream unseen_s replaced_by port remedy",
        meaning="`broker_ports` is used up: the port of the broker unseen for longest went to another."),
    "broker_port_lost": lines(
        "warning", fields="listener port err remedy",
        meaning="A broker's port of the run before cannot be had again; it gets another one."),
    "vip_port_unavailable": lines(
        "warning", fields="listener port err remedy",
        meaning="Two below a broker's port nothing can be opened for clients whose VIP channel is on. Others are not concerned."),
    "broker_ports_unreadable": lines(
        "warning", fields="listener err remedy", meaning="The brokers' ports of the run before cannot be read."),
    "route_not_rewritten": lines(
        "warning", fields="listener client answered times err",
        meaning="A name server's answer could not be made to lead through this gateway. The client got an error instead."),
    "registration_refused": lines(
        "warning", fields="listener client request times remedy",
        meaning="Something registers as a broker at this listener; brokers talk to the name server directly."),
}  # fmt: skip

RECORDS: Final = {
    "access_log_failed": lines("error", fields="err", meaning="The access log cannot be written: quotas will be learned from too little."),
    "access_log_recovered": lines("info", fields="lost_lines", meaning="The access log is written again; so many lines were lost."),
    "access_log_kept": lines(
        "info", "warning", fields="directory compress keep_seconds keep_size keep_until note remedy",
        meaning="How closed files of the access log are compressed, and when they are deleted; a warning where `compress: zstd` is asked "
        "for and its package is missing. `note`: with `compress: auto` gzip is used where it is missing, which is no fault."),
    "access_log_closed": lines(
        "warning", fields="file remedy", meaning="A file that a crash had left open for hours got its final name; a line may be torn."),
    "access_log_deleted": lines(
        "info", fields="files bytes to", meaning="Old files of the access log were deleted, up to the hour `to`."),
    "access_log_held": lines(
        "warning", fields="files bytes remedy",
        meaning="Files should be deleted by `keep` or `keep_size`, but were not shipped or counted yet: they stay, and the disk fills."),
    "access_log_keeping_failed": lines(
        "error", fields="err", meaning="A closed file of the access log could not be compressed or deleted. The next round tries again."),
    "state_write_failed": lines(
        "error", "warning", fields="listener times err remedy",
        meaning="Something of the state directory cannot be written; `remedy` says what follows."),
    "quotas_returned": lines(
        "warning", fields="reason date sha256",
        meaning="The quotas in force refused more than they were published with. Those before, of `date` and `sha256` (or none), hold."),
    "quotas_not_returned": lines(
        "error", fields="reason err",
        meaning="The quotas in force refuse more than they were published with, and those before could not be put back."),
    "quota_watch_failed": lines("error", fields="err", meaning="A fault while refusals under quotas were counted: please report it."),
    "clock_set": lines(
        "warning", fields="by_s err remedy",
        meaning="The wall clock was set forward, or (`by_s` below 0) back, while the gateway ran. Ends of live changes go by it."),
    "state_warning": lines("warning", fields="detail", meaning="Something is wrong with the state directory or a token's file."),
}  # fmt: skip

ADMIN: Final = {
    "admin_listening": lines("info", fields="bind probes tls", meaning="The admin API, and the listener for probes, accept connections."),
    "admin_tls_failed": lines("debug", fields="client err", meaning="A TLS handshake on the admin port failed."),
    "admin_unauthorised": lines(
        "warning", fields="client request_id suppressed",
        meaning="A request without a good token; once a second, `suppressed` others since."),
    "admin_request_failed": lines(
        "error", fields="method route request_id err", meaning="A fault while a request was answered: please report it."),
    "admin_connection_failed": lines("error", fields="err", meaning="A fault on an admin connection: please report it."),
    "log_level_set": lines("warning", fields="to by for_s", meaning="The level of the log was set live, for `for_s` seconds where given."),
    "log_level_returned": lines("warning", fields="to", meaning="The time of a level that was set live is over; the configured one holds."),
    "stream_snapshot_failed": lines(
        "error", fields="err", meaning="A fault while the snapshot of the streams was made; they go on with events. Please report it."),
    "admin_accept_failed": lines("warning", fields="err", meaning="An admin connection could not be accepted."),
    "admin_failed": lines("error", fields="task rounds err", meaning="The admin API ended and is started again; traffic goes on."),
}  # fmt: skip

TRACING: Final = {
    "spans_lost": lines(
        "warning", fields="endpoint failed queue_full err remedy",
        meaning="Spans did not reach the collector: it refused them or was away (`failed`), or more waited than are kept (`queue_full`)."),
}  # fmt: skip

FLEET: Final = {
    "fleet_lost": lines(
        "warning", fields="fleet redis reason gateways err remedy",
        meaning="Redis does not answer: every gateway goes on with its last share of each limit, and no message waits."),
    "fleet_back": lines("info", fields="fleet redis gateways after_s", meaning="Redis answers again."),
    "fleet_strangers": lines(
        "warning", fields="fleet redis gateways strangers remedy",
        meaning="Gateways without the fleet's secret have shown themselves in Redis, after all that were there had it. They do not count."),
    "fleet_failed": lines("error", fields="err", meaning="A fault in the thread that talks to Redis: please report it."),
}  # fmt: skip

WEBHOOKS: Final = {
    "webhook_failed": lines(
        "warning", fields="webhook alerts err remedy",
        meaning="A receiver of alerts cannot be reached or is overloaded; once, and then a line a minute while it lasts. `alerts` wait."),
    "webhook_rejected": lines(
        "error", fields="webhook alerts err remedy",
        meaning="A receiver refused a post, which is not sent again; once for each status until it takes one."),
    "webhook_recovered": lines("info", fields="webhook after_s", meaning="The receiver takes posts again."),
}  # fmt: skip

WORKERS: Final = {
    "worker_started": lines("info", fields="pid after_ms", meaning="A worker serves."),
    "worker_ended": lines(
        "error", fields="worker pid how replaced_after_ms remedy",
        meaning="A worker ended by itself, or cannot be started now: `how`. Its connections are closed, and another one takes its place."),
    "worker_killed": lines(
        "error", fields="worker pid err remedy", meaning="The parent killed a worker that did not do what it should; `err` says what."),
    "worker_failed": lines("error", fields="worker pid err", meaning="A fault while the parent talked to a worker: please report it."),
    "view_failed": lines(
        "error", fields="worker view err",
        meaning="A fault in one view of what a worker tells its parent: it is shown as it was before. Please report it."),
    "parent_gone": lines("error", fields="remedy", meaning="The parent process has ended; this worker stops gracefully."),
}  # fmt: skip

FAULTS: Final = {
    "session_failed": lines(
        "error", fields="listener protocol conn client user cause detail while_closing err",
        meaning="A fault ended one connection; the others go on. Please report it with the traceback in `err`."),
    "housekeeping_failed": lines("error", fields="task rounds err", meaning="A fault in a periodic task, which goes on: please report it."),
    "bookkeeping_failed": lines(
        "error", fields="task rounds err", meaning="A fault in what is done once a second (access log, limit events): please report it."),
}  # fmt: skip

SECTIONS: Final[dict[str, dict[str, LogEvent]]] = {
    "Start, reload, stop": LIFE,
    "Connections": CONNECTIONS,
    "Limits": LIMITS,
    "Brokers": BROKERS,
    "Access log and state": RECORDS,
    "The admin API": ADMIN,
    "Tracing": TRACING,
    "A fleet of gateways": FLEET,
    "Webhooks": WEBHOOKS,
    "Several workers": WORKERS,
    "Faults of the gateway itself": FAULTS,
}
LOG_EVENTS: Final[dict[str, LogEvent]] = {name: event for section in SECTIONS.values() for name, event in section.items()}
