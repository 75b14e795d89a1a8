"""What pocketsphinx hears, over our vocabulary, with two language models.

uniform    every word as likely as any other: nothing but the sound counts
bigram     pairs of words as in the corpus's sentences, smoothed
"""

from __future__ import annotations

import math
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pocketsphinx
from numpy.typing import NDArray

from demo_voice.pcm import to_pcm16
from demo_voice.words import PRONUNCIATIONS, VOCABULARY, words_of
from shared.wav import SAMPLE_RATE

MODEL: Final = Path(pocketsphinx.__file__).parent / "model" / "en-us"
RATE: Final = 16_000
_BEGIN: Final = "<s>"
_END: Final = "</s>"
_DISCOUNT: Final = 0.75
_WORDS_A_SENTENCE: Final = 8


class Recogniser:
    """``sentences`` teach the bigram model; without any it is the uniform one."""

    def __init__(self, sentences: Sequence[str] = ()) -> None:
        with tempfile.TemporaryDirectory() as directory:
            dictionary, model = Path(directory) / "words.dict", Path(directory) / "model.arpa"
            dictionary.write_text(_dictionary())
            model.write_text(bigram_model(sentences) if sentences else uniform_model())
            self._decoder: Any = pocketsphinx.Decoder(
                hmm=str(MODEL / "en-us"),
                dict=str(dictionary),
                lm=str(model),
                samprate=RATE,
                loglevel="FATAL",
            )

    def hear(self, wave: NDArray[np.float32], rate: int = SAMPLE_RATE) -> list[str]:
        """The words in ``wave`` [samples] at 24 or 16 kHz; its loudness does not matter."""
        if rate == SAMPLE_RATE:
            wave = to_16_khz(wave)
        quiet = np.random.default_rng(0).standard_normal(len(wave) + 8_000) * 3e-4
        padded = np.pad(wave, (3_200, 4_800))
        padded = padded / (np.abs(padded).max() + 1e-6) * 0.6 + quiet
        self._decoder.start_utt()
        self._decoder.process_raw(to_pcm16(padded).tobytes(), full_utt=True)
        self._decoder.end_utt()
        heard = self._decoder.hyp()
        return words_of(heard.hypstr) if heard else []


def to_16_khz(wave: NDArray[np.float32]) -> NDArray[np.float32]:
    """Two samples for every three, below 8 kHz: a windowed sinc at 48 kHz."""
    taps = np.arange(-96, 97)
    kernel = np.sinc(taps / 3) * np.hanning(len(taps)) * (2 / 3)
    doubled = np.zeros(2 * len(wave))
    doubled[::2] = wave
    return np.convolve(doubled, kernel, "same")[::3].astype(np.float32)


def _dictionary() -> str:
    ours: dict[str, list[str]] = defaultdict(list)
    for line in (MODEL / "cmudict-en-us.dict").read_text(encoding="utf-8").splitlines():
        name, _, phones = line.partition(" ")
        ours[re.sub(r"\(\d+\)", "", name)].append(phones)
    ours |= {word: list(phones) for word, phones in PRONUNCIATIONS.items()}
    lines = []
    for word in VOCABULARY:
        for index, phones in enumerate(ours[word], 1):
            lines.append(f"{word}{'' if index == 1 else f'({index})'} {phones}\n")
        if not ours[word]:
            raise ValueError(f"nobody knows how {word!r} is said")
    return "".join(lines)


def uniform_model() -> str:
    """An ARPA file in which every word has the same chance."""
    ending = 1 / _WORDS_A_SENTENCE
    each = math.log10((1 - ending) / len(VOCABULARY))
    lines = [f"-99 {_BEGIN}", f"{math.log10(ending):.4f} {_END}"]
    lines += [f"{each:.4f} {word}" for word in VOCABULARY]
    return _arpa([lines])


def bigram_model(sentences: Iterable[str]) -> str:
    """An ARPA file of pairs, discounted, backing off to single words."""
    singles: Counter[str] = Counter()
    followers: dict[str, Counter[str]] = defaultdict(Counter)
    for sentence in sentences:
        words = [_BEGIN, *words_of(sentence), _END]
        singles.update(words)
        for first, second in pairwise(words):
            followers[first][second] += 1
    names = [*VOCABULARY, _BEGIN, _END]
    total = singles.total() + 0.5 * len(names)
    chance = {name: (singles[name] + 0.5) / total for name in names}
    ones, twos = [], []
    for name in names:
        log = -99.0 if name == _BEGIN else math.log10(chance[name])
        ones.append(f"{log:.4f} {name} {_back_off(followers[name], chance):.4f}")
        count = followers[name].total()
        for second, times in sorted(followers[name].items()):
            twos.append(f"{math.log10((times - _DISCOUNT) / count):.4f} {name} {second}")
    return _arpa([ones, twos])


def _back_off(followers: Counter[str], chance: dict[str, float]) -> float:
    """log10 of the weight that makes all chances after a word sum to one."""
    if not followers:
        return 0.0
    left = _DISCOUNT * len(followers) / followers.total()
    unseen = 1 - sum(chance[name] for name in followers)
    return math.log10(left / max(unseen, 1e-3))


def _arpa(grams: Sequence[Sequence[str]]) -> str:
    lines = ["\\data\\", *(f"ngram {n}={len(each)}" for n, each in enumerate(grams, 1))]
    for order, each in enumerate(grams, 1):
        lines += ["", f"\\{order}-grams:", *each]
    return "\n".join([*lines, "", "\\end\\", ""])
