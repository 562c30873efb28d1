"""What a reload changes in a running gateway, setting by setting."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from admin.ports import ReloadFailedError
from common import log
from config import load
from config.known_settings import ListenerSettings
from config.reloading import merge
from control_plane import reload as lifecycle_reload
from control_plane.standalone import Standalone
from gateway.lifecycle.apply_settings import disk_settings_of
from gateway.listeners import factory
from gateway.transport.trusted_proxies import TrustedProxies
from limiter.units import parse_rate
from support.idle_standalone import idle

LISTENER = "{name: one, protocol: amqp, bind: 127.0.0.1:0, upstream: 127.0.0.1:9%s}"


def write(folder: Path, listener: str = "", more: str = "", tokens: str = "") -> Path:
    file = folder / "sluice.yaml"
    file.write_text(f"listeners:\n  - {LISTENER % listener}\nadmin: {{bind: 127.0.0.1:0, tokens: [{tokens}]}}\n{more}")
    return file


@pytest.fixture
def standalone(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Standalone]:
    """A gateway; by indirect parametrization, with more in its configuration."""
    handler = log.start("info", "json")
    with idle(write(tmp_path, more=getattr(request, "param", "")), handler=handler) as made:
        yield made
    handler.close()
    log.logger.handlers.clear()


async def reload(standalone: Standalone, tmp_path: Path, listener: str = "", more: str = "") -> dict[str, Any]:
    write(tmp_path, listener, more)
    done = await standalone.reload()
    assert done["needs_restart"] == []
    return done


async def test_bounds_of_connections_and_of_memory(standalone: Standalone, tmp_path: Path) -> None:
    await reload(
        standalone,
        tmp_path,
        more="credit: {initial: 50, more_after: 20, bytes: 64KiB}\nlimiter: {inline: never}\n"
        "memory: {per_connection: 64KiB, high_watermark: 10MiB}\ndisk: {low_watermark: 1MiB}\n",
    )
    gateway = standalone.gateway
    assert (gateway.shared.credit_initial, gateway.shared.credit_more_after, gateway.shared.hold_bytes) == (50, 20, 65536)
    assert (gateway.shared.credit_bytes, gateway.executor.inline_mode) == (65536, "never")
    assert (gateway.memory.high_watermark, gateway.memory.low_watermark) == (10 << 20, 8 << 20)
    assert gateway.access_log is not None
    assert (gateway.access_log.rolling.low_watermark, gateway.access_log.rolling.low_share) == (1 << 20, 0)


@pytest.mark.parametrize(("target", "holds"), [("1MiB", 1 << 20), ("8MiB", 5 << 20), ("64GiB", 5 << 20)])
async def test_the_spool_writes_before_its_memory_is_all_there_is(standalone: Standalone, tmp_path: Path, target: str, holds: int) -> None:
    """At the high watermark no publisher is read, so nothing more would come that makes it write."""
    await reload(standalone, tmp_path, more=f"memory: {{per_connection: 64KiB, high_watermark: 10MiB, target: {target}}}\n")
    assert disk_settings_of(standalone.gateway.settings)[1] == holds


async def test_caps_time_outs_and_the_upstream_of_a_listener(standalone: Standalone, tmp_path: Path) -> None:
    listener = standalone.gateway.listening["one"]
    listener.upstreams.members[0].ok = True
    more = ", max_connections: 7, max_connection_rate: 5/s, handshake_timeout: 3s, idle_timeout: 1min, max_frame: 1MiB"
    await reload(standalone, tmp_path, "1" + more)
    assert (listener.config.max_frame, listener.config.handshake_ns, listener.config.idle_ns) == (1 << 20, 3_000_000_000, 60_000_000_000)
    assert (listener.admission.limits.connections, listener.admission.limits.rate) == (7, parse_rate("5/s"))
    assert listener.upstreams.members[0].address == ("127.0.0.1", 91)
    assert listener.upstreams.members[0].ok is None, "nothing is known of the new address"
    listener.upstreams.members[0].ok = True
    await reload(standalone, tmp_path, "1" + more)
    assert listener.upstreams.members[0].ok is True, "an address that stays is not dialled anew"


async def test_whose_proxy_headers_are_believed(standalone: Standalone, tmp_path: Path) -> None:
    listener = standalone.gateway.listening["one"]
    await reload(standalone, tmp_path, ", trusted_proxies: [10.0.0.5]")
    assert listener.trusted_proxies == TrustedProxies(["10.0.0.5"])
    done: dict[str, Any] = await standalone.reload()
    assert done["in_force"] == []


async def test_the_last_trusted_proxy_stays_as_long_as_headers_are_needed(tmp_path: Path) -> None:
    """To take no headers any more needs a restart; with an empty list until then nobody would get in."""
    before = load(write(tmp_path, ", accept_proxy_protocol: true, trusted_proxies: [10.0.0.5]"))
    after = load(write(tmp_path))
    assert merge(before, after).listeners[0].trusted_proxies == ("10.0.0.5",)


async def test_how_the_access_log_is_rolled_and_kept(standalone: Standalone, tmp_path: Path) -> None:
    await reload(standalone, tmp_path, more="access_log: {roll_every: 1min, roll_size: 1MiB, keep: 7d, keep_size: 1GiB, compress: off}\n")
    access_log, order = standalone.gateway.access_log, standalone.log_keeping.order
    assert access_log is not None
    assert order is not None
    assert (access_log.rolling.every_s, access_log.rolling.size) == (60, 1 << 20)
    assert (order.keep_s, order.keep_size, order.codec) == (7 * 86400, 1 << 30, "off")


async def test_level_and_format_of_the_log_but_not_over_a_level_that_was_set_live(standalone: Standalone, tmp_path: Path) -> None:
    handler = standalone.gateway.log_handler
    await reload(standalone, tmp_path, more="log: {level: warning, format: text}\n")
    assert (log.level_of(handler), handler.form) == ("warning", "text")
    standalone.set_log_level("debug")
    await reload(standalone, tmp_path, more="log: {level: error, format: json}\n")
    assert (log.level_of(handler), handler.form) == ("debug", "json")
    assert handler.level == logging.DEBUG


@pytest.mark.parametrize("standalone", ["tracing: {endpoint: 'http://127.0.0.1:1/v1/traces'}\n"], indirect=True)
async def test_what_part_of_traces_is_sampled_and_how_many_spans_there_may_be(standalone: Standalone, tmp_path: Path) -> None:
    recorder = standalone.gateway.shared.spans
    assert recorder is not None
    assert (recorder.bound, recorder.room) == (1 << 64, 100)
    await reload(standalone, tmp_path, more="tracing: {endpoint: 'http://127.0.0.1:1/v1/traces', sampling_ratio: 50%, max_per_second: 7}\n")
    recorder.take()
    assert (recorder.bound, recorder.room) == (1 << 63, 7)
    write(tmp_path, more="tracing: {endpoint: 'http://127.0.0.1:2/v1/traces', timeout: 1s, sampling_ratio: 25%}\n")
    done: dict[str, Any] = await standalone.reload()
    assert [line.partition(":")[0] for line in done["needs_restart"]] == ["tracing.endpoint", "tracing.timeout"]
    assert recorder.bound == 1 << 62


async def test_a_token_file_that_cannot_be_used_fails_the_reload_as_a_whole(standalone: Standalone, tmp_path: Path) -> None:
    """Nothing of it is in force, not even what stands before it in the file."""

    (tmp_path / "ci").write_text("")
    write(tmp_path, more="credit: {initial: 50, more_after: 20}\n", tokens="{name: ci, role: viewer, file: ci}")

    async with trio.open_nursery() as nursery:
        await nursery.start(standalone.administer)
        with pytest.raises(ReloadFailedError, match="ci"):
            await standalone.reload()
        assert standalone.gateway.shared.credit_initial == 400
        nursery.cancel_scope.cancel()


def let_through(fifo: Path) -> None:
    """Whoever waits for its other end reads that there is nothing."""
    os.close(os.open(fifo, os.O_RDWR))


@pytest.mark.parametrize("which", ["sluice.yaml", "ci"])
async def test_a_file_that_hangs_fails_the_reload_and_holds_up_nothing_else(
    standalone: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """A FIFO in the place of the file, as a mount would hang; the loop has its turns, and the next reload finds what was mended."""
    monkeypatch.setattr(lifecycle_reload, "READ_S", 0.5)
    (tmp_path / "ci").write_text("x" * 43)
    write(tmp_path, tokens="{name: ci, role: viewer, file: ci}")
    file = tmp_path / which
    text = file.read_text()
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await trio.sleep(0.01)
            turns += 1

    async with trio.open_nursery() as nursery:
        await nursery.start(standalone.administer)
        nursery.start_soon(take_turns)
        file.unlink()
        os.mkfifo(file)
        let_go = threading.Timer(30, let_through, (file,))  # or a loop that waits would wait for ever
        let_go.start()
        with pytest.raises(ReloadFailedError, match=f"^{re.escape(str(file))} was not read within"):
            await standalone.reload()
        assert let_go.is_alive(), "the loop waited for the file"
        assert turns > 1
        let_go.cancel()
        let_through(file)
        file.unlink()
        file.write_text(text)
        assert await standalone.reload()
        nursery.cancel_scope.cancel()


async def test_no_file_of_tls_is_read_on_the_loop(standalone: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_on: dict[str, int] = {}

    def read_tls(entries: Iterable[ListenerSettings]) -> dict[str, Any]:
        read_on.update({entry.name: threading.get_ident() for entry in entries})
        return factory.read_tls([replace(entry, tls=None, upstream_tls=None) for entry in entries])

    monkeypatch.setattr(lifecycle_reload, "read_tls", read_tls)
    write(tmp_path)
    async with trio.open_nursery() as nursery:
        await nursery.start(standalone.administer)
        await standalone.reload()
        nursery.cancel_scope.cancel()
    assert read_on
    assert threading.get_ident() not in read_on.values()
