"""Digests have the contract's values, however their input is cut."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.digests import (
    CodebookDigest,
    Pcm16Digest,
    file_sha256,
    is_digest,
    prompt_tokens_sha256,
    sha256_hex,
    transcript_sha256,
    wav_pcm16_digest,
)
from shared.wav import FRAME_BYTES, wav_file

EMPTY = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
FRAMES = st.lists(st.lists(st.integers(0, 2050), min_size=32, max_size=32), min_size=0, max_size=4)


def pack_codes(frame: list[int]) -> bytes:
    return struct.pack("<32H", *frame)


@pytest.mark.parametrize(
    ("frames", "digest"),
    [
        ([], EMPTY),
        (
            [list(range(32))],
            "sha256:afbc67011b6f94a508935ad8edcbdd3c9b56c4db336f8d3847a8a1815183828f",
        ),
        (
            [[7] * 32, [8] * 32],
            "sha256:c277a49187dede3e46ba3517a94e568da8cf13bccc14971017647592484bc17e",
        ),
    ],
)
def test_codebook_vectors(frames: list[list[int]], digest: str) -> None:
    """The digest of generated frames has the contract's values."""
    total = CodebookDigest()

    for frame in frames:
        total.update(pack_codes(frame))

    assert digest == str(total)
    assert len(frames) == total.frames


@given(FRAMES)
def test_codebook_digest_is_u32_frame_major(frames: list[list[int]]) -> None:
    """Packed 16-bit codes hash as 32-bit little-endian values, however they are cut."""
    plain = b"".join(struct.pack("<32I", *frame) for frame in frames)
    whole = CodebookDigest()

    whole.update(b"".join(map(pack_codes, frames)))

    assert sha256_hex(plain) == str(whole)


def test_cut_frames_are_refused() -> None:
    """A piece of a frame is never hashed."""
    with pytest.raises(ValueError, match="packed frames"):
        CodebookDigest().update(bytes(63))


def test_wav_vectors() -> None:
    """The WAV digest covers header and samples of the whole, in however many pieces."""
    samples = bytes.fromhex("018000c000000040ff7f")

    assert (
        wav_pcm16_digest([samples])
        == "sha256:8693c9c2de0009a832983a56d7a27209b518b291c3abd8efec00b98649f63055"
    )
    assert (
        wav_pcm16_digest([bytes(FRAME_BYTES), bytes(FRAME_BYTES)])
        == "sha256:928af0beb3214c42ddc4a40b8e2b996bce03d58de41109130c553b1d942114b8"
    )
    assert sha256_hex(wav_file(b"")) == wav_pcm16_digest([])


def test_pcm_digest_has_no_header() -> None:
    """The samples' digest is of the samples alone and counts them."""
    digest = Pcm16Digest()

    digest.update(b"\x01\x02")
    digest.update(b"\x03\x04")

    assert sha256_hex(b"\x01\x02\x03\x04") == str(digest)


def test_prompt_tokens_are_codebook_major() -> None:
    """A prompt's codes hash row by row, which is not the order of generated frames."""
    rows = [[1, 2, 3], [4, 5, 6]]

    assert sha256_hex(struct.pack("<6I", 1, 2, 3, 4, 5, 6)) == prompt_tokens_sha256(rows)


def test_transcript_is_hashed_as_stored() -> None:
    """Neither case, spaces nor a trailing newline are touched."""
    text = "Héllo \n"

    assert transcript_sha256(text) == "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def test_file_digest(tmp_path: Path) -> None:
    """A file's digest is that of its bytes."""
    path = tmp_path / "file"
    path.write_bytes(b"psionic")

    assert sha256_hex(b"psionic") == file_sha256(path)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        (EMPTY, True),
        (EMPTY.upper(), False),
        (EMPTY[7:], False),
        (EMPTY + "0", False),
        (EMPTY + "\n", False),
        ("sha512:" + "0" * 64, False),
    ],
)
def test_digest_shape(text: str, good: bool) -> None:
    """Only the one spelling of a digest passes."""
    assert good == is_digest(text)
