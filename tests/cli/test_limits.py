"""What a person is told beforehand of an artifact that can't say everything."""

from __future__ import annotations

from cli.limits import limits_on, unknown_words

VOCABULARY = ["it's", "hello", "two", "o'clock"]


def test_words_outside_the_vocabulary_are_named() -> None:
    """Each once, in their order, whatever their case; digits are words that it does not know."""
    assert unknown_words("Hello, zebra! IT\u2019S 2 o'clock, Zebra.", VOCABULARY) == ("zebra", "2")


def test_without_a_bound_every_word_is_known() -> None:
    """An artifact without a vocabulary speaks anything."""
    assert unknown_words("Hello, zebra.", None) == ()


def test_the_note_comes_with_the_words() -> None:
    """The artifact's own note first, then what of this text it touches, if it touches any."""
    stated = {"note": "It knows four words.", "vocabulary": VOCABULARY}
    fits, exceeds = limits_on("Hello, two.", stated), limits_on("Hello, zebra.", stated)

    assert fits is not None
    assert exceeds is not None
    assert fits.rows() == [("note", "It knows four words."), ("unknown", None)]
    assert exceeds.rows() == [("note", "It knows four words."), ("unknown", "zebra")]
    assert exceeds.facts() == {"note": "It knows four words.", "unknown_words": ["zebra"]}


def test_an_artifact_that_states_nothing_has_no_limits() -> None:
    """CSM-1B, and a gateway of before, say nothing."""
    assert limits_on("Hello, zebra.", None) is None
