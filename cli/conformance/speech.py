"""One short answer in one piece, and what its id stands for afterwards."""

from __future__ import annotations

from typing import Any, Final

from cli.conformance.documents import as_asked
from cli.conformance.envelope import refused
from cli.conformance.promise import promised, same
from cli.conformance.run import LENGTH_MS, OTHER_TEXT, SEED, Run
from cli.conformance.shapes import has_headers
from cli.conformance.wire import Reply
from cli.spoken import check, from_response
from gateway.governed_answers import ArtifactDigests
from gateway.header_table import CALL, RESULT
from shared.paths import OPENAI_SPEECH, SPEECH
from shared.wav import FRAME_MS

REPLAYED: Final = "x-psionic-csm-replayed"
OVER_BUDGET: Final = "x-psionic-csm-voice-turn-budget-exceeded"
NOT_ALWAYS: Final = (
    "x-psionic-cancellation-id",
    REPLAYED,
    OVER_BUDGET,
    "x-psionic-cpu-fallback-reason",
)
ENDS: Final = ("stop", "length")


def speech(run: Run) -> str:
    """Whole, in every header, and genuine by its digests."""
    reply = run.spoken
    headers = reply.headers
    same("the content type", "audio/wav", headers.get("content-type"))
    same("content-length", str(len(reply.body)), headers.get("content-length"))
    has_headers(headers, {**CALL, **RESULT}, but_for=NOT_ALWAYS)
    promised(REPLAYED not in headers, "a new request is answered as a replay")
    answer = from_response(reply.body, headers)
    check(answer)
    same("the request id", run.id("one"), answer.request_id)
    same("x-request-id", run.id("one"), headers["x-request-id"])
    same("the seed", SEED, answer.seed)
    same("the voice", run.voice_id, answer.voice_profile_id)
    ended(answer.finish_reason, answer.frames)
    _as_published(run, reply)
    return f"{answer.duration_ms} ms of audio, first after {answer.first_audio_latency_ms} ms"


def ended(finish_reason: Any, frames: int, length_ms: int = LENGTH_MS) -> None:
    """Audio is whole for one of two reasons; ``length`` has used all of it. Raises Broken."""
    most = length_ms // FRAME_MS
    promised(finish_reason in ENDS, "whole audio has another finish reason than stop and length")
    promised(0 < frames <= most, f"{frames} frames are none, or more than the {most} asked for")
    promised(finish_reason == "stop" or frames == most, "it was cut short of its length")


def _as_published(run: Run, reply: Reply) -> None:
    """The headers say what the documents say."""
    found, headers = run.metadata, reply.headers
    for name in ArtifactDigests.model_fields:
        header = f"x-psionic-artifact-{name.replace('_', '-')}"
        same(header, found["artifact_digests"][name], headers[header])
    governance = found["governance"]
    for header, key in (
        ("artifact-id", "artifact_id"),
        ("license-posture", "license_posture"),
        ("rollback-target", "rollback_target"),
        ("governance-schema", "schema_version"),
        ("promotion-gate", "primary_promotion"),
    ):
        same(f"x-psionic-csm-{header}", governance[key], headers[f"x-psionic-csm-{header}"])
    same("x-psionic-model-id", found["model"], headers["x-psionic-model-id"])
    as_asked(
        headers["x-psionic-requested-backend"],
        headers["x-psionic-generation-backend"],
        {"cpu_fallback_reason": headers.get("x-psionic-cpu-fallback-reason")},
    )


def replay(run: Run) -> None:
    """The same id again: the same bytes, marked, by either route."""
    one = run.spoken
    body = run.speech("one")
    for path, more in ((SPEECH, {}), (OPENAI_SPEECH, {"user": "ignored there"})):
        again = run.wire.speak({**body, **more}, path)
        same(f"{REPLAYED} of {path}", "true", again.headers.get(REPLAYED))
        promised(one.body == again.body, f"{path} answers the same id with other bytes")
        for name in ("x-psionic-csm-wav-pcm16-digest", "x-psionic-csm-seed"):
            same(name, one.headers.get(name), again.headers.get(name))


def conflict(run: Run) -> None:
    """The same id for another text is refused."""
    promised(run.spoken.status == 200, "nothing was spoken")
    other = run.speech("one", input=OTHER_TEXT)
    refused(run.wire.post(SPEECH, other), "request_id_conflict", request_id=run.id("one"))


def id_from_header(run: Run) -> None:
    """An id in a header is an id like one in the body."""
    promised(run.spoken.status == 200, "nothing was spoken")
    body = run.speech("one", request_id=None)
    for name in ("x-psionic-request-id", "idempotency-key"):
        again = run.wire.post(SPEECH, body, headers={name: run.id("one")})
        same(f"the status with {name}", 200, again.status)
        same(f"{REPLAYED} with {name}", "true", again.headers.get(REPLAYED))


def voice_turn_budget(run: Run) -> None:
    """A budget that nothing can meet is told as used up."""
    reply = run.wire.speak(run.speech("budget", voice_turn_budget_ms=1))
    same(OVER_BUDGET, "true", reply.headers.get(OVER_BUDGET))
