"""A collector of traces and metrics: a real HTTP server that receives and decodes OTLP."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class SpanSeen:
    name: str
    trace: str
    id: str
    parent: str
    kind: int
    start: int
    end: int
    error: bool
    description: str
    attributes: dict[str, Any]
    events: dict[str, dict[str, Any]]
    links: list[tuple[str, str]]


@dataclass
class Collector:
    url: str = ""
    spans: list[SpanSeen] = field(default_factory=list)
    metrics: dict[str, list[tuple[dict[str, Any], float, int]]] = field(default_factory=dict)
    """by name: of each point its attributes, its sum and its count"""
    raw: bytes = b""

    def named(self, name: str) -> list[SpanSeen]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> SpanSeen:
        (span,) = self.named(name)
        return span

    def below(self, span: SpanSeen) -> list[SpanSeen]:
        return [one for one in self.spans if one.parent == span.id]

    def take(self, path: str, body: bytes) -> None:
        self.raw += body
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    assert scope.scope.name == "treadle"
                    self.spans += map(_span, scope.spans)
        elif path == "/v1/metrics":
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        self.metrics[metric.name] = list(map(_point, _points(metric)))


def _points(metric: Any) -> Any:
    return metric.histogram.data_points if metric.HasField("histogram") else metric.sum.data_points


def _point(point: Any) -> tuple[dict[str, Any], float, int]:
    if hasattr(point, "count"):
        return _facts(point.attributes), point.sum, point.count
    return _facts(point.attributes), point.as_int or point.as_double, 1


def _span(span: Any) -> SpanSeen:
    return SpanSeen(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.kind,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.status.code == 2,
        span.status.message,
        _facts(span.attributes),
        {event.name: _facts(event.attributes) for event in span.events},
        [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
    )


def _facts(attributes: Any) -> dict[str, Any]:
    return {item.key: _value(item.value) for item in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind)


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on loopback, until the block ends."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.take(self.path, body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
