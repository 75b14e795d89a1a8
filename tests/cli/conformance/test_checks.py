"""Every check of ``smoke``: it holds for an honest gateway, and it sees the lie that breaks it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from cli.client import GatewayClient
from cli.conformance.plan import DISABLED, PLANS, SERVING
from cli.conformance.refusals import ROWS
from cli.conformance.report import BROKEN, KEPT, REFUSED, SKIPPED
from cli.conformance.run import TEXT
from gateway.operations import operations
from shared import paths
from shared.wav import HEADER_BYTES
from tests.cli.conformance.conftest import KEY, Deployment
from tests.cli.conformance.liar import Lie, Said

METADATA = "/psionic/csm/worker/metadata"
SPEECH = "/psionic/csm/speech"
EVIDENCE = "/psionic/csm/evidence/"
PATHS = [value for name, value in vars(paths).items() if name.isupper()]


def on(path: str, lie: Lie) -> Lie:
    """A lie that is told at one path."""
    return lambda said: lie(said) if said.path == path else said


def under(path: str, lie: Lie) -> Lie:
    return lambda said: lie(said) if said.path.startswith(path) else said


def refusals(lie: Lie) -> Lie:
    return lambda said: lie(said) if said.status >= 400 else said


def spoken(lie: Lie) -> Lie:
    return lambda said: lie(said) if said.path == SPEECH and said.status == 200 else said


def key(*path: str | int, value: Any) -> Lie:
    """Another value at one place of a document; a value of ... takes the key away."""

    def lie(said: Said) -> Said:
        document = said.document()
        place = document
        for name in path[:-1]:
            place = place[name]
        if value is ...:
            del place[path[-1]]
        else:
            place[path[-1]] = value
        return said.saying(document)

    return lie


def header(name: str, value: str | None) -> Lie:
    return lambda said: said.with_headers(**{name: value})


def status(code: int) -> Lie:
    return lambda said: replace(said, status=code)


def swapped(old: bytes, new: bytes) -> Lie:
    return lambda said: replace(said, body=said.body.replace(old, new))


def last_event(said: Said) -> Said:
    """A stream that leaves its last line out."""
    return replace(said, body=said.body[: said.body.rstrip().rfind(b"\n") + 1])


def twice(said: Said) -> Said:
    """A stream that says its last line twice."""
    return replace(said, body=said.body + said.body.splitlines(keepends=True)[-1])


def louder(said: Said) -> Said:
    """Other samples than those that the digests are of."""
    return replace(said, body=said.body[:HEADER_BYTES] + b"\x01" + said.body[HEADER_BYTES + 1 :])


def streamed(stream_format: str, lie: Lie) -> Lie:
    def told(said: Said) -> Said:
        is_it = said.asked.get("stream_format") == stream_format and said.status == 200
        return lie(said) if is_it else said

    return told


def named(suffix: str, lie: Lie) -> Lie:
    """A lie about the request whose id ends so."""
    return lambda said: (
        lie(said) if str(said.asked.get("request_id", "")).endswith(suffix) else said
    )


def sse_without_done(said: Said) -> Said:
    return replace(said, body=said.body[: said.body.index(b"event: speech.audio.done")])


def silent(said: Said) -> Said:
    return replace(said, status=200, body=b"{}", headers={"content-type": "application/json"})


def is_outcome(said: Said) -> bool:
    return said.path.endswith("/outcome")


def outcomes(lie: Lie) -> Lie:
    return lambda said: lie(said) if is_outcome(said) and said.status < 400 else said


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


def cases(lies: dict[str, list[Lie]]) -> list[Any]:
    return [
        pytest.param(name, lie, id=f"{name}-{number}")
        for name, told in lies.items()
        for number, lie in enumerate(told)
    ]


@pytest.mark.parametrize("check", PLANS[SERVING], ids=lambda check: check.name)
def test_an_honest_gateway_keeps_every_promise(deployment: Deployment, check: Any) -> None:
    """Each check holds by itself, without those before it."""
    verdict = deployment.check(check.name)

    assert (verdict.outcome, verdict.detail) == (
        (SKIPPED, "this deployment asks for no key")
        if check.name == "keys"
        else (KEPT, verdict.detail)
    )


@pytest.mark.parametrize("check", PLANS[DISABLED], ids=lambda check: check.name)
def test_a_disabled_gateway_keeps_what_it_can(disabled: Deployment, check: Any) -> None:
    """Without a worker every check of that plan holds, too."""
    verdict = disabled.check(check.name)

    assert verdict.outcome in (KEPT, SKIPPED), verdict.detail


@pytest.mark.parametrize(("name", "lie"), cases(LIES))
def test_a_lie_is_seen(deployment: Deployment, name: str, lie: Lie) -> None:
    """Each promise, broken in the answer, breaks its check."""
    verdict = deployment.check(name, lie)

    assert verdict.outcome == BROKEN, verdict.detail
    assert verdict.detail


@pytest.mark.parametrize(("name", "lie"), cases(DISABLED_LIES))
def test_a_lie_of_a_disabled_gateway_is_seen(disabled: Deployment, name: str, lie: Lie) -> None:
    """So it is where the runtime is off."""
    assert disabled.check(name, lie).outcome == BROKEN


@pytest.mark.parametrize("row", ROWS)
def test_a_refusal_that_is_none_is_seen(deployment: Deployment, row: str) -> None:
    """Each thing that has to be refused, accepted, breaks its check."""
    assert deployment.check(f"refuses {row}", refusals(silent)).outcome == BROKEN


@pytest.mark.parametrize("number", range(len(BENT_REFUSALS)))
def test_every_part_of_a_refusal_is_looked_at(deployment: Deployment, number: int) -> None:
    """Envelope, status, verdicts and headers: one that is wrong breaks the check."""
    verdict = deployment.check("refuses a blank text", refusals(BENT_REFUSALS[number]))

    assert verdict.outcome == BROKEN, verdict.detail


def test_a_refusal_of_the_wrong_field_is_seen(deployment: Deployment) -> None:
    """``param`` names what was wrong."""
    lie = refusals(key("error", "param", value="voice"))

    assert deployment.check("refuses a seed out of range", lie).outcome == BROKEN


def test_an_id_that_becomes_a_header_is_seen(deployment: Deployment) -> None:
    """What a request id smuggles in is looked for among the headers."""
    name = "refuses a request id with a line end"

    assert deployment.check(name, refusals(header("x-smoke", "1"))).outcome == BROKEN


def test_every_path_is_asked_for() -> None:
    """No path that a gateway answers at is missing from what its description is held to."""
    assert {operation.path for operation in operations(())} == set(PATHS)


def test_every_check_is_proven() -> None:
    """No check without a lie that breaks it."""
    rows = {f"refuses {name}" for name in ROWS}

    assert {check.name for check in PLANS[SERVING]} == LIES.keys() | rows | OF_THEIR_OWN
    assert {check.name for check in PLANS[DISABLED]} <= {
        *LIES,
        *DISABLED_LIES,
        *rows,
        *OF_THEIR_OWN,
    }


def test_a_key_is_needed_where_the_documents_say_so(locked: Deployment) -> None:
    """Honest, it holds; a gateway that answers without the key, hides a probe, or keeps to itself
    that it needs a key, does not.
    """
    assert locked.check("keys").outcome == KEPT
    for lie in (
        lambda said: silent(said) if said.status == 401 else said,
        lambda said: silent(said) if said.status == 401 and is_outcome(said) else said,
        refusals(header("www-authenticate", None)),
        lambda said: replace(said, status=401) if said.path == "/health/live" else said,
        on("/openapi.json", lambda said: said.saying({**said.document(), "security": []})),
    ):
        assert locked.check("keys", lie).outcome == BROKEN


def test_who_has_a_key_expects_that_nobody_else_gets_in(deployment: Deployment) -> None:
    """An open gateway fails whoever brings a key, though its documents ask for none."""
    verdict = replace(deployment, api_key=KEY).check("keys")

    assert verdict.outcome == BROKEN
    assert "without a key is HTTP" in verdict.detail


def test_a_wrong_key_that_gets_in_is_seen(locked: Deployment) -> None:
    """A deployment that refuses whoever has no key, and takes any key at all, fails."""
    verdict = locked.check(
        "keys", lambda said: silent(said) if said.status == 401 and said.had_key else said
    )

    assert verdict.outcome == BROKEN
    assert "with a wrong key is HTTP 200" in verdict.detail


def test_a_missing_key_is_a_refusal_and_no_broken_promise(locked: Deployment) -> None:
    """Who forgets the key learns that, and nothing of the deployment."""
    with GatewayClient(locked.client.url) as client:
        verdict = replace(locked, client=client).check("speaks in one piece")

    assert (verdict.outcome, verdict.code) == (REFUSED, "unauthorized")
    assert KEY not in json.dumps(verdict.detail)


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(under("/psionic/csm/cancellations", key("hits", value=[])), id="no hit"),
        pytest.param(under("/psionic/csm/cancellations", status(200)), id="no 202"),
        pytest.param(under(SPEECH + "/", swapped(b'"cancelled"', b'"stop"')), id="no result"),
    ],
)
def test_a_cancel_that_does_not_hold_is_seen(deployment: Deployment, lie: Lie) -> None:
    """The stream itself is honest: what is bent is what is said of it."""
    assert deployment.check("cancels a stream", lie, live=SPEECH).outcome == BROKEN


def test_who_left_and_is_not_forgotten_is_seen(deployment: Deployment) -> None:
    """A result that stays where its only caller has left breaks the check."""

    def lie(said: Said) -> Said:
        left = said.path.endswith("-left") and said.status == 404
        return silent(said).saying({"state": "running"}) if left else said

    verdict = deployment.check("forgets who left", lie, live=SPEECH, timeout_s=1.0)

    assert verdict.outcome == BROKEN
