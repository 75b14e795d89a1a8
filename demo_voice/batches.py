"""Samples as tensors: what the model reads at each position, and what it has to say next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from demo_voice.samples import Sample, Utterance
from demo_voice.speech import PHONES_A_FRAME
from demo_voice.tokens import Reading
from shared.wav import CODEBOOKS

NO_WORD: Final = -1


@dataclass(frozen=True, slots=True)
class Batch:
    """All [rows, positions, ...], padded at the end.

    ``text`` int64 and ``is_text``; ``codes`` int64 [.., 32] and ``is_audio``: what stands there.
    ``is_open`` bool: audio that may be damaged, the sample's own. ``is_taught``: whether the next
    frame is asked for here; ``target`` [.., 32] that frame. ``text_word``: the word of a text
    position; ``frame_word``: of the frame that is asked for; in both, NO_WORD for none.
    ``phones`` [.., 4]: of that frame.
    """

    text: Tensor
    is_text: Tensor
    codes: Tensor
    is_audio: Tensor
    is_open: Tensor
    is_taught: Tensor
    target: Tensor
    text_word: Tensor
    frame_word: Tensor
    phones: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return self.text.shape[0], self.text.shape[1]


def collate(samples: Sequence[Sample], silence: int) -> Batch:
    """``silence`` is the phone that the end frame is said to be."""
    rows, longest = len(samples), max(sample.length for sample in samples)

    def whole(*more: int, fill: int = 0) -> Tensor:
        return torch.full((rows, longest, *more), fill, dtype=torch.int64)

    def flags() -> Tensor:
        return torch.zeros(rows, longest, dtype=torch.bool)

    batch = Batch(
        text=whole(),
        is_text=flags(),
        codes=whole(CODEBOOKS),
        is_audio=flags(),
        is_open=flags(),
        is_taught=flags(),
        target=whole(CODEBOOKS),
        text_word=whole(fill=NO_WORD),
        frame_word=whole(fill=NO_WORD),
        phones=whole(PHONES_A_FRAME, fill=silence),
    )
    for row, sample in enumerate(samples):
        start = 0
        if sample.prompt:
            reading, spoken = sample.prompt
            start = _place(batch, row, 0, reading, spoken)
        _place(batch, row, start, sample.reading, sample.spoken)
        _teach(batch, row, start, sample.reading, sample.spoken)
    return batch


def _place(batch: Batch, row: int, start: int, reading: Reading, spoken: Utterance) -> int:
    """Write a segment as ``gpu_worker.prompt.context_segment`` does; gives the position after."""
    middle = start + len(reading.ids)
    end = middle + len(spoken.codes) + 1
    batch.text[row, start:middle] = torch.tensor(reading.ids)
    batch.is_text[row, start:middle] = True
    batch.codes[row, middle : end - 1] = spoken.codes
    batch.is_audio[row, middle:end] = True
    return end


def _teach(batch: Batch, row: int, start: int, reading: Reading, spoken: Utterance) -> None:
    middle, frames = start + len(reading.ids), len(spoken.codes)
    asked = slice(middle - 1, middle + frames)
    batch.is_open[row, middle : middle + frames] = True
    batch.is_taught[row, asked] = True
    batch.target[row, middle - 1 : middle - 1 + frames] = spoken.codes
    batch.text_word[row, start:middle] = torch.tensor(reading.words)
    ended = max(reading.words)
    batch.frame_word[row, asked] = torch.tensor((*spoken.words, ended))
    phones = torch.tensor(spoken.phones).view(frames, PHONES_A_FRAME)
    batch.phones[row, middle - 1 : middle - 1 + frames] = phones
