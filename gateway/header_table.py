"""Every header of an operation's answers, and what its value is. Tests hold the answers to it."""

from __future__ import annotations

from typing import Final

TEXT: Final = "string"
WHOLE: Final = "integer"
TRUTH: Final = "boolean"

# On every answer whose request had a readable id.
IDS: Final = {
    "x-psionic-request-id": (TEXT, "the request's id"),
    "x-request-id": (TEXT, "the same, where OpenAI's clients look for it"),
}

# On a refusal or failure.
FAILURE: Final = {
    **IDS,
    "x-psionic-csm-failure-code": (TEXT, "the envelope's code"),
    "x-should-retry": (TRUTH, "whether the same request may succeed later"),
    "connection": (
        TEXT,
        "close: the body was not read to its end, or the gateway drains",
    ),
}
RETRY_AFTER: Final = {"retry-after": (WHOLE, "seconds")}
CHALLENGE: Final = {"www-authenticate": (TEXT, "Bearer")}

# On every answer to a request that got past validation.
CALL: Final = {
    **IDS,
    "x-psionic-cancellation-id": (TEXT, "the request's cancellation id"),
    "x-psionic-model-id": (TEXT, "the name that the model was asked for by"),
    "x-psionic-timeout-ms": (WHOLE, "the time that the request has"),
    "x-psionic-csm-text-normalization": (TEXT, "what was done to the text"),
    "x-psionic-csm-spoken-text-sha256": (TEXT, "digest of the text that is spoken"),
    "x-psionic-csm-artifact-id": (TEXT, "the artifact that speaks"),
    "x-psionic-csm-governance-schema": (TEXT, "the schema of what is said of it"),
    "x-psionic-csm-license-posture": (TEXT, "from the artifact's manifest"),
    "x-psionic-csm-runtime-image-ref": (TEXT, "the image that serves"),
    "x-psionic-csm-voice-profile-id": (TEXT, "the voice"),
    "x-psionic-csm-source-prompt-profile-id": (TEXT, "the prompt behind the voice"),
    "x-psionic-csm-voice-approval-status": (TEXT, "from the voice's manifest"),
    "x-psionic-csm-runtime-admission": (TEXT, "from the voice's manifest"),
    "x-psionic-csm-consent-posture": (TEXT, "from the voice's manifest"),
    "x-psionic-csm-watermarking": (TEXT, "the watermark policy's status"),
    "x-psionic-csm-watermark-refusal-code": (TEXT, "why there is no watermark"),
    "x-psionic-csm-promotion-gate": (TEXT, "from the artifact's manifest"),
    "x-psionic-csm-rollback-target": (TEXT, "where to fall back to"),
    "x-psionic-artifact-csm-config-digest": (TEXT, "of the artifact's files"),
    "x-psionic-artifact-csm-model-digest": (TEXT, "of the artifact's files"),
    "x-psionic-artifact-llama-tokenizer-digest": (TEXT, "of the artifact's files"),
    "x-psionic-artifact-mimi-weight-digest": (TEXT, "of the artifact's files"),
    "x-psionic-served-backend": (TEXT, "what serves, or none"),
    "x-psionic-requested-backend": (TEXT, "what the worker was asked to serve from"),
    "x-psionic-execution-mode": (TEXT, "native"),
    "x-psionic-execution-engine": (TEXT, "the engine, or none"),
    "x-psionic-runtime-state": (TEXT, "ready, loading, unavailable"),
    "x-psionic-csm-replayed": (TRUTH, "true for an answer from the record"),
    "x-psionic-csm-voice-turn-budget-exceeded": (TRUTH, "true when the budget was used up"),
}

# On a stream.
STREAM: Final = {
    "x-psionic-streaming-mode": (TEXT, "generation_time_windowed"),
    "x-psionic-stream-format": (TEXT, "the framing"),
    "x-psionic-stream-window-frames": (WHOLE, "frames per event: 1"),
    "cache-control": (TEXT, "no-store"),
}

# On an answer with the whole audio.
RESULT: Final = {
    "x-psionic-csm-generated-frame-count": (WHOLE, "frames of 80 ms"),
    "x-psionic-csm-prompt-frame-count": (WHOLE, "positions of the prompt"),
    "x-psionic-csm-hit-eos": (TRUTH, "whether the model ended by itself"),
    "x-psionic-csm-frames-sha256": (TEXT, "digest of the codes"),
    "x-psionic-csm-wav-pcm16-digest": (TEXT, "digest of the WAV file"),
    "x-psionic-csm-pcm16-sha256": (TEXT, "digest of the samples"),
    "x-psionic-first-audio-latency-ms": (WHOLE, "from admission to the first frame"),
    "x-psionic-full-generation-latency-ms": (WHOLE, "from admission to the end"),
    "x-psionic-output-duration-ms": (WHOLE, "of the audio"),
    "x-psionic-stream-chunk-count": (WHOLE, "1"),
    "x-psionic-residency-mode": (TEXT, "where the model is kept"),
    "x-psionic-accelerated-backend": (TEXT, "the accelerator, or why there is none"),
    "x-psionic-generation-backend": (TEXT, "what spoke"),
    "x-psionic-generation-execution-engine": (TEXT, "what spoke"),
    "x-psionic-gpu-model": (TEXT, "the device's own name"),
    "x-psionic-cpu-fallback-reason": (TEXT, "why a CPU spoke in an accelerator's place"),
    "x-psionic-csm-finish-reason": (TEXT, "stop or length"),
    "x-psionic-csm-queue-wait-ms": (WHOLE, "from admission to the claim"),
    "x-psionic-csm-worker-id": (TEXT, "who spoke"),
    "x-psionic-csm-attempt": (WHOLE, "how many workers had the job"),
    "x-psionic-csm-seed": (WHOLE, "the seed that was used"),
    "x-psionic-csm-result-ttl-s": (WHOLE, "how long the audio is still kept"),
}
