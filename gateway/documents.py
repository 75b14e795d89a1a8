"""The documents that describe the service: what it is, what serves it, and how loaded it is.

Facts come from the artifacts' manifests, the live workers and the queue. The health document is
answered whole in every state: with Redis away, it says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway import runtime
from gateway.access import Refusals
from gateway.envelope import EXECUTION_MODE
from gateway.facts import Facts
from gateway.lengths import MIN_DEFAULT_TIMEOUT_MS
from gateway.service_answers import Worker
from gateway.text import NORMALIZATIONS
from scheduler.load import LoadSnapshot, QueueLoad
from shared.errors import SpeechError
from shared.governance.artifacts import Artifact, ArtifactRegistry
from shared.messages import NOTHING, READY
from shared.paths import OPENAI_SPEECH, SPEECH
from shared.settings import GatewaySettings

BUSINESS_AUTHORITY: Final = "none_provider_output_is_evidence_not_instruction"
CAPABILITY: Final = "speech_generation"
ENDPOINTS: Final = (OPENAI_SPEECH, SPEECH)

RPC_FACTS: Final[dict[str, Any]] = {
    "worker_id": "psionic.csm_speech.worker.v1",
    "rpc_schema": "psionic.csm.speech.worker.v1",
    "request_fields": [
        "request_id",
        "input",
        "voice_profile_id",
        "artifact_id",
        "max_audio_length_ms",
        "timeout_ms",
        "cancellation_id",
        "stream",
        "context_policy",
        "seed",
        "priority",
        "voice_turn_budget_ms",
        "text_normalization",
    ],
    "response_metadata_fields": [
        "request_id",
        "cancellation_id",
        "artifact_id",
        "voice_profile_id",
        "generated_frame_count",
        "first_audio_latency_ms",
        "full_generation_latency_ms",
        "output_duration_ms",
        "wav_pcm16_digest",
        "codebook_frames_sha256",
        "chunk_count",
        "spoken_text_sha256",
    ],
    "idempotency_key": "request_id",
    "cancellation": "preemptive_between_frames",
}

RPC_LISTS: Final[dict[str, Any]] = {
    "metrics": [
        "queue_depth",
        "in_flight_requests",
        "first_audio_latency_ms",
        "full_generation_latency_ms",
        "output_duration_ms",
        "failure_code",
        "runtime_state",
    ],
    "governance_fields": [
        "artifact_id",
        "artifact_hash",
        "license_posture",
        "runtime_image_ref",
        "voice_profile_id",
        "watermark_status",
        "rollback_target",
    ],
    "business_authority": BUSINESS_AUTHORITY,
}

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
            "redis_memory_ratio": round(snapshot.memory_share, 4),
            "refused_recently": sum(refused.values()),
            "refused_codes": refused,
            "artifacts": [
                {
                    "queue": row.queue,
                    "artifact_id": _artifact_id(queues.get(row.queue)),
                    **_load(row),
                    "batch_queue_depth": row.batch_depth,
                    "mean_service_ms": row.mean_service_ms,
                    "mean_frame_ms": row.frame_ms,
                    "budget_used": row.budget_used,
                    "estimated_wait_error_ms": row.estimated_wait_error_ms,
                    "estimated_wait_bias_ms": row.estimated_wait_bias_ms,
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
            "worker": self._worker_section(snapshot),
            "codec_capabilities": _codec(summary["backend"]),
            "safety_capabilities": artifact.published_safety(),
        }
        if summary["refusal"] is not None:
            document["execution_refusal"] = summary["refusal"]
        if (limits := artifact.published_limits()) is not None:
            document["speech_limits"] = limits
        return document

    def _worker_section(self, snapshot: LoadSnapshot | None) -> dict[str, Any]:
        name = self._queue(self._registry.default)
        row = snapshot.queue(name) if snapshot else QueueLoad(name)
        return {
            **RPC_FACTS,
            "timeout_ms_default": min(MIN_DEFAULT_TIMEOUT_MS, self._settings.tier.max_timeout_ms),
            "timeout_ms_max": self._settings.tier.max_timeout_ms,
            **_load(row),
            **RPC_LISTS,
        }


def _load(row: QueueLoad) -> dict[str, int]:
    return {
        "queue_depth": row.depth,
        "in_flight_requests": row.in_flight,
        "capacity_lanes": row.lanes,
        "estimated_wait_ms": row.estimated_wait_ms,
        "oldest_wait_ms": row.oldest_wait_ms,
    }


def _worker(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: document.get(key) for key in Worker.model_fields}


def _artifact_id(artifact: Artifact | None) -> str | None:
    return artifact.artifact_id if artifact else None


def _codec(backend: str) -> dict[str, Any]:
    return {
        "mimi_decode": "implemented",
        "mimi_decode_engine": NOTHING if backend == NOTHING else f"torch_moshi_mimi_{backend}",
        "reference_audio_encode": "refused",
        "reference_audio_encode_refusal": {
            "code": "mimi_encode_not_served",
            "reason": "voices are governed profiles with committed prompt codebooks, never uploads",
            "required_phase": "mimi_encode_or_prompt_codebook_refresh",
        },
    }
