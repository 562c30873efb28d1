"""Listeners as their configuration says: from the start, and after a reload that changes it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from config import load
from gateway.lifecycle.apply_settings import apply_entry
from gateway.listeners.factory import listeners_of

SETTINGS = (
    "max_frame: 1MiB, handshake_timeout: 3s, frame_timeout: 5s, idle_timeout: 7s, other_protocols: pass, max_connections: 9, "
    "accept_proxy_protocol: true, trusted_proxies: [10.0.0.5]"
)


def test_what_a_reload_may_change_of_a_listener_holds_from_the_start(tmp_path: Path) -> None:
    file = tmp_path / "sluice.yaml"
    file.write_text(f"listeners: [{{name: rabbit, protocol: amqp, bind: 127.0.0.1:0, upstream: 127.0.0.1:2, {SETTINGS}}}]\n")
    configured = load(file, {})
    listener = listeners_of(configured)["rabbit"]
    config, second = listener.config, 1_000_000_000
    assert (config.max_frame, config.handshake_ns, config.frame_ns, config.idle_ns) == (1 << 20, 3 * second, 5 * second, 7 * second)
    assert (config.others_pass, listener.admission.limits.connections) == (True, 9)
    assert listener.trusted_proxies.texts == ("10.0.0.5",)
    (entry,) = configured.listeners
    apply_entry(listener, replace(entry, max_frame=2 << 20, frame_timeout_ns=second, trusted_proxies=(), max_connections=8))
    assert (config.max_frame, config.frame_ns, config.handshake_ns) == (2 << 20, second, 3 * second)
    assert (str(listener.trusted_proxies), listener.admission.limits.connections) == ("<TrustedProxies >", 8)
