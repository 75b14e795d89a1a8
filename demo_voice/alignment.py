"""Which phones of an utterance are which word's.

flite times phones, not words, and says a word otherwise in a sentence than alone. The phones of the
sentence are matched to those of its words said alone, at the least cost of changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from demo_voice.flite import PAUSE, Phone

_VOWELS: Final = "aa ae ah ao aw ax axr ay eh er ey ih iy ow oy uh uw"
VOWELS: Final = frozenset(_VOWELS.split(" "))
TOO_FAR: Final = 0.25
"""Mean cost per phone from which an alignment is not believed."""


def align(
    phones: Sequence[Phone], words: Sequence[str], alone: Mapping[str, Sequence[str]]
) -> list[tuple[float, float]] | None:
    """Begin and end of each word in seconds, or None when the phones don't fit the words.

    ``alone`` gives each word's own phones, without pauses.
    """
    said = [phone for phone in phones if phone.name != PAUSE]
    meant = [(name, index) for index, word in enumerate(words) for name in alone[word]]
    costs = _costs([phone.name for phone in said], [name for name, _ in meant])
    if costs[-1][-1] > TOO_FAR * len(meant) + 1:
        return None
    owners = _trace(costs, said, meant)
    spans: list[tuple[float, float]] = []
    for index in range(len(words)):
        own = [phone for phone, owner in zip(said, owners, strict=True) if owner == index]
        if not own:
            return None
        spans.append((own[0].begin, own[-1].end))
    return spans


def _change(said: str, meant: str) -> float:
    if said == meant:
        return 0.0
    return 0.4 if said in VOWELS and meant in VOWELS else 1.2


def _costs(said: Sequence[str], meant: Sequence[str]) -> list[list[float]]:
    costs = [[float(column) for column in range(len(meant) + 1)]]
    for row, name in enumerate(said, 1):
        line = [float(row)]
        for column, other in enumerate(meant, 1):
            line.append(
                min(
                    costs[-1][column - 1] + _change(name, other),
                    costs[-1][column] + 1,
                    line[-1] + 1,
                )
            )
        costs.append(line)
    return costs


def _trace(
    costs: list[list[float]], said: Sequence[Phone], meant: Sequence[tuple[str, int]]
) -> list[int]:
    """The word of each phone; one that no word has goes to the word before it."""
    row, column = len(said), len(meant)
    owners = [0] * row
    while row:
        here = costs[row][column]
        if column:
            change = _change(said[row - 1].name, meant[column - 1][0])
            if here == costs[row - 1][column - 1] + change:
                row, column = row - 1, column - 1
                owners[row] = meant[column][1]
                continue
        if here == costs[row - 1][column] + 1:
            row -= 1
            owners[row] = meant[max(column - 1, 0)][1]
        else:
            column -= 1
    return owners
