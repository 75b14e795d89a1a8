"""The same words by every way: streamed, in every format, through a lost worker, with int8."""

from __future__ import annotations

import base64
import io
import os
import signal
from pathlib import Path

import av
import numpy as np
import pytest
from av.audio.resampler import AudioResampler

from cli.artifacts import quantize_here
from demo_voice.corpus import kept
from demo_voice.hearing import Listeners, Wave
from demo_voice.pcm import to_float
from demo_voice.takes import by_engine, by_service, read_wav
from shared.governance.artifacts import Artifact
from shared.governance.voices import DEFAULT_PROFILE_ID
from shared.wav import SAMPLE_RATE
from tests.e2e.stacks import Up, busy_worker
from tests.speech.ears import FEW, LINES, Speaker, check_understood

pytestmark = [pytest.mark.speech, pytest.mark.timeout(600)]
LONG = kept("benchmark")[2]


def joined(events: list[dict[str, object]]) -> Wave:
    """The samples of a stream's audio events."""
    pieces = [
        read_wav(base64.b64decode(str(event["data_base64"])))
        for event in events
        if event["event"] == "audio"
    ]
    return np.concatenate(pieces)


def test_a_stream_says_what_one_piece_says(speaker: Speaker) -> None:
    """Sample for sample, from several chunks."""
    events = list(speaker.events(LONG))

    assert sum(event["event"] == "audio" for event in events) > 1
    assert (joined(events) == speaker.say(LONG)).all()


def test_the_evaluation_hears_what_a_client_hears(stack: Up, speaker: Speaker) -> None:
    """``python -m demo_voice evaluate --url`` speaks by the same requests."""
    wave, stopped = by_service(stack.url)(DEFAULT_PROFILE_ID, LONG, 1)

    assert stopped
    assert (wave == speaker.say(LONG)).all()


@pytest.mark.parametrize("format_", ["wav", "pcm", "mp3", "opus", "aac", "flac"])
def test_every_format_is_understood(speaker: Speaker, ears: Listeners, format_: str) -> None:
    """What an encoder loses is not the words."""
    bodies = [speaker.reply(line, response_format=format_).content for line in FEW]

    check_understood(ears, FEW, [decoded(body, format_) for body in bodies])


def decoded(body: bytes, format_: str) -> Wave:
    """What a player makes of it, at 24 kHz."""
    if format_ == "pcm":
        return to_float(np.frombuffer(body, dtype="<i2"))
    resampler = AudioResampler(format="s16", layout="mono", rate=SAMPLE_RATE)
    with av.open(io.BytesIO(body), "r") as container:
        frames = [*container.decode(container.streams.audio[0]), None]
        pieces = [piece for frame in frames for piece in resampler.resample(frame)]
    samples = [bytes(piece.planes[0])[: 2 * piece.samples] for piece in pieces]
    return to_float(np.frombuffer(b"".join(samples), dtype="<i2"))


def test_a_lost_worker_is_not_heard(stack: Up, speaker: Speaker) -> None:
    """Killed in the middle of an answer, its successor goes on sample for sample."""
    text = " ".join(kept("benchmark"))
    whole = speaker.say(text)
    speaker.wait_until_idle()
    events: list[dict[str, object]] = []
    for event in speaker.events(text):
        events.append(event)
        if sum(each["event"] == "audio" for each in events) == 1:
            os.kill(busy_worker(stack.url), signal.SIGKILL)

    assert events[-1]["event"] == "terminal"
    assert events[-1]["attempt"] == 2
    assert (joined(events) == whole).all()


def test_int8_is_understood(spoken: Artifact, ears: Listeners, tmp_path: Path) -> None:
    """The quantized artifact says the same words, if not the same codes."""
    say = by_engine(quantize_here(spoken.directory, tmp_path / "int8", 8))

    waves = [say(DEFAULT_PROFILE_ID, line, number)[0] for number, line in enumerate(LINES)]

    check_understood(ears, LINES, waves)
