"""One call: a request with every default filled in, as it goes through the gateway."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace

from gateway.formats import Transport
from gateway.text import AS_SENT
from shared.digests import sha256_hex
from shared.governance.artifacts import Artifact
from shared.governance.voices import VoiceProfile
from shared.messages import SpeechJob
from shared.tracing import TraceContext


@dataclass(frozen=True, slots=True)
class SpeechCall:
    """A request with every default filled in. Holds the text, so it is never logged."""

    job: SpeechJob = field(repr=False)
    artifact: Artifact = field(repr=False)
    profile: VoiceProfile = field(repr=False)
    sent: str = field(repr=False)
    """The text as it came, before it was given the form that is spoken."""
    model: str
    timeout_ms: int
    transport: Transport
    voice_turn_budget_ms: int | None
    priority: str
    text_normalization: str

    @property
    def fingerprint(self) -> str:
        """What shapes the speech: two requests with one id must agree in it."""
        job = self.job
        shape = [
            "v1",
            job.input,
            job.artifact_id,
            job.voice_profile_id,
            job.context_policy,
            job.max_frames,
            job.temperature,
            job.top_k,
            job.seed,
            job.cancellation_id,
        ]
        if self.text_normalization != AS_SENT:
            shape.append(self.text_normalization)
        return hashlib.sha256(json.dumps(shape, separators=(",", ":")).encode()).hexdigest()

    @property
    def spoken_text_sha256(self) -> str:
        """Digest of the text that the model is given, in UTF-8."""
        return sha256_hex(self.job.input.encode())

    def within(self, trace: TraceContext | None) -> SpeechCall:
        """The same call as a part of a trace."""
        if trace is None:
            return self
        return replace(self, job=replace(self.job, traceparent=str(trace)))
