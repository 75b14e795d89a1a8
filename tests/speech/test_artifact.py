"""What is shipped is whole, small enough, and true about itself."""

from __future__ import annotations

import pytest

from demo_voice.export import MOST_BYTES
from demo_voice.tokens import build_tokenizer
from demo_voice.words import VOCABULARY
from shared.governance.artifacts import Artifact
from shared.governance.locations import spoken_demo_dir
from shared.governance.placing import whole

pytestmark = pytest.mark.speech


def test_the_package_carries_it_whole(spoken: Artifact) -> None:
    """Every file has its digest, all together fit the bound, and what is installed is it."""
    shipped = whole(spoken_demo_dir())

    assert shipped is not None
    assert shipped.manifest == spoken.manifest
    files = [path for path in spoken_demo_dir().rglob("*") if path.is_file()]
    assert {str(path.relative_to(spoken_demo_dir())) for path in files} == {
        "manifest.json",
        *shipped.manifest.files,
    }
    assert sum(path.stat().st_size for path in files) <= MOST_BYTES


def test_it_is_what_this_recipe_makes(spoken: Artifact) -> None:
    """Its words and its tokenizer are the recipe's: neither changes without new weights."""
    limits = spoken.manifest.speech_limits

    assert limits is not None
    assert limits.vocabulary == VOCABULARY
    assert len(VOCABULARY) >= 300
    assert (spoken.directory / "tokenizer.json").read_text() == build_tokenizer()


def test_two_voices_of_no_person(spoken: Artifact) -> None:
    """Both profiles have a prompt and say that nobody's voice was cloned."""
    profiles = spoken.voices.profiles

    assert [profile.has_prompt for profile in profiles] == [True, True]
    assert all("synthesiser" in profile.consent_posture for profile in profiles)
    assert all(profile.source_provenance.startswith("flite_voice_") for profile in profiles)
