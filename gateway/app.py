"""The gateway as an ASGI application: its parts, how they meet, when they start and stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import redis.asyncio
import structlog
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from gateway.access import UNMATCHED, AccessLog
from gateway.auth import Authentication, Principals
from gateway.business import OutcomeRecorder
from gateway.console import Console
from gateway.delivery import Delivery
from gateway.documents import Documents
from gateway.encoders import working_encoders
from gateway.endpoints import Endpoints
from gateway.evidence import EvidenceReader
from gateway.facts import Facts
from gateway.failures import Failures
from gateway.formats import PLAIN_FORMATS
from gateway.hints import CarrierPush, Hints, Push
from gateway.metrics import GatewayMetrics
from gateway.open_requests import OpenRequests
from gateway.openapi import document
from gateway.probes import Probes
from gateway.refusals import Refusals
from gateway.results import ResultReader
from gateway.routes import speech_routes
from gateway.samples import Budget
from gateway.speech import Speech
from gateway.speech_endpoint import SpeechEndpoint
from gateway.validation import Validator
from scheduler.admission import Admission
from scheduler.business_outcomes import BusinessOutcomes
from scheduler.cancellation import Cancellation
from scheduler.connections import connect, connect_async
from scheduler.listeners import Listeners, new_gateway_id
from scheduler.load import Load
from scheduler.metrics import families
from scheduler.results import Results
from scheduler.subscriptions import EventReader
from shared.errors import SpeechError
from shared.governance.artifacts import ArtifactRegistry
from shared.metrics import CONTENT_TYPE
from shared.paths import OPENAI_SPEECH, SPEECH
from shared.settings import GatewaySettings
from shared.tracing import Spans, open_spans

READER_TIMEOUT_S: Final = 2.5
"""Longer than a read may block, so that silence is not taken for absence."""
GOODBYE_S: Final = 1.0
"""How long a gateway that ends waits for Redis."""

log = structlog.get_logger()


class Gateway:
    """The parts of one gateway process. ``app`` answers; ``drain`` stops letting anyone in."""

    def __init__(
        self,
        settings: GatewaySettings,
        registry: ArtifactRegistry,
        *,
        redis: redis.asyncio.Redis,
        blocking_redis: redis.asyncio.Redis,
        push: Push,
        formats: Sequence[str],
        spans: Spans,
    ) -> None:
        queue = settings.queue
        self._spans = spans
        gateway_id = new_gateway_id()
        self._registry = registry
        self._redis, self._blocking_redis = redis, blocking_redis
        self.facts = Facts(Load(redis, queue.namespace))
        self.reader = EventReader(blocking_redis, queue.namespace, gateway_id)
        self._results = Results(redis, queue.namespace)
        self.listeners = Listeners(
            redis, queue, self.reader, Admission(redis, queue), self._results, gateway_id
        )
        self._hints = Hints(push)
        self.metrics = GatewayMetrics((SPEECH, OPENAI_SPEECH))
        self.speech = Speech(self.listeners, self.facts, self._hints, queue.namespace, self.metrics)
        self.budget = Budget()
        self.open_requests = OpenRequests(settings.max_connections, self.metrics.inside)
        self._refusals = Refusals()
        self.formats = formats
        self._documents = Documents(settings, registry, self.facts, self._refusals, formats)
        self.document = document(settings, formats)
        failures = Failures(self.facts, registry.default)
        self.app = Starlette(
            routes=self._routes(settings),
            middleware=[
                Middleware(AccessLog, self._refusals, self.metrics, spans),
                Middleware(Authentication, Principals(settings.api_keys), failures.stranger),
            ],
            exception_handlers=failures.handlers,
            lifespan=self._lifespan,
        )
        self.app.router.redirect_slashes = False
        self.metrics.foresee_defects(
            [*(route.path for route in self.app.routes if isinstance(route, Route)), UNMATCHED]
        )

    def _routes(self, settings: GatewaySettings) -> Sequence[BaseRoute]:
        queue = settings.queue
        endpoints = Endpoints(
            self._documents,
            Cancellation(self._redis, queue),
            ResultReader(self._results),
            EvidenceReader(self._results, self._registry, settings.runtime_image_ref),
            OutcomeRecorder(BusinessOutcomes(self._redis, queue.namespace), self.metrics),
        )
        validator = Validator(settings, self._registry, self.formats)
        delivery = Delivery(settings, self.speech, self.facts, self.budget)
        strict, lenient = (
            SpeechEndpoint(
                validator,
                delivery,
                self.facts,
                self._registry.default,
                lenient=is_lenient,
                open_requests=self.open_requests,
                door=self.speech.door,
            )
            for is_lenient in (False, True)
        )
        probes = Probes(self.reader, self.listeners, self.speech, self._documents)
        return speech_routes(
            strict,
            lenient,
            endpoints,
            live=probes.live,
            ready=probes.ready,
            metrics=self._metrics_page,
            described=self._described,
            console=Console().page,
        )

    def drain(self) -> None:
        """Let nobody in any more; those inside are served to their end."""
        self.speech.draining = True

    def cut_off(self) -> None:
        """The grace is over: end what is still inside with ``draining``."""
        self.speech.cut_off()

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self.reader.start()
        self.listeners.start()
        try:
            yield
        finally:
            self.drain()
            await self._say_goodbye()
            await self.facts.close()
            await asyncio.to_thread(self._spans.close)
            await asyncio.gather(self._redis.aclose(), self._blocking_redis.aclose())

    async def _say_goodbye(self) -> None:
        """Have Redis hear that nobody waits here any more. What it doesn't hear lapses."""
        parts = (self.listeners, self.speech, self._hints)
        try:
            async with asyncio.timeout(GOODBYE_S):
                await asyncio.gather(*(part.close() for part in parts))
                await self.reader.close()
        except TimeoutError:
            self.reader.stop()
            log.warning("goodbye_cut_short", after_s=GOODBYE_S)

    async def _described(self, _: Request) -> Response:
        return JSONResponse(self.document)

    async def _metrics_page(self, _: Request) -> Response:
        try:
            snapshot = await self.facts.snapshot()
        except SpeechError:
            snapshot = None
        body = self.metrics.registry.exposition(families(snapshot))
        return Response(body, headers={"content-type": CONTENT_TYPE})


def create_gateway(
    settings: GatewaySettings,
    *,
    registry: ArtifactRegistry | None = None,
    redis: redis.asyncio.Redis | None = None,
    blocking_redis: redis.asyncio.Redis | None = None,
    push: Push | None = None,
    encoders: Sequence[str] | None = None,
    spans: Spans | None = None,
) -> Gateway:
    """A gateway over the settings' Redis, or over the clients that are given.

    ``encoders`` are the compressed formats to serve, else all that work here.

    ``push`` hands (queue, job id) to RQ. Raises SpeechError when an artifact can't be read,
    SettingsError when spans are wanted and can't be recorded.
    """
    url, namespace = settings.queue.redis_url, settings.queue.namespace
    return Gateway(
        settings,
        registry or ArtifactRegistry.load(settings.artifact_dirs),
        redis=redis or connect_async(url),
        blocking_redis=blocking_redis
        or connect_async(url, timeout_s=READER_TIMEOUT_S, max_connections=4),
        push=push or CarrierPush(connect(url), namespace),
        formats=(*PLAIN_FORMATS, *(working_encoders() if encoders is None else encoders)),
        spans=spans or open_spans("gateway", settings.otlp_endpoint, {"namespace": namespace}),
    )
