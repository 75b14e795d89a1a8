"""Evidence: what is kept of a request to judge it by, and what its caller's business said of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.answers import Evidence
from gateway.evidence import NAMED
from shared.digests import sha256_hex
from shared.governance.artifacts import MANIFEST_NAME
from shared.settings import GatewaySettings
from tests.gateway.test_metrics import scrape
from tests.gateway.world import SPEECH, Answer, World, gateway_settings

HELLO: dict[str, Any] = {
    "input": "Hello, Zoe\u0308.",
    "request_id": "r1",
    "cancellation_id": "c1",
    "seed": 5,
}
EVIDENCE = "/psionic/csm/evidence/r1"
KEYS = ("the-key-of-one-caller", "the-key-of-another-caller")
ACCEPTED = {"outcome": "accepted", "reason": "heard_to_the_end", "played_ms": 160}


async def spoken(world: World, **more: Any) -> Answer:
    call = world.post({**HELLO, **more})
    await world.worker.speak(2)
    return await call.answer()


async def said(world: World, outcome: Any = ACCEPTED, **more: Any) -> Answer:
    return await world.refused(outcome, EVIDENCE + "/outcome", **more)


async def test_evidence_states_what_was_asked_and_what_came_of_it(world: World) -> None:
    """Request, result, times and governance, of a request with defaults filled in."""
    answer = await spoken(world)

    read = await world.get(EVIDENCE)

    evidence = read.json()
    Evidence.model_validate(evidence)
    assert read.headers["x-psionic-request-id"] == "r1"
    assert read.headers["cache-control"] == "no-store"
    assert evidence["schema_version"] == "psionic.csm.evidence.v1"
    assert evidence["business_authority"] == "none_provider_output_is_evidence_not_instruction"
    assert (evidence["state"], evidence["business_outcome"]) == ("ended", None)
    terminal = evidence["terminal"]
    assert evidence["request"] == {
        **{name: terminal[name] for name in NAMED},
        "input_sha256": sha256_hex(HELLO["input"].encode()),
        "input_characters": 12,
        "context_policy": "prompt_profile_only",
        "max_audio_length_ms": 2800,
        "temperature": 0.9,
        "top_k": 50,
        "priority": "interactive",
        "timeout_ms": 10_000,
        "voice_turn_budget_ms": None,
        "response_format": "wav",
        "stream_format": None,
    }
    result = (await world.get(f"{SPEECH}/r1")).json()
    assert {key: evidence[key] for key in result} == result
    assert evidence["terminal"]["wav_pcm16_digest"] == sha256_hex(answer.body)
    assert evidence["terminal"]["spoken_text_sha256"] == sha256_hex("Hello, Zo\u00eb.".encode())
    total_ms = evidence["terminal"]["full_generation_latency_ms"]
    assert evidence["ended_at_unix_ms"] == evidence["admitted_at_unix_ms"] + total_ms
    kept_ms = evidence["kept_until_unix_ms"] - evidence["read_at_unix_ms"]
    assert 0 < kept_ms <= world.settings.queue.metadata_ttl_ms


async def test_evidence_says_what_governed_the_request(world: World) -> None:
    """The manifests' statements, under the digest of the manifest, and the image that spoke."""
    await spoken(world)

    governance = (await world.get(EVIDENCE)).json()["governance"]

    manifest = (world.artifact.directory / MANIFEST_NAME).read_bytes()
    health = (await world.get("/health")).json()
    assert governance["manifest_sha256"] == sha256_hex(manifest)
    assert governance["artifact_digests"] == health["artifact_digests"]
    assert governance["voice_profile"] == health["voice_profiles"][0]
    assert governance["artifact"] == {
        **health["governance"],
        "runtime_image_ref": "image@1",
        "missing_governance_blocks": [
            block
            for block in health["governance"]["missing_governance_blocks"]
            if block != "runtime_image_ref"
        ],
    }


async def test_another_manifest_says_nothing_of_the_request(world: World) -> None:
    """A gateway whose manifest is not the one that governed names the digest and claims no more."""
    await spoken(world)
    (job,) = [key for key in world.redis_keys() if key.startswith(b"t:job:")]
    kept = json.loads(world.redis.hget(job, "facts") or b"")
    kept["asked"]["manifest_sha256"] = "sha256:" + "0" * 64
    world.redis.hset(job, "facts", json.dumps(kept))

    governance = (await world.get(EVIDENCE)).json()["governance"]

    assert governance == {
        "manifest_sha256": "sha256:" + "0" * 64,
        "artifact": None,
        "artifact_digests": None,
        "voice_profile": None,
    }


async def test_neither_text_nor_audio_is_in_the_evidence(world: World) -> None:
    """The text is there by its digest and length alone."""
    await spoken(world)

    body = (await world.get(EVIDENCE)).body

    assert b"Hello" not in body
    assert b"UklGR" not in body


async def test_a_live_request_shows_what_there_is(world: World) -> None:
    """Waiting or running: the request and the state, no terminal, no end."""
    call = world.post(HELLO)
    await world.worker.claim()

    evidence = (await world.get(EVIDENCE)).json()

    Evidence.model_validate(evidence)
    assert (evidence["state"], evidence["terminal"]) == ("running", None)
    assert (evidence["request"]["input_characters"], evidence["request"]["seed"]) == (12, 5)
    assert (evidence["ended_at_unix_ms"], evidence["kept_until_unix_ms"]) == (None, None)
    await call.hang_up()


async def test_a_failure_is_evidence_too(world: World) -> None:
    """Its code and finish reason are told, and an outcome can be said of it."""
    call = world.post(HELLO)
    await world.worker.speak(1, reason="error", failure_code="csm_synthesis_failed")
    await call.answer()

    told = await said(world, {"outcome": "fallback_used"})

    evidence = (await world.get(EVIDENCE)).json()
    assert evidence["terminal"]["failure_code"] == "csm_synthesis_failed"
    assert told.status == 201
    assert evidence["business_outcome"]["outcome"] == "fallback_used"


async def test_what_an_older_gateway_admitted_has_evidence(world: World) -> None:
    """Records without what was asked are told as far as they are known."""
    await spoken(world)
    (job,) = [key for key in world.redis_keys() if key.startswith(b"t:job:")]
    kept = json.loads(world.redis.hget(job, "facts") or b"")
    del kept["asked"]
    world.redis.hset(job, "facts", json.dumps(kept))

    evidence = (await world.get(EVIDENCE)).json()

    Evidence.model_validate(evidence)
    assert evidence["request"] is None
    assert evidence["terminal"]["finish_reason"] == "stop"


async def test_an_outcome_is_said_once(world: World) -> None:
    """Recorded, told in the evidence; the same again is the same, another one is refused."""
    await spoken(world)

    first, again = await said(world), await said(world)
    other = await said(world, {**ACCEPTED, "outcome": "rejected"})

    evidence = (await world.get(EVIDENCE)).json()
    recorded = first.json()["business_outcome"]
    assert (first.status, again.status) == (201, 200)
    assert first.json() == again.json() == {"request_id": "r1", "business_outcome": recorded}
    assert recorded == {
        **ACCEPTED,
        "mode": "live",
        "reference": None,
        "recorded_at_unix_ms": recorded["recorded_at_unix_ms"],
    }
    assert (other.status, other.code) == (409, "outcome_conflict")
    assert evidence["business_outcome"] == recorded
    assert recorded["recorded_at_unix_ms"] >= evidence["ended_at_unix_ms"]


async def test_an_outcome_changes_nothing_but_the_evidence(world: World) -> None:
    """Said while the request runs, it stops nothing, and it is there when the request has ended."""
    call = world.post(HELLO)
    claim = await world.worker.claim()

    told = await said(world, {"outcome": "rejected", "mode": "shadow"})
    before = world.worker.post(claim, 0)
    world.worker.end(claim, 1)

    assert told.status == 201
    assert before == ["ok"]
    assert (await call.answer()).status == 200
    evidence = (await world.get(EVIDENCE)).json()
    assert evidence["terminal"]["finish_reason"] == "stop"
    assert evidence["business_outcome"]["mode"] == "shadow"


async def test_an_outcome_belongs_to_the_generation_that_it_judged(world: World) -> None:
    """A new generation under the same id is judged anew."""
    call = world.post(HELLO)
    await world.worker.speak(0, reason="error", failure_code="csm_synthesis_failed")
    await call.answer()
    await said(world, {"outcome": "fallback_used"})

    await spoken(world)

    assert (await world.get(EVIDENCE)).json()["business_outcome"] is None
    assert (await said(world)).status == 201


async def test_an_outcome_is_kept_no_longer_than_the_evidence(world: World) -> None:
    """It shares the record's lifetime, however late it comes."""
    await spoken(world)
    (record,) = [key for key in world.redis_keys() if key.startswith(b"t:job:")]
    world.redis.pexpire(record, 5_000)

    await said(world)

    assert 0 < int(world.redis.pttl(record)) <= 5_000
    world.redis.delete(record)
    gone = await world.get(EVIDENCE)
    late = await said(world)
    assert (gone.status, gone.code) == (late.status, late.code) == (404, "result_not_found")
    assert not world.redis.exists(record)


@pytest.mark.parametrize(
    ("param", "outcome"),
    [
        ("outcome", {"outcome": "great"}),
        ("mode", {"outcome": "accepted", "mode": "test"}),
        ("reason", {"outcome": "accepted", "reason": "What was said."}),
        ("reason", {"outcome": "accepted", "reason": ""}),
        ("reason", {"outcome": "accepted", "reason": "a" * 65}),
        ("reason", {"outcome": "accepted", "reason": "a\n"}),
        ("played_ms", {"outcome": "accepted", "played_ms": 60_001}),
        ("reference", {"outcome": "accepted", "reference": "a b"}),
    ],
)
async def test_an_outcome_has_no_room_for_text(
    world: World, param: str, outcome: dict[str, Any]
) -> None:
    """Only codes, ids and a bounded number are taken; what is at fault is named."""
    await spoken(world)

    refused = await said(world, outcome)

    assert (refused.status, refused.code) == (400, "invalid_outcome")
    assert refused.error["param"] == param
    assert (await world.get(EVIDENCE)).json()["business_outcome"] is None


async def test_a_misspelt_field_is_refused_by_name(world: World) -> None:
    """An outcome that is taken in part would be worse than none."""
    await spoken(world)

    refused = await said(world, {**ACCEPTED, "note": "Hello."})

    assert (refused.code, refused.error["param"]) == ("unknown_parameter", "note")


async def test_outcomes_are_counted_once(world: World) -> None:
    """A repeat is no second outcome."""
    await spoken(world)
    for _ in range(2):
        await said(world)

    told = await scrape(world)

    name = "psionic_csm_business_outcomes_total"
    assert told[name, "live", "accepted"] == 1
    assert sum(value for key, value in told.items() if key[0] == name) == 1


async def test_an_id_that_can_t_be_one_is_not_found(world: World) -> None:
    """What no request can be called has neither evidence nor outcome."""
    path = "/psionic/csm/evidence/" + "a" * 129

    assert (await world.get(path)).code == "result_not_found"
    assert (await world.refused(ACCEPTED, path + "/outcome")).code == "result_not_found"


class TestPrincipals:
    """Behind keys: evidence is its caller's own."""

    @pytest.fixture
    def settings(self) -> GatewaySettings:
        return gateway_settings({"PSIONIC_CSM_API_KEYS": ",".join(KEYS)})

    async def test_nobody_else_sees_or_judges_a_request(self, world: World) -> None:
        """To another key the request does not exist; its owner finds it untouched."""
        mine, other = ({"authorization": f"Bearer {key}"} for key in KEYS)
        call = world.post(HELLO, headers=mine)
        await world.worker.speak(1)
        await call.answer()

        seen = await world.get(EVIDENCE, headers=other)
        judged = await said(world, headers=other)

        assert (seen.code, judged.code) == ("result_not_found", "result_not_found")
        own = (await world.get(EVIDENCE, headers=mine)).json()
        assert own["business_outcome"] is None
        assert (await world.get(EVIDENCE)).code == "unauthorized"
