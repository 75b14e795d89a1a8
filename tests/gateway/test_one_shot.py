"""One-shot answers: a WAV file with its evidence in the headers, or one typed failure."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.validation import default_seed
from shared.digests import sha256_hex
from shared.wav import wav_file
from tests.gateway.world import SPEECH, World, codes, pcm
from tests.manifests import DIGESTS

HELLO = {"input": "Hello.", "request_id": "r1"}
CANCELLATIONS = "/psionic/csm/cancellations"


async def test_a_text_becomes_a_wav_file(world: World) -> None:
    """The body is one WAV file of every frame, and its digest is the header's."""
    call = world.post(HELLO)
    await world.worker.speak(3)

    answer = await call.answer()

    assert answer.status == 200
    assert answer.headers["content-type"] == "audio/wav"
    assert answer.body == wav_file(pcm(0) + pcm(1) + pcm(2))
    assert answer.headers["x-psionic-csm-wav-pcm16-digest"] == sha256_hex(answer.body)
    assert answer.headers["content-length"] == str(len(answer.body))


async def test_headers_carry_the_evidence(world: World) -> None:
    """Every header of the contract is there, with what the worker stated."""
    call = world.post({**HELLO, "cancellation_id": "c1"})
    await world.worker.speak(2)

    headers = (await call.answer()).headers

    expected = {
        "x-psionic-model-id": "sesame/csm-1b",
        "x-psionic-request-id": "r1",
        "x-request-id": "r1",
        "x-psionic-cancellation-id": "c1",
        "x-psionic-timeout-ms": "10000",
        "x-psionic-csm-artifact-id": world.artifact.artifact_id,
        "x-psionic-csm-governance-schema": "psionic.csm.artifact_governance.v1",
        "x-psionic-csm-license-posture": "license_review_required",
        "x-psionic-csm-runtime-image-ref": "image@1",
        "x-psionic-served-backend": "cpu",
        "x-psionic-execution-mode": "native",
        "x-psionic-execution-engine": "torch_csm_cpu",
        "x-psionic-requested-backend": "cpu",
        "x-psionic-runtime-state": "ready",
        "x-psionic-csm-voice-profile-id": "openagents/default_female_v1",
        "x-psionic-csm-source-prompt-profile-id": "conversational_b",
        "x-psionic-csm-voice-approval-status": "approved_openagents_operated_dogfood",
        "x-psionic-csm-runtime-admission": (
            "admitted_openagents_operated_autopilot_production_dogfood"
        ),
        "x-psionic-csm-consent-posture": "placeholder_not_arbitrary_user_upload",
        "x-psionic-csm-watermarking": "unsupported_operator_accepted_limited_dogfood",
        "x-psionic-csm-watermark-refusal-code": "csm_watermarking_unavailable",
        "x-psionic-csm-promotion-gate": "blocked_too",
        "x-psionic-csm-rollback-target": "fallback_to_current_autopilot_tts_provider",
        "x-psionic-artifact-csm-config-digest": DIGESTS["csm_config_digest"],
        "x-psionic-artifact-csm-model-digest": f"sha256:{64 * 'a'}",
        "x-psionic-artifact-llama-tokenizer-digest": DIGESTS["llama_tokenizer_digest"],
        "x-psionic-artifact-mimi-weight-digest": DIGESTS["mimi_weight_digest"],
        "x-psionic-csm-generated-frame-count": "2",
        "x-psionic-csm-prompt-frame-count": "130",
        "x-psionic-csm-hit-eos": "true",
        "x-psionic-csm-frames-sha256": sha256_hex(
            b"".join(bytes([code, 0]) for i in range(2) for code in codes(i))
        ),
        "x-psionic-csm-pcm16-sha256": sha256_hex(pcm(0) + pcm(1)),
        "x-psionic-output-duration-ms": "160",
        "x-psionic-stream-chunk-count": "1",
        "x-psionic-residency-mode": "warm_cpu",
        "x-psionic-accelerated-backend": "unavailable_fail_closed",
        "x-psionic-generation-backend": "cpu",
        "x-psionic-generation-execution-engine": "torch_csm_cpu",
        "x-psionic-gpu-model": "none",
        "x-psionic-csm-finish-reason": "stop",
        "x-psionic-csm-seed": str(default_seed("r1")),
        "x-psionic-csm-worker-id": "w1",
        "x-psionic-csm-attempt": "1",
        "x-psionic-csm-result-ttl-s": "60",
        "x-psionic-csm-text-normalization": "none",
        "x-psionic-csm-spoken-text-sha256": sha256_hex(HELLO["input"].encode()),
    }
    assert {name: headers.get(name) for name in expected} == expected
    times = ("first-audio-latency-ms", "full-generation-latency-ms", "csm-queue-wait-ms")
    assert all(int(headers[f"x-psionic-{name}"]) >= 0 for name in times)
    absent = ("cpu-fallback-reason", "csm-failure-code", "csm-replayed")
    assert not [name for name in absent if f"x-psionic-{name}" in headers]


async def test_the_spoken_text_is_told_by_its_digest(world: World) -> None:
    """In the headers, the terminal and the documents' lists; the text itself goes to the worker."""
    call = world.post({**HELLO, "input": "It is 5 km.", "text_normalization": "spoken_en"})
    claim = await world.worker.speak(1)
    answer = await call.answer()
    result = (await world.get("/psionic/csm/speech/r1")).json()["terminal"]
    health = (await world.get("/health")).json()

    told = {
        "text_normalization": "spoken_en",
        "spoken_text_sha256": sha256_hex(b"It is five kilometers."),
    }
    assert claim.job.input == "It is five kilometers."
    assert {key: result[key] for key in told} == told
    assert answer.headers["x-psionic-csm-spoken-text-sha256"] == told["spoken_text_sha256"]
    assert answer.headers["x-psionic-csm-text-normalization"] == "spoken_en"
    assert health["supported_text_normalizations"] == ["none", "spoken_en"]


async def test_free_text_of_a_worker_can_not_break_a_header(world: World) -> None:
    """What a worker says in free text is made printable before it becomes a header."""
    call = world.post(HELLO)
    await world.worker.speak(1, cpu_fallback_reason="no\r\ngpu \u2713", gpu_model="H\n")

    headers = (await call.answer()).headers

    assert headers["x-psionic-cpu-fallback-reason"] == "no??gpu ?"
    assert headers["x-psionic-gpu-model"] == "H?"


async def test_pcm_is_the_samples_alone(world: World) -> None:
    """response_format pcm leaves out the WAV header and nothing else."""
    call = world.post({**HELLO, "response_format": "pcm"})
    await world.worker.speak(2)

    answer = await call.answer()

    assert answer.headers["content-type"] == "audio/pcm"
    assert answer.body == pcm(0) + pcm(1)
    assert answer.headers["x-psionic-csm-pcm16-sha256"] == sha256_hex(answer.body)


async def test_a_text_cut_at_its_length_says_so(world: World) -> None:
    """An end at the length asked for is a success with its reason in the header."""
    call = world.post({**HELLO, "max_audio_length_ms": 240})
    await world.worker.speak(3, reason="length")

    answer = await call.answer()

    assert answer.headers["x-psionic-csm-finish-reason"] == "length"
    assert answer.headers["x-psionic-csm-hit-eos"] == "false"


async def test_a_second_attempt_continues_the_first(world: World) -> None:
    """Frames of a lost worker and of its successor make one answer."""
    call = world.post(HELLO)
    claim = await world.worker.claim()
    world.worker.post(claim, 0, 1)
    world.worker.queue.hand_back(claim.job_id, claim.execution, fault=True)
    again = world.worker.queue.claim("second")
    assert again is not None
    assert again != "solo"
    world.worker.post(again, 1, 2)
    world.worker.end(again, 3)

    answer = await call.answer()

    assert answer.body == wav_file(pcm(0) + pcm(1) + pcm(2))
    assert answer.headers["x-psionic-csm-attempt"] == "2"


@pytest.mark.parametrize(
    ("frames", "how", "status", "code"),
    [
        (0, {"reason": "error", "failure_code": "no_audio_generated"}, 502, "no_audio_generated"),
        (3, {"reason": "error", "failure_code": "no_audio_generated"}, 502, "no_audio_generated"),
        (
            2,
            {"reason": "error", "failure_code": "csm_synthesis_failed"},
            502,
            "csm_synthesis_failed",
        ),
        (0, {"reason": "error", "failure_code": "context_overflow"}, 400, "context_overflow"),
        (1, {"reason": "error", "failure_code": "unheard_of"}, 500, "internal_error"),
        (0, {"reason": "stop"}, 502, "no_audio_generated"),
        (1, {"reason": "worker_lost"}, 502, "worker_lost"),
        (1, {"pcm16_sha256": "sha256:00"}, 500, "internal_error"),
        (1, {"generated_frame_count": 2}, 500, "internal_error"),
    ],
)
async def test_an_end_without_audio_is_its_failure(
    world: World, frames: int, how: dict[str, Any], status: int, code: str
) -> None:
    """Whatever the worker ends with but good audio is an HTTP error with the execution headers."""
    call = world.post(HELLO)
    await world.worker.speak(frames, **how)

    answer = await call.answer()

    assert (answer.status, answer.code) == (status, code)
    assert answer.headers["x-psionic-csm-failure-code"] == code
    assert answer.headers["x-psionic-csm-artifact-id"] == world.artifact.artifact_id
    assert answer.headers["x-psionic-served-backend"] == "cpu"
    assert answer.headers["x-should-retry"] == str(answer.error["retryable"]).lower()
    assert answer.error["request_id"] == "r1"


async def test_a_late_answer_says_that_the_turn_is_over_budget(world: World) -> None:
    """One-shot: the budget does not stop the work, and the answer says it was exceeded."""
    late = world.post({**HELLO, "voice_turn_budget_ms": 1})
    claim = await world.worker.claim()
    await asyncio.sleep(0.005)
    world.worker.post(claim, 0)
    world.worker.end(claim, 1)
    in_time = world.post({"input": "Hello.", "voice_turn_budget_ms": 30_000})
    await world.worker.speak(1)

    exceeded = "x-psionic-csm-voice-turn-budget-exceeded"
    assert (await late.answer()).headers[exceeded] == "true"
    assert exceeded not in (await in_time.answer()).headers


async def test_openais_path_is_the_same_speech(world: World) -> None:
    """The same request on OpenAI's path is the same request."""
    call = world.post({**HELLO, "model": "sesame/csm-1b", "voice": {"id": "openagents/plain_v1"}})
    await world.worker.speak(1)
    await call.answer()

    again = await world.refused(
        {**HELLO, "model": "sesame/csm-1b", "voice": "openagents/plain_v1"}, "/v1/audio/speech"
    )

    assert (again.status, again.headers["x-psionic-csm-replayed"]) == (200, "true")


async def test_openais_keys_of_sampling_are_no_fields(world: World) -> None:
    """Under OpenAI's name, temperature and top_k at the top level change nothing."""
    call = world.post({"input": "Hello.", "temperature": 9, "top_k": "x"}, "/v1/audio/speech")
    claim = await world.worker.speak(1)

    assert (await call.answer()).status == 200
    assert (claim.job.temperature, claim.job.top_k) == (0.9, 50)


async def test_the_worker_gets_the_call_and_nothing_else(world: World) -> None:
    """What is admitted is exactly the validated job; the text is gone from Redis afterwards."""
    call = world.post({**HELLO, "seed": 5, "psionic_csm": {"temperature": 0, "top_k": 3}})
    claim = await world.worker.claim()

    job = claim.job
    assert (job.input, job.seed, job.temperature, job.top_k) == ("Hello.", 5, 0.0, 3)
    assert job.artifact_id == world.artifact.artifact_id
    assert (job.speaker, job.context_policy) == (1, "prompt_profile_only")
    world.worker.post(claim, 0)
    world.worker.end(claim, 1)
    await call.answer()
    assert world.field(claim.job_id, "payload") is None


async def test_a_bound_on_open_requests_answers_in_the_envelope(world: World) -> None:
    """Past the bound of one gateway's open requests: 429 before the body is looked at."""
    world.gateway.open_requests.most = 1
    inside = world.post(HELLO)
    await world.worker.hints.get()

    answer = await world.refused({**HELLO, "request_id": "r2"})

    assert (answer.status, answer.code) == (429, "too_many_waiting")
    await inside.hang_up()
    assert world.gateway.open_requests.count == 0
    assert (await world.get(SPEECH + "/r2")).code == "result_not_found"
