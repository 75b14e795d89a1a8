"""One request's trace across real processes, as a collector gets it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from cli.bench_stack import PacedPlan, paced_stack
from tests.e2e.stacks import demo_cache, noise

__all__ = ["demo_cache"]

pytestmark = [pytest.mark.e2e, pytest.mark.redis]

WAIT_S = 30.0
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector:
    """An OTLP collector that keeps what it gets: (service, name, trace, span, parent)."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, str, str, str, str]] = []
        self.heard = threading.Condition()
        collector = self

        class Post(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                self.send_response_only(200 if self.path == "/v1/traces" else 404)
                self.end_headers()
                collector.take(body, gzipped=self.headers.get("content-encoding") == "gzip")

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Post)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def take(self, body: bytes, *, gzipped: bool) -> None:
        assert not gzipped
        request = ExportTraceServiceRequest.FromString(body)
        with self.heard:
            for resource in request.resource_spans:
                facts = {each.key: each.value.string_value for each in resource.resource.attributes}
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        ids = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
                        self.spans.append((facts["service.name"], span.name, *ids))
            self.heard.notify_all()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


def test_a_trace_crosses_the_processes(
    collector: Collector, demo_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gateway and worker send their parts of the caller's trace, the worker's under the gateway's,
    at the latest when they end."""
    for name, value in noise(demo_cache).items():
        monkeypatch.setenv(name, value)
    settings = {"PSIONIC_CSM_OTLP_ENDPOINT": collector.url}
    with paced_stack(PacedPlan(workers=1, lanes=2, step_ms=5, settings=settings)) as stack:
        answer = httpx.post(
            f"{stack.url}/psionic/csm/speech",
            json={"input": "Hello.", "max_audio_length_ms": 400},
            headers={"traceparent": f"00-{TRACE}-{SPAN}-01"},
            timeout=WAIT_S,
            trust_env=False,
        )

    assert answer.status_code == 200
    deadline = time.monotonic() + WAIT_S
    with collector.heard:
        while len(collector.spans) < 7 and time.monotonic() < deadline:
            collector.heard.wait(0.5)
    spans = {
        name: (service, trace, own, parent) for service, name, trace, own, parent in collector.spans
    }
    assert {trace for _, trace, _, _ in spans.values()} == {TRACE}
    request, attempt = spans["POST /psionic/csm/speech"], spans["attempt"]
    assert (request[0], attempt[0]) == ("psionic-csm-gateway", "psionic-csm-worker")
    assert request[3] == SPAN
    assert attempt[3] == request[2]
    assert {spans[name][3] for name in ("admission", "queue", "delivery")} == {request[2]}
    assert {spans[name][3] for name in ("prefill", "generation")} == {attempt[2]}
