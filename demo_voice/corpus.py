"""What is spoken for training, and the sentences that are kept from it.

Three kinds of text, so that only the text foretells the next word, never the words before it:

isolated    one to three words, each word of the vocabulary equally often
free        two to nine words in no order that means anything, each equally often
grammar     sentences of ``demo_voice.grammar``

Nothing that is spoken shares ``KEPT_WORDS`` words in a row with a test, validation or benchmark
sentence, nor is one of them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from demo_voice.grammar import capitalised, sentence
from demo_voice.profiles import Profile
from demo_voice.words import VOCABULARY, unknown_words, words_of

SENTENCES: Final = Path(__file__).parent / "sentences"
KEPT_WORDS: Final = 5
MAX_CHARACTERS: Final = 70


@dataclass(frozen=True, slots=True)
class Line:
    """One utterance to speak. ``style`` is an index into the profile's styles."""

    text: str
    kind: str
    style: int


def kept(name: str) -> tuple[str, ...]:
    """The sentences of ``test``, ``validation`` or ``benchmark``.

    Raises ValueError for one with a word outside the vocabulary.
    """
    lines = (SENTENCES / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    for line in lines:
        if unknown := unknown_words(line):
            raise ValueError(f"{name}.txt: {unknown} is not in the vocabulary: {line}")
    return tuple(lines)


def make_corpus(profile: Profile) -> list[Line]:
    """As many different utterances as the profile asks for; the same for the same seed."""
    random_ = random.Random(profile.seed)
    words = _evenly(random_)
    held = KeptSentences()
    lines: list[Line] = []
    seen: set[tuple[str, int]] = set()
    while len(lines) < profile.utterances:
        kind = _kind(profile, random_)
        text = _text(kind, words, random_)
        style = _style(profile, random_)
        if len(text) > MAX_CHARACTERS or (text, style) in seen or text in held:
            continue
        seen.add((text, style))
        lines.append(Line(text, kind, style))
    return lines


def write_corpus(path: Path, lines: list[Line]) -> None:
    path.write_text("".join(json.dumps(asdict(line)) + "\n" for line in lines), encoding="utf-8")


def _evenly(random_: random.Random) -> Iterator[str]:
    """The vocabulary in one random order after another."""
    while True:
        yield from random_.sample(VOCABULARY, len(VOCABULARY))


def _kind(profile: Profile, random_: random.Random) -> str:
    draw = random_.random()
    if draw < profile.isolated_share:
        return "isolated"
    return "free" if draw < profile.isolated_share + profile.free_share else "grammar"


def _style(profile: Profile, random_: random.Random) -> int:
    shares = [style.share for style in profile.styles]
    return random_.choices(range(len(shares)), shares)[0]


def _text(kind: str, words: Iterator[str], random_: random.Random) -> str:
    if kind == "grammar":
        return sentence(random_)
    count = random_.randint(1, 3) if kind == "isolated" else random_.randint(2, 9)
    drawn = [next(words) for _ in range(count)]
    for index in range(1, count - 1):
        if random_.random() < 0.06:
            drawn[index] += ","
    return capitalised(" ".join(drawn)) + random_.choice((".", ".", ".", "?", ""))


class KeptSentences:
    """``text in ...``: whether it is, or shares too much with, a sentence that is kept."""

    def __init__(self) -> None:
        names = ("test", "validation", "benchmark")
        self._wholes = {tuple(words_of(line)) for name in names for line in kept(name)}
        self._windows = {window for words in self._wholes for window in _windows(words)}

    def __contains__(self, text: str) -> bool:
        words = tuple(words_of(text))
        return words in self._wholes or not self._windows.isdisjoint(_windows(words))


def _windows(words: tuple[str, ...]) -> set[tuple[str, ...]]:
    return {
        words[start : start + KEPT_WORDS] for start in range(max(0, len(words) - KEPT_WORDS + 1))
    }
