"""Evidence: the record by which to judge a request, and what its caller's business said of it."""

from __future__ import annotations

from typing import Any

from cli.conformance.envelope import refused
from cli.conformance.promise import promised, same
from cli.conformance.run import TEXT, Run
from cli.conformance.shapes import fits, has_headers
from gateway.answers import Evidence, RecordedOutcome
from gateway.evidence import EVIDENCE_SCHEMA
from gateway.header_table import IDS
from shared.digests import sha256_hex
from shared.paths import EVIDENCE, OUTCOME

SAID = {"outcome": "not_played", "mode": "shadow", "reason": "smoke"}
"""In dashboards such outcomes are told from others by their mode."""


def evidence(run: Run) -> None:
    """What was asked, what came of it and what governed it, and nothing of what was said."""
    answered = run.spoken
    found = _found(run)
    same("schema_version", EVIDENCE_SCHEMA, found["schema_version"])
    same("state", "ended", found["state"])
    result = run.result("one")
    promised(result == {key: found[key] for key in result}, "the evidence is not the result's")
    asked, governance = found["request"], found["governance"]
    promised(asked is not None, "what was asked is not told")
    same("input_sha256", sha256_hex(TEXT.encode()), asked["input_sha256"])
    same("input_characters", len(TEXT), asked["input_characters"])
    manifest = answered.headers.get("x-psionic-csm-artifact-id")
    if governance["artifact"] is not None:
        same("the artifact that governs", manifest, governance["artifact"]["artifact_id"])
        same("the voice that governs", run.voice_id, governance["voice_profile"]["id"])
    promised(TEXT not in repr(found), "the text is in the evidence")


def outcome(run: Run) -> None:
    """Said once: the same again changes nothing, another one is refused."""
    promised(run.spoken.status == 200, "nothing was spoken")
    path = OUTCOME.format(request_id=run.id("one"))
    first, again = run.wire.post(path, SAID), run.wire.post(path, SAID)
    promised(first.status in (200, 201), f"an outcome is answered with HTTP {first.status}")
    same("the status of the same outcome", 200, again.status)
    recorded = first.object()
    fits(RecordedOutcome, recorded, "the recorded outcome")
    told = recorded["business_outcome"]
    for name, value in SAID.items():
        same(name, value, told[name])
    promised(again.object() == recorded, "the same outcome is another one")
    promised(_found(run)["business_outcome"] == told, "the outcome is not in the evidence")
    refused(
        run.wire.post(path, {**SAID, "outcome": "accepted"}),
        "outcome_conflict",
        request_id=run.id("one"),
    )


def not_an_outcome(run: Run) -> None:
    """Text has no place in an outcome."""
    path = OUTCOME.format(request_id=run.id("never-sent"))
    refused(run.wire.post(path, {"outcome": "accepted", "reason": TEXT}), "invalid_outcome")
    refused(run.wire.post(path, SAID), "result_not_found")
    refused(run.wire.get(EVIDENCE.format(request_id=run.id("never-sent"))), "result_not_found")


def _found(run: Run) -> dict[str, Any]:
    reply = run.wire.get(EVIDENCE.format(request_id=run.id("one")))
    promised(reply.status == 200, f"evidence is answered with HTTP {reply.status}")
    has_headers(reply.headers, IDS)
    document = reply.object()
    fits(Evidence, document, "the evidence")
    return document
