"""What breaks each check of ``smoke``: for every promise, answers that don't keep it."""

from __future__ import annotations

from dataclasses import replace

from cli.conformance.run import TEXT
from shared import paths
from shared.wav import HEADER_BYTES
from tests.cli.conformance.bending import (
    SPEECH,
    header,
    is_outcome,
    key,
    last_event,
    louder,
    named,
    on,
    outcomes,
    refusals,
    silent,
    spoken,
    sse_without_done,
    status,
    streamed,
    swapped,
    twice,
    under,
)
from tests.cli.conformance.liar import Lie

METADATA = "/psionic/csm/worker/metadata"
EVIDENCE = "/psionic/csm/evidence/"
PATHS = [value for name, value in vars(paths).items() if name.isupper()]

unjudged = key("business_outcome", value=None)

LIES: dict[str, list[Lie]] = {
    "live": [status(503), swapped(b"live", b"alive")],
    "ready": [status(503), swapped(b"ready", b"soon")],
    "health": [
        status(503),
        key("codec_capabilities", value=...),
        key("voice_profiles", 0, "speaker", value="1"),
        key("governance", "missing_governance_blocks", value=...),
        key("artifact_descriptor", "frame_contract", "max_seq_len", value=...),
        key("runtime", "gpu_model", value=None),
        key("runtime", "state", value="loading"),
        key("runtime", "mimi_loaded", value=False),
        key("runtime", "requested_backend", value="cuda"),
        key("execution_engine", value="torch_csm_cuda"),
        key("status", value="degraded"),
        key("capability", value="poetry"),
        key("worker", "cancellation", value="bounded_admission_only"),
        key("governance", "artifact_hash", value=f"sha256:{'f' * 64}"),
        key("artifact_descriptor", "model_id", value="somebody/else"),
        key("governance", "allowed_voice_profile_ids", value=["anybody"]),
        key("supported_response_formats", value=["pcm"]),
        header("content-type", "text/plain"),
    ],
    "metadata": [
        on(METADATA, key("workers", value=...)),
        on(METADATA, key("workers", value=[])),
        on(METADATA, key("workers", 0, "utilization", value=...)),
        on(METADATA, key("workers", 0, "requested_backend", value="cuda")),
        on(METADATA, key("workers", 0, "artifact_id", value="another")),
    ],
    "models": [
        on("/v1/models", key("data", 0, "psionic_governance", "license_posture", value="free")),
        on("/v1/models", key("data", 0, "id", value="gpt")),
        on("/v1/models", key("data", value=[])),
        on("/v1/models", key("object", value="array")),
        on("/v1/models", key("data", 0, "psionic_runtime", value=...)),
    ],
    "load": [
        on("/psionic/csm/load", key("capacity_lanes", value=99)),
        on("/psionic/csm/load", key("oldest_wait_ms", value=...)),
        on("/psionic/csm/load", key("artifacts", 0, "artifact_id", value=None)),
    ],
    "metrics": [
        status(401),
        header("content-type", "text/html"),
        swapped(b"psionic_csm_requests_total", b"requests"),
        lambda said: replace(said, body=b"no metrics {"),
    ],
    "OpenAPI": [
        on("/openapi.json", key("openapi", value="3.0.3")),
        *(on("/openapi.json", key("paths", path, value=...)) for path in PATHS),
        on("/openapi.json", key("paths", SPEECH, "post", value=...)),
        on("/openapi.json", key("paths", value=None)),
    ],
    "speaks in one piece": [
        spoken(louder),
        spoken(lambda said: replace(said, body=said.body[:-1920])),
        spoken(header("x-psionic-csm-wav-pcm16-digest", f"sha256:{'0' * 64}")),
        spoken(header("x-psionic-csm-pcm16-sha256", f"sha256:{'0' * 64}")),
        spoken(header("x-psionic-output-duration-ms", "161")),
        spoken(header("x-psionic-csm-generated-frame-count", "11")),
        spoken(header("x-psionic-csm-finish-reason", "length")),
        spoken(header("x-psionic-csm-finish-reason", "cancelled")),
        spoken(header("x-psionic-csm-worker-id", None)),
        spoken(header("x-psionic-csm-license-posture", "free")),
        spoken(header("x-psionic-csm-artifact-id", "another")),
        spoken(header("x-psionic-artifact-mimi-weight-digest", f"sha256:{'0' * 64}")),
        spoken(header("x-psionic-csm-hit-eos", "yes")),
        spoken(header("x-psionic-csm-attempt", "first")),
        spoken(header("x-psionic-csm-seed", "8")),
        spoken(header("x-psionic-csm-replayed", "true")),
        spoken(header("x-psionic-request-id", "another")),
        spoken(header("x-psionic-requested-backend", "cuda")),
        spoken(header("content-type", "audio/mpeg")),
        spoken(status(201)),
    ],
    "replays an id": [
        spoken(header("x-psionic-csm-replayed", None)),
        on("/v1/audio/speech", louder),
        on("/v1/audio/speech", header("x-psionic-csm-seed", "8")),
    ],
    "refuses an id with another meaning": [refusals(silent)],
    "takes ids from headers": [
        lambda said: said if "request_id" in said.asked else said.without("x-psionic-csm-replayed")
    ],
    "result by id": [
        under(SPEECH + "/", key("state", value="running")),
        under(SPEECH + "/", key("terminal", value=None)),
        under(SPEECH + "/", key("terminal", "wav_bytes", value=44)),
        under(SPEECH + "/", key("terminal", "seed", value=8)),
        under(SPEECH + "/", key("terminal", "determinism_class", value=...)),
        under(SPEECH + "/", status(404)),
    ],
    "audio by id": [
        under(SPEECH + "/", louder),
        under(SPEECH + "/", header("x-psionic-csm-frames-sha256", None)),
        under(SPEECH + "/", header("content-type", "audio/pcm")),
    ],
    "evidence by id": [
        under(EVIDENCE, status(404)),
        under(EVIDENCE, key("state", value="running")),
        under(EVIDENCE, key("schema_version", value="v0")),
        under(EVIDENCE, key("business_authority", value=...)),
        under(EVIDENCE, key("terminal", "seed", value=8)),
        under(EVIDENCE, key("request", value=None)),
        under(EVIDENCE, key("request", "input_sha256", value=f"sha256:{'0' * 64}")),
        under(EVIDENCE, key("request", "input", value=TEXT)),
        under(EVIDENCE, key("governance", "artifact", "artifact_id", value="another")),
        under(EVIDENCE, key("governance", "manifest_sha256", value=...)),
        under(EVIDENCE, header("x-psionic-request-id", None)),
    ],
    "records an outcome once": [
        outcomes(status(202)),
        outcomes(key("business_outcome", "mode", value="live")),
        outcomes(key("business_outcome", "recorded_at_unix_ms", value=...)),
        outcomes(lambda said: said if said.status == 200 else silent(said)),
        refusals(silent),
        refusals(key("error", "code", value="request_id_conflict")),
        lambda said: said if is_outcome(said) else under(EVIDENCE, unjudged)(said),
    ],
    "takes no text for an outcome": [refusals(silent)],
    "console": [
        status(401),
        header("content-type", "text/plain"),
        header("content-security-policy", None),
        header("content-security-policy", "default-src *"),
    ],
    "format pcm": [
        lambda said: louder(said) if said.asked.get("response_format") == "pcm" else said,
        lambda said: (
            said.with_headers(**{"content-type": "audio/wav"})
            if said.asked.get("response_format") == "pcm"
            else said
        ),
    ],
    "formats with encoders": [
        lambda said: (
            replace(said, body=b"RIFF")
            if said.asked.get("response_format") in ("mp3", "opus", "aac", "flac")
            else said
        ),
        lambda said: (
            replace(said, body=said.body[:24] + b"\x00\x00" + said.body[26:])
            if said.asked.get("response_format") == "flac"
            else said
        ),
    ],
    "refuses a format it can't make": [refusals(silent)],
    "stream multipart_mixed": [
        streamed("multipart_mixed", swapped(b"--psionic-csm-stream--\r\n", b"")),
        streamed("multipart_mixed", swapped(b"Chunk-Index: 1", b"Chunk-Index: 2")),
        streamed(
            "multipart_mixed",
            swapped(b"Bytes: 3884", b"Bytes: 3883"),
        ),
        streamed("multipart_mixed", swapped(b"Final-Chunk: false", b"Final-Chunk: true")),
        streamed("multipart_mixed", swapped(b"\r\n--psionic", b"\n--psionic")),
        streamed("multipart_mixed", swapped(b'"event":"terminal"', b'"event":"the end"')),
        streamed("multipart_mixed", header("content-type", "multipart/mixed; boundary=other")),
        streamed("multipart_mixed", header("x-psionic-stream-window-frames", "2")),
        streamed("multipart_mixed", header("cache-control", None)),
    ],
    "stream jsonl_base64": [
        streamed("jsonl_base64", last_event),
        streamed("jsonl_base64", twice),
        streamed("jsonl_base64", swapped(b'"chunk_index":1', b'"chunk_index":0')),
        streamed("jsonl_base64", swapped(b'"duration_ms":80', b'"duration_ms":81')),
        streamed("jsonl_base64", swapped(b'"elapsed_ms":', b'"elapsed":')),
        streamed("jsonl_base64", swapped(b'digest":"sha256:', b'digest":"sha256:0')),
        streamed("jsonl_base64", swapped(b'"finish_reason":"stop"', b'"finish_reason":"length"')),
        streamed("jsonl_base64", swapped(b'"event":"start"', b'"event":"begin"')),
        streamed("jsonl_base64", swapped(b"UklGR", b"UklGS")),
        streamed("jsonl_base64", swapped(b"\n", b"\n\n")),
        streamed("jsonl_base64", header("x-psionic-stream-format", "multipart_mixed")),
        streamed("jsonl_base64", header("content-length", "9")),
    ],
    "stream audio": [
        streamed("audio", louder),
        streamed("audio", lambda said: replace(said, body=said.body[HEADER_BYTES:])),
        streamed("audio", lambda said: replace(said, body=said.body[:-2])),
    ],
    "stream sse": [
        streamed("sse", sse_without_done),
        streamed("sse", swapped(b"event: speech.audio.done", b"event: done")),
        streamed("sse", swapped(b'"type":"speech.audio.delta"', b'"type":"delta"')),
        streamed("sse", swapped(b"\n\n", b"\n")),
        streamed("sse", swapped(b'"seed":', b'"seeds":')),
    ],
    "voice-turn budget in one piece": [
        named("-budget", header("x-psionic-csm-voice-turn-budget-exceeded", None))
    ],
    "voice-turn budget in a stream": [
        named("-fallback", swapped(b'"event":"fallback"', b'"event":"too late"')),
        named("-fallback", swapped(b'"reason":', b'"why":')),
    ],
    "remembers a cancel": [
        under("/psionic/csm/cancellations", key("remembered", value=False)),
        under("/psionic/csm/cancellations", key("hits", value=...)),
        named("-late", silent),
        named("-late", header("x-psionic-cancellation-id", None)),
    ],
    "cancels an answer in one piece": [
        under("/psionic/csm/cancellations", key("hits", value=[])),
        under("/psionic/csm/cancellations", key("hits", 0, "was", value="asleep")),
        named("-hushed", silent),
        named("-hushed", key("error", "retryable", value=True)),
    ],
    "knows no result of an unknown id": [
        refusals(silent),
        lambda said: silent(said) if said.path.endswith("/audio") else said,
    ],
    "refuses a raw prompt as a voice": [refusals(silent)],
    "refuses malformed JSON": [refusals(status(500))],
    "refuses what is no object": [refusals(status(400))],
    "refuses a body that is too large": [refusals(status(400)), refusals(silent)],
    "refuses another media type": [refusals(silent)],
    "refuses another method": [refusals(header("allow", None)), refusals(header("allow", "HEAD"))],
    "refuses an unknown route": [refusals(header("content-type", "text/plain"))],
    "refuses an unclear cancel": [refusals(silent)],
}
"""What breaks each check, but for those that need more than a bent answer: these have tests of
their own."""

BENT_REFUSALS: list[Lie] = [
    silent,
    status(500),
    key("error", "code", value="internal_error"),
    key("error", "type", value="server_error"),
    key("error", "retryable", value=True),
    key("error", "fallback_recommended", value=True),
    key("error", "message", value=...),
    key("error", "rollback_target", value=...),
    key("error", "execution_mode", value="emulated"),
    header("x-psionic-csm-failure-code", None),
    header("x-should-retry", "true"),
    header("x-should-retry", None),
    header("retry-after", "3"),
    header("content-type", "text/plain; charset=utf-8"),
]

DISABLED_LIES: dict[str, list[Lie]] = {
    "not ready": [
        status(200),
        swapped(b"not_ready", b"ready"),
        on("/health/ready", key("reasons", value=[])),
    ],
    "health": [
        status(503),
        key("status", value="ok"),
        key("runtime", "refusal", "pending_phases", value=[]),
        key("execution_refusal", value=...),
        key("runtime", "residency", value="warm_cuda"),
        key("served_backend", value="cpu"),
    ],
    "metadata": [on(METADATA, key("status", value="ok"))],
    "refuses to speak in one piece": [
        on("/v1/audio/speech", silent),
        on(SPEECH, status(500)),
        on(SPEECH, header("retry-after", None)),
        on(SPEECH, header("retry-after", "0")),
        on(SPEECH, header("x-should-retry", "false")),
        on(SPEECH, header("x-psionic-served-backend", "cpu")),
        on(SPEECH, header("x-psionic-runtime-state", "ready")),
        on(SPEECH, header("x-psionic-csm-voice-profile-id", None)),
        on(SPEECH, header("x-psionic-request-id", None)),
        on(SPEECH, key("error", "code", value="draining")),
        on(SPEECH, key("error", "request_id", value=None)),
    ],
    "refuses to speak in a stream": [
        lambda said, name=name: silent(said) if said.asked.get("stream_format") == name else said  # type: ignore[misc]
        for name in ("multipart_mixed", "jsonl_base64", "audio", "sse")
    ],
}

OF_THEIR_OWN = {"keys", "cancels a stream", "forgets who left"}
