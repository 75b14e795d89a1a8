"""WAV files and their headers, byte for byte."""

from __future__ import annotations

import io
import wave

import pytest

from shared.digests import sha256_hex
from shared.wav import (
    FRAME_BYTES,
    FRAME_MS,
    FRAME_SAMPLES,
    HEADER_BYTES,
    SAMPLE_RATE,
    STREAMING_HEADER,
    duration_ms,
    wav_file,
    wav_header,
)


def test_header_layout() -> None:
    """Every field of the 44 bytes stands where the contract puts it."""
    header = wav_header(8)

    assert (
        header == b"RIFF\x2c\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00"
        b"\xc0\x5d\x00\x00\x80\xbb\x00\x00\x02\x00\x10\x00data\x08\x00\x00\x00"
    )
    assert len(header) == HEADER_BYTES


@pytest.mark.parametrize(
    ("frames", "digest"),
    [
        (1, "sha256:056e096196265b3e34608224a2e81e7c607daf5cadb366f5cd84d00c302b3350"),
        (2, "sha256:928af0beb3214c42ddc4a40b8e2b996bce03d58de41109130c553b1d942114b8"),
    ],
)
def test_silence_vectors(frames: int, digest: str) -> None:
    """Files of one and of two silent frames have the contract's digests."""
    file = wav_file(bytes(FRAME_BYTES * frames))

    assert digest == sha256_hex(file)


def test_file_of_pieces_equals_file_of_whole() -> None:
    """It makes no difference whether the samples come in one piece or in several."""
    pcm = bytes(range(200))

    assert wav_file(pcm) == wav_file([pcm[:50], pcm[50:]])


def test_standard_reader_accepts_the_file() -> None:
    """Python's own reader sees 24 kHz mono 16-bit audio of the right length."""
    with wave.open(io.BytesIO(wav_file(bytes(FRAME_BYTES)))) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (
            SAMPLE_RATE,
            1,
            2,
        )
        assert file.getnframes() == FRAME_SAMPLES


def test_streaming_header_says_unknown_sizes() -> None:
    """A streamed file carries 0xFFFFFFFF in both sizes and is otherwise the same header."""
    plain = bytearray(wav_header(0))
    plain[4:8] = plain[40:44] = b"\xff\xff\xff\xff"

    assert bytes(plain) == STREAMING_HEADER


def test_one_frame_lasts_80_ms() -> None:
    """Durations count whole milliseconds, rounded down."""
    assert duration_ms(FRAME_BYTES) == FRAME_MS
    assert duration_ms(FRAME_BYTES - 2) == FRAME_MS - 1


@pytest.mark.parametrize("size", [-2, 1, 0xFFFF_FFFE])
def test_impossible_sizes_are_refused(size: int) -> None:
    """A size that no file of 16-bit samples can have is an error, not a wrong header."""
    with pytest.raises(ValueError, match="16-bit"):
        wav_header(size)
