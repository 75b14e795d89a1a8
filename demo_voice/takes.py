"""Sentences spoken by what serves: the engine in this process, or a gateway with all behind it."""

from __future__ import annotations

import wave
from collections.abc import Callable
from io import BytesIO
from typing import Final
from uuid import uuid4

import httpx
import numpy as np

from demo_voice.hearing import Wave
from demo_voice.pcm import to_float
from gpu_worker.backend import CPU
from gpu_worker.generation import Ended, Event, Frame, Generation
from gpu_worker.loading import load
from shared.governance.artifacts import Artifact
from shared.messages import CONTEXT_PROMPT, STOP
from shared.settings import WorkerSettings
from shared.speech_rate import wanted_ms
from shared.wav import FRAME_MS

PATIENCE_S: Final = 60.0

Say = Callable[[str, str, int], tuple[Wave, bool]]
"""``say(profile_id, text, number)``: the sound, and whether it stopped by itself.

Everything is left at the artifact's own defaults; ``number`` makes the draw another.
"""


def by_engine(artifact: Artifact) -> Say:
    """A warm engine of one lane."""
    settings = WorkerSettings.from_env({"PSIONIC_CSM_LANES": "1"})
    loaded = load(settings, artifact.directory, CPU)
    defaults = artifact.manifest.sampling_defaults

    def say(profile_id: str, text: str, number: int) -> tuple[Wave, bool]:
        generation = Generation(
            key="take",
            text=text,
            speaker=artifact.voices.find(profile_id).speaker,
            voice_profile_id=profile_id,
            context_policy=CONTEXT_PROMPT,
            max_frames=wanted_ms(text) // FRAME_MS,
            temperature=defaults.temperature,
            top_k=defaults.top_k,
            seed=number,
            silence_stop_frames=settings.silence_stop_frames,
        )
        events: list[Event] = []
        with loaded.mode():
            loaded.engine.submit(generation)
            while not loaded.engine.is_idle:
                loaded.engine.tick(events.extend)
        pcm = b"".join(event.pcm for event in events if isinstance(event, Frame))
        reasons = [event.finish_reason for event in events if isinstance(event, Ended)]
        return to_float(np.frombuffer(pcm, dtype="<i2")), reasons == [STOP]

    return say


def by_service(url: str) -> Say:
    """A running deployment, gateway, queue and worker. Raises httpx's errors for a refusal."""
    run = uuid4().hex

    def say(profile_id: str, text: str, number: int) -> tuple[Wave, bool]:
        body = {
            "input": text,
            "voice_profile_id": profile_id,
            "seed": number,
            "request_id": f"take-{run}-{profile_id.rpartition('/')[2]}-{number}",
        }
        reply = httpx.post(
            f"{url}/psionic/csm/speech", json=body, timeout=PATIENCE_S, trust_env=False
        ).raise_for_status()
        return read_wav(reply.content), reply.headers["x-psionic-csm-finish-reason"] == STOP

    return say


def read_wav(data: bytes) -> Wave:
    """The samples of a WAV file of one channel of 16 bits."""
    with wave.open(BytesIO(data)) as file:
        return to_float(np.frombuffer(file.readframes(file.getnframes()), dtype="<i2"))
