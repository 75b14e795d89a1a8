"""The manifests of CSM-1B that come with the package."""

from __future__ import annotations

import pytest

from shared.governance.artifacts import Artifact, load_artifact
from shared.governance.locations import csm_1b_dir
from shared.settings import RUNTIME_IMAGE_UNSET

WEIGHTS = "sha256:2e7721144afe38b906d4f1048671da639fe142423f4a26283606ecebe894f4bf"
GATE = "blocked_without_artifact_license_voice_profile_watermark_and_runtime_image_governance"


@pytest.fixture
def artifact() -> Artifact:
    return load_artifact(csm_1b_dir())


def test_ids_and_digests(artifact: Artifact) -> None:
    """The packaged manifests name the published files by the digests that clients know."""
    assert artifact.artifact_id == f"sesame/csm-1b@{WEIGHTS}"
    assert artifact.queue_name("csm") == "csm.sesame-csm-1b.2e7721144afe"
    assert artifact.published_digests() == {
        "csm_config_digest": (
            "sha256:b203c014cb5a2f7b4f98d2e945f091182aceb17fa530ce968e8c3437e01a9b70"
        ),
        "csm_model_digest": WEIGHTS,
        "llama_tokenizer_digest": (
            "sha256:79e3e522635f3171300913bb421464a87de6222182a0570b9b2ccba2a964b2b4"
        ),
        "mimi_weight_digest": (
            "sha256:09b782f0629851a271227fb9d36db65c041790365f11bbe5d3d59369cf863f50"
        ),
    }


def test_governance_literals(artifact: Artifact) -> None:
    """What clients compare with literals is exactly those literals."""
    governance = artifact.published_governance(RUNTIME_IMAGE_UNSET)

    expected = {
        "schema_version": "psionic.csm.artifact_governance.v1",
        "voice_profile_governance_schema_version": "psionic.csm.voice_profiles.v1",
        "model_version": "csm_1b_committed_fixture_descriptor_v1",
        "source_repositories": [
            "sesame/csm-1b",
            "meta-llama/Llama-3.2-1B",
            "kyutai/moshiko-pytorch-bf16",
        ],
        "license_posture": (
            "license_review_required_before_public_or_customer_use_operator_dogfood_only"
        ),
        "runtime_image_ref": "not_configured_local_runtime",
        "quantization": "none_full_precision_safetensors",
        "allowed_voice_profile_ids": ["openagents/default_female_v1"],
        "disallowed_voice_use_cases": [
            "public_user_voice_clone",
            "customer_voice_clone",
            "contact_voice_clone",
            "arbitrary_reference_audio_upload",
        ],
        "watermark_status": "unsupported_operator_accepted_limited_dogfood",
        "watermark_refusal_code": "csm_watermarking_unavailable",
        "canary_promotion": GATE,
        "primary_promotion": GATE,
        "rollback_target": "fallback_to_current_autopilot_tts_provider",
        "missing_governance_blocks": [
            "license_review",
            "private_watermark_or_equivalent_voice_safety_control",
            "runtime_image_ref",
            "autopilot_shadow_business_outcome_evidence",
        ],
    }
    assert {key: governance[key] for key in expected} == expected


def test_voice_is_governed_and_has_no_prompt_here(artifact: Artifact) -> None:
    """The voice is known by its digests; its codebooks are not ours to ship."""
    published = artifact.voices.default.published()

    assert published["approval_status"] == "approved_openagents_operated_dogfood"
    assert published["mimi_tokens_sha256"] == (
        "sha256:9ca982bde76577154cc423e7728d8bab4def3d49307b1522516c25853b20be64"
    )
    assert published["prompt_codebooks"] is None
    assert not artifact.voices.default.has_prompt
