"""Artifacts: a directory with a manifest that names its files, their digests and its governance.

``load_artifact`` reads the two small manifests and nothing else, so a gateway can publish and
check ids without touching weights; the worker verifies the files as it reads them.
Refusals: ``artifact_unavailable`` for the manifest, ``voice_profile_*`` for the voices.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shared.digests import sha256_hex
from shared.errors import SpeechError
from shared.governance.locations import hub_candidates
from shared.governance.manifests import (
    REFUSED,
    ArtifactManifest,
    Role,
    parse_manifest,
    read_manifest,
)
from shared.governance.voices import (
    MISMATCH,
    UNREADABLE,
    VOICES_SCHEMA,
    VoiceManifest,
    VoiceProfile,
    parse_voices,
)
from shared.settings import RUNTIME_IMAGE_UNSET

GOVERNANCE_SCHEMA: Final = "psionic.csm.artifact_governance.v1"
MANIFEST_NAME: Final = "manifest.json"


@dataclass(frozen=True, slots=True)
class Artifact:
    """A checked pair of manifests and the directory that they describe.

    ``manifest_digest`` is ``sha256:...`` of the manifest's own bytes, which name every other file,
    so it stands for all that governs.
    """

    directory: Path
    manifest: ArtifactManifest
    voices: VoiceManifest
    manifest_digest: str

    @property
    def artifact_id(self) -> str:
        return self.manifest.artifact_id

    @property
    def digest(self) -> str:
        """``sha256:...`` of the weights, which also names the artifact on its own."""
        return self.manifest.csm_model_digest

    def queue_name(self, namespace: str) -> str:
        """Name of the artifact's RQ queue, made to be read in ``rq info``."""
        model = re.sub(r"[^A-Za-z0-9._-]+", "-", self.manifest.model_id)
        return f"{namespace}.{model}.{self.digest.removeprefix('sha256:')[:12]}"

    def candidates(self, role: Role, hub_roots: Sequence[Path] = ()) -> Iterator[Path]:
        """Files that are there and may be the one with ``role``, each once, likeliest first."""
        name, entry = self.manifest.one(role)
        repo = _repository(self.manifest, role)
        seen: set[Path] = set()
        for path in self._places(name, entry.sha256, repo, hub_roots):
            if _may_be_file(path) and (real := path.resolve()) not in seen:
                seen.add(real)
                yield path

    def _places(
        self, name: str, digest: str, repo: str | None, hub_roots: Sequence[Path]
    ) -> Iterator[Path]:
        yield self.directory / name
        for root in hub_roots if repo else ():
            yield from hub_candidates(root, repo or "", name, digest)

    def published_digests(self) -> dict[str, str]:
        return self.manifest.published_digests()

    def published_descriptor(self) -> dict[str, Any]:
        return self.manifest.published_descriptor()

    def published_voices(self) -> list[dict[str, Any]]:
        """``voice_profiles`` of /health."""
        return [profile.published() for profile in self.voices.profiles]

    def missing_governance_blocks(self, runtime_image_ref: str) -> list[str]:
        """What still stands between this artifact and promotion."""
        evidence = self.manifest.evidence
        blocks = {
            "license_review": evidence.license_review is None,
            "private_watermark_or_equivalent_voice_safety_control": (
                evidence.voice_safety_control is None
            ),
            "runtime_image_ref": runtime_image_ref == RUNTIME_IMAGE_UNSET,
            "autopilot_shadow_business_outcome_evidence": (
                evidence.autopilot_shadow_business_outcome is None
            ),
        }
        return [block for block, is_missing in blocks.items() if is_missing]

    def published_governance(self, runtime_image_ref: str) -> dict[str, Any]:
        """``governance`` of /health."""
        manifest, watermark = self.manifest, self.voices.watermark_policy
        mimi_name, mimi = manifest.one("mimi_weight")
        return {
            "schema_version": GOVERNANCE_SCHEMA,
            "voice_profile_governance_schema_version": VOICES_SCHEMA,
            "artifact_id": manifest.artifact_id,
            "artifact_hash": manifest.csm_model_digest,
            "model_id": manifest.model_id,
            "model_version": manifest.model_version,
            "source_repositories": list(manifest.source_repositories),
            "license_posture": manifest.license_posture,
            "runtime_image_ref": runtime_image_ref,
            "quantization": manifest.quantization,
            "tokenizer_dependency": (
                f"{manifest.llama_tokenizer_repo}@{manifest.llama_tokenizer_digest}"
            ),
            "audio_codec_dependency": f"{manifest.mimi_repo}:{mimi_name}@{mimi.sha256}",
            "allowed_voice_profile_ids": [each.profile_id for each in self.voices.profiles],
            "disallowed_voice_use_cases": list(manifest.disallowed_voice_use_cases),
            "watermark_status": watermark.status,
            "watermark_refusal_code": watermark.refusal_code,
            "canary_promotion": manifest.promotion.canary,
            "primary_promotion": manifest.promotion.primary,
            "rollback_target": manifest.rollback_target,
            "missing_governance_blocks": self.missing_governance_blocks(runtime_image_ref),
            "autopilot_consumption": [
                "artifact_id",
                "license_posture",
                "voice_profile_id",
                "watermark_status",
                "runtime_image_ref",
                "rollback_target",
            ],
        }

    def published_limits(self) -> dict[str, Any] | None:
        """``speech_limits`` of /health, of an artifact that states some."""
        limits = self.manifest.speech_limits
        return None if limits is None else limits.model_dump(mode="json")

    def published_safety(self) -> dict[str, Any]:
        """``safety_capabilities`` of /health."""
        policy = self.voices.watermark_policy
        return {
            "watermarking": policy.status,
            "watermarking_refusal": {
                "code": policy.refusal_code,
                "reason": "no private watermark or equivalent voice-safety control is served",
                "required_phase": policy.required_phase,
            },
        }


class ArtifactRegistry:
    """The artifacts that a process knows, the default first."""

    def __init__(self, artifacts: Sequence[Artifact]) -> None:
        if not artifacts:
            raise SpeechError(REFUSED, "no artifact directory is configured")
        self.artifacts = tuple(artifacts)
        digests = [artifact.digest for artifact in artifacts]
        if len(set(digests)) < len(digests):
            raise SpeechError(REFUSED, "an artifact is configured twice")

    @classmethod
    def load(cls, directories: Sequence[Path]) -> ArtifactRegistry:
        """Reads every directory. Raises SpeechError as ``load_artifact`` does, and names it."""
        return cls([_load_named(directory) for directory in directories])

    @property
    def default(self) -> Artifact:
        return self.artifacts[0]

    def resolve(self, name: str | None) -> Artifact:
        """By artifact id or by the weights' digest; None is the default.

        Raises SpeechError("artifact_unavailable").
        """
        if name is None:
            return self.default
        for artifact in self.artifacts:
            if name in (artifact.artifact_id, artifact.digest):
                return artifact
        raise SpeechError(REFUSED, "no such artifact is served here", param="artifact_id")


def load_artifact(directory: Path) -> Artifact:
    """Reads and checks both manifests of a directory; hashes no large file.

    Raises SpeechError: ``artifact_unavailable``, ``voice_profile_descriptor_unavailable``,
    ``voice_profile_digest_mismatch`` or ``voice_profile_source_unavailable``.
    """
    data = read_manifest(directory / MANIFEST_NAME, REFUSED)
    manifest = parse_manifest(ArtifactManifest, data, MANIFEST_NAME, REFUSED)
    voices = _load_voices(directory, manifest)
    return Artifact(directory, manifest, voices, sha256_hex(data))


def _load_named(directory: Path) -> Artifact:
    try:
        return load_artifact(directory)
    except SpeechError as error:
        raise SpeechError(error.code, f"{directory}: {error.message}") from error


def _load_voices(directory: Path, manifest: ArtifactManifest) -> VoiceManifest:
    name, entry = manifest.one("voices")
    data = read_manifest(directory / name, UNREADABLE)
    if sha256_hex(data) != entry.sha256:
        raise SpeechError(MISMATCH, f"{name} is not the file that the manifest names")
    voices = parse_voices(data, name)
    voices.check_bound_to(manifest.model_id, manifest.published_digests())
    for profile in voices.profiles:
        _check_prompt(profile, manifest)
    return voices


def _check_prompt(profile: VoiceProfile, manifest: ArtifactManifest) -> None:
    if profile.prompt is None:
        return
    entry = manifest.files.get(profile.prompt.file)
    if entry is None or entry.role != "voice_prompt":
        raise SpeechError(
            "voice_profile_source_unavailable",
            f"{profile.profile_id}: the manifest names no voice_prompt {profile.prompt.file}",
        )
    if profile.prompt_frame_count >= manifest.max_seq_len:
        raise SpeechError(UNREADABLE, f"{profile.profile_id}: its prompt fills the whole window")


def _may_be_file(path: Path) -> bool:
    """Also in a folder that this user may not look into: whoever opens it hears why it can't be."""
    try:
        return path.is_file()
    except OSError:
        return True


def _repository(manifest: ArtifactManifest, role: Role) -> str | None:
    """The hub repository that publishes files of that role."""
    return {
        "csm_config": manifest.csm_repo,
        "csm_model": manifest.csm_repo,
        "llama_tokenizer": manifest.llama_tokenizer_repo,
        "mimi_weight": manifest.mimi_repo,
    }.get(role)
