"""Evidence: the record by which somebody judges one request afterwards.

What was asked, what came of it, what governed it and what the caller's business made of it, under
one schema. The text is there by its digest alone. Nothing in it instructs anybody.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.business import as_evidence
from gateway.call import SpeechCall
from gateway.results import found, told
from gateway.worker_section import BUSINESS_AUTHORITY
from scheduler.results import JobRecord, Results
from shared.digests import sha256_hex
from shared.errors import SpeechError
from shared.governance.artifacts import Artifact, ArtifactRegistry
from shared.wav import FRAME_MS

EVIDENCE_SCHEMA: Final = "psionic.csm.evidence.v1"
NAMED: Final = (
    "model",
    "artifact_id",
    "voice_profile_id",
    "seed",
    "text_normalization",
    "spoken_text_sha256",
)
"""What was asked that a terminal states too, and that is known before there is one."""


def asked(call: SpeechCall) -> dict[str, Any]:
    """What a request asked for, with every default filled in, to be kept with its outcome."""
    job = call.job
    return {
        "input_sha256": sha256_hex(call.sent.encode()),
        "input_characters": len(call.sent),
        "context_policy": job.context_policy,
        "max_audio_length_ms": job.max_frames * FRAME_MS,
        "temperature": job.temperature,
        "top_k": job.top_k,
        "priority": call.priority,
        "timeout_ms": call.timeout_ms,
        "voice_turn_budget_ms": call.voice_turn_budget_ms,
        "response_format": call.transport.response_format,
        "stream_format": call.transport.stream_format,
        "manifest_sha256": call.artifact.manifest_digest,
    }


class EvidenceReader:
    """Reads the evidence of a principal's own requests."""

    def __init__(
        self, results: Results, registry: ArtifactRegistry, runtime_image_ref: str
    ) -> None:
        self._results = results
        self._registry = registry
        self._image = runtime_image_ref

    async def document(self, principal: str, request_id: str) -> dict[str, Any]:
        """Whole once the request has ended. Raises ``result_not_found``."""
        record = await found(self._results, principal, request_id)
        now_ms, left_ms = await self._results.clock(record.job_id)
        end = record.end
        ended_ms = record.admitted_ms + end.full_generation_latency_ms if end else None
        known = dict(record.facts.get("asked") or {})
        digest = known.pop("manifest_sha256", None)
        named = {name: record.facts.get(name) for name in NAMED}
        return {
            "schema_version": EVIDENCE_SCHEMA,
            "business_authority": BUSINESS_AUTHORITY,
            **told(record),
            "admitted_at_unix_ms": record.admitted_ms,
            "ended_at_unix_ms": ended_ms,
            "read_at_unix_ms": now_ms,
            "kept_until_unix_ms": now_ms + left_ms if end else None,
            "request": {**named, **known} if known else None,
            "governance": self._governance(record, digest),
            "business_outcome": as_evidence(record.business_outcome),
        }

    def _governance(self, record: JobRecord, manifest_digest: str | None) -> dict[str, Any]:
        """As the manifest says it that the request was admitted under, if this gateway has it."""
        artifact = self._artifact(record.facts.get("artifact_id"), manifest_digest)
        named: dict[str, Any] = {
            "manifest_sha256": manifest_digest,
            "artifact": None,
            "artifact_digests": None,
            "voice_profile": None,
        }
        if artifact is None:
            return named
        terminal = record.end.terminal if record.end else None
        image = terminal.runtime_image_ref if terminal else self._image
        voice = record.facts.get("voice_profile_id")
        profiles = (each for each in artifact.published_voices() if each["id"] == voice)
        return {
            **named,
            "artifact": artifact.published_governance(image),
            "artifact_digests": artifact.published_digests(),
            "voice_profile": next(profiles, None),
        }

    def _artifact(self, artifact_id: str | None, manifest_digest: str | None) -> Artifact | None:
        try:
            artifact = self._registry.resolve(artifact_id or "")
        except SpeechError:
            return None
        return artifact if artifact.manifest_digest == manifest_digest else None
