"""Spans on their way to a collector: what arrives, and what becomes of them when it does not answer."""

from __future__ import annotations

import logging
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from config.known_settings import TracingSettings
from gateway.clock import now_ns
from gateway.pipeline.message_spans import ABANDONED, FORWARDED
from gateway.telemetry.span_export import MAX_QUEUED, SpanExport
from support.otlp import Collector
from support.processes import HANG_S, free_ports, wait_until
from support.spans import record

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


def export_to(endpoint: str, headers_file: Path | None = None, timeout_ns: int = 10_000_000_000) -> SpanExport:
    return SpanExport(TracingSettings(endpoint=endpoint, headers_file=headers_file, timeout_ns=timeout_ns), "orders-sidecar", "0a1b")


def has_failed(export: SpanExport, times: int) -> bool:
    return export.failed == times


def test_a_refusal_arrives_as_a_child_of_the_message_s_trace(collector: Collector) -> None:
    export = export_to(collector.endpoint)
    export.start()
    export.recorder.add(record())
    export.tick(now_ns())
    (span,) = collector.wait_for(1)
    export.stop()
    assert (span.trace_id, span.parent_id) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    assert span.span_id not in ("", "0" * 16, span.parent_id)
    assert (span.name, span.kind, span.status) == ("sluice refused %2F/orders/created", "SPAN_KIND_INTERNAL", "STATUS_CODE_ERROR")
    assert span.message == "over the limit of 500/s of rule orders"
    assert span.started_at == span.ended_at
    assert span.attributes == {
        "messaging.system": "rabbitmq",
        "messaging.operation.type": "send",
        "messaging.operation.name": "publish",
        "messaging.destination.name": "orders:created",
        "messaging.rabbitmq.destination.routing_key": "created",
        "messaging.message.body.size": 5,
        "client.address": "10.0.0.7",
        "error.type": "rate_limited",
        "sluice.gateway": "orders-sidecar",
        "sluice.listener": "front",
        "sluice.connection": 17,
        "sluice.topic": "%2F/orders/created",
        "sluice.rule": "orders",
        "sluice.limit": "500/s",
        "sluice.action": "reject",
        "sluice.outcome": "refused",
        "sluice.retry_after_ms": 12.5,
    }
    assert span.resource["service.name"] == "sluice"
    assert span.resource["service.instance.id"] == "orders-sidecar/0a1b"
    assert export.counts() == {"exported": 1, "failed": 0, "queue_full": 0}


def test_a_delayed_message_s_span_is_as_long_as_it_waited(collector: Collector) -> None:
    export = export_to(collector.endpoint)
    export.start()
    export.recorder.add(record(FORWARDED, protocol="rocketmq", waited_ns=300_000_000))
    export.recorder.add(record(ABANDONED, protocol="rocketmq", waited_ns=100_000_000))
    export.stop()  # which sends what there is
    forwarded, abandoned = collector.wait_for(2)
    assert (forwarded.name, forwarded.status, forwarded.ended_at - forwarded.started_at) == (
        "sluice delayed ORDERS", "STATUS_CODE_UNSET", 300_000_000,
    )  # fmt: skip
    assert forwarded.attributes["messaging.system"] == "rocketmq"
    assert forwarded.attributes["messaging.destination.name"] == "ORDERS"
    assert not {"error.type", "sluice.retry_after_ms"} & forwarded.attributes.keys()
    assert (abandoned.name, abandoned.status) == ("sluice delayed ORDERS", "STATUS_CODE_ERROR")
    assert abandoned.attributes["error.type"] == "abandoned"


def test_the_environment_adds_to_the_resource(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=staging")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "sluice-orders")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")  # what is sampled is decided before
    export = export_to(collector.endpoint)
    export.start()
    export.recorder.add(record())
    export.stop()
    (span,) = collector.wait_for(1)
    assert span.resource["deployment.environment.name"] == "staging"
    assert span.resource["service.name"] == "sluice-orders"


def test_headers_of_the_file_go_with_every_request(collector: Collector, tmp_path: Path) -> None:
    file = tmp_path / "otlp.headers"
    file.write_text("# for the collector\nAuthorization: Bearer abc:def=\n\nx-scope : orders \n")
    export = export_to(collector.endpoint, file)
    export.start()
    export.recorder.add(record())
    export.stop()
    collector.wait_for(1)
    assert collector.headers[0]["authorization"] == "Bearer abc:def="
    assert collector.headers[0]["x-scope"] == "orders"


@pytest.mark.parametrize("text", ["Bearer secret\n", "Authorization:\n", "a b: c\n"])
def test_a_line_that_is_no_header_is_named_and_not_shown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "otlp.headers"
    file.write_text(text)
    with pytest.raises(OSError, match=r"otlp\.headers:1: not a header of HTTP") as raised:
        export_to("http://127.0.0.1:4318/v1/traces", file)
    assert "secret" not in str(raised.value)


def test_a_collector_that_is_away_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    export = export_to(f"http://127.0.0.1:{free_ports(1)[0]}/v1/traces", timeout_ns=100_000_000)
    export.start()
    with caplog.at_level(logging.WARNING, "sluice"):
        for number in range(3):
            export.recorder.add(record())
            export.tick(now_ns())
            wait_until(partial(has_failed, export, number + 1), within=60, what="the failure")
        export.tick(now_ns())
    lines = [each for each in caplog.records if each.getMessage() == "spans_lost"]
    assert 1 <= len(lines) <= 2, "at most one in ten seconds"
    fields = vars(lines[0])["fields"]
    assert fields["failed"] >= 1
    assert fields["err"]
    assert export.counts()["exported"] == 0
    export.stop()


def test_a_mute_collector_costs_bounded_memory() -> None:
    with Collector(mute=True) as collector:
        export = export_to(collector.endpoint, timeout_ns=60_000_000_000)
        export.start()
        export.recorder.add(record())
        export.tick(now_ns())
        wait_until(lambda: collector.requests == 1, within=60, what="the first request")
        for _ in range(3):
            for _ in range(MAX_QUEUED // 2):
                export.recorder.add(record())
            export.tick(now_ns())
        assert export.counts() == {"exported": 0, "failed": 0, "queue_full": MAX_QUEUED // 2 + 1}
        collector.closing.set()
        export.stop()


def test_a_missing_package_is_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(OSError, match=r"tracing needs the Python package .*: pip install 'sluice-gateway\[otel\]'"):
        export_to("http://127.0.0.1:4318/v1/traces")


def test_without_tracing_nothing_of_opentelemetry_is_imported() -> None:
    """All that a gateway imports, its exporter's own file included."""
    program = (
        "import sys, control_plane.standalone, gateway.workers.worker, control_plane.workers.parent, control_plane.main, "
        "gateway.telemetry.span_export, config.lints; print(sorted(name for name in sys.modules if name.split('.')[0] in "
        "('opentelemetry', 'google', 'requests')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT, timeout=HANG_S)
    assert done.stdout.strip() == "[]"
