"""The formats that the deployment says it makes, as retries of one answer; others are refused."""

from __future__ import annotations

from typing import Final

from cli.conformance.envelope import refused
from cli.conformance.promise import Skipped, promised, same
from cli.conformance.run import Run
from gateway.formats import CONTENT_TYPES
from shared.paths import SPEECH

BEGINNINGS: Final = {
    "wav": (b"RIFF",),
    "mp3": (b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2"),
    "opus": (b"OggS",),
    "aac": (b"\xff\xf1", b"\xff\xf9"),
    "flac": (b"fLaC",),
}


def pcm(run: Run) -> None:
    """The samples alone."""
    promised(_made(run, "pcm") == run.pcm, "pcm is not the samples of the WAV file")


def compressed(run: Run) -> str:
    """Each encoder's file, of its kind; a lossless one counts the samples."""
    names = [name for name in BEGINNINGS if name != "wav" and name in _supported(run)]
    if not names:
        raise Skipped("this deployment has no encoders")
    for name in names:
        body = _made(run, name)
        promised(body.startswith(BEGINNINGS[name]), f"what is sent as {name} is none")
        if name == "flac":
            same("flac's samples", len(run.pcm) // 2, _flac_samples(body))
    return ", ".join(names)


def unsupported(run: Run) -> None:
    """A format that can't be made is refused, and so is one that a framing has no place for."""
    for name in ("bogus", *(CONTENT_TYPES.keys() - set(_supported(run)))):
        body = run.speech("unmade", response_format=name)
        refused(run.wire.post(SPEECH, body), "unsupported_response_format")
    framed = run.speech("framed", response_format="pcm", stream=True)
    refused(run.wire.post(SPEECH, framed), "unsupported_response_format")


def _supported(run: Run) -> list[str]:
    return [str(name) for name in run.metadata["supported_response_formats"]]


def _made(run: Run, name: str) -> bytes:
    promised(run.spoken.status == 200, "nothing was spoken")
    reply = run.wire.speak(run.speech("one", response_format=name))
    same(f"the content type of {name}", CONTENT_TYPES[name], reply.headers.get("content-type"))
    same(
        "the digest of its WAV file",
        run.spoken.headers.get("x-psionic-csm-wav-pcm16-digest"),
        reply.headers.get("x-psionic-csm-wav-pcm16-digest"),
    )
    return reply.body


def _flac_samples(body: bytes) -> int:
    """The total of STREAMINFO: 36 bits, from the fourth bit of byte 21."""
    return int.from_bytes(body[21:26], "big") & ((1 << 36) - 1)
