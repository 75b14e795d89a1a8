"""A tiny corpus without flite: codes and words that look like the real ones."""

from __future__ import annotations

import torch
from torch import Tensor

from demo_voice.profiles import SMOKE
from demo_voice.samples import Library
from demo_voice.speech import Spoken
from demo_voice.words import words_of
from shared.wav import CODEBOOKS

TEXTS = ("Hello Alice.", "Send the report on Monday.", "Yes, it is ready", "Two new emails")


def spoken(text: str, kind: str = "free", style: int = 0, frames_a_word: int = 2) -> Spoken:
    count = len(words_of(text))
    words = (0, *(word for word in range(count) for _ in range(frames_a_word)), count)
    return Spoken(text, kind, style, len(words), words, ("aa", "b", "pau", "s") * len(words))


def codes_for(each: Spoken, seed: int = 0) -> Tensor:
    """int16 [32, frames]; the codebooks that say nothing are 0, the first never is."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.zeros(CODEBOOKS, each.frames, dtype=torch.int16)
    live = torch.randint(
        1, SMOKE.codebook_size, (SMOKE.live_codebooks, each.frames), generator=generator
    )
    codes[: SMOKE.live_codebooks] = live.to(torch.int16)
    return codes


def library() -> Library:
    lines = [spoken(text, kind) for kind in ("free", "isolated", "grammar") for text in TEXTS]
    lines += [spoken(text, "free", style=1, frames_a_word=3) for text in TEXTS]
    lines += [spoken("Good morning.", "prompt", style) for style in (0, 1)]
    lines += [spoken("I am here.", "validation")]
    return Library(lines, [codes_for(each, seed) for seed, each in enumerate(lines)])
