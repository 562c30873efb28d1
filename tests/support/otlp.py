"""A collector for spans: an HTTP server that takes OTLP as a real one does, and decodes it with OpenTelemetry's own messages."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

from support.processes import LOOPBACK, wait_until

Value = str | int | float | bool


@dataclass(frozen=True)
class Span:
    """One span as it arrived."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: str
    status: str
    message: str
    started_at: int  # ns since 1970
    ended_at: int
    attributes: dict[str, Value]
    resource: dict[str, Value]


def value_of(value: AnyValue) -> Value:
    found = getattr(value, value.WhichOneof("value") or "string_value")
    assert isinstance(found, str | int | float | bool)
    return found


def values_of(pairs: list[KeyValue]) -> dict[str, Value]:
    return {pair.key: value_of(pair.value) for pair in pairs}


def spans_of(body: bytes) -> list[Span]:
    request = ExportTraceServiceRequest.FromString(body)
    return [
        Span(
            span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(), SpanMessage.SpanKind.Name(span.kind),
            type(span.status).StatusCode.Name(span.status.code), span.status.message, span.start_time_unix_nano, span.end_time_unix_nano,
            values_of(list(span.attributes)), values_of(list(group.resource.attributes)),
        )
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]  # fmt: skip


class Collector:
    """Takes spans on loopback, on a free port unless it is given one. `mute`: it takes requests and answers none until it is closed.

    A context manager.
    """

    def __init__(self, *, mute: bool = False, status: int = 200, port: int = 0) -> None:
        self.spans: list[Span] = []
        self.headers: list[dict[str, str]] = []
        self.requests = 0  # that have come, answered or not
        self.closing = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.requests += 1
                if mute:
                    collector.closing.wait()
                    return
                collector.headers.append({name.lower(): value for name, value in self.headers.items()})
                assert self.path == "/v1/traces"
                assert self.headers["Content-Type"] == "application/x-protobuf"
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(status)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
                collector.spans += spans_of(body)

            def log_message(self, format: str, *words: object) -> None:  # noqa: A002  -- its name in the standard library
                """Nothing: stderr is for what is wrong."""

        self._server = ThreadingHTTPServer((LOOPBACK, port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self._server.server_address[1]}/v1/traces"

    def wait_for(self, count: int, *, within: float = 60.0) -> list[Span]:
        """At least so many spans."""
        wait_until(lambda: len(self.spans) >= count, within=within, what=f"{count} spans; there are {self.spans}")
        return self.spans

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)
