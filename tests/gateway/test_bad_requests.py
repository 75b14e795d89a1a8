"""Requests that can't be served: each by its code, in one envelope, and nothing left in Redis."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.ids import is_id
from shared.errors import CODES
from tests.gateway.world import SPEECH, World

OPENAI = "/v1/audio/speech"
HELLO = {"input": "Hello."}


@dataclass
class Bad:
    """A request that is refused, and the code that it is refused with."""

    code: str
    body: Any = None
    path: str = SPEECH
    raw: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    param: str | None = None
    method: str = "POST"

    def __str__(self) -> str:
        return f"{self.code}-{self.raw!r}"[:60] if self.raw else f"{self.code}-{self.body}"[:60]


def bad(code: str, param: str | None = None, **values: Any) -> Bad:
    return Bad(code, {**HELLO, **values}, param=param)


def nested(code: str, param: str | None = None, **values: Any) -> Bad:
    return Bad(code, {**HELLO, "psionic_csm": values}, param=param)


ROWS = [
    Bad("unsupported_media_type", HELLO, headers={"content-type": "text/plain"}),
    Bad("body_too_large", {"input": "a" * 70_000}),
    Bad("malformed_json", raw=b""),
    Bad("malformed_json", raw=b'{"input": "a"'),
    Bad("malformed_json", raw=b'{"input": "a", "psionic_csm": {"temperature": NaN}}'),
    Bad("invalid_type", raw=b"[]"),
    Bad("invalid_type", raw=b'{"input": "a", "input": "a"}'),
    Bad("invalid_type", {}, param="input"),
    Bad("invalid_type", {"input": None}, param="input"),
    Bad("invalid_type", {"input": 7}, param="input"),
    bad("invalid_type", "stream", stream="yes"),
    bad("invalid_type", "stream", stream=1),
    bad("invalid_type", "timeout_ms", timeout_ms=True),
    bad("invalid_type", "timeout_ms", timeout_ms=1.0),
    bad("invalid_type", "timeout_ms", timeout_ms=-1),
    bad("invalid_type", "timeout_ms", timeout_ms="10"),
    bad("invalid_type", "seed", seed=0.5),
    bad("invalid_type", "voice", voice=["a"]),
    bad("invalid_type", "voice", voice={"id": 3}),
    bad("invalid_type", "psionic_csm", psionic_csm=[]),
    nested("invalid_type", "psionic_csm.top_k", top_k=True),
    nested("invalid_type", "psionic_csm.temperature", temperature=True),
    nested("invalid_type", "psionic_csm.max_audio_length_ms", max_audio_length_ms=-80),
    bad("unknown_parameter", "speaker", speaker=1),
    bad("unknown_parameter", "temperature", temperature=0.5),
    bad("unknown_parameter", "top_k", top_k=5),
    nested("unknown_parameter", "psionic_csm.tempratur", tempratur=1),
    bad("unknown_parameter", "(unprintable)", **{"a\r\nb": 1}),
    bad("unknown_parameter", "instructions", instructions="softly"),
    Bad("unsupported_parameter", {**HELLO, "instructions": "softly"}, OPENAI, param="instructions"),
    Bad("unsupported_parameter", {**HELLO, "speed": 1.5}, OPENAI, param="speed"),
    Bad("unsupported_parameter", {**HELLO, "speed": "1"}, OPENAI, param="speed"),
    Bad("unsupported_parameter", {**HELLO, "speed": 0}, OPENAI, param="speed"),
    Bad("unsupported_parameter", {**HELLO, "speed": 1e-6}, OPENAI, param="speed"),
    bad("model_unavailable", "model", model="gpt-4o-mini-tts"),
    bad("model_unavailable", "model", model=""),
    bad("artifact_unavailable", "artifact_id", artifact_id="sesame/csm-1b"),
    bad("empty_request_id", "request_id", request_id=" "),
    bad("invalid_request_id", "request_id", request_id="a b"),
    bad("invalid_request_id", "request_id", request_id="a\r\nx-evil: 1"),
    bad("invalid_request_id", "request_id", request_id="a\x00"),
    bad("invalid_request_id", "request_id", request_id="\u0661"),
    bad("invalid_request_id", "request_id", request_id="a" * 129),
    Bad("invalid_request_id", HELLO, headers={"idempotency-key": "a b"}),
    Bad("empty_request_id", HELLO, headers={"x-psionic-request-id": ""}),
    bad("empty_cancellation_id", "cancellation_id", cancellation_id=""),
    bad("invalid_cancellation_id", "cancellation_id", cancellation_id="a/b"),
    bad("invalid_timeout_ms", "timeout_ms", timeout_ms=0),
    bad("invalid_timeout_ms", "timeout_ms", timeout_ms=30_001),
    Bad("invalid_timeout_ms", raw=b'{"input":"a","timeout_ms":%b}' % (b"9" * 40_000)),
    Bad("empty_input", {"input": " \n"}, param="input"),
    Bad("invalid_input_text", {"input": "a\x00"}, param="input"),
    Bad("invalid_input_text", raw=b'{"input":"\\ud800"}'),
    Bad("invalid_type", raw=b'{"input":"a","\\ud800":1}'),
    Bad("input_too_long", {"input": "a" * 4097}, param="input"),
    bad("invalid_stream_format", "stream_format", stream_format="mp3"),
    bad("invalid_stream_format", "stream_format", stream_format=""),
    bad("conflicting_parameter", "stream", stream=False, stream_format="audio"),
    bad("conflicting_parameter", "stream", stream=False, stream_format="sse"),
    bad("unsupported_response_format", "response_format", response_format="m4a"),
    bad("unsupported_response_format", "response_format", response_format="mp3", stream=True),
    bad("unsupported_response_format", "response_format", response_format="WAV"),
    bad("unsupported_response_format", "response_format", response_format="pcm", stream=True),
    bad("voice_profile_unavailable", "voice", voice="alloy"),
    bad("voice_profile_unavailable", "voice", voice={"id": "alloy"}),
    bad("voice_profile_unavailable", "voice", voice=""),
    bad("voice_profile_unavailable", "voice", voice="../voices.json"),
    bad("voice_profile_unavailable", "voice", voice="/etc/passwd"),
    bad("voice_profile_unavailable", "voice", voice="http://127.0.0.1/voice.wav"),
    bad("voice_profile_unavailable", "voice_profile_id", voice_profile_id="conversational_b"),
    nested("invalid_temperature", "psionic_csm.temperature", temperature=-0.1),
    nested("invalid_temperature", "psionic_csm.temperature", temperature=2.01),
    Bad("invalid_temperature", raw=b'{"input":"a","psionic_csm":{"temperature":1e999}}'),
    nested("invalid_temperature", "psionic_csm.temperature", temperature=10**50),
    nested("invalid_top_k", "psionic_csm.top_k", top_k=0),
    nested(
        "invalid_max_audio_length_ms", "psionic_csm.max_audio_length_ms", max_audio_length_ms=79
    ),
    nested(
        "invalid_max_audio_length_ms", "psionic_csm.max_audio_length_ms", max_audio_length_ms=20_001
    ),
    bad("invalid_context_policy", "context_policy", context_policy="all"),
    nested("invalid_context_policy", "psionic_csm.context_policy", context_policy="all"),
    bad("invalid_max_audio_length_ms", "max_audio_length_ms", max_audio_length_ms=79),
    nested("input_exceeds_budget", "psionic_csm.max_audio_length_ms", max_audio_length_ms=80),
    Bad(
        "conflicting_parameter",
        {**HELLO, "max_audio_length_ms": 800, "psionic_csm": {"max_audio_length_ms": 801}},
    ),
    bad("invalid_seed", "seed", seed=-1),
    bad("invalid_seed", "seed", seed=2**53),
    bad("unsupported_parameter", "priority", priority="urgent"),
    bad("unsupported_parameter", "priority", priority=""),
    bad("invalid_voice_turn_budget_ms", "voice_turn_budget_ms", voice_turn_budget_ms=0),
    bad("invalid_voice_turn_budget_ms", "voice_turn_budget_ms", voice_turn_budget_ms=30_001),
    bad("input_exceeds_budget", "max_audio_length_ms", input="a" * 100, max_audio_length_ms=1000),
    Bad("route_not_found", HELLO, "/v1/audio/speeches"),
    Bad("route_not_found", HELLO, SPEECH + "/"),
    Bad("method_not_allowed", HELLO, "/health"),
    Bad("method_not_allowed", path=SPEECH, method="DELETE"),
    Bad("result_not_found", path=SPEECH + "/nobody", method="GET"),
    Bad("result_not_found", path=SPEECH + "/nobody/audio", method="GET"),
    Bad("result_not_found", path=SPEECH + "/a b", method="GET"),
    Bad("invalid_type", {}, "/psionic/csm/cancellations", param="cancellation_id"),
    Bad(
        "conflicting_parameter",
        {"request_id": "a", "cancellation_id": "b"},
        "/psionic/csm/cancellations",
    ),
    Bad("invalid_request_id", {"request_id": "a b"}, "/psionic/csm/cancellations"),
    Bad("empty_cancellation_id", {"cancellation_id": ""}, "/psionic/csm/cancellations"),
    Bad("unknown_parameter", {"id": "a"}, "/psionic/csm/cancellations", param="id"),
]


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_a_bad_request_is_refused_by_code(world: World, row: Bad) -> None:
    """Status, type and retry advice are those of the code's table, in one envelope, and Redis
    holds what it held."""
    before = world.redis_keys()

    answer = await world.call(
        row.method, row.path, row.body, raw=row.raw, headers=row.headers
    ).answer()

    spec = CODES[row.code]
    assert (answer.code, answer.status) == (row.code, spec.status)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-psionic-csm-failure-code"] == row.code
    assert answer.headers["x-should-retry"] == "false"
    assert "retry-after" not in answer.headers
    error = answer.error
    assert list(error) == [
        "message",
        "type",
        "code",
        "served_backend",
        "execution_mode",
        "execution_engine",
        "request_id",
        "retryable",
        "fallback_recommended",
        "rollback_target",
        "param",
    ]
    assert (error["type"], error["retryable"]) == (spec.type, False)
    assert (error["served_backend"], error["execution_engine"]) == ("cpu", "torch_csm_cpu")
    assert error["rollback_target"] == "fallback_to_current_autopilot_tts_provider"
    if row.param is not None:
        assert error["param"] == row.param
    assert world.redis_keys() == before


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"model": "x", "artifact_id": "x"}, "model_unavailable"),
        ({"artifact_id": "x", "request_id": ""}, "artifact_unavailable"),
        ({"request_id": "", "cancellation_id": ""}, "empty_request_id"),
        ({"cancellation_id": "", "timeout_ms": 0}, "empty_cancellation_id"),
        ({"timeout_ms": 0, "input": ""}, "invalid_timeout_ms"),
        ({"input": "", "stream_format": "x"}, "empty_input"),
        ({"stream_format": "x", "response_format": "x"}, "invalid_stream_format"),
        ({"response_format": "x", "voice": "x"}, "unsupported_response_format"),
        ({"voice": "x", "psionic_csm": {"temperature": 3}}, "voice_profile_unavailable"),
        ({"psionic_csm": {"temperature": 3, "top_k": 0}}, "invalid_temperature"),
        ({"psionic_csm": {"top_k": 0, "max_audio_length_ms": 1}}, "invalid_top_k"),
        (
            {"psionic_csm": {"max_audio_length_ms": 1, "context_policy": "x"}},
            "invalid_max_audio_length_ms",
        ),
        ({"context_policy": "x", "seed": -1}, "invalid_context_policy"),
        ({"model": "x", "timeout_ms": "x"}, "invalid_type"),
    ],
)
async def test_the_first_fault_in_the_contracts_order_is_named(
    world: World, values: dict[str, Any], code: str
) -> None:
    """Of two faults, the one that the contract lists first is the answer."""
    assert (await world.refused({**HELLO, **values})).code == code


async def test_the_longest_length_is_named(world: World) -> None:
    """A length out of range is told what the range is."""
    answer = await world.refused({**HELLO, "max_audio_length_ms": 20_001})

    assert "20000" in answer.error["message"]


async def test_a_refusal_says_whose_it_is(world: World) -> None:
    """The request id comes back with every refusal in which one could be read."""
    body = await world.refused({"input": "", "request_id": "r1"})
    header = await world.refused({"input": ""}, headers={"x-psionic-request-id": "r2"})
    malformed = await world.refused(raw=b"{", headers={"idempotency-key": "r3"})
    unreadable = await world.refused({"input": "", "request_id": "a b"})
    unnamed = await world.refused({"input": ""})

    assert [answer.headers["x-psionic-request-id"] for answer in (body, header, malformed)] == [
        "r1",
        "r2",
        "r3",
    ]
    assert body.error["request_id"] == "r1"
    assert body.headers["x-request-id"] == body.headers["x-psionic-request-id"]
    assert {"x-psionic-request-id", "x-request-id"}.isdisjoint(unreadable.headers)
    assert is_id(unnamed.headers["x-psionic-request-id"])


async def test_what_openai_sends_besides_is_ignored(world: World) -> None:
    """On OpenAI's path unknown keys do nothing, and speed 1.0 is what we do anyhow."""
    call = world.post({**HELLO, "speed": 1.0, "user": "u", "instructions": None}, OPENAI)
    await world.worker.speak(1)

    assert (await call.answer()).status == 200


async def test_methods_that_a_path_takes_are_named(world: World) -> None:
    """A wrong method hears which are right."""
    answer = await world.call("POST", "/health").answer()

    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}
