"""Digests of codes, audio, prompts and files. All print ``sha256:`` and 64 lower-case hex digits.

The byte layouts are part of the wire contract:

    codebook_frames_sha256          frames in time order, codebooks 0..31 in a frame, each u32 LE
    prompt_codebook_tokens_sha256   codebook-major (all frames of codebook 0 first), each u32 LE
    wav_pcm16_digest                the WAV file: its 44-byte header and its samples
    pcm16_sha256                    the samples alone, s16 LE
    prompt_transcript_sha256        UTF-8 of the transcript as stored
    artifact digests                the bytes of the file
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from shared.messages import CODES_BYTES
from shared.wav import wav_header

READ_BYTES: Final = 8 << 20

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


def sha256_hex(data: bytes | bytearray | memoryview) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def is_digest(text: str) -> bool:
    """Whether ``text`` is a digest as we write them."""
    return _DIGEST.fullmatch(text) is not None


class CodebookDigest:
    """``codebook_frames_sha256``, fed with codes as they travel: per frame 32 x u16 little-endian.

    What is hashed are the same codes as u32.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.frames = 0

    def update(self, codes: bytes) -> None:
        """Adds one frame, or several one after another. Raises ValueError for a cut one."""
        count, rest = divmod(len(codes), CODES_BYTES)
        if rest:
            raise ValueError(f"{len(codes)} bytes are no whole number of packed frames")
        wide = bytearray(2 * len(codes))
        wide[0::4] = codes[0::2]
        wide[1::4] = codes[1::2]
        self._hash.update(wide)
        self.frames += count

    def __str__(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"


class Pcm16Digest:
    """``pcm16_sha256``, fed with s16le samples as they come."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def update(self, pcm: bytes) -> None:
        self._hash.update(pcm)

    def __str__(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"


def wav_pcm16_digest(parts: Iterable[bytes]) -> str:
    """Digest of the one WAV file made of these pieces of s16le samples at 24 kHz."""
    pieces = tuple(parts)
    whole = hashlib.sha256(wav_header(sum(map(len, pieces))))
    for piece in pieces:
        whole.update(piece)
    return f"sha256:{whole.hexdigest()}"


def prompt_tokens_sha256(codebooks: Sequence[Sequence[int]]) -> str:
    """``prompt_codebook_tokens_sha256`` of [codebooks][frames] codes."""
    whole = hashlib.sha256()
    for row in codebooks:
        whole.update(struct.pack(f"<{len(row)}I", *row))
    return f"sha256:{whole.hexdigest()}"


def transcript_sha256(transcript: str) -> str:
    """``prompt_transcript_sha256``: no speaker tag, no newline added, no normalisation."""
    return sha256_hex(transcript.encode())


def file_sha256(path: Path) -> str:
    """Digest of a file, read in pieces. Raises OSError."""
    whole = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(READ_BYTES):
            whole.update(piece)
    return f"sha256:{whole.hexdigest()}"
