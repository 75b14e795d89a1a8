"""The documents that describe the service: what it is, what serves it, and how loaded it is.

Facts come from the artifacts' manifests, the live workers and the queue. The health document is
answered whole in every state: with Redis away, it says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway import runtime
from gateway.envelope import EXECUTION_MODE
from gateway.facts import Facts
from gateway.refusals import Refusals
from gateway.service_answers import Worker
from gateway.text import NORMALIZATIONS
from gateway.worker_section import codec_capabilities, load_of, worker_section
from scheduler.load import LoadSnapshot, QueueLoad
from shared.errors import SpeechError
from shared.governance.artifacts import Artifact, ArtifactRegistry
from shared.messages import READY
from shared.paths import OPENAI_SPEECH, SPEECH
from shared.settings import GatewaySettings

CAPABILITY: Final = "speech_generation"
ENDPOINTS: Final = (OPENAI_SPEECH, SPEECH)

CARD_SECTIONS: Final = (
    "capability",
    "supported_endpoints",
    "supported_response_formats",
    "supported_text_normalizations",
    "served_backend",
    "execution_mode",
    "execution_engine",
    "voice_profiles",
    "artifact_digests",
    "artifact_descriptor",
    "governance",
    "runtime",
    "worker",
    "codec_capabilities",
    "safety_capabilities",
)

MAYBE_SECTIONS: Final = ("execution_refusal", "speech_limits")
"""Of the health document, and so of the card, only where there is something to say."""


class Documents:
    """The documents of one gateway."""

    def __init__(
        self,
        settings: GatewaySettings,
        registry: ArtifactRegistry,
        facts: Facts,
        refusals: Refusals,
        formats: Sequence[str],
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._facts = facts
        self._refusals = refusals
        self._formats = formats
        self._namespace = settings.queue.namespace

    async def health(self) -> dict[str, Any]:
        return self._health(await self._facts.prompt())

    async def metadata(self) -> dict[str, Any]:
        """The health document, and each live worker of the namespace."""
        snapshot = await self._facts.prompt()
        workers = snapshot.workers if snapshot else ()
        return {**self._health(snapshot), "workers": [_worker(each) for each in workers]}

    async def models(self) -> dict[str, Any]:
        health = await self.health()
        card = {"id": self._settings.model_id, "object": "model", "owned_by": "psionic"}
        card |= {f"psionic_{section}": health[section] for section in CARD_SECTIONS}
        card |= {
            f"psionic_{section}": health[section] for section in MAYBE_SECTIONS if section in health
        }
        return {"object": "list", "data": [card]}

    async def load(self) -> dict[str, Any]:
        """Raises SpeechError("queue_unavailable") when Redis is away."""
        snapshot = await self._facts.snapshot()
        queues = {self._queue(artifact): artifact for artifact in self._registry.artifacts}
        names = sorted(queues.keys() | snapshot.queues.keys())
        refused = self._refusals.recent()
        rows = [snapshot.queue(name) for name in names]
        return {
            "queue_depth": sum(row.depth for row in rows),
            "in_flight_requests": sum(row.in_flight for row in rows),
            "capacity_lanes": sum(row.lanes for row in rows),
            "estimated_wait_ms": max(row.estimated_wait_ms for row in rows),
            "estimated_wait_error_ms": max(row.estimated_wait_error_ms for row in rows),
            "oldest_wait_ms": max(row.oldest_wait_ms for row in rows),
            "waiting_callers": sum(each.waiting_callers for each in snapshot.gateways),
            "redis_memory_ratio": round(snapshot.memory_ratio, 4),
            "refused_recently": sum(refused.values()),
            "refused_codes": refused,
            "artifacts": [
                {
                    "queue": row.queue,
                    "artifact_id": _artifact_id(queues.get(row.queue)),
                    **load_of(row),
                    "batch_queue_depth": row.batch_depth,
                    "mean_service_ms": row.mean_service_ms,
                    "mean_frame_ms": row.mean_frame_ms,
                    "budget_used": row.budget_used,
                    "estimated_wait_error_ms": row.estimated_wait_error_ms,
                    "estimated_wait_bias_ms": row.estimated_wait_bias_ms,
                    "deadline_margin_ms": row.deadline_margin_ms,
                }
                for row in rows
            ],
            "workers": [_worker(each) for each in snapshot.workers],
            "gateways": [
                {
                    "gateway_id": each.gateway_id,
                    "waiting_callers": each.waiting_callers,
                    "heartbeat_age_ms": each.age_ms,
                }
                for each in snapshot.gateways
            ],
        }

    async def not_ready_because(self) -> list[str]:
        """Codes of what keeps this gateway from serving the default artifact; empty when ready."""
        try:
            snapshot = await self._facts.snapshot()
        except SpeechError as error:
            return [error.code]
        default = self._registry.default
        if snapshot.queue(self._queue(default)).lanes > 0:
            return []
        return [runtime.refusal_code(runtime.workers_of(default, snapshot.workers))]

    def _queue(self, artifact: Artifact) -> str:
        return artifact.queue_name(self._namespace)

    def _health(self, snapshot: LoadSnapshot | None) -> dict[str, Any]:
        artifact = self._registry.default
        name = self._queue(artifact)
        summary = runtime.queue_away()
        if snapshot is not None:
            summary = runtime.summarise(runtime.workers_of(artifact, snapshot.workers))
        document = {
            "status": "ok" if summary["state"] == READY else "degraded",
            "model": self._settings.model_id,
            "capability": CAPABILITY,
            "served_backend": summary["backend"],
            "execution_mode": EXECUTION_MODE,
            "execution_engine": summary["execution_engine"],
            "supported_endpoints": list(ENDPOINTS),
            "supported_response_formats": list(self._formats),
            "supported_text_normalizations": list(NORMALIZATIONS),
            "voice_profiles": artifact.published_voices(),
            "artifact_digests": artifact.published_digests(),
            "artifact_descriptor": artifact.published_descriptor(),
            "governance": artifact.published_governance(self._settings.runtime_image_ref),
            "runtime": summary,
            "worker": worker_section(
                snapshot.queue(name) if snapshot else QueueLoad(name), self._settings.tier
            ),
            "codec_capabilities": codec_capabilities(summary["backend"]),
            "safety_capabilities": artifact.published_safety(),
        }
        if summary["refusal"] is not None:
            document["execution_refusal"] = summary["refusal"]
        if (limits := artifact.published_limits()) is not None:
            document["speech_limits"] = limits
        return document


def _worker(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: document.get(key) for key in Worker.model_fields}


def _artifact_id(artifact: Artifact | None) -> str | None:
    return artifact.artifact_id if artifact else None
