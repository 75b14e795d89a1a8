"""Word error rates of sounds, by both recognisers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demo_voice.corpus import read_corpus
from demo_voice.paths import Workshop
from demo_voice.recogniser import Recogniser
from demo_voice.scores import by_ear, score
from demo_voice.words import words_of
from shared.wav import SAMPLE_RATE

Wave = NDArray[np.float32]
Listeners = Mapping[str, Recogniser]


def listeners(workshop: Workshop) -> Listeners:
    """``uniform``, and ``bigram`` that has read the corpus's sentences."""
    corpus = read_corpus(workshop.speech / "corpus.jsonl")
    sentences = [line.text for line in corpus if line.kind == "grammar"]
    return {"uniform": Recogniser(), "bigram": Recogniser(sentences)}


def heard(
    waves: Sequence[Wave], lines: Sequence[str], by: Listeners, rate: int = SAMPLE_RATE
) -> dict[str, Any]:
    """For each listener: errors as written, and with words that sound alike made one."""
    report: dict[str, Any] = {}
    meant = [words_of(line) for line in lines]
    for name, listener in by.items():
        found = [listener.hear(wave, rate) for wave in waves]
        strict = score(list(zip(meant, found, strict=True)))
        ear = score([(by_ear(m), by_ear(h)) for m, h in zip(meant, found, strict=True)])
        report[name] = {
            "word_error_rate": round(strict.word_error_rate, 4),
            "by_ear": round(ear.word_error_rate, 4),
            "sentences_right": ear.right,
            "sentences": ear.sentences,
        }
    return report
