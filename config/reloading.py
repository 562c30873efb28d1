"""Which settings a reload puts in force, and why the others need a restart. `docs/reloading.md` has both lists; a test compares them.

A path stands for all that is below it. Listeners are compared by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from config.sections import OrElse, Section
from config.settings import ROOT, Settings

AT_ONCE: Final = "at once"
NEW_CONNECTIONS: Final = "for new connections; open ones keep what they began with"
TLS_OFF: Final = "To turn TLS off needs a restart: the port keeps its address, and tokens would cross the network in the clear"
NEXT_ROUND: Final = "at the next round, within minutes"

RELOADED: Final[Mapping[str, str]] = {  # path -> when it holds
    "gateway.reload_on_change": AT_ONCE,
    "rules_file": "for the next batch",
    "rules": "for the next batch",
    "quotas": AT_ONCE,
    "listeners.upstream": f"{NEW_CONNECTIONS}. Readiness waits for the first dial of a new address, unless another one is healthy",
    "listeners.tls": f"{NEW_CONNECTIONS}. The files are read again, also where their names are as before",
    "listeners.upstream_tls": f"{NEW_CONNECTIONS}. The files are read again, also where their names are as before",
    "listeners.trusted_proxies": f"{NEW_CONNECTIONS}. The last of them cannot be taken away while accept_proxy_protocol holds",
    "listeners.max_connections": f"{NEW_CONNECTIONS}: none is closed",
    "listeners.max_connections_per_address": f"{NEW_CONNECTIONS}: none is closed",
    "listeners.max_connections_per_user": f"{NEW_CONNECTIONS}: none is closed",
    "listeners.max_connection_rate": NEW_CONNECTIONS,
    "listeners.handshake_timeout": AT_ONCE,
    "listeners.idle_timeout": f"{AT_ONCE}, open connections included",
    "listeners.frame_timeout": f"{AT_ONCE}, open connections included",
    "listeners.other_protocols": NEW_CONNECTIONS,
    "listeners.max_frame": NEW_CONNECTIONS,
    "listeners.remote_admin": AT_ONCE,
    "limiter.inline": "for the next batch",
    "credit.initial": NEW_CONNECTIONS,
    "credit.more_after": NEW_CONNECTIONS,
    "credit.bytes": f"{AT_ONCE}, open connections included",
    "memory.per_connection": NEW_CONNECTIONS,
    "memory.high_watermark": AT_ONCE,
    "memory.delivery_watermark": AT_ONCE,
    "memory.target": AT_ONCE,
    "memory.limit": AT_ONCE,
    "disk": AT_ONCE,
    "spool.max_size": f"{AT_ONCE}. Where more is there already, that is forwarded first",
    "drain": "at the next stop; one that has begun keeps its time",
    "admin.names": AT_ONCE,
    "admin.tls": f"{NEW_CONNECTIONS}. The files are read again. {TLS_OFF}",
    "admin.series_topics": f"{AT_ONCE}. With fewer the least busy topics lose theirs",
    "admin.tokens": f"{AT_ONCE}. All token files are read again; requests with a token that is gone fail, and its streams end",
    "probes.metrics": AT_ONCE,
    "access_log.roll_every": AT_ONCE,
    "access_log.roll_size": AT_ONCE,
    "access_log.compress": NEXT_ROUND,
    "access_log.keep": NEXT_ROUND,
    "access_log.keep_size": NEXT_ROUND,
    "access_log.keep_until": NEXT_ROUND,
    "webhooks": f"{AT_ONCE}. A receiver that is new gets what is over its limit now; one that is gone gets nothing any more",
    "tracing.sampling_ratio": AT_ONCE,
    "tracing.max_per_second": "from the next second on",
    "log.level": f"{AT_ONCE}, unless a level was set live (`PUT /v1/log/level`)",
    "log.format": AT_ONCE,
}

NEEDS_RESTART: Final[Mapping[str, str]] = {  # path -> why
    "version": "It is the format of the file, and there is one.",
    "gateway.name": "It is part of file names, of metrics and of lines that are written: one run has one name.",
    "gateway.workers": "Sockets and limits are divided among the processes when they start.",
    "gateway.watchdog": "The watchdog is wound up at the start.",
    "gateway.takeover": "The socket is bound at the start.",
    "gateway.state_directory": "It is locked by this process, and holds what is in force.",
    "spool.directory": "Messages wait there, and the spool is locked by this process.",
    "listeners.name": "A listener of another name is another listener: to add or remove one, restart.",
    "listeners.protocol": "Open connections speak the one before.",
    "listeners.bind": "Clients would lose the address they know. Let the new process bind it (systemd can hold the socket).",
    "listeners.accept_proxy_protocol": "Connections on their way in would be read in two ways.",
    "listeners.send_proxy_protocol": "The broker's own listener must change at the same moment.",
    "listeners.own_login": "The looks at queues keep their connection to the broker.",
    "listeners.advertise": "Clients have routes with the host before.",
    "listeners.broker_ports": "Brokers have ports of the range before, which clients' routes name.",
    "gateway.max_topics": "The table of topics is made at the start.",
    "limiter.threads": "Threads and their queues are made at the start.",
    "limiter.queue": "Threads and their queues are made at the start.",
    "limiter.on_rejection": "Threads and their queues are made at the start.",
    "limiter.max_bypass": "What has passed is counted over its window from the start.",
    "limiter.max_keys": "The table of buckets is made at the start.",
    "fleet": "Buckets are shared under the name that this gateway has joined with.",
    "admin.bind": "The socket is bound at the start.",
    "admin.socket": "The socket is bound at the start.",
    "probes.bind": "The socket is bound at the start; to turn `probes` on or off needs a restart for the same reason.",
    "access_log.directory": "Files are open there; to turn `access_log` on or off needs a restart for the same reason.",
    "tracing.endpoint": "The exporter is made at the start, when OpenTelemetry is loaded; to turn `tracing` on or off needs one, too.",
    "tracing.headers_file": "The exporter is made at the start.",
    "tracing.timeout": "The exporter is made at the start.",
}


def merge(old: Settings, new: Settings) -> Settings:
    """The settings `old` with what a reload takes from `new`, and where that is written."""
    moved: dict[str, str] = {}
    found = _merge(ROOT, old, new, "", ("", ""), moved)
    assert isinstance(found, Settings)
    return replace(found, origins=old.origins.merged(new.origins, moved), sources=new.sources)


def _merge(section: Section[Any], old: Any, new: Any, path: str, at: tuple[str, str], moved: dict[str, str]) -> Any:
    """A section's value. `path` is as in RELOADED; `at` is where the section stands in the old and in the new settings.

    What is taken goes to `moved`: its path in the old settings, and in the new ones.
    """
    taken: dict[str, Any] = {}
    for key, (field, known) in section.settings.items():
        inner, here, there = (f"{base}.{key}" if base else key for base in (path, *at))
        before, after = getattr(old, field), getattr(new, field)
        if inner in RELOADED:
            if _may(inner, before, after):
                taken[field] = after
                moved[here] = there
        elif inner == "listeners":
            taken[field] = _listeners(before, after, moved)
        elif before is not None and after is not None and any(each.startswith(f"{inner}.") for each in RELOADED):
            kind = known.kind.section if isinstance(known.kind, OrElse) else known.kind
            assert isinstance(kind, Section)
            taken[field] = _merge(kind, before, after, inner, (here, there), moved)
    return replace(old, **taken)


def _may(path: str, before: Any, after: Any) -> bool:
    """Whether this change of a setting that is reloaded can be: the merged settings must be good ones, too."""
    if path == "admin.tls":
        return before is None or after is not None  # tokens must not cross the network because the port's address stays
    if path == "listeners.trusted_proxies":
        return not before or bool(after)  # accept_proxy_protocol stays till the restart, and with an empty list nobody would get in
    return True


def _listeners(before: tuple[Any, ...], after: tuple[Any, ...], moved: dict[str, str]) -> tuple[Any, ...]:
    """Those there are, each with what a reload takes of the one with its name."""
    from config.known_settings import ListenerSettings

    positions = {entry.name: number for number, entry in enumerate(after)}
    section = Section(ListenerSettings)
    return tuple(
        entry
        if (position := positions.get(entry.name)) is None or entry.protocol != after[position].protocol
        else _merge(section, entry, after[position], "listeners", (f"listeners[{number}]", f"listeners[{position}]"), moved)
        for number, entry in enumerate(before)
    )
