"""Trace context as W3C writes it, and the spans of a request across the processes.

A caller's ``traceparent`` is taken along, logged and handed to the worker. Spans are recorded only
with an OTLP endpoint in the settings (``shared.otlp``, the ``otel`` extra); otherwise every call
here does nothing.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from shared.environment import SettingsError
from shared.variables import OTLP_ENDPOINT

HEADER: Final = "traceparent"
_FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")

Attribute = str | int | bool


@dataclass(frozen=True, slots=True)
class TraceContext:
    """Where in whose trace a request stands."""

    trace_id: str
    span_id: str
    flags: str = "00"

    @classmethod
    def parse(cls, text: str | None) -> TraceContext | None:
        """None for what is no trace context: then there is no trace to be part of."""
        found = _FORM.fullmatch(text or "")
        if found is None:
            return None
        version, trace_id, span_id, flags, more = found.groups()
        if version == "ff" or (version == "00" and more):
            return None
        if not (trace_id.strip("0") and span_id.strip("0")):
            return None
        return cls(trace_id, span_id, flags)

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


class Span(Protocol):
    """An interval that began, and ends now. ``context`` is what its children have for a parent.

    Times are those of ``monotonic_ms``; None stands for now. ``failure`` is the code of one.
    """

    @property
    def context(self) -> TraceContext | None: ...

    def child(
        self, name: str, began_ms: float, ended_ms: float | None, **facts: Attribute | None
    ) -> None: ...

    def end(self, failure: str | None = None, **facts: Attribute | None) -> None: ...


class Spans(Protocol):
    """Records the spans of one process. ``serves``: a caller waits for what happens in it."""

    def begin(
        self, name: str, parent: TraceContext | None, began_ms: float, *, serves: bool = False
    ) -> Span: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """A span that nobody records: the caller's own is what children hang under."""

    context: TraceContext | None

    def child(
        self, name: str, began_ms: float, ended_ms: float | None, **facts: Attribute | None
    ) -> None:
        pass

    def end(self, failure: str | None = None, **facts: Attribute | None) -> None:
        pass


class NoSpans:
    """Records nothing: there is no endpoint to send spans to."""

    def begin(
        self, name: str, parent: TraceContext | None, began_ms: float, *, serves: bool = False
    ) -> Span:
        return Unrecorded(parent)

    def close(self) -> None:
        pass


def open_spans(role: str, endpoint: str | None, labels: Mapping[str, str]) -> Spans:
    """What records this process's spans. Raises SettingsError when it is wanted and can't be."""
    if endpoint is None:
        return NoSpans()
    try:
        otlp = importlib.import_module("shared.otlp")
    except ImportError as error:
        raise SettingsError(OTLP_ENDPOINT, "nothing here: the otel extra is missing") from error
    spans: Spans = otlp.exporting(role, endpoint, labels)
    return spans
