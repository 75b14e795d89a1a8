"""Training samples: utterances joined at words, behind a prompt or alone.

Joining gives every word new neighbours without end, so that nothing is left to learn by heart but
the words. A prompt is one of the artifact's own or any utterance, always in the style of what
follows; without one the first style is spoken, so that it is the prompt that steers.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from demo_voice.corpus import KeptSentences
from demo_voice.speech import Spoken
from demo_voice.tokens import Reader, Reading
from demo_voice.words import word_spans

LONGEST: Final = 60
"""Frames of a joined utterance."""
JOINED: Final = 0.6
SPELT: Final = 0.03
PROMPT_FRAMES: Final = 16
"""Of an utterance that serves as a prompt, at most: prompts are read and not learnt."""
FIRST_STYLE: Final = 0.7
"""Of what is drawn: it is the default voice, and the other is longer and always has a prompt."""
OWN_PROMPT: Final = 0.4
OTHER_PROMPT: Final = 0.1
FIRST_LESSONS: Final = 0.12
"""The share of the training that is words and word lists alone, without prompts."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """``codes`` int64 [frames, 32]; ``words`` and ``phones`` as of ``Spoken``, phones as ids."""

    text: str
    style: int
    codes: Tensor
    words: tuple[int, ...]
    phones: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """``prompt`` is read before and not learnt."""

    reading: Reading
    spoken: Utterance
    prompt: tuple[Reading, Utterance] | None

    @property
    def length(self) -> int:
        """Positions, each utterance with its end frame."""
        length = len(self.reading.ids) + len(self.spoken.codes) + 1
        if self.prompt:
            length += len(self.prompt[0].ids) + len(self.prompt[1].codes) + 1
        return length


class Library:
    """The corpus by kind and style."""

    def __init__(self, spoken: Sequence[Spoken], codes: Sequence[Tensor]) -> None:
        names = sorted({name for each in spoken for name in each.phones})
        self.phones = {name: index for index, name in enumerate(names)}
        self.prompts: dict[int, Utterance] = {}
        self._held: list[Utterance] = []
        self._by_kind: dict[tuple[str, int], list[Utterance]] = {}
        self._by_style: dict[int, list[Utterance]] = {}
        self._short: dict[int, list[Utterance]] = {}
        for each, own in zip(spoken, codes, strict=True):
            phones = tuple(self.phones[name] for name in each.phones)
            utterance = Utterance(each.text, each.style, own.T.long(), each.words, phones)
            if each.kind == "prompt":
                self.prompts[each.style] = utterance
            elif each.kind == "validation":
                self._held.append(utterance)
            else:
                self._by_kind.setdefault((each.kind, each.style), []).append(utterance)
                self._by_style.setdefault(each.style, []).append(utterance)
                if each.frames <= PROMPT_FRAMES:
                    self._short.setdefault(each.style, []).append(utterance)
        self._reader, self._kept = Reader(), KeptSentences()

    def held_out(self) -> list[Sample]:
        """The validation sentences, each behind its style's own prompt; never drawn."""
        read = {style: self._reader.read(each.text) for style, each in self.prompts.items()}
        return [
            Sample(self._reader.read(each.text), each, (read[each.style], self.prompts[each.style]))
            for each in self._held
        ]

    def draw(self, random_: random.Random, done: float) -> Sample:
        """One sample at the share ``done`` of the training."""
        early = done < FIRST_LESSONS
        kind = random_.choices(
            ("isolated", "free", "grammar"), (0.4, 0.6, 0.0) if early else (0.1, 0.5, 0.4)
        )[0]
        style = random_.choices(list(self._by_style), [_share(each) for each in self._by_style])[0]
        spoken = random_.choice(self._by_kind.get((kind, style)) or self._by_style[style])
        if random_.random() < JOINED:
            spoken = self._join(spoken, random_)
        prompt = None if early else self._prompt(spoken.style, random_)
        if prompt is None and spoken.style:
            # Unprompted speech has one style.
            prompt = self.prompts[spoken.style]
        text = spoken.text.rstrip(".") if random_.random() < 0.3 else spoken.text
        reading = self._reader.read(text, random_, SPELT)
        read = None if prompt is None else (self._reader.read(prompt.text), prompt)
        return Sample(reading, spoken, read)

    def _prompt(self, style: int, random_: random.Random) -> Utterance | None:
        draw = random_.random()
        if draw < OWN_PROMPT:
            return self.prompts[style]
        return random_.choice(self._short[style]) if draw < OWN_PROMPT + OTHER_PROMPT else None

    def _join(self, first: Utterance, random_: random.Random) -> Utterance:
        """``first`` up to a word and another from a word on, or ``first`` where that won't do."""
        second = random_.choice(self._by_style[first.style])
        begins, ends = word_spans(second.text), word_spans(first.text)
        last, next_ = random_.randrange(len(ends)), random_.randrange(len(begins))
        if next_ == 0 or second.text[: begins[next_][0]].rstrip().endswith(","):
            return first
        joined = join(first, last, second, next_)
        return first if len(joined.codes) > LONGEST or joined.text in self._kept else joined


def _share(style: int) -> float:
    return FIRST_STYLE if style == 0 else 1 - FIRST_STYLE


def join(first: Utterance, last: int, second: Utterance, next_: int) -> Utterance:
    """Words 0 .. ``last`` of the first, then ``next_`` .. of the second."""
    cut = sum(word <= last for word in first.words)
    take = next(index for index, word in enumerate(second.words) if word >= next_)
    end, begin = word_spans(first.text)[last][1], word_spans(second.text)[next_][0]
    each = len(first.phones) // len(first.words)
    return Utterance(
        f"{first.text[:end]} {second.text[begin:]}",
        first.style,
        torch.cat([first.codes[:cut], second.codes[take:]]),
        (*first.words[:cut], *(word - next_ + last + 1 for word in second.words[take:])),
        (*first.phones[: cut * each], *second.phones[take * each :]),
    )
