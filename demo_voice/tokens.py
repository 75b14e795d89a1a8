"""The tokenizer: one id for each word of the vocabulary, wherever it stands and however written.

Text is taken to lower case and cut into words and single signs. A word outside the vocabulary is
its longest known beginning and then letter by letter, so that nothing is refused; it will be
mispronounced. Once in a while a known word is spelt so in training too.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Final

from tokenizers import (  # type: ignore[import-untyped]
    AddedToken,
    Regex,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
)

from demo_voice.words import VOCABULARY, words_of
from gpu_worker.prompt import BEGIN, END

UNKNOWN: Final = "<|unknown|>"
SIGNS: Final = ".,?!;:-[]()\"'0123456789"
SPEAKER: Final = 1
_INNER: Final = "##"


def _vocabulary() -> dict[str, int]:
    letters = [*ascii_lowercase, *SIGNS]
    inner = [f"{_INNER}{letter}" for letter in (*ascii_lowercase, "'")]
    names = dict.fromkeys((UNKNOWN, *letters, *inner, *VOCABULARY))
    return {name: index for index, name in enumerate(names)}


def build_tokenizer() -> str:
    """The text of ``tokenizer.json``."""
    pieces = models.WordPiece(_vocabulary(), unk_token=UNKNOWN, max_input_chars_per_word=60)
    tokenizer = Tokenizer(pieces)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Lowercase(), normalizers.Replace("\u2019", "'")]
    )
    cut = Regex(r"[a-z]+(?:'[a-z]+)*|[^\sa-z]")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(cut, "removed", invert=True)
    tokenizer.add_special_tokens(
        [AddedToken(name, special=True, normalized=False) for name in (BEGIN, END)]
    )
    text: str = tokenizer.to_str(pretty=True)
    return text


def begin_and_end() -> tuple[int, int]:
    """Ids of begin and end of text."""
    known = len(_vocabulary())
    return known, known + 1


def vocabulary_size() -> int:
    return len(_vocabulary()) + 2


@dataclass(frozen=True, slots=True)
class Reading:
    """A text as the model reads it. ``words``: each id's word, -1 for none, their count at END."""

    ids: tuple[int, ...]
    words: tuple[int, ...]


class Reader:
    """Makes readings; equal, where nothing is spelt, to the ids of the service's tokenizer."""

    def __init__(self) -> None:
        self._ids = _vocabulary()
        self._begin, self._end = begin_and_end()

    def read(self, text: str, random_: random.Random | None = None, spelt: float = 0.0) -> Reading:
        """``text`` over the vocabulary and ``.,?``; each word is spelt with chance ``spelt``."""
        ids = [self._begin, *(self._ids[sign] for sign in f"[{SPEAKER}]")]
        words = [-1] * len(ids)
        index = -1
        for part in text.lower().replace(",", " ,").replace(".", " .").replace("?", " ?").split():
            if part in SIGNS:
                ids.append(self._ids[part])
                words.append(-1)
                continue
            for word in words_of(part):
                index += 1
                own = [self._ids[word]]
                if random_ is not None and random_.random() < spelt:
                    own = self._spell(word)
                ids += own
                words += [index] * len(own)
        return Reading((*ids, self._end), (*words, index + 1))

    def _spell(self, word: str) -> list[int]:
        return [self._ids[word[0]], *(self._ids[f"{_INNER}{letter}"] for letter in word[1:])]
