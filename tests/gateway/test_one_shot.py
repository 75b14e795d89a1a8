"""One-shot answers: a WAV file with its evidence in the headers, or one typed failure."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from gateway.encoders import working_encoders
from gateway.formats import PLAIN_FORMATS
from gateway.samples import HELD_BYTES
from gateway.validation import default_seed
from shared.digests import sha256_hex
from shared.wav import FRAME_BYTES, wav_file
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


async def test_nobody_waits_past_the_deadline_in_the_queue(world: World) -> None:
    """Never claimed: 504 queue_timeout by the deadline and a second, and the job is gone."""
    started = time.monotonic()
    answer = await world.refused({**HELLO, "timeout_ms": 400})

    assert (answer.status, answer.code) == (504, "queue_timeout")
    assert answer.error["type"] == "timeout_error"
    assert time.monotonic() - started < 1.4
    await world.calls[0].task
    assert world.redis.zcard(world.keys.waiting(world.artifact.queue_name("t"))) == 0


async def test_nobody_waits_past_the_deadline_for_a_silent_worker(world: World) -> None:
    """Claimed and silent: 504 generation_timeout, and the worker is told to stop."""
    call = world.post({**HELLO, "timeout_ms": 500})
    claim = await world.worker.claim()
    world.worker.post(claim, 0)

    answer = await call.answer()
    await call.task

    assert (answer.status, answer.code) == (504, "generation_timeout")
    assert world.worker.verdict(claim) == "cancelled"


@pytest.mark.parametrize("ended", [True, False])
async def test_an_answer_that_is_whole_by_the_deadline_is_handed_over(
    world: World, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    """However late its gateway hears of it; what isn't whole by then is a timeout."""
    monkeypatch.setattr(world.gateway.reader, "_tell", lambda _: None)
    call = world.post({**HELLO, "timeout_ms": 600})
    claim = await world.worker.claim()
    world.worker.post(claim, 0, 1)
    if ended:
        world.worker.end(claim, 2)

    answer = await call.answer()

    assert answer.status == (200 if ended else 504)
    assert (answer.body == wav_file(pcm(0) + pcm(1))) is ended


@pytest.mark.parametrize("response_format", PLAIN_FORMATS)
async def test_an_answer_over_the_budget_is_the_same_answer(
    world: World, response_format: str
) -> None:
    """When too much is held for others, samples are read again as they leave; nobody can tell."""
    frames = 40
    body = {**HELLO, "response_format": response_format}
    call = world.post(body)
    await world.worker.speak(frames)
    roomy = await call.answer()
    room = world.gateway.budget.left
    world.gateway.budget.left = 3 * FRAME_BYTES
    call = world.post({**body, "request_id": "r2"})
    await world.worker.speak(frames)
    tight = await call.answer()
    again = await world.refused({**body, "request_id": "r2"})

    assert (tight.status, again.status) == (200, 200)
    assert roomy.body == tight.body == again.body
    assert int(tight.headers["content-length"]) == len(tight.body)
    assert world.gateway.budget.left == 3 * FRAME_BYTES
    assert room == HELD_BYTES


@pytest.mark.parametrize("response_format", working_encoders())
async def test_a_compressed_answer_over_the_budget_is_as_if_streamed(
    world: World, response_format: str
) -> None:
    """Nothing of it can be held, so its size isn't known before it has left."""
    body = {**HELLO, "response_format": response_format}
    call = world.post({**body, "stream_format": "audio"})
    await world.worker.speak(40)
    streamed = await call.answer()
    world.gateway.budget.left = 0

    tight = await world.refused(body)

    assert (tight.status, tight.body) == (200, streamed.body)
    assert "content-length" not in tight.headers
    assert world.gateway.budget.left == 0


async def test_audio_that_goes_while_it_is_handed_over_breaks_the_transfer(world: World) -> None:
    """Nobody takes a part for the whole: the body ends before its announced length."""
    world.gateway.budget.left = 0
    call = world.post(HELLO)
    claim = await world.worker.claim()
    world.worker.post(claim, *range(40))
    world.gateway.reader.subscribe = _forgetting(world, claim.job_id)
    world.worker.end(claim, 40)

    status, headers = await call.start()
    heard = b""
    while piece := await call.part():
        heard += piece

    assert status == 200
    assert not call.finished
    assert len(heard) < int(headers["content-length"])


def _forgetting(world: World, job_id: str) -> Any:
    subscribe = type(world.gateway.reader).subscribe

    def forget(*args: Any, **options: Any) -> Any:
        world.redis.delete(world.keys.events(job_id))
        return subscribe(world.gateway.reader, *args, **options)

    return forget


async def test_a_worker_may_state_the_timeout_itself(world: World) -> None:
    """The worker's own end at the deadline is what the caller hears."""
    call = world.post(HELLO)
    claim = await world.worker.claim()
    world.redis.hset(world.keys.job(claim.job_id), "deadline_ms", 1)  # long ago by Redis's clock
    world.worker.end(claim, 0, "timeout", failure_code="generation_timeout", message="too late")

    answer = await call.answer()

    assert (answer.code, answer.error["message"]) == ("generation_timeout", "too late")


async def test_a_caller_that_hangs_up_in_the_queue_takes_its_job_along(world: World) -> None:
    """The job of a caller that is gone is not spoken, and its id is free."""
    call = world.post(HELLO)
    hint = await world.worker.hints.get()

    await call.hang_up()

    assert world.state(hint) == "ended"
    assert world.field(hint, "abandoned") == "1"
    assert world.worker.queue.claim("e") is None


async def test_a_caller_that_hangs_up_stops_its_worker(world: World) -> None:
    """The worker hears at its next frame that nobody listens."""
    call = world.post(HELLO)
    claim = await world.worker.claim()
    assert world.worker.post(claim, 0) == ["ok"]

    await call.hang_up()

    assert world.worker.post(claim, 1) == ["cancelled"]


async def test_hanging_up_leaves_the_others_listening(world: World) -> None:
    """Of two callers of one request, one may leave; the other gets the whole answer."""
    first = world.post(HELLO)
    claim = await world.worker.claim()
    world.worker.post(claim, 0)
    second = world.post({**HELLO, "stream_format": "audio", "response_format": "pcm"})
    status, headers = await second.start()

    await first.hang_up()
    world.worker.post(claim, 1)
    world.worker.end(claim, 2)

    assert (status, await second.part() + await second.part()) == (200, pcm(0) + pcm(1))
    assert "x-psionic-csm-replayed" not in headers


async def test_a_retry_is_answered_from_the_record(world: World) -> None:
    """The same request again is the same answer, marked, without a second generation."""
    call = world.post(HELLO)
    await world.worker.speak(2)
    first = await call.answer()

    again = await world.refused(HELLO)

    assert again.status == 200
    assert again.body == first.body
    assert again.headers.pop("x-psionic-csm-replayed") == "true"
    assert again.headers == first.headers
    assert world.worker.hints.empty()


async def test_a_retry_in_another_format_is_the_same_speech(world: World) -> None:
    """Transport is not part of what a request id is bound to."""
    call = world.post(HELLO)
    await world.worker.speak(2)
    await call.answer()

    again = await world.refused({**HELLO, "response_format": "pcm", "timeout_ms": 77})

    assert (again.status, again.body) == (200, pcm(0) + pcm(1))


async def test_another_request_under_the_same_id_conflicts(world: World) -> None:
    """While it runs and after it has ended, an id stands for one request."""
    call = world.post(HELLO)
    claim = await world.worker.claim()
    during = await world.refused({**HELLO, "input": "Other."})
    world.worker.post(claim, 0)
    world.worker.end(claim, 1)
    await call.answer()
    after = await world.refused({**HELLO, "input": "Other."})

    assert [(each.status, each.code) for each in (during, after)] == [
        (409, "request_id_conflict")
    ] * 2
    assert during.headers["x-should-retry"] == "false"


async def test_an_id_header_makes_a_retry_idempotent(world: World) -> None:
    """Idempotency-Key serves when the body has no id; the body's own id wins."""
    call = world.post({"input": "Hello."}, headers={"idempotency-key": "k1"})
    await world.worker.speak(1)
    assert (await call.answer()).headers["x-psionic-request-id"] == "k1"

    again = await world.refused({"input": "Hello.", "request_id": "k1"})

    assert again.headers["x-psionic-csm-replayed"] == "true"


async def test_a_failed_request_may_be_tried_again(world: World) -> None:
    """After an error the same id starts a new generation."""
    call = world.post(HELLO)
    await world.worker.speak(1, reason="error", failure_code="csm_synthesis_failed")
    await call.answer()

    retry = world.post(HELLO)
    await world.worker.speak(2)

    answer = await retry.answer()
    assert answer.body == wav_file(pcm(0) + pcm(1))
    assert "x-psionic-csm-replayed" not in answer.headers


async def test_a_queued_request_is_cancelled_at_once(world: World) -> None:
    """Cancelled in the queue: 202 to the one, 409 to the other."""
    call = world.post({**HELLO, "cancellation_id": "turn"})
    await world.worker.hints.get()

    cancel = await world.refused({"cancellation_id": "turn"}, CANCELLATIONS)
    answer = await call.answer()

    assert cancel.status == 202
    assert cancel.json() == {"hits": [{"request_id": "r1", "was": "queued"}], "remembered": True}
    assert (answer.status, answer.code) == (409, "cancelled")
    assert answer.error["type"] == "conflict_error"
    assert answer.headers["x-should-retry"] == "false"


async def test_a_running_request_is_cancelled_between_frames(world: World) -> None:
    """Cancelled while it runs: the worker is told at its next frame and ends it."""
    call = world.post(HELLO)
    claim = await world.worker.claim()
    world.worker.post(claim, 0)

    cancel = await world.refused({"request_id": "r1"}, CANCELLATIONS)
    assert world.worker.post(claim, 1) == ["cancelled"]
    world.worker.end(claim, 1, "cancelled", failure_code="cancelled")

    assert cancel.json() == {"hits": [{"request_id": "r1", "was": "running"}], "remembered": False}
    assert (await call.answer()).code == "cancelled"
    retry = await world.refused(HELLO)
    assert (retry.code, retry.headers["x-psionic-csm-replayed"]) == ("cancelled", "true")


async def test_a_cancel_that_comes_first_wins(world: World) -> None:
    """A cancel of something unknown is remembered for the request that is still on its way."""
    cancel = await world.refused({"cancellation_id": "turn"}, CANCELLATIONS)
    answer = await world.refused({**HELLO, "cancellation_id": "turn"})

    assert cancel.json() == {"hits": [], "remembered": True}
    assert answer.code == "cancelled"


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
    world.gateway.at_once.most = 1
    inside = world.post(HELLO)
    await world.worker.hints.get()

    answer = await world.refused({**HELLO, "request_id": "r2"})

    assert (answer.status, answer.code) == (429, "too_many_waiting")
    await inside.hang_up()
    assert world.gateway.at_once.open == 0
    assert (await world.get(SPEECH + "/r2")).code == "result_not_found"
