"""The CSM's training."""

from __future__ import annotations

import random
from typing import Final

import numpy as np
import torch
from torch import Tensor

from demo_voice.batches import NO_WORD, Batch, collate
from demo_voice.codec import centroids
from demo_voice.encoding import encode_corpus, energy_left, fitted_mimi
from demo_voice.flite import PAUSE
from demo_voice.loop import averaged, is_done, train
from demo_voice.model import Pupil, csm_config
from demo_voice.objective import END_WORD, Objective, codebook_weights, make_heads
from demo_voice.paths import Workshop
from demo_voice.profiles import Steps
from demo_voice.progress import Tell
from demo_voice.samples import Library, Sample
from demo_voice.speech import read_spoken
from demo_voice.words import VOCABULARY, words_of

GROUPS: Final = 4
"""Samples of this many batches are drawn and sorted by length; one of those batches is taken."""
DECAY: Final = 0.05
LOOK_EVERY: Final = 250
"""Steps between two looks at the validation sentences."""


class Teacher:
    """``loop.Task`` over a CSM and the heads of its training."""

    def __init__(self, library: Library, objective: Objective, steps: Steps) -> None:
        self._library, self._objective, self._steps = library, objective, steps
        self._silence = library.phones.get(PAUSE, 0)
        self._held = collate(library.held_out(), self._silence)

    def weights(self) -> dict[str, Tensor]:
        return self._objective.pupil.weights() | self._objective.heads.weights()

    def loss(self, step: int, random_: np.random.Generator) -> tuple[Tensor, dict[str, float]]:
        done = step / self._steps.steps
        samples = self._draw(random.Random(int(random_.integers(2**62))), done)
        batch = collate(samples, self._silence)
        loss, parts = self._objective(batch, spoken_words(samples, batch), done)
        if step % LOOK_EVERY == 0:
            parts |= self._objective.held_out(self._held)
        return loss, parts

    def _draw(self, random_: random.Random, done: float) -> list[Sample]:
        count = self._steps.batch
        drawn = [self._library.draw(random_, done) for _ in range(GROUPS * count)]
        drawn.sort(key=lambda sample: sample.length)
        begin = random_.randrange(GROUPS) * count
        return drawn[begin : begin + count]


def spoken_words(samples: list[Sample], batch: Batch) -> Tensor:
    """The vocabulary's id of the asked frame's word at each position; END_WORD after the last."""
    ids = {word: index for index, word in enumerate(VOCABULARY)}
    rows = []
    for row, sample in enumerate(samples):
        own = [ids[word] for word in words_of(sample.spoken.text)]
        table = torch.tensor([*own, END_WORD])
        rows.append(table[batch.frame_word[row].clamp(min=0, max=len(own))])
    words = torch.stack(rows)
    return words.masked_fill(batch.frame_word == NO_WORD, END_WORD)


def train_model(workshop: Workshop, tell: Tell) -> Pupil:
    """The trained CSM; at once if it is there."""
    profile, path = workshop.profile, workshop.model / "model.pt"
    torch.manual_seed(profile.seed)
    pupil = Pupil(csm_config(profile))
    if is_done(path, profile.teacher):
        mean = averaged(path)
        with torch.no_grad():
            for name, weight in pupil.weights().items():
                weight.copy_(mean[name])
        return pupil
    library = Library(read_spoken(workshop.speech), encode_corpus(workshop, tell))
    pupil.initialise(centroids(fitted_mimi(workshop)), torch.Generator().manual_seed(profile.seed))
    layers = profile.backbone.num_layers
    objective = Objective(
        pupil,
        make_heads(profile.backbone.hidden_size, len(library.phones)),
        (layers // 2, layers // 2 + 1) if layers > 2 else (layers - 1,),
        codebook_weights(energy_left(workshop), pupil.model.config.num_codebooks),
        profile.live_codebooks,
    )
    teacher = Teacher(library, objective, profile.teacher)
    tell(f"model: {sum(each.numel() for each in pupil.weights().values()) / 1e6:.2f} M weights")
    train("model", teacher, profile.teacher, path, profile.seed + 2, tell, DECAY)
    return pupil
