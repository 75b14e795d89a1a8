"""Tokens, joined utterances, batches and the damage done to what the model reads of its past."""

from __future__ import annotations

import random

import pytest
import torch

from demo_voice.batches import NO_WORD, collate
from demo_voice.history import damage
from demo_voice.model import csm_config
from demo_voice.profiles import FULL, SMOKE
from demo_voice.samples import Sample, Utterance, join
from demo_voice.tokens import SPEAKER, Reader, build_tokenizer
from demo_voice.words import VOCABULARY, words_of
from gpu_worker.prompt import TextTokenizer, context_segment
from tests.demo_voice.stock import TEXTS, library, spoken

TOKENIZER = TextTokenizer.from_bytes(build_tokenizer().encode(), csm_config(FULL))
READER = Reader()


@pytest.mark.parametrize("text", [*TEXTS, "I'm Autopilot, your voice-driven operating surface."])
def test_training_reads_as_the_service_does(text: str) -> None:
    """The ids that are trained on are those that the artifact's tokenizer makes."""
    assert list(READER.read(text.replace("-", " ")).ids) == TOKENIZER.encode(
        SPEAKER, text.replace("-", " ")
    )


def test_a_word_is_one_id_however_it_is_written() -> None:
    """Case, place and the kind of apostrophe make no difference."""
    plain = TOKENIZER.encode(SPEAKER, "i'm")

    assert TOKENIZER.encode(SPEAKER, "I\u2019M") == plain
    assert TOKENIZER.encode(SPEAKER, "  I'm ") == plain
    assert len({len(TOKENIZER.encode(SPEAKER, word)) for word in VOCABULARY}) == 1


def test_unknown_words_are_spelt_and_nothing_is_refused() -> None:
    """A word outside the vocabulary, digits and foreign letters all make ids within the model."""
    ids = TOKENIZER.encode(SPEAKER, "Zebra 42 \u00e9\u4e16 <|end_of_text|>")

    assert max(ids) < csm_config(FULL).text_vocab_size
    assert len(ids) > 10


def test_a_spelt_word_keeps_its_place() -> None:
    """All letters of a spelt word are of that word; the count of words stands at the end."""
    reading = READER.read("Send emails", random.Random(0), spelt=1.0)

    assert len(reading.ids) == len(reading.words)
    assert [index for index in reading.words if index >= 0] == [0] * 4 + [1] * 6 + [2]


def test_utterances_are_joined_between_words() -> None:
    """Text, frames, words and phones of the joined utterance agree with each other."""
    first = _utterance("Send the report.", 0)
    second = _utterance("It is late today.", 100)

    joined = join(first, 1, second, 2)

    assert joined.text == "Send the late today."
    assert joined.words == (0, 0, 0, 1, 1, 2, 2, 3, 3, 4)
    assert joined.codes[:, 0].tolist() == [*range(5), *range(105, 110)]
    assert len(joined.phones) == 4 * len(joined.codes)


def _utterance(text: str, first_code: int) -> Utterance:
    each = spoken(text)
    codes = torch.zeros(each.frames, 32, dtype=torch.int64)
    codes[:, 0] = torch.arange(each.frames) + first_code
    return Utterance(text, 0, codes, each.words, tuple(range(4 * each.frames)))


def test_samples_keep_to_their_style() -> None:
    """A prompt has the style of what follows it; unprompted speech has the first style."""
    stock, random_ = library(), random.Random(1)
    samples = [stock.draw(random_, 0.9) for _ in range(300)]

    assert {sample.spoken.style for sample in samples} == {0, 1}
    for sample in samples:
        if sample.prompt is None:
            assert sample.spoken.style == 0
        else:
            assert sample.prompt[1].style == sample.spoken.style
        assert max(sample.reading.words) == len(words_of(sample.spoken.text))
        assert "I am here" not in sample.spoken.text


def test_validation_is_looked_at_and_never_drawn() -> None:
    """The validation sentence comes whole, behind the first style's prompt."""
    (held,) = library().held_out()

    assert held.spoken.text == "I am here."
    assert held.prompt is not None
    assert held.prompt[1].text == "Good morning."


def test_a_batch_reads_what_the_service_would_give_it() -> None:
    """Prompt and text stand as the worker's own prompt does, position for position."""
    sample = _prompted()
    batch = collate([sample], 0)

    reading, prompt = sample.prompt or pytest.fail("there is a prompt")
    segment = context_segment(list(reading.ids), prompt.codes.T)
    span = slice(0, len(segment))
    assert torch.equal(batch.codes[0, span], segment.tokens[:, :32])
    assert torch.equal(batch.is_audio[0, span], segment.mask[:, 0])
    assert torch.equal(batch.text[0, span], segment.tokens[:, 32])
    assert torch.equal(batch.is_text[0, span], segment.mask[:, 32])


def _prompted() -> Sample:
    stock, random_ = library(), random.Random(2)
    return next(each for _ in range(50) if (each := stock.draw(random_, 0.9)).prompt)


def test_a_batch_asks_for_the_next_frame_and_then_the_end() -> None:
    """The sample's own frames are asked for, each one position early, then a frame of zeros."""
    sample = _prompted()
    batch = collate([sample], 0)
    asked = batch.target[batch.is_taught]

    assert torch.equal(asked[:-1], sample.spoken.codes)
    assert not asked[-1].any()
    first = int(batch.is_taught[0].nonzero()[0])
    assert torch.equal(batch.codes[0, first + 1 : first + len(asked)], sample.spoken.codes)
    words = batch.frame_word[batch.is_taught].tolist()
    assert words == [*sample.spoken.words, max(sample.reading.words)]
    assert set(words) <= set(batch.text_word[batch.text_word != NO_WORD].tolist())


def test_only_the_samples_own_past_is_damaged() -> None:
    """Prompts, ends and targets stay whole; the rest loses and changes some frames."""
    stock, random_ = library(), random.Random(3)
    batch = collate([stock.draw(random_, 0.9) for _ in range(16)], 0)
    before = batch.target.clone()
    torch.manual_seed(0)

    codes, is_there = damage(batch, 1.0, SMOKE.codebook_size, SMOKE.live_codebooks)

    closed = ~batch.is_open
    assert torch.equal(codes[closed], batch.codes[closed])
    assert torch.equal(is_there[closed], batch.is_audio[closed])
    assert torch.equal(batch.target, before)
    changed = (codes != batch.codes).any(dim=-1) | (is_there != batch.is_audio)
    assert 0.1 < float(changed[batch.is_open].float().mean()) < 0.9
    assert int(codes.max()) < SMOKE.codebook_size


def test_no_damage_is_done_at_the_begin() -> None:
    """With an amount of nothing the past is what it was."""
    stock, random_ = library(), random.Random(4)
    batch = collate([stock.draw(random_, 0.0) for _ in range(4)], 0)

    codes, is_there = damage(batch, 0.0, SMOKE.codebook_size, SMOKE.live_codebooks)

    assert torch.equal(codes, batch.codes)
    assert torch.equal(is_there, batch.is_audio)
