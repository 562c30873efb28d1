"""Spans of refused, delayed and spooled messages: out of records, and to an OpenTelemetry collector.

::

    loop: MessageSpans ──► SpanRecorder.records ──► tick, once a second ──► queue ──► thread: SDK, OTLP exporter ──► collector

Only the thread waits for the collector. The queue has MAX_QUEUED records at most: while a collector is away or mute, what comes beyond
them is thrown away and counted, and a line in the log says so, at most one in LOST_EVERY_S.

Importing OpenTelemetry costs 170 ms and 12 MB (2026-11). So this file imports it where it is used, which is when a `SpanExport` is made:
only with `tracing` on, before the first client is accepted.

A span's kind is INTERNAL. A PRODUCER span is one that a consumer's span has as its parent or link; but the message goes on with the
client's own context, unchanged, and a refused one goes nowhere. Tools that draw a map of services from pairs of spans would show an edge
from every such span to nothing.
"""

from __future__ import annotations

import logging
import queue
import re
import threading
from typing import TYPE_CHECKING, Final

from common import log
from common.masking import mask_secrets
from config.tracing_packages import OTEL_EXTRA, read_headers
from config.urls import HIDDEN, shown_url
from gateway.build import VERSION
from gateway.clock import now_ns
from gateway.pipeline.conversation import DROPPED, REFUSED
from gateway.pipeline.message_spans import ABANDONED, FORWARDED, SpanRecord, SpanRecorder
from gateway.protocols import PROTOCOLS
from limiter.limits import SECOND
from limiter.topics import SEVERAL_PARTS
from limiter.units import format_limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

    from config.known_settings import TracingSettings

MAX_QUEUED: Final = 2048  # records; that wait for the thread; the queue of OpenTelemetry's own batch processor
MAX_BATCH: Final = 512  # spans in one request; as OpenTelemetry's own batch processor has it
LOST_EVERY_S: Final = 10.0  # seconds; between two lines about spans that were lost; a guess
STOP_S: Final = 2.0  # seconds; the last spans may take at the end; a guess
MAX_RETRY_AFTER_NS: Final = 3_600 * SECOND  # ns; a longer wait is none (a limit of 0), and the attribute is left out

OUTCOMES: Final = {REFUSED: "refused", DROPPED: "dropped", FORWARDED: "forwarded", ABANDONED: "abandoned"}
NAMES: Final = {REFUSED: "refused", DROPPED: "dropped", FORWARDED: "delayed", ABANDONED: "delayed"}
RESULTS: Final = ("exported", "failed", "queue_full")


class SpanExport:
    """A gateway's spans on their way to the collector. `start` begins its thread; `tick` is called once a second."""

    def __init__(self, settings: TracingSettings, gateway: str, instance: str) -> None:
        """`instance` tells this process from others of the same name. Raises OSError: a package or the file of headers is missing."""
        self.recorder = SpanRecorder(settings.sampling_ratio, settings.max_per_second)
        self.endpoint = shown_url(settings.endpoint)
        self.gateway = gateway
        self.exported = 0
        self.failed = 0
        self.overflowed = 0
        self._handed_over = 0  # records; written by the loop
        self._done = 0  # records; written by the thread
        self._lost_logged = (0, 0)  # failed and without room, as logged last
        self._logged_at = -LOST_EVERY_S * SECOND
        self._queue: queue.SimpleQueue[list[SpanRecord] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._complaints = Complaints(secrets=settings.headers_file is not None or self.endpoint != settings.endpoint)
        try:
            self._exporter, self._spans = sdk(settings, gateway, instance)
        except ModuleNotFoundError as error:
            raise OSError(f"tracing needs the Python package {error.name}: {OTEL_EXTRA}") from error

    # ---- on the loop's thread --------------------------------------------------------------------------------------

    def start(self) -> None:
        self._complaints.listen()
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def tick(self, now: int) -> None:
        """Hand over what there is, and log what was lost."""
        records = self.recorder.take()
        if records:
            room = MAX_QUEUED - (self._handed_over - self._done)
            if room < len(records):
                self.overflowed += len(records) - max(0, room)
                del records[max(0, room) :]
            for first in range(0, len(records), MAX_BATCH):
                batch = records[first : first + MAX_BATCH]
                self._handed_over += len(batch)
                self._queue.put(batch)
        self._log_lost(now)

    def _log_lost(self, now: int) -> None:
        lost = (self.failed, self.without_room())
        if lost == self._lost_logged or now - self._logged_at < LOST_EVERY_S * SECOND:
            return
        log.event(
            logging.WARNING, "spans_lost", endpoint=self.endpoint, failed=lost[0] - self._lost_logged[0],
            queue_full=lost[1] - self._lost_logged[1], err=self._complaints.last or None,
            remedy="messages are not affected; check the collector and tracing.endpoint",
        )  # fmt: skip
        self._lost_logged = lost
        self._logged_at = now

    def without_room(self) -> int:
        """Spans for which there was no room in a queue."""
        return self.overflowed + self.recorder.overflowed

    def stop(self) -> None:
        """Send what there is, for STOP_S at most. Not on the loop's thread."""
        if self._thread is None:
            return
        self.tick(now_ns())
        self._queue.put(None)
        self._thread.join(STOP_S)
        self._exporter.shutdown()
        self._complaints.end()

    def counts(self) -> dict[str, int]:
        return dict(zip(RESULTS, (self.exported, self.failed, self.without_room()), strict=True))

    # ---- on its own thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (records := self._queue.get()) is not None:
            try:
                sent = self._spans.export(records, self._exporter, self.gateway)
            except Exception as error:  # a fault of ours or of the exporter's must not end the thread
                sent = False
                self._complaints.last = f"{type(error).__name__}: {error}"
            if sent:
                self.exported += len(records)
            else:
                self.failed += len(records)
            self._done += len(records)

    def __repr__(self) -> str:
        return f"<SpanExport {self.endpoint} exported={self.exported} failed={self.failed} queued={self._handed_over - self._done}>"


MAX_SAID: Final = 2000  # characters of a complaint that are looked at; a collector may answer with megabytes


class Complaints(logging.Handler):
    """What OpenTelemetry logs: the last of it is kept for a line of ours, or a collector that is away would fill the log.

    The target that a request went to is left out, and so is what a collector answers that was told a secret: it may repeat it.
    """

    def __init__(self, *, secrets: bool) -> None:
        super().__init__(logging.WARNING)
        self.last = ""
        self._secrets = secrets

    def listen(self) -> None:
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(self)
        logger.propagate = False

    def end(self) -> None:
        logger = logging.getLogger("opentelemetry")
        logger.removeHandler(self)
        logger.propagate = True

    def emit(self, record: logging.LogRecord) -> None:
        said = re.sub(r"(with url: |for url: )\S+", rf"\1{HIDDEN}", record.getMessage()[:MAX_SAID])
        self.last = mask_secrets(said.partition(", reason:")[0] if self._secrets else said)[:500]


class Spans:
    """Makes spans of records. Made by `sdk`, on whose modules it relies."""

    def __init__(self, gateway: str, instance: str) -> None:
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        finished: list[ReadableSpan] = []

        class Finished(SpanProcessor):
            """Keeps what has ended, until its batch is complete."""

            def on_end(self, span: ReadableSpan) -> None:
                finished.append(span)

        resource = Resource({
            "service.name": "sluice", "service.instance.id": f"{gateway}/{instance}", "service.version": VERSION,
        })  # fmt: skip
        # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES add to it, and win. Sampled is what has a record: the sampler is ours.
        self._provider = TracerProvider(ALWAYS_ON, resource.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
        self._provider.add_span_processor(Finished())
        self._tracer = self._provider.get_tracer("sluice", VERSION)
        self._finished = finished

    def export(self, records: Sequence[SpanRecord], exporter: SpanExporter, gateway: str) -> bool:
        """Whether the collector has taken the spans of these records."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        self._finished.clear()
        for record in records:
            self._make(record, gateway)
        return not self._finished or exporter.export(self._finished) is SpanExportResult.SUCCESS

    def _make(self, record: SpanRecord, gateway: str) -> None:
        from opentelemetry.trace import NonRecordingSpan, SpanContext, Status, StatusCode, TraceFlags, set_span_in_context

        _, trace_id, parent_id, flags = record.traceparent.decode().split("-")
        parent = SpanContext(int(trace_id, 16), int(parent_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))
        span = self._tracer.start_span(
            f"sluice {name_of(record)} {record.key.text}",
            set_span_in_context(NonRecordingSpan(parent)),
            attributes=attributes(record, gateway),
            start_time=record.started_at,
        )
        if record.outcome != FORWARDED:
            span.set_status(Status(StatusCode.ERROR, status_text(record)))
        span.end(record.ended_at)


def sdk(settings: TracingSettings, gateway: str, instance: str) -> tuple[SpanExporter, Spans]:
    """OpenTelemetry's exporter and what makes spans for it. Raises ModuleNotFoundError, and OSError for the file of headers."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    from gateway.telemetry.collector_session import BoundedSession

    headers: dict[str, str] | None = None
    if settings.headers_file is not None:
        try:
            headers = read_headers(settings.headers_file)
        except ValueError as error:
            raise OSError(f"tracing.headers_file: {error}") from None
    # What is not given here (certificates, compression) the exporter reads from OTEL_EXPORTER_OTLP_* of the environment.
    timeout_s = settings.timeout_ns / SECOND
    session = BoundedSession(timeout_s)
    exporter = OTLPSpanExporter(endpoint=settings.endpoint, headers=headers, timeout=timeout_s, session=session)
    return exporter, Spans(gateway, instance)


def attributes(record: SpanRecord, gateway: str) -> dict[str, str | int | float]:
    """By OpenTelemetry's semantic conventions for messaging where they have a name, else `sluice.*`."""
    key, rule = record.key, record.rule
    origin = key.origin
    protocol = PROTOCOLS[origin.protocol]
    system = protocol.messaging_system or protocol.name
    found: dict[str, str | int | float] = {
        "messaging.system": system,
        "messaging.operation.type": "send",
        "messaging.operation.name": protocol.send_operation,
        "messaging.message.body.size": record.size,
        "client.address": origin.client,
        "sluice.gateway": gateway,
        "sluice.listener": origin.listener,
        "sluice.topic": key.text,
        "sluice.outcome": OUTCOMES[record.outcome],
    }
    topic = key.name.topic.decode("utf-8", "backslashreplace")
    if origin.protocol in SEVERAL_PARTS:  # exchange:routing_key, what is empty left out
        exchange = key.name.exchange.decode("utf-8", "backslashreplace")
        found["messaging.destination.name"] = ":".join(part for part in (exchange, topic) if part)
        found[f"messaging.{system}.destination.routing_key"] = topic
    else:
        found["messaging.destination.name"] = topic
    if record.messages > 1:
        found["messaging.batch.message_count"] = record.messages
    if record.connection:
        found["sluice.connection"] = record.connection
    if rule is not None:
        found |= {"sluice.rule": rule.name, "sluice.action": rule.action, "sluice.limit": format_limit(rule.limit)}
    if record.origin:
        found["sluice.origin"] = record.origin
    if 0 < record.wait_ns < MAX_RETRY_AFTER_NS and record.outcome in (REFUSED, DROPPED):
        found["sluice.retry_after_ms"] = round(record.wait_ns / 1e6, 3)
    if record.outcome != FORWARDED:
        found["error.type"] = "abandoned" if record.outcome == ABANDONED else "rate_limited"
    return found


def name_of(record: SpanRecord) -> str:
    """What became of the message, in one word."""
    return "spooled" if record.spooled and record.outcome in (FORWARDED, ABANDONED) else NAMES[record.outcome]


def status_text(record: SpanRecord) -> str:
    """Why the span is an error, for people."""
    if record.outcome == ABANDONED:
        return "the client, its channel or the broker went away while the message waited for its limit"
    rule = record.rule
    return "over a limit" if rule is None else f"over the limit of {format_limit(rule.limit)} of rule {rule.name}"
