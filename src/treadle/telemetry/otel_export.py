"""Providers that export over OTLP/HTTP, configured by the environment variables of OpenTelemetry."""

from __future__ import annotations

import os

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from treadle.telemetry.otel_ids import TaskIds


def providers() -> tuple[TracerProvider, MeterProvider]:
    """Return providers of spans and of metrics; the caller shuts them down."""
    resource = Resource.create({} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "treadle"})
    tracers = TracerProvider(resource=resource, shutdown_on_exit=False, id_generator=TaskIds())
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    reader = PeriodicExportingMetricReader(OTLPMetricExporter())
    return tracers, MeterProvider([reader], resource=resource, shutdown_on_exit=False)
