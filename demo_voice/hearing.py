"""Word error rates of sounds, by both recognisers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from demo_voice.corpus import make_corpus
from demo_voice.profiles import Profile
from demo_voice.recogniser import Recogniser
from demo_voice.scores import by_ear, score
from demo_voice.words import words_of
from shared.wav import SAMPLE_RATE

READ: Final = 18_000
"""Lines that the bigram recogniser's sentences are taken from: text costs nothing."""
Wave = NDArray[np.float32]
Listeners = Mapping[str, Recogniser]


def listeners(profile: Profile) -> Listeners:
    """``uniform``, and ``bigram`` that has read sentences of the corpus's grammar."""
    corpus = make_corpus(replace(profile, utterances=READ))
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
