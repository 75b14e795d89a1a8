"""What each step before the CSM costs, heard on the same sentences.

flite       as it speaks, at 16 kHz
flat        our speech on the grid
codec       that through the codec and back
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from demo_voice import flite
from demo_voice.corpus import Line, kept
from demo_voice.decoder import train_decoder
from demo_voice.hearing import Listeners, Wave, heard, listeners
from demo_voice.paths import Workshop, replace_whole
from demo_voice.pcm import to_float
from demo_voice.progress import Progress, Tell
from demo_voice.speech import pronounce, words_alone
from gpu_worker.codec import pcm16
from shared.wav import FRAME_SAMPLES, SAMPLE_RATE


def listen(workshop: Workshop, sentences: str, tell: Tell) -> dict[str, Any]:
    """The report on the codec, before hours are spent on what follows; made once."""
    path = workshop.codec / f"heard-{sentences}.json"
    if path.exists():
        known: dict[str, Any] = json.loads(path.read_text())
        return known
    lines = kept(sentences)[: workshop.profile.evaluated]
    mimi = train_decoder(workshop, tell)
    report = yardsticks(workshop, mimi, lines, listeners(workshop.profile), tell)
    text = json.dumps(report, indent=2)
    replace_whole(path, text.encode())
    tell(text)
    return report


def yardsticks(
    workshop: Workshop, mimi: Any, lines: Sequence[str], by: Listeners, tell: Tell
) -> dict[str, Any]:
    """By name, what ``by`` make of each. ``mimi`` has both its halves."""
    waves = _waves(workshop, mimi, lines, tell)
    return {
        name: heard(each, lines, by, flite.RATE if name == "flite" else SAMPLE_RATE)
        for name, each in waves.items()
    }


def _waves(
    workshop: Workshop, mimi: Any, lines: Sequence[str], tell: Tell
) -> dict[str, list[Wave]]:
    style, alone = workshop.profile.styles[0], words_alone(workshop)
    found: dict[str, list[Wave]] = {"flite": [], "flat": [], "codec": []}
    progress = Progress("yardsticks", len(lines), tell)
    for text in lines:
        found["flite"].append(flite.speak(text, style).wave)
        model = pronounce(Line(text, "model", 0), style, alone)
        flat = to_float(model[1]) if model else np.zeros(FRAME_SAMPLES, np.float32)
        found["flat"].append(flat)
        with torch.inference_mode():
            decoded = mimi.decode(mimi.encode(torch.from_numpy(flat)[None, None]))
            found["codec"].append(to_float(pcm16(decoded[0, 0]).numpy()))
        progress.advance()
    return found
