"""Word errors, the language models of the recogniser, progress and work folders."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from demo_voice.paths import Workshop
from demo_voice.profiles import SMOKE
from demo_voice.progress import Progress, spell
from demo_voice.recogniser import bigram_model, to_16_khz, uniform_model
from demo_voice.scores import by_ear, score, word_errors
from demo_voice.words import VOCABULARY


@pytest.mark.parametrize(
    ("meant", "heard", "errors"),
    [
        ("a b c", "a b c", 0),
        ("a b c", "a c", 1),
        ("a b", "a x b", 1),
        ("a b", "c d e", 3),
        ("a", "", 1),
    ],
)
def test_word_errors(meant: str, heard: str, errors: int) -> None:
    """Insertions, deletions and substitutions count one each."""
    assert word_errors(meant.split(), heard.split()) == errors


def test_a_score_is_over_all_words() -> None:
    """The rate is all errors over all words, not a mean of sentences."""
    result = score([(["a", "b", "c", "d"], ["a", "b", "c", "d"]), (["e"], ["x"])])

    assert (result.word_error_rate, result.right, result.sentences) == (0.2, 1, 2)
    with pytest.raises(ValueError, match="no word"):
        score([])


def test_no_ear_tells_for_from_four() -> None:
    """By ear, words that sound alike are one; others are not."""
    assert by_ear(["four", "two", "go"]) == by_ear(["for", "to", "go"])
    assert by_ear(["three"]) != by_ear(["tree"])


def test_the_language_models_are_distributions() -> None:
    """What may follow a word, seen or backed off to, sums to one; the uniform one prefers none."""
    ones, twos = grams(bigram_model(["send the report", "send the email", "the report is new"]))
    names = [name for (name,) in ones if name != "<s>"]
    for word in ("the", "<s>", "new"):
        back_off = 10 ** ones[(word,)][1]
        total = sum(
            10 ** twos[word, name][0] if (word, name) in twos else back_off * 10 ** ones[(name,)][0]
            for name in names
        )
        assert total == pytest.approx(1, abs=0.02)
    assert twos["send", "the"][0] > ones[("report",)][0]

    even, _ = grams(uniform_model())
    assert len({even[(word,)][0] for word in VOCABULARY}) == 1
    assert sum(10**value for (value, _) in even.values() if value > -90) == pytest.approx(
        1, abs=0.01
    )


Grams = dict[tuple[str, ...], tuple[float, float]]


def grams(arpa: str) -> tuple[Grams, Grams]:
    """Single words and pairs: log10 of the chance, and of the back-off weight."""
    found: dict[int, Grams] = {1: {}, 2: {}}
    order = 0
    for line in arpa.splitlines():
        if line.endswith("-grams:"):
            order = int(line[1])
        elif order and line and not line.startswith("\\"):
            value, *words = line.split()
            back_off = float(words.pop()) if order == 1 and len(words) == 2 else 0.0
            found[order][tuple(words)] = (float(value), back_off)
    return found[1], found[2]


def test_resampling_keeps_what_is_heard() -> None:
    """A tone keeps its pitch and its level at two thirds of the rate; above 8 kHz nothing stays."""
    time = np.arange(24_000) / 24_000
    low = to_16_khz(np.sin(2 * np.pi * 1_000 * time).astype(np.float32))
    high = to_16_khz(np.sin(2 * np.pi * 10_000 * time).astype(np.float32))

    assert len(low) == 16_000
    assert int(np.abs(np.fft.rfft(low)).argmax()) == 1_000
    assert float(np.abs(low[1_000:-1_000]).max()) == pytest.approx(1, abs=0.02)
    assert float(np.abs(high[1_000:-1_000]).max()) < 0.02


def test_progress_tells_what_is_left() -> None:
    """Rate and time left count what was done in this run, not what was there before."""
    told: list[str] = []
    now = iter([0.0, 5.0, 20.0, 40.0])
    progress = Progress("speech", 100, told.append, done=20, every_s=15, clock=lambda: next(now))

    progress.advance(10)
    progress.advance(30, "loss 1.000")
    progress.advance(40)

    assert told == [
        "speech: 60 of 100, 2 a second, 20 s left  loss 1.000",
        "speech: 100 of 100, 2 a second, 0 s left",
    ]
    assert [spell(each) for each in (30, 600, 7200)] == ["30 s", "10 min", "2.0 h"]


def test_another_recipe_starts_afresh(tmp_path: Path) -> None:
    """A stage's files stay for the same recipe, and go when it or a stage before it changes."""
    workshop = Workshop(tmp_path, SMOKE)
    for folder in (workshop.speech, workshop.codec, workshop.model):
        (folder / "file").touch()

    same = Workshop(tmp_path, replace(SMOKE, evaluated=7))
    assert (same.model / "file").exists()

    other = Workshop(tmp_path, replace(SMOKE, live_codebooks=5))
    assert (other.speech / "file").exists()
    assert not (other.codec / "file").exists()
    assert not (other.model / "file").exists()
