"""What the CSM's training minimises, and the two heads that only training has.

first       cross entropy of codebook 0, the end frame's among them
depth       of the other codebooks, on a part of the frames, weighted by what each can be heard
phones      the phones in the asked frame's four quarters, by a head of its own
words       the word being said, by another
gaze        two heads in two layers look at the text of that word
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from demo_voice.batches import NO_WORD, Batch
from demo_voice.history import damage
from demo_voice.model import Pupil
from demo_voice.speech import PHONES_A_FRAME
from demo_voice.words import VOCABULARY

DEPTH_SHARE: Final = 0.6
WHOLE_SHARE: Final = 0.01
"""Of the frames, those on which also the codebooks that say nothing are learnt."""
DROP: Final = 0.1
PHONES: Final = 0.3
WORDS: Final = 0.3
GAZE: Final = 0.3
END_WORD: Final = len(VOCABULARY)


@dataclass(frozen=True, slots=True)
class Heads:
    """Of training alone, never exported."""

    phones: nn.Linear
    words: nn.Linear

    def weights(self) -> dict[str, Tensor]:
        named = {"phones": self.phones, "words": self.words}
        return {
            f"training.{name}.{part}": tensor
            for name, head in named.items()
            for part, tensor in head.named_parameters()
        }


def make_heads(hidden: int, phones: int) -> Heads:
    return Heads(nn.Linear(hidden, PHONES_A_FRAME * phones), nn.Linear(hidden, END_WORD + 1))


def codebook_weights(energy_left: list[float], codebooks: int) -> Tensor:
    """Of codebooks 1 .. 31: by the amplitude that is left to each; mean 1 over the live ones."""
    live = torch.tensor(energy_left).sqrt().clamp(min=0.12)
    weights = torch.full((codebooks - 1,), 0.1)
    weights[: len(live)] = live / live.mean()
    return weights


@dataclass(frozen=True, slots=True)
class Objective:
    """``watched`` layers have their gaze guided; ``weights`` are those of ``codebook_weights``."""

    pupil: Pupil
    heads: Heads
    watched: tuple[int, ...]
    weights: Tensor
    live: int

    def __call__(
        self, batch: Batch, spoken_words: Tensor, done: float
    ) -> tuple[Tensor, dict[str, float]]:
        """The loss and its parts. ``spoken_words`` [rows, positions]: ids of ``VOCABULARY``."""
        config = self.pupil.model.config
        amount = min(1.0, done / 0.3)
        codes, is_there = damage(batch, amount, config.codebook_size, self.live)
        with torch.autocast("cpu", torch.bfloat16):
            embedded = self.pupil.embed(batch.text, batch.is_text, codes, is_there)
            embedded = functional.dropout(embedded, DROP)
            hidden, seen = self.pupil.backbone(embedded, self.watched)
            asked, target = hidden[batch.is_taught], batch.target[batch.is_taught]
            parts: dict[str, Tensor] = {
                "first": functional.cross_entropy(self.pupil.first(asked).float(), target[:, 0]),
                "depth": self._depth(asked, target),
                "phones": PHONES * self._phones(asked, batch),
                "words": WORDS
                * functional.cross_entropy(
                    self.heads.words(asked).float(), spoken_words[batch.is_taught]
                ),
                "gaze": GAZE * max(0.1, 1 - done) * _gaze(seen, batch),
            }
        total = torch.stack(list(parts.values())).sum()
        return total, {name: float(part.detach()) for name, part in parts.items()}

    @torch.no_grad()
    def held_out(self, batch: Batch) -> dict[str, float]:
        """Cross entropy of the codebooks on a whole past, nothing dropped and nothing drawn."""
        embedded = self.pupil.embed(batch.text, batch.is_text, batch.codes, batch.is_audio)
        hidden, _ = self.pupil.backbone(embedded)
        asked, target = hidden[batch.is_taught], batch.target[batch.is_taught]
        first = functional.cross_entropy(self.pupil.first(asked), target[:, 0])
        depth = self._depth_of(asked, target, self.live)
        return {"held_first": float(first), "held_depth": float(depth)}

    def _depth(self, asked: Tensor, target: Tensor) -> Tensor:
        draw = torch.rand(len(asked))
        ends = target[:, 0] == self.pupil.model.config.codebook_eos_id
        whole = draw < WHOLE_SHARE
        short = ~whole & (ends | (draw < DEPTH_SHARE))
        codebooks = self.pupil.model.config.num_codebooks
        terms = [
            self._depth_of(asked[chosen], target[chosen], count)
            for chosen, count in ((whole, codebooks), (short, self.live))
            if bool(chosen.any())
        ]
        return torch.stack(terms).mean() if terms else asked.sum() * 0

    def _depth_of(self, asked: Tensor, target: Tensor, count: int) -> Tensor:
        logits = self.pupil.depth(asked, target, count).float()
        losses = functional.cross_entropy(
            logits.flatten(0, 1), target[:, 1:count].flatten(), reduction="none"
        )
        weights = self.weights[: count - 1]
        return (losses.view(-1, count - 1) * weights).sum(dim=1).mean() / weights.sum()

    def _phones(self, asked: Tensor, batch: Batch) -> Tensor:
        logits = self.heads.phones(asked).float().unflatten(1, (PHONES_A_FRAME, -1))
        return functional.cross_entropy(
            logits.flatten(0, 1), batch.phones[batch.is_taught].flatten()
        )


def _gaze(seen: list[Tensor], batch: Batch) -> Tensor:
    """Minus the log of what falls on the text of the asked frame's word."""
    right = batch.frame_word.unsqueeze(2) == batch.text_word.unsqueeze(1)
    right &= (batch.text_word != NO_WORD).unsqueeze(1)
    right &= (batch.frame_word != NO_WORD).unsqueeze(2)
    terms = []
    for chances in seen:
        on_it = (chances * right.unsqueeze(1)).sum(dim=-1).transpose(1, 2)[batch.is_taught]
        terms.append(-torch.log(on_it + 1e-4).mean())
    return torch.stack(terms).mean()
