"""The documents: their shape to the key, and that their facts are live."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from shared.governance.artifacts import Artifact
from shared.settings import RUNTIME_IMAGE_UNSET
from tests.gateway.world import World

HEALTH_KEYS = [
    "status",
    "model",
    "capability",
    "served_backend",
    "execution_mode",
    "execution_engine",
    "supported_endpoints",
    "supported_response_formats",
    "supported_text_normalizations",
    "voice_profiles",
    "artifact_digests",
    "artifact_descriptor",
    "governance",
    "runtime",
    "worker",
    "codec_capabilities",
    "safety_capabilities",
]
RUNTIME_KEYS = [
    "requested_backend",
    "residency",
    "backend",
    "execution_engine",
    "state",
    "loaded_at_unix_ms",
    "load_latency_ms",
    "tokenizer_loaded",
    "csm_config_loaded",
    "csm_model_loaded",
    "mimi_loaded",
    "accelerated_backend",
    "gpu_model",
    "cpu_fallback_reason",
    "refusal",
]
WORKER_SECTION_KEYS = [
    "worker_id",
    "rpc_schema",
    "request_fields",
    "response_metadata_fields",
    "idempotency_key",
    "cancellation",
    "timeout_ms_default",
    "timeout_ms_max",
    "queue_depth",
    "in_flight_requests",
    "capacity_lanes",
    "estimated_wait_ms",
    "oldest_wait_ms",
    "metrics",
    "governance_fields",
    "business_authority",
]
LIVE_WORKER_KEYS = {
    "worker_id",
    "host",
    "pid",
    "state",
    "requested_backend",
    "served_backend",
    "execution_engine",
    "accelerated_backend",
    "gpu_model",
    "artifact_id",
    "artifact_digest",
    "lanes",
    "in_flight",
    "memory_required_bytes",
    "memory_used_bytes",
    "utilization",
    "load_latency_ms",
    "refusal",
    "cpu_fallback_reason",
    "image_ref",
    "heartbeat_age_ms",
}


async def document(world: World, path: str = "/health") -> dict[str, Any]:
    answer = await world.get(path)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    return dict(answer.json())


async def test_the_shape_of_health(world: World) -> None:
    """Every key of the contract, in its order, at every level."""
    health = await document(world)

    assert list(health) == HEALTH_KEYS
    assert list(health["runtime"]) == RUNTIME_KEYS
    assert list(health["worker"]) == WORKER_SECTION_KEYS
    assert health["voice_profiles"] == world.artifact.published_voices()
    assert health["governance"] == world.artifact.published_governance(RUNTIME_IMAGE_UNSET)
    assert list(health["artifact_digests"]) == [
        "csm_config_digest",
        "csm_model_digest",
        "llama_tokenizer_digest",
        "mimi_weight_digest",
    ]
    assert list(health["artifact_descriptor"]) == [
        "artifact_id",
        "model_id",
        "csm_repo",
        "llama_tokenizer_repo",
        "mimi_repo",
        "mimi_weight",
        "frame_contract",
    ]
    assert list(health["artifact_descriptor"]["frame_contract"]) == [
        "frame_lanes",
        "audio_codebook_lanes",
        "text_lane_index",
        "max_seq_len",
        "generation_frame_ms",
        "sample_rate_hz",
    ]
    assert list(health["codec_capabilities"]) == [
        "mimi_decode",
        "mimi_decode_engine",
        "reference_audio_encode",
        "reference_audio_encode_refusal",
    ]
    assert list(health["safety_capabilities"]) == ["watermarking", "watermarking_refusal"]
    refusal = health["codec_capabilities"]["reference_audio_encode_refusal"]
    assert list(refusal) == ["code", "reason", "required_phase"]


async def test_health_says_what_serves(world: World) -> None:
    """The facts of the ready worker and of the artifact, not constants."""
    health = await document(world)

    assert (health["status"], health["model"]) == ("ok", "sesame/csm-1b")
    assert health["artifact_descriptor"]["artifact_id"] == world.artifact.artifact_id
    assert health["supported_endpoints"] == ["/v1/audio/speech", "/psionic/csm/speech"]
    assert health["supported_response_formats"] == list(world.gateway.formats)
    assert (health["served_backend"], health["execution_engine"]) == ("cpu", "torch_csm_cpu")
    runtime = health["runtime"]
    assert (runtime["state"], runtime["residency"]) == ("ready", "warm_cpu")
    assert (runtime["loaded_at_unix_ms"], runtime["load_latency_ms"]) == (3, 4)
    worker = health["worker"]
    assert (worker["capacity_lanes"], worker["timeout_ms_max"]) == (2, 30_000)
    assert worker["cancellation"] == "preemptive_between_frames"
    assert health["codec_capabilities"]["mimi_decode_engine"] == "torch_moshi_mimi_cpu"
    assert "execution_refusal" not in health


async def test_literals_that_clients_compare_with(world: World) -> None:
    """Names that Autopilot's clients know: of the worker's protocol, of what is refused and why."""
    health = await document(world)
    worker, codec = health["worker"], health["codec_capabilities"]

    assert (worker["worker_id"], worker["rpc_schema"], worker["idempotency_key"]) == (
        "psionic.csm_speech.worker.v1",
        "psionic.csm.speech.worker.v1",
        "request_id",
    )
    assert set(worker["request_fields"]) >= {
        *("request_id", "input", "voice_profile_id", "artifact_id", "max_audio_length_ms"),
        *("timeout_ms", "cancellation_id", "stream"),
    }
    assert set(worker["response_metadata_fields"]) >= {
        *("request_id", "cancellation_id", "artifact_id", "voice_profile_id"),
        *("generated_frame_count", "first_audio_latency_ms", "full_generation_latency_ms"),
        *("output_duration_ms", "wav_pcm16_digest", "codebook_frames_sha256", "chunk_count"),
    }
    assert worker["metrics"] == [
        *("queue_depth", "in_flight_requests", "first_audio_latency_ms"),
        *("full_generation_latency_ms", "output_duration_ms", "failure_code", "runtime_state"),
    ]
    assert worker["governance_fields"] == [
        *("artifact_id", "artifact_hash", "license_posture", "runtime_image_ref"),
        *("voice_profile_id", "watermark_status", "rollback_target"),
    ]
    assert worker["business_authority"] == "none_provider_output_is_evidence_not_instruction"
    assert (worker["timeout_ms_default"], worker["timeout_ms_max"]) == (10_000, 30_000)
    assert (health["capability"], health["execution_mode"]) == ("speech_generation", "native")
    assert (codec["mimi_decode"], codec["reference_audio_encode"]) == ("implemented", "refused")
    encode = codec["reference_audio_encode_refusal"]
    assert (encode["code"], encode["required_phase"]) == (
        "mimi_encode_not_served",
        "mimi_encode_or_prompt_codebook_refresh",
    )
    watermark = health["safety_capabilities"]["watermarking_refusal"]
    assert (watermark["code"], watermark["required_phase"]) == (
        "csm_watermarking_unavailable",
        "private_watermark_or_equivalent_voice_safety_control_before_public_voice_clone",
    )


async def test_load_is_true(world: World) -> None:
    """Depth and in-flight are what is waiting and running, in health and in load alike."""
    calls = [world.post({"input": "Hello."}) for _ in range(3)]
    await world.worker.claim()
    for _ in calls[1:]:
        await world.worker.hints.get()

    worker = (await document(world))["worker"]
    load = await document(world, "/psionic/csm/load")

    for facts in (worker, load, load["artifacts"][0]):
        assert (facts["queue_depth"], facts["in_flight_requests"]) == (2, 1)
        assert facts["capacity_lanes"] == 2
    assert set(load) == {
        "queue_depth",
        "in_flight_requests",
        "capacity_lanes",
        "estimated_wait_ms",
        "estimated_wait_error_ms",
        "oldest_wait_ms",
        "waiting_callers",
        "redis_memory_ratio",
        "refused_recently",
        "refused_codes",
        "artifacts",
        "workers",
        "gateways",
    }
    assert load["artifacts"][0]["artifact_id"] == world.artifact.artifact_id
    assert [each["worker_id"] for each in load["workers"]] == ["w1"]


async def test_metadata_lists_the_workers(world: World) -> None:
    """The health document, and one entry per live worker with all its keys."""
    world.worker.beat()
    metadata = await document(world, "/psionic/csm/worker/metadata")

    assert list(metadata) == [*HEALTH_KEYS, "workers"]
    assert len(metadata["workers"]) == 1
    assert set(metadata["workers"][0]) >= LIVE_WORKER_KEYS
    assert metadata["workers"][0]["memory_used_bytes"] == 2


async def test_models_has_one_card(world: World) -> None:
    """OpenAI's list with one card that carries the health sections under a prefix."""
    models = await document(world, "/v1/models")
    health = await document(world)

    assert models["object"] == "list"
    (card,) = models["data"]
    assert (card["id"], card["object"], card["owned_by"]) == ("sesame/csm-1b", "model", "psionic")
    prefixed = {key: value for key, value in card.items() if key.startswith("psionic_")}
    assert prefixed == {
        f"psionic_{key}": value for key, value in health.items() if key not in ("status", "model")
    }


async def test_what_the_artifact_can_t_say_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Limits that the manifest states stand in every document; without any there is no such key."""
    limits = {"note": "It knows two words.", "vocabulary": ["hello", "two"]}
    paths = ("/health", "/psionic/csm/worker/metadata")
    before = [await document(world, path) for path in paths]

    monkeypatch.setattr(Artifact, "published_limits", lambda _: limits)
    (card,) = (await document(world, "/v1/models"))["data"]

    assert not any("speech_limits" in each for each in before)
    assert [(await document(world, path))["speech_limits"] for path in paths] == [limits, limits]
    assert card["psionic_speech_limits"] == limits


REFUSAL = {"code": "mimi_model_unavailable", "reason": "no file", "pending_phases": ["hydrate"]}


async def test_a_refusal_is_shown_everywhere(world: World) -> None:
    """A worker that can't serve degrades the whole document, with its code and phases."""
    world.worker.beat(lanes=0, state="unavailable", refusal=REFUSAL, requested_backend="cuda")

    health = await document(world)
    (card,) = (await document(world, "/v1/models"))["data"]

    assert health["status"] == "degraded"
    assert (health["runtime"]["state"], health["runtime"]["residency"]) == (
        "unavailable",
        "unavailable",
    )
    assert (health["served_backend"], health["runtime"]["requested_backend"]) == ("none", "cuda")
    assert health["runtime"]["refusal"] == health["execution_refusal"] == REFUSAL
    assert card["psionic_execution_refusal"] == REFUSAL


async def test_loading_claims_nothing_yet(world: World) -> None:
    """While loading nothing is resident and nothing is loaded."""
    parts = ("tokenizer_loaded", "csm_config_loaded", "csm_model_loaded", "mimi_loaded")
    world.worker.beat(
        lanes=0, state="loading", loaded_at_unix_ms=None, **dict.fromkeys(parts, False)
    )

    runtime = (await document(world))["runtime"]

    assert (runtime["state"], runtime["residency"]) == ("loading", "loading")
    assert runtime["loaded_at_unix_ms"] is None
    assert not any(runtime[part] for part in parts)


async def test_without_workers_the_reason_is_named(world: World) -> None:
    """Nobody alive is a refusal of its own."""
    world.worker.queue.farewell()

    health = await document(world)

    assert health["execution_refusal"]["code"] == "no_ready_worker"
    assert (await document(world, "/psionic/csm/worker/metadata"))["workers"] == []


class Away:
    """Makes every command of a client fail as with Redis away."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self._world = world
        self._patch = monkeypatch

    def __enter__(self) -> None:
        async def refuse(*_: object, **__: object) -> None:
            raise RedisConnectionError("away")

        for client in (self._world.gateway._redis, self._world.gateway._blocking_redis):
            self._patch.setattr(client, "execute_command", refuse)

    def __exit__(self, *_: object) -> None:
        self._patch.undo()


async def test_with_redis_away_every_path_answers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Health stays whole and says so; everything that needs the queue is 503 queue_unavailable;
    and all is well again as soon as Redis is back."""
    with Away(world, monkeypatch):
        health = await document(world)
        models = await document(world, "/v1/models")
        metadata = await document(world, "/psionic/csm/worker/metadata")
        live = await world.get("/health/live")
        ready = await world.get("/health/ready")
        refused = [
            await world.refused({"input": "Hello."}),
            await world.refused({"request_id": "r1"}, "/psionic/csm/cancellations"),
            await world.get("/psionic/csm/speech/r1"),
            await world.get("/psionic/csm/speech/r1/audio"),
            await world.get("/psionic/csm/load"),
        ]
        malformed = await world.refused(raw=b"{")

    assert health["runtime"]["refusal"]["code"] == "queue_unavailable"
    assert list(health) == [*HEALTH_KEYS, "execution_refusal"]
    assert models["data"][0]["psionic_runtime"]["state"] == "unavailable"
    assert metadata["workers"] == []
    assert live.status == 200
    assert (ready.status, ready.json()["reasons"]) == (503, ["queue_unavailable"])
    for answer in refused:
        assert (answer.status, answer.code) == (503, "queue_unavailable")
        assert int(answer.headers["retry-after"]) >= 1
    assert (malformed.code, malformed.error["served_backend"]) == ("malformed_json", "none")

    call = world.post({"input": "Hello."})
    await world.worker.speak(1)
    assert (await call.answer()).status == 200
    assert (await world.get("/health/ready")).status == 200


async def test_get_paths_answer_head(world: World) -> None:
    """HEAD is GET without the body."""
    answer = await world.call("HEAD", "/health").answer()

    assert answer.status == 200


async def test_a_worker_may_name_what_is_no_text(world: World) -> None:
    """A file's name may be any bytes: the refusal is told, with a mark in their place."""
    reason = "/artifacts/\udcff\U0001f600: Permission denied"
    world.worker.beat(
        lanes=0, state="unavailable", refusal={"code": "csm_model_unavailable", "reason": reason}
    )

    health = await document(world)
    load = await world.get("/psionic/csm/load")
    refused = await world.refused({"input": "Hello."})

    told = "/artifacts/?\U0001f600: Permission denied"
    assert health["execution_refusal"]["reason"] == told
    assert [worker["worker_id"] for worker in load.json()["workers"]] == ["w1"]
    assert (refused.status, refused.code) == (503, "csm_model_unavailable")
    assert refused.error["message"] == told
