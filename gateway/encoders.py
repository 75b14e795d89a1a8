"""Compressed audio, by PyAV: the bytes of one body, from its samples as they come.

All samples that go in come out again. Codecs put a delay before them and padding behind, and what
a container can say of that, for players to cut it off, differs:

    flac   there is neither
    opus   both, by the head's pre-skip and the last page's position
    mp3    both, by an Info frame at a file's front; a stream can't have one, as it gives the length
    aac    neither: ADTS has no place for it

Where it is not said, ``UNSAID_DELAY_SAMPLES`` come before the first sample.
PyAV comes with the ``formats`` extra, so it is imported where it is used.
"""

from __future__ import annotations

import io
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Final

import structlog

from shared.errors import SpeechError
from shared.wav import FRAME_BYTES, FRAME_SAMPLES, SAMPLE_RATE

if TYPE_CHECKING:
    import av.audio

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Encoding:
    """One format: FFmpeg's names and options of its container and codec."""

    container: str
    codec: str
    sample_format: str
    content_type: str
    magic: bytes
    """What a body starts with."""
    bit_rate: int | None = None
    container_options: Mapping[str, str] = field(default_factory=dict)
    stream_options: Mapping[str, str] = field(default_factory=dict)
    """Of the container, when the body is streamed."""
    codec_options: Mapping[str, str] = field(default_factory=dict)


ENCODINGS: Final[Mapping[str, Encoding]] = {
    "mp3": Encoding(
        "mp3",
        "libmp3lame",
        "s16p",
        "audio/mpeg",
        b"\xff\xf3",
        64_000,
        container_options={"id3v2_version": "0", "write_id3v1": "0"},
    ),
    "opus": Encoding(
        "ogg",
        "libopus",
        "s16",
        "audio/ogg",
        b"OggS",
        48_000,
        # A page for each packet of 20 ms: else a second's worth is held back.
        stream_options={"page_duration": "20000"},
    ),
    "aac": Encoding(
        "adts",
        "aac",
        "fltp",
        "audio/aac",
        b"\xff\xf1",
        64_000,
        # The other coder mars the first block when a sound begins at once.
        codec_options={"aac_coder": "fast"},
    ),
    "flac": Encoding(
        "flac",
        "flac",
        "s16",
        "audio/flac",
        b"fLaC",
        container_options={"metadata_header_padding": "0"},
        codec_options={"frame_size": str(FRAME_SAMPLES)},
    ),
}

UNSAID_DELAY_SAMPLES: Final[Mapping[str, int]] = {"mp3": 1105, "aac": 1024}
"""At 24 kHz. Of LAME's encoder and its decoders together, and of FFmpeg's AAC encoder."""

COMMON_OPTIONS: Final = {"fflags": "+bitexact", "flush_packets": "1"}
"""Equal samples give equal bytes, and no packet stays behind in a buffer."""


class _Sink:
    """Takes a muxer's bytes. It can't seek, so nothing written is ever changed."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        """What was written since the last time."""
        taken, self._pieces = b"".join(self._pieces), []
        return taken


class Encoder:
    """One streamed body. Raises SpeechError("internal_error") when it can't be encoded."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._sink = _Sink()
        with _told(name):
            self._writer = _Writer(name, self._sink, ENCODINGS[name].stream_options)

    def feed(self, pcm: bytes) -> bytes:
        """What there is to send after these samples: nothing, if the codec still holds them.

        A frame takes about 0.6 ms; the first one, that sets the codec up, up to 10 ms.
        """
        with _told(self._name):
            self._writer.write(pcm)
        return self._sink.take()

    def finish(self) -> bytes:
        """What the codec and the container held back."""
        with _told(self._name):
            self._writer.close()
        return self._sink.take()


def encode(name: str, pcm: bytes) -> bytes:
    """A whole file. A second of audio takes about 8 ms, so this belongs in a thread.

    Raises SpeechError("internal_error").
    """
    with _told(name):
        return _whole(name, pcm)


@cache
def working_encoders() -> tuple[str, ...]:
    """The formats that this installation encodes, found out by encoding a little of each."""
    try:
        import av
    except ImportError as error:
        log.info("encoders_missing", error=type(error).__name__)
        return ()
    working = []
    for name, encoding in ENCODINGS.items():
        try:
            body = _whole(name, bytes(2 * FRAME_BYTES))
        except (av.FFmpegError, ValueError) as error:
            log.warning("encoder_refused", format=name, error=type(error).__name__)
            continue
        if body.startswith(encoding.magic):
            working.append(name)
        else:
            log.warning("encoder_refused", format=name, error="wrong_magic")
    return tuple(working)


def _whole(name: str, pcm: bytes) -> bytes:
    file = io.BytesIO()
    writer = _Writer(name, file, {})
    for start in range(0, len(pcm), FRAME_BYTES):
        writer.write(pcm[start : start + FRAME_BYTES])
    writer.close()
    return file.getvalue()


@contextmanager
def _told(name: str) -> Iterator[None]:
    import av

    try:
        yield
    except (av.FFmpegError, ValueError) as error:
        log.error("encoding_failed", format=name, error=type(error).__name__)
        raise SpeechError("internal_error", "the audio could not be encoded") from error


class _Writer:
    """One codec into one container. Raises FFmpegError or ValueError, also if either is missing."""

    def __init__(self, name: str, file: _Sink | io.BytesIO, more: Mapping[str, str]) -> None:
        import av
        from av.audio import AudioStream

        encoding = ENCODINGS[name]
        options = {**COMMON_OPTIONS, **encoding.container_options, **more}
        self._container = av.open(file, "w", format=encoding.container, options=options)
        # A container of PyAV before 18 that is collected open takes the process with it.
        weakref.finalize(self, self._container.close)
        stream = self._container.add_stream(
            encoding.codec,
            rate=SAMPLE_RATE,
            options={"flags": "+bitexact", **encoding.codec_options},
        )
        assert isinstance(stream, AudioStream)
        codec = self._codec = stream.codec_context
        self._stream = stream
        codec.layout = "mono"
        codec.format = encoding.sample_format
        codec.thread_count = 1
        if encoding.bit_rate is not None:
            codec.bit_rate = encoding.bit_rate
        self._samples = 0

    def write(self, pcm: bytes) -> None:
        from av.audio.frame import AudioFrame

        count = len(pcm) // 2
        frame = AudioFrame(format="s16", layout="mono", samples=count)
        frame.planes[0].update(pcm)
        frame.sample_rate, frame.time_base = SAMPLE_RATE, Fraction(1, SAMPLE_RATE)
        frame.pts = self._samples
        self._samples += count
        self._encode(frame)

    def close(self) -> None:
        self._encode(None)
        self._container.close()

    def _encode(self, frame: av.audio.AudioFrame | None) -> None:
        self._container.mux(self._stream.encode(frame))
