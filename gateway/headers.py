"""Response headers of the speech routes. All values are strings; times are milliseconds."""

from __future__ import annotations

from gateway.call import SpeechCall
from gateway.envelope import EXECUTION_MODE, flag, id_headers, printable
from gateway.finish import Finish
from gateway.runtime import Served
from gateway.streams import STREAMING_MODE
from shared.governance.artifacts import GOVERNANCE_SCHEMA, Artifact
from shared.governance.voices import VoiceProfile

REPLAYED = "x-psionic-csm-replayed"
BUDGET_EXCEEDED = "x-psionic-csm-voice-turn-budget-exceeded"


def execution_headers(call: SpeechCall, served: Served, runtime_image_ref: str) -> dict[str, str]:
    """On every answer to a request that got past validation."""
    headers = {
        "x-psionic-model-id": printable(call.model),
        **id_headers(call.job.request_id),
        "x-psionic-timeout-ms": str(call.timeout_ms),
        "x-psionic-csm-text-normalization": call.text_normalization,
        "x-psionic-csm-spoken-text-sha256": call.spoken_text_sha256,
        **_governance_headers(call.artifact, call.profile, runtime_image_ref),
        "x-psionic-served-backend": printable(served.backend),
        "x-psionic-execution-mode": EXECUTION_MODE,
        "x-psionic-execution-engine": printable(served.execution_engine),
        "x-psionic-requested-backend": printable(served.requested_backend),
        "x-psionic-runtime-state": served.runtime_state,
    }
    if call.job.cancellation_id is not None:
        headers["x-psionic-cancellation-id"] = call.job.cancellation_id
    return headers


def _governance_headers(
    artifact: Artifact, profile: VoiceProfile, runtime_image_ref: str
) -> dict[str, str]:
    """What the manifests alone say; their texts are legal header values."""
    manifest, watermark = artifact.manifest, profile.watermark_policy
    digests = {
        f"x-psionic-artifact-{name.replace('_', '-')}": digest
        for name, digest in artifact.published_digests().items()
    }
    return {
        "x-psionic-csm-artifact-id": artifact.artifact_id,
        "x-psionic-csm-governance-schema": GOVERNANCE_SCHEMA,
        "x-psionic-csm-license-posture": manifest.license_posture,
        "x-psionic-csm-runtime-image-ref": runtime_image_ref,
        "x-psionic-csm-voice-profile-id": profile.profile_id,
        "x-psionic-csm-source-prompt-profile-id": profile.source_prompt_profile_id,
        "x-psionic-csm-voice-approval-status": profile.approval_status,
        "x-psionic-csm-runtime-admission": profile.runtime_admission,
        "x-psionic-csm-consent-posture": profile.consent_posture,
        "x-psionic-csm-watermarking": watermark.status,
        "x-psionic-csm-watermark-refusal-code": watermark.refusal_code,
        "x-psionic-csm-promotion-gate": manifest.promotion.primary,
        "x-psionic-csm-rollback-target": manifest.rollback_target,
        **digests,
    }


def stream_headers(stream_format: str) -> dict[str, str]:
    return {
        "x-psionic-streaming-mode": STREAMING_MODE,
        "x-psionic-stream-format": stream_format,
        "x-psionic-stream-window-frames": "1",
        "cache-control": "no-store",
    }


def result_headers(finish: Finish, *, seed: int | None, kept_ms: int) -> dict[str, str]:
    """On a one-shot answer with audio: what was generated, on what, and how long it took.

    ``kept_ms``: for how long the audio is kept from now on.
    """
    terminal, end = finish.terminal, finish.end
    headers = {
        "x-psionic-csm-generated-frame-count": str(terminal.generated_frame_count),
        "x-psionic-csm-prompt-frame-count": str(terminal.prompt_frame_count),
        "x-psionic-csm-hit-eos": flag(terminal.stop_cause == "eos"),
        "x-psionic-csm-frames-sha256": terminal.codebook_frames_sha256 or "",
        "x-psionic-csm-wav-pcm16-digest": terminal.wav_pcm16_digest or "",
        "x-psionic-csm-pcm16-sha256": terminal.pcm16_sha256 or "",
        "x-psionic-first-audio-latency-ms": str(end.first_audio_latency_ms),
        "x-psionic-full-generation-latency-ms": str(end.full_generation_latency_ms),
        "x-psionic-output-duration-ms": str(finish.duration_ms),
        "x-psionic-stream-chunk-count": "1",
        "x-psionic-residency-mode": printable(terminal.residency),
        "x-psionic-accelerated-backend": printable(terminal.accelerated_backend),
        "x-psionic-generation-backend": printable(terminal.backend),
        "x-psionic-generation-execution-engine": printable(terminal.execution_engine),
        "x-psionic-gpu-model": printable(terminal.gpu_model),
        "x-psionic-csm-finish-reason": end.finish_reason,
        "x-psionic-csm-queue-wait-ms": str(end.queue_wait_ms),
        "x-psionic-csm-worker-id": printable(terminal.worker_id),
        "x-psionic-csm-attempt": str(end.attempt),
        "x-psionic-csm-result-ttl-s": str(kept_ms // 1000),
    }
    if seed is not None:
        headers["x-psionic-csm-seed"] = str(seed)
    if terminal.cpu_fallback_reason:
        headers["x-psionic-cpu-fallback-reason"] = printable(terminal.cpu_fallback_reason)
    return headers
