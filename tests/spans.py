"""Spans kept in memory, for tests."""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import format_span_id, format_trace_id

from shared.otlp import PREFIX, OtlpSpans, provider_for


class Kept:
    """``spans`` records; the rest tells what was recorded."""

    def __init__(self, role: str) -> None:
        self._exporter = InMemorySpanExporter()
        provider = provider_for(role, {"namespace": "t"})
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.spans = OtlpSpans(provider)

    def all(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def names(self) -> list[str]:
        return [span.name for span in self.all()]

    def named(self, name: str) -> ReadableSpan:
        (found,) = (span for span in self.all() if span.name == name)
        return found


def id_of(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    return format_span_id(context.span_id)


def parent_of(span: ReadableSpan) -> str | None:
    return format_span_id(span.parent.span_id) if span.parent else None


def trace_of(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    return format_trace_id(context.trace_id)


def fact(span: ReadableSpan, name: str) -> object:
    return (span.attributes or {}).get(PREFIX + name)
