"""The artifact spoken by what serves, at its default settings, and heard again.

Beside it stand the yardsticks of the same sentences: the least that can be hoped for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from demo_voice.corpus import Line, kept
from demo_voice.hearing import Wave, heard, listeners
from demo_voice.paths import Workshop, replace_whole
from demo_voice.progress import Progress, Tell
from demo_voice.speech import pronounce, words_alone
from demo_voice.takes import Say, by_engine, by_service
from demo_voice.words import words_of
from demo_voice.yardsticks import yardsticks
from gpu_worker.model.checkpoint import load_config, load_mimi
from shared.governance.artifacts import load_artifact
from shared.wav import FRAME_SAMPLES

NEAR: Final = 0.15


@dataclass(frozen=True, slots=True)
class Take:
    """One sentence in one voice: its sound, how it ended, the frames flite's speech takes."""

    text: str
    wave: Wave
    stopped: bool
    expected_frames: int

    @property
    def frames(self) -> int:
        return len(self.wave) // FRAME_SAMPLES

    @property
    def length_is_near(self) -> bool:
        return abs(self.frames - self.expected_frames) <= NEAR * self.expected_frames


def evaluate(
    workshop: Workshop, sentences: str, tell: Tell, url: str | None = None
) -> dict[str, Any]:
    """Write and tell the report on ``validation``, ``test`` or ``benchmark`` sentences.

    ``url`` is a deployment that serves the artifact; without one, the engine speaks.
    """
    lines = kept(sentences)[: workshop.profile.evaluated]
    artifact = load_artifact(workshop.artifact)
    mimi = load_mimi(artifact, load_config(artifact), decode_only=False)
    by = listeners(workshop.profile)
    say = by_service(url) if url else by_engine(artifact)
    report: dict[str, Any] = {
        "artifact_id": artifact.manifest.artifact_id,
        "sentences": sentences,
        "spoken_by": "service" if url else "engine",
        "heard": yardsticks(workshop, mimi, lines, by, tell),
        "voices": {},
    }
    for index, voice in enumerate(artifact.voices.profiles):
        takes = speak_all(workshop, say, voice.profile_id, index, lines, tell)
        report["voices"][voice.profile_id] = _ends(takes) | heard(
            [take.wave for take in takes], lines, by
        )
    text = json.dumps(report, indent=2)
    replace_whole(workshop.report / f"{sentences}.json", text.encode())
    tell(text)
    return report


def speak_all(
    workshop: Workshop, say: Say, profile_id: str, style: int, lines: Sequence[str], tell: Tell
) -> list[Take]:
    """Every line in one voice, whose style is the profile's ``style``-th."""
    alone = words_alone(workshop)
    progress = Progress(f"speaking {profile_id}", len(lines), tell)
    takes = []
    for number, text in enumerate(lines):
        wave, stopped = say(profile_id, text, number)
        model = pronounce(Line(text, "model", style), workshop.profile.styles[style], alone)
        takes.append(Take(text, wave, stopped, model[0].frames if model else 0))
        progress.advance()
    return takes


def _ends(takes: Sequence[Take]) -> dict[str, Any]:
    return {
        "stopped": sum(take.stopped for take in takes),
        "length_near": sum(take.length_is_near for take in takes),
        "frames": sum(take.frames for take in takes),
        "expected_frames": sum(take.expected_frames for take in takes),
        "frames_a_word": round(
            sum(take.frames for take in takes) / sum(len(words_of(take.text)) for take in takes), 2
        ),
    }
