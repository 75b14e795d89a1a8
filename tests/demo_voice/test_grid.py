"""Words found among phones and moved onto whole frames; speech that repeats exactly."""

from __future__ import annotations

import numpy as np
import pytest

from demo_voice.alignment import align
from demo_voice.flite import Phone, parse_phones
from demo_voice.grid import HOPS, lay, times, word_of_frame
from demo_voice.vocoder import PERIOD, vocode
from shared.wav import FRAME_SAMPLES

PHONES = parse_phones(
    "pau:0.2 hh:0.26 ax:0.32 l:0.4 ow:0.55 pau:0.75 w:0.8 er:0.95 l:1.0 d:1.1 pau:1.3"
)
ALONE = {"hello": ["hh", "eh", "l", "ow"], "world": ["w", "er", "l", "d"]}


def test_phones_are_given_to_their_words() -> None:
    """A word said a little otherwise than alone is still found, with its begin and end."""
    assert align(PHONES, ["hello", "world"], ALONE) == [(0.2, 0.55), (0.75, 1.1)]


def test_phones_that_are_another_sentence_are_refused() -> None:
    """Where phones and words don't fit, there is no alignment instead of a wrong one."""
    other = {"hello": ["s", "iy", "k"], "world": ["p", "aa", "t", "s", "f"]}

    assert align(PHONES, ["hello", "world"], other) is None


def test_words_take_whole_frames() -> None:
    """Lead, word, pause, word and tail are whole frames, each within half a frame of its time."""
    pieces = lay([(0.2, 0.55), (0.75, 1.1)])

    assert [(piece.word, piece.frames) for piece in pieces] == [
        (-1, 1),
        (0, 4),
        (-1, 2),
        (1, 4),
        (-1, 1),
    ]
    assert len(times(pieces)) == 12 * HOPS
    assert np.all(np.diff(times(pieces)) > 0)


def test_silence_belongs_to_what_follows() -> None:
    """The lead is the first word's, a pause the next word's, the tail nobody's."""
    pieces = lay([(0.2, 0.55), (0.75, 1.1)])

    assert word_of_frame(pieces) == [0] * 5 + [1] * 6 + [2]


def test_words_without_a_pause_follow_each_other() -> None:
    """A gap shorter than a pause is given to the word behind it, and nothing is lost."""
    pieces = lay([(0.1, 0.3), (0.32, 0.5)])

    assert [(piece.begin, piece.end) for piece in pieces[1:-1]] == [(0.1, 0.3), (0.3, 0.5)]


def test_a_steady_sound_makes_the_same_frame_again_and_again() -> None:
    """Pitch, phase and noise carry nothing: where the envelope stands still, frames are equal."""
    rate = 16_000
    wave = np.tile(np.random.default_rng(1).standard_normal(160) * 0.1, rate // 160)
    when = (0.1 + np.arange(8 * HOPS) * 0.01).astype(np.float64)

    made = vocode(wave.astype(np.float32), [Phone("aa", 0.0, 1.0)], when)

    assert made.shape == (8 * FRAME_SAMPLES,)
    assert made.shape[0] == len(when) * PERIOD
    frames = made.reshape(8, FRAME_SAMPLES)[2:]
    assert np.abs(frames).max() > 0.01
    assert np.abs(frames - frames[0]).max() < 1e-3 * np.abs(frames).max()


def test_flite_that_says_nothing_is_an_error() -> None:
    """Output without phones is refused where it is read."""
    with pytest.raises(ValueError, match="no phones"):
        parse_phones("")
