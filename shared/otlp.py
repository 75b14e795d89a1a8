"""Spans by OpenTelemetry, sent over OTLP. Needs the ``otel`` extra; nothing else imports it."""

from __future__ import annotations

import time
from collections.abc import Mapping

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)
from opentelemetry.trace.propagation import set_span_in_context

from shared.clock import monotonic_ms
from shared.tracing import Attribute, TraceContext

EXPORT_S = 2
"""How long a batch may take, and so how long a process that ends waits for a collector."""
PREFIX = "psionic_csm."
"""Of every attribute."""


def exporting(role: str, endpoint: str, labels: Mapping[str, str]) -> OtlpSpans:
    """Spans that leave in batches, on a thread of their own, for ``endpoint``."""
    provider = provider_for(role, labels)
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_S)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return OtlpSpans(provider)


def provider_for(role: str, labels: Mapping[str, str]) -> TracerProvider:
    named = {"service.namespace": "psionic-csm", "service.name": f"psionic-csm-{role}"}
    ours = {PREFIX + name: value for name, value in labels.items()}
    return TracerProvider(resource=Resource.create({**named, **ours}), shutdown_on_exit=False)


class OtlpSpans:
    """``shared.tracing.Spans`` over one provider. A caller's sampling decision is kept."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("psionic_csm")

    def begin(
        self, name: str, parent: TraceContext | None, began_ms: float, *, serves: bool = False
    ) -> OtlpSpan:
        span = self._tracer.start_span(
            name,
            context=set_span_in_context(_remote(parent)) if parent else None,
            kind=SpanKind.SERVER if serves else SpanKind.CONSUMER,
            start_time=_unix_ns(began_ms),
        )
        return OtlpSpan(self._tracer, span)

    def close(self) -> None:
        """Send what is there, for a few seconds at most."""
        self._provider.shutdown()


class OtlpSpan:
    """``shared.tracing.Span`` that is sent once it has ended."""

    def __init__(self, tracer: trace.Tracer, span: trace.Span) -> None:
        self._tracer = tracer
        self._span = span

    @property
    def context(self) -> TraceContext:
        own = self._span.get_span_context()
        flags = format(own.trace_flags, "02x")
        return TraceContext(
            trace.format_trace_id(own.trace_id), trace.format_span_id(own.span_id), flags
        )

    def child(
        self, name: str, began_ms: float, ended_ms: float | None, **facts: Attribute | None
    ) -> None:
        span = self._tracer.start_span(
            name,
            context=set_span_in_context(self._span),
            start_time=_unix_ns(began_ms),
            attributes=_known(facts),
        )
        span.end(_unix_ns(ended_ms))

    def end(self, failure: str | None = None, **facts: Attribute | None) -> None:
        self._span.set_attributes(_known(facts))
        if failure is not None:
            self._span.set_status(Status(StatusCode.ERROR, failure))
        self._span.end()


def _remote(parent: TraceContext) -> NonRecordingSpan:
    context = SpanContext(
        int(parent.trace_id, 16),
        int(parent.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(parent.flags, 16)),
    )
    return NonRecordingSpan(context)


def _unix_ns(at_ms: float | None) -> int:
    """An instant of the monotonic clock as the wall clock's now tells it."""
    now = time.time_ns()
    return now if at_ms is None else now - round((monotonic_ms() - at_ms) * 1e6)


def _known(facts: Mapping[str, Attribute | None]) -> dict[str, Attribute]:
    return {PREFIX + name: value for name, value in facts.items() if value is not None}
