"""One-shot answers: a WAV file with its evidence in the headers."""

from __future__ import annotations

from shared.digests import sha256_hex
from shared.wav import wav_file
from tests.gateway.world import World, pcm


async def test_a_text_becomes_a_wav_file(world: World) -> None:
    """The body is one WAV file of every frame, and its digest is the header's."""
    call = world.post({"input": "Hello.", "request_id": "r1"})
    await world.worker.speak(3)

    answer = await call.answer()

    assert answer.status == 200
    assert answer.headers["content-type"] == "audio/wav"
    assert answer.body == wav_file(pcm(0) + pcm(1) + pcm(2))
    assert answer.headers["x-psionic-csm-wav-pcm16-digest"] == sha256_hex(answer.body)
    assert answer.headers["content-length"] == str(len(answer.body))
