"""Messages survive the queue exactly, and nothing else passes for one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.messages import MalformedMessage, SpeechJob

JOBS = st.builds(
    SpeechJob,
    request_id=st.text(max_size=20),
    cancellation_id=st.none() | st.text(max_size=20),
    input=st.text(max_size=100),
    artifact_id=st.text(max_size=20),
    voice_profile_id=st.text(max_size=20),
    speaker=st.integers(0, 10),
    context_policy=st.sampled_from(["none", "prompt_profile_only"]),
    max_frames=st.integers(1, 250),
    temperature=st.floats(0, 2),
    top_k=st.integers(1, 2051),
    seed=st.integers(0, 2**53 - 1),
    traceparent=st.none() | st.text(max_size=60),
)

JOB = SpeechJob("r", None, "hi", "a", "v", 0, "none", 3, 0.5, 50, 7)


@given(JOBS)
def test_a_job_survives_the_queue(job: SpeechJob) -> None:
    """What goes in comes out, for any legal job."""
    assert SpeechJob.from_bytes(job.to_bytes()) == job


@given(st.binary(max_size=200))
def test_random_bytes_are_not_a_job(data: bytes) -> None:
    """Garbage is refused with the one exception that callers catch."""
    with pytest.raises(MalformedMessage):
        SpeechJob.from_bytes(data)


@pytest.mark.parametrize(
    "change",
    [
        {"max_frames": True},
        {"max_frames": "3"},
        {"max_frames": 3.0},
        {"input": b"bytes"},
        {"input": None},
        {"extra": 1},
        {"temperature": "hot"},
    ],
    ids=str,
)
def test_a_wrong_type_or_key_is_refused(change: dict[str, Any]) -> None:
    """A bool is no int, a float no int, bytes no text, and nothing unknown is carried along."""
    with pytest.raises(MalformedMessage):
        SpeechJob.from_bytes(msgpack.packb(asdict(JOB) | change))


def test_a_missing_key_is_refused() -> None:
    """Nothing is filled in by guessing."""
    values = asdict(JOB)
    del values["seed"]

    with pytest.raises(MalformedMessage):
        SpeechJob.from_bytes(msgpack.packb(values))


def test_what_has_a_default_may_be_missing() -> None:
    """A process of an earlier version sends and gets a message without what came later."""
    values = msgpack.unpackb(JOB.to_bytes())

    assert "traceparent" not in values
    assert SpeechJob.from_bytes(msgpack.packb(values)) == JOB
    assert SpeechJob.from_bytes(msgpack.packb(asdict(JOB))) == JOB


def test_deep_nesting_is_refused() -> None:
    """A message built to exhaust the stack is refused like any other garbage."""
    with pytest.raises(MalformedMessage):
        SpeechJob.from_bytes(b"\x91" * 5000 + b"\xc0")
