"""OpenAI's own Python client against real processes: it works unchanged, and so do its errors."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from benchmarks.paced import pcm_of
from cli.bench_stack import PacedPlan, paced_stack
from shared.wav import wav_file
from tests.conftest import wait_until
from tests.e2e.lossy import Lossy, lossy
from tests.e2e.stacks import demo_cache, noise
from tests.exposition import samples

__all__ = ["demo_cache"]

pytestmark = [pytest.mark.e2e, pytest.mark.redis]

KEY = "a-key-of-this-test"
WAIT_S = 30.0
FRAMES = 5
SEED = 7
SAID = {"seed": SEED, "max_audio_length_ms": 80 * FRAMES}
LONG: dict[str, Any] = {"seed": SEED, "max_audio_length_ms": 20_000, "cancellation_id": "long"}
SPOKEN = [pcm_of(SEED, index) for index in range(FRAMES)]
MODEL = "sesame/csm-1b"
SETTINGS = {
    "PSIONIC_CSM_API_KEYS": KEY,
    "PSIONIC_CSM_MIN_QUEUE_DEPTH": "1",
    "PSIONIC_CSM_QUEUE_DEPTH_PER_LANE": "1",
}


@pytest.fixture(scope="module")
def url(demo_cache: Path) -> Iterator[str]:
    """Real gateway, worker, scheduler and Redis; two lanes, a frame in 40 ms."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in noise(demo_cache).items():
            patch.setenv(name, value)
        with paced_stack(PacedPlan(lanes=2, step_ms=40, settings=SETTINGS)) as stack:
            yield stack.url


def client(url: str, **options: Any) -> openai.OpenAI:
    given = {"api_key": KEY, "max_retries": 0, "timeout": WAIT_S, **options}
    return openai.OpenAI(base_url=f"{url}/v1", **given)


@pytest.fixture
def ours(url: str) -> Iterator[openai.OpenAI]:
    with client(url) as ours:
        yield ours


@pytest.fixture
def voice(ours: openai.OpenAI) -> str:
    (card,) = ours.models.list().data
    return str(card.model_dump()["psionic_voice_profiles"][0]["id"])


def speak(ours: openai.OpenAI, voice: str, text: str = "Hello.", **body: Any) -> Any:
    return ours.audio.speech.create(model=MODEL, voice=voice, input=text, extra_body=SAID | body)


def count(url: str, name: str, *labels: str) -> float:
    told = samples(httpx.get(f"{url}/metrics", trust_env=False).content)
    return sum(value for key, value in told.items() if key[0] == name and {*labels} <= {*key[1:]})


def test_models_are_listed(ours: openai.OpenAI) -> None:
    """The configured name is what the client finds."""
    assert [model.id for model in ours.models.list()] == [MODEL]


def test_a_text_is_spoken(ours: openai.OpenAI, voice: str) -> None:
    """``create`` gives the whole file, in the format that was asked for."""
    wav = ours.audio.speech.create(
        model=MODEL, voice=voice, input="Hello.", response_format="wav", extra_body=SAID
    )
    pcm = ours.audio.speech.create(
        model=MODEL, voice=voice, input="Hello.", response_format="pcm", speed=1.0, extra_body=SAID
    )

    assert wav.content == wav_file(SPOKEN)
    assert pcm.content == b"".join(SPOKEN)
    assert wav.response.headers["content-type"] == "audio/wav"


def test_audio_streams_as_it_is_made(ours: openai.OpenAI, voice: str) -> None:
    """The first bytes are there long before the last: the client need not wait for the end."""
    body = SAID | {"max_audio_length_ms": 80 * 50, "stream_format": "audio"}
    with ours.audio.speech.with_streaming_response.create(
        model=MODEL, voice=voice, input="Hello.", response_format="pcm", extra_body=body
    ) as answer:
        began = time.monotonic()
        pieces = [(time.monotonic() - began, piece) for piece in answer.iter_bytes()]

    assert b"".join(piece for _, piece in pieces) == b"".join(pcm_of(SEED, i) for i in range(50))
    assert len(pieces) > 5
    assert pieces[0][0] < pieces[-1][0] / 2


def test_events_are_openai_s(ours: openai.OpenAI, voice: str) -> None:
    """With ``stream_format="sse"`` the client gets OpenAI's own events, the last with the facts."""
    with ours.audio.speech.with_streaming_response.create(
        model=MODEL,
        voice=voice,
        input="Hello.",
        response_format="pcm",
        stream_format="sse",
        extra_body=SAID,
    ) as answer:
        lines = [line for line in answer.iter_lines() if line.startswith("data: ")]
    events = [json.loads(line.removeprefix("data: ")) for line in lines]

    assert [event["type"] for event in events[:-1]] == ["speech.audio.delta"] * FRAMES
    assert b"".join(base64.b64decode(each["audio"]) for each in events[:-1]) == b"".join(SPOKEN)
    assert events[-1]["type"] == "speech.audio.done"
    assert events[-1]["finish_reason"] == "length"


def test_other_formats_and_voices_are_taken(ours: openai.OpenAI, voice: str) -> None:
    """A compressed format by OpenAI's name, and ``voice`` in the form of an object."""
    answer = ours.audio.speech.create(
        model=MODEL,
        voice={"id": voice},
        input="Hello.",
        response_format="mp3",
        extra_body=SAID,
    )

    assert answer.response.headers["content-type"] == "audio/mpeg"
    assert answer.content[:2] in (b"ID", b"\xff\xf3", b"\xff\xfb")


async def test_the_async_client_works_too(url: str, voice: str) -> None:
    """Whole and as it is made, as with the other."""
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, timeout=WAIT_S) as ours:
        wanted: dict[str, Any] = {
            "model": MODEL,
            "voice": voice,
            "input": "Hello.",
            "response_format": "pcm",
        }
        whole = await ours.audio.speech.create(**wanted, extra_body=SAID)
        async with ours.audio.speech.with_streaming_response.create(
            **wanted, extra_body=SAID | {"stream_format": "audio"}
        ) as answer:
            streamed = b"".join([piece async for piece in answer.iter_bytes()])

    assert whole.content == streamed == b"".join(SPOKEN)


def cancel(url: str, turn: str) -> None:
    httpx.post(
        f"{url}/psionic/csm/cancellations",
        json={"cancellation_id": turn},
        headers={"authorization": f"Bearer {KEY}"},
        trust_env=False,
    ).raise_for_status()


def test_a_stream_that_fails_is_no_whole_answer(url: str, ours: openai.OpenAI, voice: str) -> None:
    """A raw body breaks off, so that the client raises; events end with one that says why."""
    body = {"seed": SEED, "max_audio_length_ms": 20_000, "stream_format": "audio"}
    wanted: dict[str, Any] = {
        "model": MODEL,
        "voice": voice,
        "input": "Hello.",
        "response_format": "pcm",
    }
    with ours.audio.speech.with_streaming_response.create(
        **wanted, extra_body={**body, "cancellation_id": "raw"}
    ) as answer:
        pieces = answer.iter_bytes()
        next(pieces)
        cancel(url, "raw")
        with pytest.raises(Exception, match="incomplete chunked read"):  # of the client's own httpx
            list(pieces)

    with ours.audio.speech.with_streaming_response.create(
        **wanted, extra_body={**body, "stream_format": "sse", "cancellation_id": "events"}
    ) as answer:
        lines = answer.iter_lines()
        next(lines)
        cancel(url, "events")
        last = [line for line in lines if line.startswith("data: ")][-1]
    error = json.loads(last.removeprefix("data: "))
    assert (error["type"], error["error"]["code"]) == ("error", "cancelled")


@pytest.mark.parametrize(
    ("body", "kind", "code"),
    [
        ({"request_id": "a b"}, openai.BadRequestError, "invalid_request_id"),
        ({"model": "gpt-4o-mini-tts"}, openai.NotFoundError, "model_unavailable"),
        ({"timeout_ms": "soon"}, openai.UnprocessableEntityError, "invalid_type"),
        ({"input": "[eos 0]"}, openai.InternalServerError, "no_audio_generated"),
        (
            {"max_audio_length_ms": 20_000, "timeout_ms": 1500},
            openai.InternalServerError,
            "generation_timeout",
        ),
    ],
)
def test_errors_are_openai_s_classes(
    ours: openai.OpenAI,
    voice: str,
    body: dict[str, Any],
    kind: type[openai.APIStatusError],
    code: str,
) -> None:
    """A caller who catches OpenAI's exceptions catches ours, with our code in them."""
    with pytest.raises(kind) as caught:
        speak(ours, voice, **body)

    assert caught.value.code == code
    assert caught.value.request_id or code == "invalid_request_id"


def test_a_wrong_key_is_an_authentication_error(url: str) -> None:
    """Also for a key that is just too short."""
    with client(url, api_key=KEY[:-1]) as other, pytest.raises(openai.AuthenticationError):
        other.models.list()


def test_a_conflict_is_one_and_is_not_retried(url: str, voice: str) -> None:
    """The client retries a 409 by itself; ours says that there is no point, and it obeys."""
    name, code = "psionic_csm_requests_total", "request_id_conflict"
    with client(url, max_retries=2) as ours:
        speak(ours, voice, request_id="conflict")
        with pytest.raises(openai.ConflictError):
            speak(ours, voice, "Bye.", request_id="conflict")

    assert count(url, name, code) == 1


def test_a_failure_that_may_pass_is_retried(url: str, voice: str) -> None:
    """A 502 says that another try may succeed: the client tries as often as it was told."""
    name, code = "psionic_csm_requests_total", "no_audio_generated"
    before = count(url, name, code)
    with client(url, max_retries=2) as ours, pytest.raises(openai.InternalServerError):
        speak(ours, voice, "[eos 0]")

    assert count(url, name, code) - before == 3


def test_a_full_queue_is_a_rate_limit(url: str, voice: str, ours: openai.OpenAI) -> None:
    """Past the queue's bound the client raises what it raises for OpenAI's limits; a cancel frees
    the lanes."""
    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(speak, ours, voice, **LONG) for _ in range(2)]
        until_load(url, (2, 0))
        waiting += [threads.submit(speak, ours, voice, **LONG) for _ in range(2)]
        until_load(url, (2, 2))
        with pytest.raises(openai.RateLimitError) as caught:
            speak(ours, voice)
        cancelled = httpx.post(
            f"{url}/psionic/csm/cancellations",
            json={"cancellation_id": "long"},
            headers={"authorization": f"Bearer {KEY}"},
            trust_env=False,
        )
        ends = [each.exception(WAIT_S) for each in waiting]

    assert caught.value.code == "queue_full"
    assert int(caught.value.response.headers["retry-after"]) >= 1
    assert len(cancelled.json()["hits"]) == 4
    assert {type(end) for end in ends} == {openai.ConflictError}


def load(url: str) -> tuple[int, int]:
    """How many run and how many wait."""
    answer = httpx.get(
        f"{url}/psionic/csm/load", headers={"authorization": f"Bearer {KEY}"}, trust_env=False
    ).json()
    return answer["in_flight_requests"], answer["queue_depth"]


def until_load(url: str, wanted: tuple[int, int], timeout_s: float = WAIT_S) -> None:
    wait_until(lambda: load(url) == wanted, timeout_s, lambda: f"(running, waiting): {load(url)}")


def test_a_caller_s_timeout_ends_the_work(url: str, voice: str) -> None:
    """The client gives up, and the lane that spoke for it is free again at once."""
    with client(url, timeout=0.5) as ours, pytest.raises(openai.APITimeoutError):
        speak(ours, voice, max_audio_length_ms=20_000)

    until_load(url, (0, 0), 7.0)  # it would have spoken for ten seconds


@pytest.fixture
def way(url: str) -> Iterator[Lossy]:
    with lossy(url) as way:
        yield way


@pytest.mark.parametrize("header", ["Idempotency-Key", "X-Psionic-Request-Id"])
def test_a_retry_of_a_lost_answer_does_not_speak_twice(
    url: str, voice: str, way: Lossy, header: str
) -> None:
    """An answer that got lost is asked for again by the client itself, under the id in its
    headers; it gets the same answer from the record, and nothing was generated for it."""
    admitted = count(url, "psionic_csm_jobs_admitted_total")
    way.lose = 1
    with client(way.url, max_retries=2) as ours:
        answer = ours.audio.speech.create(
            model=MODEL,
            voice=voice,
            input="Hello.",
            response_format="pcm",
            extra_body=SAID,
            extra_headers={header: f"lost-{header}"},
        )

    assert answer.content == b"".join(SPOKEN)
    assert answer.response.headers["x-psionic-csm-replayed"] == "true"
    assert way.asked == 2
    assert count(url, "psionic_csm_jobs_admitted_total") - admitted == 1
