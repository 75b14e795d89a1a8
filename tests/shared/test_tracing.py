"""Trace context: what W3C's header may look like, and what happens without the extra."""

from __future__ import annotations

import builtins
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.environment import SettingsError
from shared.settings import GatewaySettings
from shared.tracing import NoSpans, TraceContext, open_spans

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize("text", [f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"])
def test_a_context_is_read_and_written(text: str) -> None:
    """What is legal comes out as it went in."""
    assert str(TraceContext.parse(text)) == text


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    """W3C asks for that; what goes on is version 00."""
    context = TraceContext.parse(f"cc-{TRACE}-{SPAN}-01-what-will-be")

    assert str(context) == f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "00",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE[:-1]}\u0661-{SPAN}-01",
    ],
)
def test_what_is_no_context_is_none(text: str | None) -> None:
    """A header that can't be right starts no trace and does no harm."""
    assert TraceContext.parse(text) is None


@given(st.text(max_size=80))
def test_any_text_is_a_context_or_none(text: str) -> None:
    """Nothing raises, and what is read can be written as a legal header."""
    context = TraceContext.parse(text)

    assert context is None or TraceContext.parse(str(context)) == context


def test_without_an_endpoint_nothing_is_recorded() -> None:
    """Spans do nothing, and the caller's context is handed on as it came."""
    spans = open_spans("gateway", None, {})
    context = TraceContext(TRACE, SPAN, "01")
    span = spans.begin("x", context, 0.0)
    span.child("y", 0.0, None)
    span.end()

    assert isinstance(spans, NoSpans)
    assert span.context is context


def test_without_an_endpoint_nothing_is_imported() -> None:
    """The extra need not be installed."""
    code = (
        "import sys, gateway.app, shared.tracing as t; t.open_spans('g', None, {});"
        "print('shared.otlp' in sys.modules, 'opentelemetry.exporter' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["False", "False"]


def test_an_endpoint_without_the_extra_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans that are wanted and can't be recorded are no small matter: the setting is named."""
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.delitem(sys.modules, "shared.otlp", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)

    with pytest.raises(SettingsError, match=r"PSIONIC_CSM_OTLP_ENDPOINT.*otel"):
        open_spans("gateway", "http://127.0.0.1:1", {})


def test_an_endpoint_is_a_url() -> None:
    """Anything else is refused at the start."""
    with pytest.raises(SettingsError, match="PSIONIC_CSM_OTLP_ENDPOINT"):
        GatewaySettings.from_env({"PSIONIC_CSM_OTLP_ENDPOINT": "collector:4318"})
