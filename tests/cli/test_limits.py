"""What a person is told beforehand of an artifact that can't say everything."""

from __future__ import annotations

from cli.limits import unknown_words, warnings

VOCABULARY = ["it's", "hello", "two", "o'clock"]


def test_words_outside_the_vocabulary_are_named() -> None:
    """Each once, in their order, whatever their case; digits are words that it does not know."""
    assert unknown_words("Hello, zebra! IT\u2019S 2 o'clock, Zebra.", VOCABULARY) == ["zebra", "2"]


def test_without_a_bound_every_word_is_known() -> None:
    """An artifact without a vocabulary speaks anything."""
    assert unknown_words("Hello, zebra.", None) == []


def test_the_note_comes_with_the_words() -> None:
    """The artifact's own note first, then what of this text it touches."""
    health = {"speech_limits": {"note": "It knows four words.", "vocabulary": VOCABULARY}}

    assert warnings(health, "Hello, two.") == [("note", "It knows four words.")]
    assert warnings(health, "Hello, zebra.") == [
        ("note", "It knows four words."),
        ("unknown", "zebra"),
    ]


def test_an_artifact_that_states_nothing_is_not_spoken_of() -> None:
    """CSM-1B, and a gateway of before, say nothing, and nothing is said of them."""
    assert warnings({"status": "ok"}, "Hello, zebra.") == []
