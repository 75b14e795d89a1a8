"""The artifact spoken by the engine that serves, at its default settings, and heard again.

Beside it stand the yardsticks of the same sentences: the least that can be hoped for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from demo_voice.corpus import Line, kept
from demo_voice.hearing import Wave, heard, listeners
from demo_voice.paths import Workshop, replace_whole
from demo_voice.pcm import to_float
from demo_voice.progress import Progress, Tell
from demo_voice.speech import pronounce, words_alone
from demo_voice.yardsticks import yardsticks
from gpu_worker.backend import CPU
from gpu_worker.generation import Ended, Event, Frame, Generation
from gpu_worker.loading import Loaded, load
from gpu_worker.model.checkpoint import load_config, load_mimi
from shared.governance.artifacts import Artifact, load_artifact
from shared.messages import CONTEXT_PROMPT, STOP
from shared.settings import WorkerSettings
from shared.wav import FRAME_MS, FRAME_SAMPLES

BASE_LENGTH_MS: Final = 1500
LENGTH_PER_CHARACTER_MS: Final = 120
SILENCE_STOP_FRAMES: Final = 25
"""These three as the gateway's defaults."""
NEAR: Final = 0.15


@dataclass(frozen=True, slots=True)
class Take:
    """One sentence in one voice: its sound, how it ended, the frames flite's speech takes."""

    text: str
    wave: Wave
    stopped: bool
    expected_frames: int

    @property
    def length_is_near(self) -> bool:
        frames = len(self.wave) // FRAME_SAMPLES
        return abs(frames - self.expected_frames) <= NEAR * self.expected_frames


def evaluate(workshop: Workshop, sentences: str, tell: Tell) -> dict[str, Any]:
    """Write and tell the report on ``validation``, ``test`` or ``benchmark`` sentences."""
    lines = kept(sentences)[: workshop.profile.evaluated]
    artifact = load_artifact(workshop.artifact)
    mimi = load_mimi(artifact, load_config(artifact), decode_only=False)
    by = listeners(workshop.profile)
    report: dict[str, Any] = {
        "artifact_id": artifact.manifest.artifact_id,
        "sentences": sentences,
        "heard": yardsticks(workshop, mimi, lines, by, tell),
        "voices": {},
    }
    for index, voice in enumerate(artifact.voices.profiles):
        takes = speak_all(workshop, artifact, voice.profile_id, index, lines, tell)
        report["voices"][voice.profile_id] = _ends(takes) | heard(
            [take.wave for take in takes], lines, by
        )
    text = json.dumps(report, indent=2)
    replace_whole(workshop.report / f"{sentences}.json", text.encode())
    tell(text)
    return report


def speak_all(
    workshop: Workshop,
    artifact: Artifact,
    profile_id: str,
    style: int,
    lines: Sequence[str],
    tell: Tell,
) -> list[Take]:
    """Every line by a warm engine of one lane, prompted, at the artifact's sampling defaults."""
    loaded = load(WorkerSettings.from_env({"PSIONIC_CSM_LANES": "1"}), artifact.directory, CPU)
    alone = words_alone(workshop)
    progress = Progress(f"speaking {profile_id}", len(lines), tell)
    takes = []
    for seed, text in enumerate(lines):
        wave, stopped = _say(loaded, artifact, profile_id, text, seed)
        model = pronounce(Line(text, "model", style), workshop.profile.styles[style], alone)
        expected = model[0].frames if model else 0
        takes.append(Take(text, wave, stopped, expected))
        progress.advance()
    return takes


def _say(
    loaded: Loaded, artifact: Artifact, profile_id: str, text: str, seed: int
) -> tuple[Wave, bool]:
    defaults = artifact.manifest.sampling_defaults
    length = BASE_LENGTH_MS + LENGTH_PER_CHARACTER_MS * len(text)
    generation = Generation(
        key="take",
        text=text,
        speaker=artifact.voices.find(profile_id).speaker,
        voice_profile_id=profile_id,
        context_policy=CONTEXT_PROMPT,
        max_frames=length // FRAME_MS,
        temperature=defaults.temperature,
        top_k=defaults.top_k,
        seed=seed,
        silence_stop_frames=SILENCE_STOP_FRAMES,
    )
    events: list[Event] = []
    with loaded.mode():
        loaded.engine.submit(generation)
        while not loaded.engine.is_idle:
            loaded.engine.tick(events.extend)
    pcm = b"".join(event.pcm for event in events if isinstance(event, Frame))
    reasons = [event.finish_reason for event in events if isinstance(event, Ended)]
    return to_float(np.frombuffer(pcm, dtype="<i2")), reasons == [STOP]


def _ends(takes: Sequence[Take]) -> dict[str, Any]:
    return {
        "stopped": sum(take.stopped for take in takes),
        "length_near": sum(take.length_is_near for take in takes),
        "frames": sum(len(take.wave) // FRAME_SAMPLES for take in takes),
        "expected_frames": sum(take.expected_frames for take in takes),
    }
