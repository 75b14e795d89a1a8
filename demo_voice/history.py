"""Damage to what the model reads of its own past, so that it reads the text instead.

A model that has only ever seen a true past trusts it: one wrong frame and it speaks what usually
follows. Here frames are missing, taken from elsewhere, or overwritten for a while by something
else, from a little to half of a sample.
"""

from __future__ import annotations

import torch
from torch import Tensor

from demo_voice.batches import Batch

MOST = 0.5
CODES = 0.06
SPANS = 0.4


def damage(batch: Batch, amount: float, codebook_size: int, live: int) -> tuple[Tensor, Tensor]:
    """Codes [rows, positions, 32] and which frames are there, bool [rows, positions].

    ``amount`` from 0 to 1. Draws from torch's global generator; prompts and ends stay whole.
    """
    rows, positions = batch.shape
    codes, open_ = batch.codes.clone(), batch.is_open
    frames = batch.codes[open_]
    share = torch.rand(rows, 1) * MOST * amount
    draw = torch.rand(rows, positions)
    missing = open_ & (draw < 0.5 * share)
    foreign = open_ & (draw >= 0.5 * share) & (draw < 0.8 * share)
    wrong = torch.rand(rows, positions, live) < CODES * amount
    wrong &= open_.unsqueeze(-1)
    drawn = torch.randint(codebook_size, (rows, positions, live))
    codes[..., :live] = torch.where(wrong, drawn, codes[..., :live])
    codes[foreign] = frames[torch.randint(len(frames), (int(foreign.sum()),))]
    for row in (torch.rand(rows) < SPANS * amount).nonzero().flatten().tolist():
        _overwrite(codes[row], open_[row], frames)
    return codes, batch.is_audio & ~missing


def _overwrite(codes: Tensor, open_: Tensor, frames: Tensor) -> None:
    """A span of 2 to 6 frames becomes one of another utterance of the batch."""
    places = open_.nonzero().flatten()
    length = int(torch.randint(2, 7, ()))
    if len(places) <= length + 1 or len(frames) <= length + 1:
        return
    begin = int(places[int(torch.randint(len(places) - length, ()))])
    source = int(torch.randint(len(frames) - length, ()))
    codes[begin : begin + length] = frames[source : source + length]
