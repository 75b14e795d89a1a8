"""Results by id: what became of a request, and its audio while it is kept."""

from __future__ import annotations

from cli.conformance.envelope import refused
from cli.conformance.promise import promised, same
from cli.conformance.run import Run
from cli.conformance.shapes import has_headers
from gateway.header_table import IDS, RESULT
from shared.paths import SPEECH


def result(run: Run) -> None:
    """The terminal of an ended request, which says what its headers said."""
    headers = run.spoken.headers
    found = run.result("one")
    same("state", "ended", found["state"])
    terminal = found["terminal"]
    promised(terminal is not None, "an ended request has no terminal")
    for key, header in (
        ("request_id", "x-psionic-request-id"),
        ("wav_pcm16_digest", "x-psionic-csm-wav-pcm16-digest"),
        ("pcm16_sha256", "x-psionic-csm-pcm16-sha256"),
        ("codebook_frames_sha256", "x-psionic-csm-frames-sha256"),
        ("generated_frame_count", "x-psionic-csm-generated-frame-count"),
        ("finish_reason", "x-psionic-csm-finish-reason"),
        ("seed", "x-psionic-csm-seed"),
        ("worker_id", "x-psionic-csm-worker-id"),
    ):
        same(f"the terminal's {key}", headers.get(header), str(terminal[key]))
    same("the terminal's wav_bytes", len(run.spoken.body), terminal["wav_bytes"])


def audio(run: Run) -> None:
    """The WAV file once more, with the headers that tell of it."""
    one = run.spoken
    again = run.wire.get(f"{SPEECH}/{run.id('one')}/audio")
    same("the status", 200, again.status)
    same("the content type", "audio/wav", again.headers.get("content-type"))
    has_headers(again.headers, {**IDS, **RESULT}, but_for=("x-psionic-cpu-fallback-reason",))
    promised(one.body == again.body, "the audio is not what was answered")


def unknown(run: Run) -> None:
    """Nothing is known of an id that was never sent."""
    path = f"{SPEECH}/{run.id('never-sent')}"
    refused(run.wire.get(path), "result_not_found")
    refused(run.wire.get(f"{path}/audio"), "result_not_found")
