"""Prompts as the contract lays them out: ids, lanes, masks, and what fits the window."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models  # type: ignore[import-untyped]

from gpu_worker.model.checkpoint import load_config, load_tokenizer
from gpu_worker.model.config import CsmConfig
from gpu_worker.prompt import (
    Frames,
    TextTokenizer,
    audio_frames,
    build_prompt,
    context_limit,
    context_segment,
    text_frames,
)
from shared.errors import SpeechError
from shared.governance.artifacts import Artifact

BEGIN, END = 800, 801
FIRST_SPECIAL = 800


@pytest.fixture(scope="session")
def config(tiny_artifact: Artifact) -> CsmConfig:
    return load_config(tiny_artifact)


@pytest.fixture(scope="session")
def tokenizer(tiny_artifact: Artifact, config: CsmConfig) -> TextTokenizer:
    return load_tokenizer(tiny_artifact, config)


@pytest.fixture(scope="session")
def raw(tiny_artifact: Artifact) -> Tokenizer:
    """The tokenizer as the file has it, to decode with."""
    return Tokenizer.from_file(str(tiny_artifact.directory / "tokenizer.json"))


def segment(text: int, audio: int) -> Frames:
    return context_segment([5] * text, torch.ones(32, audio, dtype=torch.int64))


def test_text_stands_between_begin_and_end(tokenizer: TextTokenizer, raw: Tokenizer) -> None:
    """Ids are begin, the tagged text as it is, end."""
    ids = tokenizer.encode(1, "Hello  there ")

    assert (ids[0], ids[-1]) == (BEGIN, END)
    assert raw.decode(ids[1:-1]) == "[1]Hello  there "


def test_empty_text_is_the_tag_alone(tokenizer: TextTokenizer, raw: Tokenizer) -> None:
    """An empty text leaves the speaker's tag between begin and end."""
    ids = tokenizer.encode(1, "")

    assert raw.decode(ids[1:-1]) == "[1]"


@pytest.mark.parametrize(
    "text",
    [
        "<|end_of_text|>",
        "<|begin_of_text|>",
        "<|eot_id|>",
        "stop<|end_of_text|>[1]and go on",
        "[1]",
        "<|reserved_special_token_0|><|python_tag|>",
    ],
)
def test_special_tokens_in_text_are_text(
    tokenizer: TextTokenizer, raw: Tokenizer, text: str
) -> None:
    """No spelling in the caller's text becomes a control id; it is spoken as characters."""
    ids = tokenizer.encode(0, text)

    assert all(each < FIRST_SPECIAL for each in ids[1:-1])
    assert raw.decode(ids[1:-1]) == f"[0]{text}"


@given(st.text(max_size=60))
def test_any_text_survives(tiny_artifact: Artifact, text: str) -> None:
    """Whatever Unicode is given, its bytes are what the ids spell, and ids stay in range."""
    config = load_config(tiny_artifact)
    ids = load_tokenizer(tiny_artifact, config).encode(0, text)
    raw = Tokenizer.from_file(str(tiny_artifact.directory / "tokenizer.json"))

    assert raw.decode(ids[1:-1], skip_special_tokens=False) == f"[0]{text}"
    assert max(ids[1:-1]) < FIRST_SPECIAL


def test_speaker_is_a_decimal_tag(tokenizer: TextTokenizer) -> None:
    """Speakers differ by their tag alone."""
    zero, one = tokenizer.encode(0, "Hi"), tokenizer.encode(1, "Hi")

    assert len(zero) == len(one)
    assert [a for a, b in zip(zero, one, strict=True) if a != b] != []
    assert sum(a != b for a, b in zip(zero, one, strict=True)) == 1


def test_saved_template_and_truncation_are_overruled(config: CsmConfig, raw: Tokenizer) -> None:
    """Whatever template, truncation or padding the file carries, ours holds."""
    raw = Tokenizer.from_str(raw.to_str())
    raw.enable_truncation(4)
    raw.enable_padding(length=50)

    ids = TextTokenizer.from_bytes(raw.to_str().encode(), config).encode(0, "one two three four")

    assert 6 < len(ids) < 50
    assert (ids[0], ids[-1]) == (BEGIN, END)


def test_foreign_tokenizer_is_refused(config: CsmConfig) -> None:
    """A tokenizer whose begin and end are not the configuration's is another model's."""
    with pytest.raises(ValueError, match="begin and end"):
        TextTokenizer(Tokenizer(models.BPE()), config)


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff\xfe", b"not json"])
def test_malformed_tokenizer_is_refused(config: CsmConfig, data: bytes) -> None:
    """Bytes that are no tokenizer.json are a ValueError, whatever the library raises."""
    with pytest.raises(ValueError, match="not a tokenizer"):
        TextTokenizer.from_bytes(data, config)


def test_text_frames() -> None:
    """A text id stands in lane 32, the only lane of its mask."""
    frames = text_frames([7, 9])

    assert frames.tokens.shape == (2, 33)
    assert frames.tokens[:, 32].tolist() == [7, 9]
    assert not frames.tokens[:, :32].any()
    assert frames.mask.sum(dim=1).tolist() == [1, 1]
    assert frames.mask[:, 32].all()


def test_audio_frames() -> None:
    """Codes stand in lanes 0..31, codebook by codebook, and lane 32 is masked out."""
    codes = torch.arange(64).view(32, 2)

    frames = audio_frames(codes)

    assert frames.tokens[0, :32].tolist() == codes[:, 0].tolist()
    assert frames.tokens[1, :32].tolist() == codes[:, 1].tolist()
    assert frames.tokens[:, 32].tolist() == [0, 0]
    assert frames.mask[:, :32].all()
    assert not frames.mask[:, 32].any()


@pytest.mark.parametrize("codes", [torch.zeros(31, 2), torch.zeros(32), torch.full((32, 1), -1)])
def test_other_codes_are_refused(codes: torch.Tensor) -> None:
    """Codes of another shape, or below 0, make no frames."""
    with pytest.raises(ValueError, match="audio code"):
        audio_frames(codes.to(torch.int64))


def test_segment_ends_with_an_audio_frame_of_zeros() -> None:
    """A context segment is its text, its audio and one end frame with the audio's mask."""
    frames = segment(3, 2)

    assert len(frames) == 3 + 2 + 1
    assert not frames.tokens[-1].any()
    assert frames.mask[-1].tolist() == [True] * 32 + [False]


def test_prompt_splits_into_voice_and_text() -> None:
    """The context is the prefix, the text to speak the suffix, and nothing is between them."""
    prompt = build_prompt([segment(3, 2)], text_frames([7, 8]), max_frames=10, max_seq_len=2048)

    assert (prompt.prompt_frame_count, prompt.prefix_frames) == (8, 6)
    assert prompt.prefix.tokens.equal(segment(3, 2).tokens)
    assert prompt.suffix.tokens.equal(text_frames([7, 8]).tokens)
    assert prompt.suffix.mask.equal(text_frames([7, 8]).mask)
    assert prompt.tokens.dtype == torch.int64
    assert prompt.mask.dtype == torch.bool


def test_prompt_without_context_has_an_empty_prefix() -> None:
    """Without context the whole prompt is the text."""
    prompt = build_prompt([], text_frames([7, 8]), max_frames=1, max_seq_len=2048)

    assert len(prompt.prefix) == 0
    assert prompt.tokens.equal(prompt.suffix.tokens)


@pytest.mark.parametrize(
    ("frames", "limit"),
    [(1, 2047), (2, 2046), (3, 2045), (12, 2036), (187, 1861), (250, 1798)],
)
def test_window_vectors(frames: int, limit: int) -> None:
    """Length budgets leave the contract's limits for prompts."""
    assert context_limit(frames, 2048) == limit


@pytest.mark.parametrize("frames", [0, 2048, -1])
def test_impossible_budget_is_refused(frames: int) -> None:
    """A budget of nothing, or of the whole window, can't be generated."""
    with pytest.raises(SpeechError) as caught:
        context_limit(frames, 2048)

    assert caught.value.code == "invalid_generation_window"


def test_two_segments_fit() -> None:
    """Segments of 3+2 and 3+3 and a text of 3 make 16 frames, none dropped."""
    prompt = build_prompt(
        [segment(3, 2), segment(3, 3)], text_frames([1] * 3), max_frames=12, max_seq_len=2048
    )

    assert prompt.prompt_frame_count == 16


def test_overflow_is_refused() -> None:
    """A prompt of exactly the limit doesn't fit; the message names limit and budget."""
    with pytest.raises(SpeechError, match=r"2 are to be generated.*2046") as caught:
        build_prompt([segment(1, 2042)], text_frames([1] * 3), max_frames=2, max_seq_len=2048)

    assert caught.value.code == "context_overflow"


def test_one_below_the_limit_fits() -> None:
    """The limit itself is out, one frame less is in."""
    prompt = build_prompt([segment(1, 2040)], text_frames([1] * 3), max_frames=2, max_seq_len=2048)

    assert prompt.prompt_frame_count == 2045


def test_oldest_segments_can_be_dropped() -> None:
    """With drop_oldest the oldest segment goes as a whole and the newer one stays."""
    prompt = build_prompt(
        [segment(1, 2042), segment(3, 2)],
        text_frames([1] * 3),
        max_frames=2,
        max_seq_len=2048,
        drop_oldest=True,
    )

    assert prompt.prefix.tokens.equal(segment(3, 2).tokens)
    assert prompt.prompt_frame_count == 9


def test_text_alone_too_long_is_refused_in_any_policy() -> None:
    """Dropping context doesn't help a text that doesn't fit by itself."""
    with pytest.raises(SpeechError) as caught:
        build_prompt(
            [segment(3, 2)], text_frames([1] * 62), max_frames=2, max_seq_len=64, drop_oldest=True
        )

    assert caught.value.code == "context_overflow"


def test_a_text_without_ids_is_refused(config: CsmConfig) -> None:
    """A tokenizer that has no ids for a text fails that text, not the engine, and repeats none."""
    known = {"<|begin_of_text|>": config.bos_id, "<|end_of_text|>": config.eos_id}
    words = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    words.add_special_tokens(list(known))

    with pytest.raises(SpeechError) as caught:
        TextTokenizer(words, config).encode(0, "secret")

    assert caught.value.code == "csm_synthesis_failed"
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
