"""The listeners a configuration asks for, put together with their brokers, their TLS and their share of the descriptors."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

from gateway.accepting.admission import Caps, Places, room_for_connections
from gateway.accepting.listeners import Listener
from gateway.accepting.upstream import Upstream
from gateway.assembly import Place
from gateway.settings.tls_files import hops
from gateway.tls.context import Hop

if TYPE_CHECKING:
    from gateway.settings import Settings
    from gateway.settings.types import Listener as Entry

Protection = tuple[Hop | None, Hop | None]  # towards clients, towards the broker


def listeners_of(settings: Settings) -> dict[str, Listener]:
    """By name, not open yet. Call it when the limit of open files is what it will be."""
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    places = Places.unbounded()
    if descriptors != resource.RLIM_INFINITY:
        places = Places(room_for_connections(descriptors, len(settings.listeners)), descriptors)
    return {entry.name: _listener(entry, places) for entry in settings.listeners}


def _listener(entry: Entry, places: Places) -> Listener:
    place = Place(
        entry.name,
        entry.protocol,
        entry.max_frame,
        entry.handshake_timeout_ns,
        entry.idle_timeout_ns or 0,
        entry.other_protocols == "pass",
    )
    tls, upstream_tls = hops(entry)
    return Listener(
        place,
        entry.bind,
        Upstream(entry.name, entry.upstream, send_proxy=entry.send_proxy_protocol == "v2", tls=upstream_tls),
        caps=Caps(entry.max_connections, entry.max_connections_per_address, entry.max_connections_per_user, entry.max_connection_rate),
        places=places,
        accept_proxy=entry.accept_proxy_protocol,
        tls=tls,
    )


def read_tls(settings: Settings) -> dict[str, Protection]:
    """By listener: how its two hops are to be protected, from what the files say now. Raises TlsFileError."""
    return {entry.name: hops(entry) for entry in settings.listeners}


def put_tls(listening: dict[str, Listener], protection: dict[str, Protection]) -> list[str]:
    """Let new connections begin with this; those that are there keep what they began with. Says whose files have changed."""
    changed = []
    for name, listener in listening.items():
        if name not in protection:
            continue
        tls, upstream_tls = protection[name]
        for key, old, new in (("tls", listener.tls, tls), ("upstream_tls", listener.upstream.tls, upstream_tls)):
            if old is not None and new is not None:
                new.failures.update(old.failures)
                if old.fingerprint != new.fingerprint:
                    changed.append(f"listeners.{name}.{key}: the files have changed")
        listener.tls = tls
        listener.upstream.tls = upstream_tls
    return changed
