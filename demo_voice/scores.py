"""Word errors, counted as recognisers' are: insertions, deletions and substitutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

HOMOPHONES: Final = {"four": "for", "two": "to", "hour": "our"}
"""No ear tells these apart; without a language model their spelling is a coin's toss."""


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of all sentences together. ``right`` counts sentences without any."""

    errors: int
    words: int
    right: int
    sentences: int

    @property
    def word_error_rate(self) -> float:
        return self.errors / self.words


def score(pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> Score:
    """Of (meant, heard) pairs of words. Raises ValueError when no word was meant."""
    errors = [word_errors(meant, heard) for meant, heard in pairs]
    words = sum(len(meant) for meant, _ in pairs)
    if not words:
        raise ValueError("there is no word to score")
    return Score(sum(errors), words, errors.count(0), len(pairs))


def by_ear(words: Sequence[str]) -> list[str]:
    """Words that sound alike, written alike."""
    return [HOMOPHONES.get(word, word) for word in words]


def word_errors(meant: Sequence[str], heard: Sequence[str]) -> int:
    """The fewest insertions, deletions and substitutions between them."""
    costs = list(range(len(heard) + 1))
    for row, word in enumerate(meant, 1):
        line = [row]
        for column, other in enumerate(heard, 1):
            line.append(min(line[-1] + 1, costs[column] + 1, costs[column - 1] + (word != other)))
        costs = line
    return costs[-1]
