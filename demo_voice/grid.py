"""Every word moved onto whole frames of 80 ms.

A word that begins anywhere in a frame sounds like eight different words to a model of frames. Here
each word, and each pause, is stretched or squeezed to the nearest whole number of frames (by 40 ms
at most, save for the very shortest): the same word then makes nearly the same frames wherever it
stands, and any utterance can be cut and joined between words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

FRAME_S: Final = 0.08
HOPS: Final = 8
"""Spectra of 10 ms in one frame."""
LEAD: Final = 1
TAIL: Final = 1
SILENCE_S: Final = 0.06
"""Of flite's own silence, around the words, that is kept in the lead and the tail."""
PAUSE_FROM_S: Final = 0.06


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of time of flite's, ``frames`` long on the grid. ``word`` is -1 for a pause."""

    begin: float
    end: float
    frames: int
    word: int


def lay(spans: Sequence[tuple[float, float]]) -> list[Piece]:
    """Lead, words, pauses between them, tail."""
    first, last = spans[0][0], spans[-1][1]
    pieces = [Piece(first - SILENCE_S, first, LEAD, -1)]
    for index, (begin, end) in enumerate(spans):
        before = pieces[-1].end
        if begin - before >= PAUSE_FROM_S:
            pieces.append(Piece(before, begin, _frames(begin - before), -1))
            before = begin
        pieces.append(Piece(before, end, _frames(end - before), index))
    return [*pieces, Piece(last, last + SILENCE_S, TAIL, -1)]


def times(pieces: Sequence[Piece]) -> NDArray[np.float64]:
    """flite's time, in seconds, of the middle of each 10 ms on the grid: [frames * 8]."""
    parts = []
    for piece in pieces:
        steps = (np.arange(piece.frames * HOPS) + 0.5) / (piece.frames * HOPS)
        parts.append(piece.begin + steps * (piece.end - piece.begin))
    return np.concatenate(parts)


def word_of_frame(pieces: Sequence[Piece]) -> list[int]:
    """The word of each frame. Silence belongs to the word after it, at the end to ``words``."""
    owners: list[int] = []
    following = max(piece.word for piece in pieces) + 1
    for piece in reversed(pieces):
        following = piece.word if piece.word >= 0 else following
        owners += [following] * piece.frames
    return owners[::-1]


def _frames(seconds: float) -> int:
    return max(1, round(seconds / FRAME_S))
