"""The schema of an artifact's manifest, and how a manifest is read: strictly, or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from shared.digests import is_digest
from shared.errors import SpeechError

ARTIFACT_SCHEMA: Final = "psionic.csm.artifact.v1"
REFUSED: Final = "artifact_unavailable"
MAX_MANIFEST_BYTES: Final = 1 << 20

Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
"""``sha256:`` and 64 lower-case hex digits."""
Label = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e][\x20-\x7e]{0,254}$")]
"""Published text that must also pass as an HTTP header value."""
FileName = Annotated[
    str,
    StringConstraints(pattern=r"^(?:[A-Za-z0-9][A-Za-z0-9._-]*/)*[A-Za-z0-9][A-Za-z0-9._-]*$"),
]
"""A path below the artifact's directory; it can't climb out of it."""


class Manifest(BaseModel):
    """A part of a manifest: immutable, no unknown keys, no coerced types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


Role = Literal[
    "csm_config",
    "csm_model",
    "llama_tokenizer",
    "mimi_weight",
    "mimi_config",
    "voices",
    "voice_prompt",
]
ONE_EACH: Final[tuple[Role, ...]] = (
    "csm_config",
    "csm_model",
    "llama_tokenizer",
    "mimi_weight",
    "voices",
)


class FileEntry(Manifest):
    """One file. ``bytes`` is null where only the digest is known beforehand."""

    role: Role
    sha256: Digest
    bytes: int | None = Field(ge=1)


class FrameContract(Manifest):
    frame_lanes: Literal[33]
    audio_codebook_lanes: Literal[32]
    text_lane_index: Literal[32]
    max_seq_len: int = Field(ge=64, le=2048)
    generation_frame_ms: Literal[80]
    sample_rate_hz: Literal[24_000]


class SamplingDefaults(Manifest):
    temperature: float = Field(ge=0.0, le=2.0)
    top_k: int = Field(ge=1)


class SpeechLimits(Manifest):
    """What the artifact can't say, in words for whoever asks it to.

    ``vocabulary`` are the words that it knows, lower-case, or null for no bound.
    """

    note: str = Field(min_length=1, max_length=500)
    vocabulary: tuple[str, ...] | None


class Promotion(Manifest):
    """The gate that each further step of a roll-out waits behind."""

    canary: Label
    primary: Label


class Evidence(Manifest):
    """References to what governance asks for; null where it does not exist yet."""

    license_review: Label | None
    voice_safety_control: Label | None
    autopilot_shadow_business_outcome: Label | None


class ArtifactManifest(Manifest):
    schema_version: Literal["psionic.csm.artifact.v1"]
    artifact_id: Label
    model_id: Label
    model_version: Label
    description: str = Field(max_length=2000)
    csm_repo: Label
    llama_tokenizer_repo: Label
    mimi_repo: Label
    files: dict[FileName, FileEntry]
    quantization: Label
    parent_artifact_id: Label | None = None
    license_posture: Label
    disallowed_voice_use_cases: tuple[Label, ...]
    frame_contract: FrameContract
    sampling_defaults: SamplingDefaults
    speech_limits: SpeechLimits | None = None
    rollback_target: Label
    promotion: Promotion
    evidence: Evidence

    @model_validator(mode="after")
    def _files_agree(self) -> Self:
        roles = [entry.role for entry in self.files.values()]
        for role in ONE_EACH:
            if roles.count(role) != 1:
                raise ValueError(f"files: exactly one must have the role {role}")
        if roles.count("mimi_config") > 1:
            raise ValueError("files: at most one may have the role mimi_config")
        if self.artifact_id != artifact_id_of(self.model_id, self.csm_model_digest):
            raise ValueError("artifact_id is not model_id@digest of the weights")
        return self

    def file(self, role: Role) -> tuple[str, FileEntry] | None:
        """Name and entry of the one file with that role."""
        return next(((n, entry) for n, entry in self.files.items() if entry.role == role), None)

    def one(self, role: Role) -> tuple[str, FileEntry]:
        """As ``file``, for the roles that every artifact has."""
        found = self.file(role)
        if found is None:
            raise SpeechError(REFUSED, f"the manifest names no file with the role {role}")
        return found

    @property
    def csm_config_digest(self) -> str:
        return self.one("csm_config")[1].sha256

    @property
    def csm_model_digest(self) -> str:
        return self.one("csm_model")[1].sha256

    @property
    def llama_tokenizer_digest(self) -> str:
        return self.one("llama_tokenizer")[1].sha256

    @property
    def mimi_weight_digest(self) -> str:
        return self.one("mimi_weight")[1].sha256

    @property
    def max_seq_len(self) -> int:
        return self.frame_contract.max_seq_len

    @property
    def source_repositories(self) -> tuple[str, str, str]:
        return (self.csm_repo, self.llama_tokenizer_repo, self.mimi_repo)

    def published_digests(self) -> dict[str, str]:
        """``artifact_digests`` of /health."""
        return {
            "csm_config_digest": self.csm_config_digest,
            "csm_model_digest": self.csm_model_digest,
            "llama_tokenizer_digest": self.llama_tokenizer_digest,
            "mimi_weight_digest": self.mimi_weight_digest,
        }

    def published_descriptor(self) -> dict[str, Any]:
        """``artifact_descriptor`` of /health."""
        return {
            "artifact_id": self.artifact_id,
            "model_id": self.model_id,
            "csm_repo": self.csm_repo,
            "llama_tokenizer_repo": self.llama_tokenizer_repo,
            "mimi_repo": self.mimi_repo,
            "mimi_weight": self.one("mimi_weight")[0],
            "frame_contract": self.frame_contract.model_dump(),
        }


def artifact_id_of(model_id: str, weights_digest: str) -> str:
    """``model_id@sha256:...``. Raises ValueError for a digest of another shape."""
    if not is_digest(weights_digest):
        raise ValueError("not a digest")
    return f"{model_id}@{weights_digest}"


AnyManifest = TypeVar("AnyManifest", bound=Manifest)


def read_manifest(path: Path, code: str) -> bytes:
    """The bytes of a manifest file. Raises SpeechError(code) when there is none to read."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        raise SpeechError(code, f"{path.name}: {error.strerror}") from error
    if len(data) > MAX_MANIFEST_BYTES:
        raise SpeechError(code, f"{path.name}: over {MAX_MANIFEST_BYTES} bytes")
    return data


def parse_manifest(kind: type[AnyManifest], data: bytes, name: str, code: str) -> AnyManifest:
    """Reads ``data`` as ``kind``. Raises SpeechError(code) that names what is wrong where."""
    try:
        json.loads(data, object_pairs_hook=_no_twice)
        return kind.model_validate_json(data)
    except ValidationError as error:
        raise SpeechError(code, f"{name}: {_summary(error)}") from error
    except (ValueError, RecursionError) as error:
        raise SpeechError(code, f"{name}: {error}") from error


def _no_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if twice := {key for key in keys if keys.count(key) > 1}:
        raise ValueError(f"key {min(twice)!r} is given twice")
    return dict(pairs)


def _summary(error: ValidationError) -> str:
    found = error.errors(include_input=False, include_url=False, include_context=False)
    return "; ".join(
        f"{'.'.join(str(part) for part in each['loc']) or 'manifest'}: {each['msg']}"
        for each in found[:5]
    )
