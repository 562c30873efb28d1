"""The listeners that a configuration asks for, put together with their brokers, their TLS and the connection slots they share."""

from __future__ import annotations

import logging
import resource
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from common import log
from common.descriptors import room_for_connections
from common.tls.certificates import TlsFileError
from common.tls.context import Hop, Texts
from config.checks import brokers_room
from config.tls_files import hops
from gateway.admission import ConnectionLimits, ConnectionSlots
from gateway.listeners.listener import Listener
from gateway.listeners.upstreams import Upstreams
from gateway.protocols import PROTOCOLS
from gateway.protocols.rocketmq.limit_requests import Permission
from gateway.session.listener_config import ListenerConfig
from gateway.transport.trusted_proxies import TrustedProxies

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from config import Settings
    from config.known_settings import ListenerSettings
    from config.problems import ConfigProblem
    from gateway.systemd import Inheritance

Protection = tuple[Hop | None, Hop | None]  # towards clients, towards the broker


def listeners_of(settings: Settings, texts: Texts | None = None) -> dict[str, Listener]:
    """By name, not open yet. Call it when the limit of open files is what it will be. Files of TLS in `texts` are not read."""
    texts = texts or Texts()
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    slots = ConnectionSlots.unbounded()
    if descriptors != resource.RLIM_INFINITY:
        brokers = sum(brokers_room(entry) for entry in settings.listeners)
        slots = ConnectionSlots(room_for_connections(descriptors, len(settings.listeners), brokers), descriptors)
    return {entry.name: listener_of(entry, slots, hops(entry, texts)) for entry in settings.listeners}


def open_listeners(listening: Collection[Listener], inheritance: Inheritance) -> None:
    """Open all, on systemd's sockets where there are any: by address, and only then by name. Raises OSError."""
    taken = {listener.name: inheritance.take_at(listener.bind) for listener in listening}
    for listener in listening:
        listener.open(taken[listener.name] or inheritance.take_named(listener.name))


def listener_of(entry: ListenerSettings, slots: ConnectionSlots, protection: Protection) -> Listener:
    """The listener that `entry` describes, not open yet. Its files of TLS are not read."""
    sends_proxy = entry.send_proxy_protocol == "v2"
    config = ListenerConfig(entry.name, entry.protocol, entry.max_frame, entry.handshake_timeout_ns, sends_proxy=sends_proxy)
    take_entry(config, entry)
    tls, upstream_tls = protection
    return Listener(
        config,
        entry.bind,
        Upstreams.at(
            entry.name,
            entry.upstreams,
            send_proxy=sends_proxy,
            tls=upstream_tls,
            question=PROTOCOLS[entry.protocol].question,
        ),
        limits=limits_of(entry),
        slots=slots,
        accept_proxy=entry.accept_proxy_protocol,
        trusted_proxies=TrustedProxies(entry.trusted_proxies),
        tls=tls,
    )


def take_entry(config: ListenerConfig, entry: ListenerSettings) -> None:
    """What a reload may change of it, too."""
    config.max_frame = entry.max_frame
    config.handshake_ns = entry.handshake_timeout_ns
    config.frame_ns = entry.frame_timeout_ns
    config.idle_ns = entry.idle_ns
    config.others_pass = entry.other_protocols == "pass"
    remote = entry.remote_admin
    config.remote_admin = None if remote is None else Permission(remote.allow, remote.access_keys, remote.legacy_codes)


def limits_of(entry: ListenerSettings) -> ConnectionLimits:
    return ConnectionLimits(
        entry.max_connections, entry.max_connections_per_address, entry.max_connections_per_user, entry.max_connection_rate
    )


class Derived(Protocol):
    """Listeners that are not in the configuration themselves but made after one that is."""

    @property
    def opened(self) -> Mapping[tuple[str, int], Listener]: ...


def read_tls(entries: Iterable[ListenerSettings], texts: Texts | None = None) -> dict[str, Protection]:
    """By listener: how its two hops are to be protected, from what the files say now. On a thread: files may hang. Raises TlsFileError.

    Files in `texts` are not read.
    """
    texts = texts or Texts()
    return {entry.name: hops(entry, texts) for entry in entries}


def copy_protection(protection: Protection) -> Protection:
    """The same for a listener that is made after another one."""
    tls, upstream_tls = protection
    return tls and tls.copy_for_listener(), upstream_tls and upstream_tls.copy_for_listener()


def with_derived(protection: Mapping[str, Protection], derived: Mapping[str, Derived]) -> dict[str, Protection]:
    """The same, with the listeners made after these, which come and go."""
    more = {
        each.name: copy_protection(protection[name])
        for name, made in derived.items()
        if name in protection
        for each in made.opened.values()
    }
    return {**protection, **more}


def log_ending_certificates(problems: Iterable[ConfigProblem]) -> None:
    """Log a warning of each of the gateway's certificates that is near its end or past it, as `sluice check` does."""
    with suppress(TlsFileError):  # gone since it was read: the next reload says so
        for problem in problems:
            log.event(logging.WARNING, "certificate_ending", setting=problem.path, err=problem.message, remedy=problem.remedy)


def find_changed_tls(listening: dict[str, Listener], protection: dict[str, Protection]) -> list[str]:
    """The listeners whose files differ from those that new connections begin with now."""
    return [
        f"listeners.{name}.{key}: the files have changed"
        for name, listener in listening.items()
        for key, old, new in _pairs(listener, protection.get(name))
        if old.fingerprint != new.fingerprint
    ]


def apply_tls(listening: dict[str, Listener], protection: dict[str, Protection]) -> list[str]:
    """Let new connections begin with this; open ones keep what they began with. Returns whose files have changed."""
    changed = find_changed_tls(listening, protection)
    for name, listener in listening.items():
        if name not in protection:
            continue
        for _, old, new in _pairs(listener, protection[name]):
            new.failures.update(old.failures)
        listener.tls = protection[name][0]
        listener.upstreams.take_tls(protection[name][1])
    return changed


def _pairs(listener: Listener, protection: Protection | None) -> list[tuple[str, Hop, Hop]]:
    """The hops that are protected before and after: setting, old, new."""
    tls, upstream_tls = protection or (None, None)
    hops_ = (("tls", listener.tls, tls), ("upstream_tls", listener.upstreams.tls, upstream_tls))
    return [(key, old, new) for key, old, new in hops_ if old is not None and new is not None]
