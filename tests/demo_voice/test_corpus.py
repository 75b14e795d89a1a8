"""The vocabulary, the sentences that are kept, and what is spoken for training."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

from demo_voice.corpus import KEPT_WORDS, KeptSentences, kept, make_corpus
from demo_voice.grammar import capitalised, sentence
from demo_voice.profiles import FULL
from demo_voice.words import VOCABULARY, unknown_words, words_of

SMALL = replace(FULL, utterances=1500)


def test_the_vocabulary_has_what_an_assistant_says() -> None:
    """At least 300 words, the numbers, days and months among them, each once."""
    assert len(VOCABULARY) >= 300
    assert len(set(VOCABULARY)) == len(VOCABULARY)
    needed = "one twenty hundred monday sunday january december okay sorry alice psionic crm"
    assert unknown_words(needed) == []


def test_the_kept_sentences_are_over_the_vocabulary() -> None:
    """100 test sentences, validation beside them, four benchmark lines; no sentence in two sets."""
    sets = {name: kept(name) for name in ("test", "validation", "benchmark")}

    assert len(set(sets["test"])) == 100
    assert len(sets["benchmark"]) == 4
    assert len(set(sets["validation"])) >= 50
    spoken = [tuple(words_of(line)) for lines in sets.values() for line in lines]
    assert len(set(spoken)) == len(spoken)


def test_nothing_kept_is_spoken() -> None:
    """No line of the corpus is a kept sentence, or has five words in a row of one."""
    held = {tuple(words_of(line)) for name in ("test", "validation") for line in kept(name)}
    windows = {
        words[start : start + KEPT_WORDS]
        for words in held
        for start in range(len(words) - KEPT_WORDS + 1)
    }

    for line in make_corpus(SMALL):
        words = tuple(words_of(line.text))
        assert words not in held
        assert not windows & {words[start : start + 5] for start in range(len(words) - 4)}


def test_a_part_of_a_kept_sentence_is_kept_too() -> None:
    """Five words of a test sentence, in other company, are refused; four are not."""
    held = KeptSentences()
    words = next(each for line in kept("test") if len(each := words_of(line)) >= 7)

    assert " ".join(("okay", *words[:5], "okay")) in held
    assert " ".join(("okay", *words[:4], "okay")) not in held


def test_a_corpus_is_the_same_for_the_same_seed() -> None:
    """The same profile makes the same lines; another seed makes others."""
    few = replace(SMALL, utterances=200)

    assert make_corpus(few) == make_corpus(few)
    assert make_corpus(few) != make_corpus(replace(few, seed=2))


def test_words_come_evenly_and_in_many_companies() -> None:
    """In the free part every word comes about equally often, and hardly a pair comes twice."""
    lines = [line for line in make_corpus(SMALL) if line.kind == "free"]
    words = Counter(word for line in lines for word in words_of(line.text))
    pairs = Counter(pair for line in lines for pair in pairwise(words_of(line.text)))

    assert set(words) == set(VOCABULARY)
    assert max(words.values()) < 3 * min(words.values())
    assert len(pairs) > 0.95 * pairs.total()


def test_the_grammar_only_says_words_of_the_vocabulary() -> None:
    """A thousand sentences, hardly one of them twice, and every category gets its turn."""
    random_ = random.Random(1)
    said = [sentence(random_) for _ in range(1000)]

    assert all(unknown_words(text) == [] for text in said)
    assert len(set(said)) > 850
    assert len({word for text in said for word in words_of(text)}) > 0.9 * len(VOCABULARY)


def test_texts_are_written_as_people_write_them() -> None:
    """Names, days and the first letter are upper-case."""
    assert capitalised("i know alice on monday, crm") == "I know Alice on Monday, CRM"
