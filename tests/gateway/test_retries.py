"""The same request id again: the same answer, a conflict, or another try."""

from __future__ import annotations

from shared.wav import wav_file
from tests.gateway.world import World, pcm

HELLO = {"input": "Hello.", "request_id": "r1"}
KEPT = "x-psionic-csm-result-ttl-s"


async def test_a_retry_is_answered_from_the_record(world: World) -> None:
    """The same request again is the same answer, marked, without a second generation."""
    call = world.post(HELLO)
    await world.worker.speak(2)
    first = await call.answer()

    again = await world.refused(HELLO)

    assert again.status == 200
    assert again.body == first.body
    assert again.headers.pop("x-psionic-csm-replayed") == "true"
    left = [int(each.headers.pop(KEPT)) for each in (first, again)]
    assert again.headers == first.headers
    assert 30 <= left[1] <= left[0] == 60
    assert world.worker.hints.empty()


async def test_a_replay_says_how_long_its_audio_is_still_kept(world: World) -> None:
    """What is left of its time, not the whole of it; and so does the result."""
    call = world.post(HELLO)
    claim = await world.worker.speak(1)
    await call.answer()
    world.redis.pexpire(world.keys.events(claim.job_id), 20_500)

    replay = await world.refused(HELLO)
    result = await world.get("/psionic/csm/speech/r1/audio")

    assert (replay.status, result.status) == (200, 200)
    assert all(10 <= int(each.headers[KEPT]) <= 20 for each in (replay, result))


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
