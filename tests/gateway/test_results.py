"""Results by id: what became of a request, for those who lost their connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count

import pytest
from structlog.testing import capture_logs

from scheduler.asking import QueueAway
from scheduler.results import READ_AT_ONCE, Results
from shared.digests import sha256_hex
from shared.messages import FrameRecord
from shared.wav import wav_file
from tests.gateway.streamed import events
from tests.gateway.world import SPEECH, World, pcm

HELLO = {"input": "Hello.", "request_id": "r1", "cancellation_id": "c1"}


async def test_a_live_request_shows_its_state(world: World) -> None:
    """Waiting, then running with its frames; no terminal yet and no audio."""
    call = world.post(HELLO)
    hint = await world.worker.hints.get()
    waiting = (await world.get(f"{SPEECH}/r1")).json()
    claim = world.worker.queue.claim("e", hint=hint)
    assert claim is not None
    assert claim != "solo"
    world.worker.post(claim, 0, 1)
    running = (await world.get(f"{SPEECH}/r1")).json()
    audio = await world.get(f"{SPEECH}/r1/audio")

    assert waiting == {
        "request_id": "r1",
        "cancellation_id": "c1",
        "state": "waiting",
        "attempt": 0,
        "generated_frame_count": 0,
        "terminal": None,
    }
    assert (running["state"], running["attempt"], running["generated_frame_count"]) == (
        "running",
        1,
        2,
    )
    assert (audio.status, audio.code) == (404, "result_not_found")
    await call.hang_up()


async def test_an_ended_request_shows_its_terminal_and_audio(world: World) -> None:
    """The evidence, and the WAV file that the caller was answered with."""
    call = world.post(HELLO)
    await world.worker.speak(2)
    answer = await call.answer()

    result = await world.get(f"{SPEECH}/r1")
    audio = await world.get(f"{SPEECH}/r1/audio")

    terminal = result.json()["terminal"]
    assert result.headers["x-psionic-request-id"] == result.headers["x-request-id"] == "r1"
    assert (terminal["finish_reason"], terminal["generated_frame_count"]) == ("stop", 2)
    assert terminal["wav_pcm16_digest"] == sha256_hex(answer.body)
    assert (terminal["request_id"], terminal["cancellation_id"]) == ("r1", "c1")
    assert (audio.status, audio.headers["content-type"]) == (200, "audio/wav")
    assert audio.body == answer.body == wav_file(pcm(0) + pcm(1))
    assert audio.headers["x-psionic-csm-wav-pcm16-digest"] == sha256_hex(answer.body)


@pytest.mark.parametrize("ranges", ["bytes=0-10", "bytes=" + ",".join(["0-"] * 9000)])
async def test_a_part_of_the_audio_is_not_served(world: World, ranges: str) -> None:
    """Whatever parts are asked for, however many: the answer is the whole file, and says so."""
    call = world.post(HELLO)
    await world.worker.speak(2)
    answer = await call.answer()

    audio = await world.get(f"{SPEECH}/r1/audio", headers={"range": ranges})

    assert (audio.status, audio.body) == (200, answer.body)
    assert "accept-ranges" not in audio.headers


async def test_a_result_says_all_that_the_stream_said(world: World) -> None:
    """The terminal read by id is the one that the stream ended with, key for key."""
    call = world.post({**HELLO, "stream": True, "stream_format": "jsonl_base64"})
    await world.worker.speak(2)
    streamed = events((await call.answer()).body, "jsonl_base64")[-1]

    read = (await world.get(f"{SPEECH}/r1")).json()["terminal"]

    assert read == {
        key: value for key, value in streamed.items() if key not in {"event", "chunk_transport"}
    }


async def test_long_audio_is_read_as_it_is_taken(world: World) -> None:
    """However many reads it takes, the file is the one that the first caller got."""
    call = world.post(HELLO)
    await world.worker.speak(2 * READ_AT_ONCE + 1)
    first = await call.answer()

    audio = await world.get(f"{SPEECH}/r1/audio")

    assert audio.body == first.body
    assert audio.headers["content-length"] == str(len(first.body))


async def test_reading_a_result_is_not_listening(world: World) -> None:
    """A reader keeps nothing alive: when the caller is gone, so is the work."""
    call = world.post(HELLO)
    claim = await world.worker.claim()
    await world.get(f"{SPEECH}/r1")

    await call.hang_up()

    assert world.worker.verdict(claim) == "cancelled"


async def test_a_failed_request_shows_its_code_and_no_audio(world: World) -> None:
    """A failure is a result, too; its frames are not handed over."""
    call = world.post(HELLO)
    await world.worker.speak(1, reason="error", failure_code="csm_synthesis_failed")
    await call.answer()

    terminal = (await world.get(f"{SPEECH}/r1")).json()["terminal"]

    assert (terminal["finish_reason"], terminal["failure_code"]) == (
        "error",
        "csm_synthesis_failed",
    )
    assert (await world.get(f"{SPEECH}/r1/audio")).code == "result_not_found"


async def test_audio_is_gone_after_its_time(world: World) -> None:
    """When the kept audio runs out, the metadata stays and the audio is a 404."""
    call = world.post(HELLO)
    claim = await world.worker.speak(1)
    await call.answer()
    world.redis.delete(world.keys.events(claim.job_id))

    assert (await world.get(f"{SPEECH}/r1/audio")).code == "result_not_found"
    assert (await world.get(f"{SPEECH}/r1")).json()["state"] == "ended"


async def test_cancelling_what_has_finished_says_so(world: World) -> None:
    """A cancel that is too late is told so, again and again."""
    call = world.post(HELLO)
    await world.worker.speak(1)
    await call.answer()

    answers = [
        await world.refused({"request_id": "r1"}, "/psionic/csm/cancellations") for _ in range(2)
    ]

    for answer in answers:
        assert answer.json()["hits"] == [{"request_id": "r1", "was": "already_finished"}]


@pytest.mark.parametrize("lost", ["gone", "away"])
async def test_audio_that_goes_while_it_is_taken_breaks_off(
    world: World, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """It ends before its length, and counts with its code: no defect of the service."""
    call = world.post(HELLO)
    claim = await world.worker.speak(READ_AT_ONCE + 1)
    await call.answer()
    await call.task
    read, times = Results.frames, count()

    async def frames(results: Results, job_id: str) -> AsyncIterator[FrameRecord]:
        is_body = next(times) > 0  # it was read once for its head
        if is_body and lost == "away":
            raise QueueAway
        if is_body:
            world.redis.delete(world.keys.events(claim.job_id))
        async for frame in read(results, job_id):
            yield frame

    monkeypatch.setattr(Results, "frames", frames)
    with capture_logs() as logs:
        audio = world.call("GET", f"{SPEECH}/r1/audio")
        answer = await audio.answer()
        await audio.task

    (said,) = (line for line in logs if line["event"] == "request")
    code = {"gone": "result_not_found", "away": "queue_unavailable"}[lost]
    assert (said["status"], said["code"]) == (200, code)
    assert len(answer.body) < int(answer.headers["content-length"])
    assert not audio.finished
