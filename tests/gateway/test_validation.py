"""From values to an admissible call: defaults, ranges, and what shapes the fingerprint."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from gateway.call import SpeechCall
from gateway.schema import SpeechRequest, parse
from gateway.text import IGNORABLE
from gateway.validation import Validator, default_seed
from shared.errors import SpeechError
from shared.governance.artifacts import ArtifactRegistry
from shared.tiers import TIERS, Tier
from tests.gateway.artifacts import (
    MODEL_ID,
    PLAIN_VOICE,
    PROMPT_FRAMES,
    VOICE,
    write_artifact,
)
from tests.gateway.world import gateway_settings


@pytest.fixture
def validator(tmp_path: Path) -> Validator:
    artifacts = [write_artifact(tmp_path / letter, letter) for letter in "ab"]
    settings = gateway_settings({"PSIONIC_CSM_MODEL_ALIASES": "tts-1, csm"})
    return Validator(settings, ArtifactRegistry(artifacts), ("wav", "pcm", "mp3"))


def check(validator: Validator, **values: Any) -> SpeechCall:
    return validator.check(parse(SpeechRequest, {"input": "Hello.", **values}), "generated")


def refusal(validator: Validator, **values: Any) -> SpeechError:
    with pytest.raises(SpeechError) as refused:
        check(validator, **values)
    return refused.value


def test_defaults_make_good_speech(validator: Validator) -> None:
    """With nothing but a text: the default voice and its prompt, the artifact's sampling, a length
    from the text."""
    call = check(validator)

    job = call.job
    assert (job.voice_profile_id, job.context_policy) == (VOICE, "prompt_profile_only")
    assert (job.temperature, job.top_k) == (0.9, 50)
    assert job.max_frames == (1500 + 120 * len("Hello.")) // 80
    assert job.request_id == "generated"
    assert call.timeout_ms == 10_000
    assert call.model == "sesame/csm-1b"
    assert call.transport.stream_format is None


def test_the_default_seed_is_the_request_ids(validator: Validator) -> None:
    """The first 53 bits of SHA-256 of the id, so that a retry sounds the same."""
    expected = int(hashlib.sha256(b"r1").hexdigest(), 16) >> (256 - 53)

    assert check(validator, request_id="r1").job.seed == expected == default_seed("r1")
    assert check(validator, request_id="r1", seed=2**53 - 1).job.seed == 2**53 - 1


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"max_audio_length_ms": 4000}, 10_000),
        ({"max_audio_length_ms": 8000}, 16_000),
        ({"max_audio_length_ms": 20_000}, 30_000),
        ({"timeout_ms": 1}, 1),
    ],
)
def test_the_default_timeout_follows_the_length(
    validator: Validator, values: dict[str, Any], expected: int
) -> None:
    """Twice the length, at least 10 s and at most what the tier grants."""
    assert check(validator, **values).timeout_ms == expected


@pytest.mark.parametrize(
    ("milliseconds", "frames"),
    [(80, 1), (160, 2), (240, 3), (250, 3), (1000, 12), (15_000, 187), (20_000, 250)],
)
def test_a_length_is_its_whole_frames(validator: Validator, milliseconds: int, frames: int) -> None:
    """A frame that would not fit whole is not generated."""
    call = check(validator, input="a", max_audio_length_ms=milliseconds)

    assert call.job.max_frames == frames


@pytest.mark.parametrize("tier", TIERS.values(), ids=lambda tier: tier.name)
def test_each_tier_bounds_what_may_be_asked_for(tmp_path: Path, tier: Tier) -> None:
    """Row by row: the longest of each is taken, one more is refused by its field's name."""
    settings = gateway_settings(
        {"PSIONIC_CSM_TIER": tier.name, "PSIONIC_CSM_API_KEYS": "a-key-of-this-test"}
    )
    registry = ArtifactRegistry([write_artifact(tmp_path / "artifact")])
    validator = Validator(settings, registry, ("wav",))

    for name, longest in (
        ("max_audio_length_ms", tier.max_audio_length_ms),
        ("timeout_ms", tier.max_timeout_ms),
        ("voice_turn_budget_ms", tier.max_timeout_ms),
    ):
        check(validator, **{name: longest})
        refused = refusal(validator, **{name: longest + 1})
        assert (refused.code, refused.param) == (f"invalid_{name}", name)
        assert str(longest) in refused.message
    words = "a" * (25 * tier.default_audio_length_ms // 1000)
    assert check(validator, input=words).job.max_frames == tier.default_audio_length_ms // 80
    assert refusal(validator, input=words + "a").code == "input_exceeds_budget"


@pytest.mark.parametrize(("text", "frames"), [("a", 20), ("Yes.", 24), ("a" * 112, 186)])
def test_the_default_length_has_a_floor(validator: Validator, text: str, frames: int) -> None:
    """A second and a half, and 120 ms for each character: one letter isn't cut short."""
    assert check(validator, input=text).job.max_frames == frames


def test_the_default_length_stays_within_the_tier(validator: Validator) -> None:
    """A long text gets the tier's default length, not more."""
    assert check(validator, input="a" * 300).job.max_frames == 15_000 // 80


def test_options_may_stand_in_either_place(validator: Validator) -> None:
    """Length and context count at the top level and under psionic_csm alike, also given twice
    the same."""
    above = check(validator, max_audio_length_ms=800, context_policy="none")
    below = check(validator, psionic_csm={"max_audio_length_ms": 800, "context_policy": "none"})
    both = check(
        validator,
        max_audio_length_ms=800,
        context_policy="none",
        psionic_csm={"max_audio_length_ms": 800, "context_policy": "none"},
    )

    assert above.job == below.job == both.job


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [("max_audio_length_ms", 100, 101), ("context_policy", "none", "prompt_profile_only")],
)
def test_two_different_values_conflict(
    validator: Validator, name: str, one: object, other: object
) -> None:
    """An option that is given twice and differently is refused by its name."""
    refused = refusal(validator, **{name: one}, psionic_csm={name: other})

    assert (refused.code, refused.param) == ("conflicting_parameter", name)


def test_voices_may_be_named_in_every_way(validator: Validator) -> None:
    """As voice_profile_id, as voice, as OpenAI's object; the first wins over the others."""
    named: list[dict[str, Any]] = [
        {"voice_profile_id": PLAIN_VOICE},
        {"voice": PLAIN_VOICE},
        {"voice": {"id": PLAIN_VOICE}},
        {"voice": "nobody", "voice_profile_id": PLAIN_VOICE},
    ]

    assert {check(validator, **each).job.voice_profile_id for each in named} == {PLAIN_VOICE}


def test_a_voice_without_a_prompt_speaks_without_context(validator: Validator) -> None:
    """Its default policy is none, and asking for its prompt is refused."""
    assert check(validator, voice=PLAIN_VOICE).job.context_policy == "none"
    refused = refusal(validator, voice=PLAIN_VOICE, context_policy="prompt_profile_only")
    assert refused.code == "prompt_profile_context_unavailable"


def test_artifacts_go_by_id_and_by_digest(validator: Validator) -> None:
    """The first is the default; each is found by its id or by its weights' digest alone."""
    first, second = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"

    assert check(validator).artifact.digest == first
    assert check(validator, artifact_id=second).artifact.digest == second
    assert check(validator, artifact_id=f"{MODEL_ID}@{second}").job.artifact_id.endswith(second)


def test_the_model_answers_to_its_aliases(validator: Validator) -> None:
    """The configured name and its aliases are served, and the answer says which was asked for."""
    assert [check(validator, model=name).model for name in ("tts-1", "csm")] == ["tts-1", "csm"]
    assert refusal(validator, model="SESAME/csm-1b").code == "model_unavailable"


def test_text_is_spoken_as_sent_but_composed(validator: Validator) -> None:
    """Input is put into NFC and changed in nothing else."""
    text = "  Cafe\u0301\t[1]<|end_of_text|> \u202eabc\r\n "

    assert check(validator, input=text).job.input == text.replace("e\u0301", "\u00e9")


def test_text_is_spelled_out_if_asked(validator: Validator) -> None:
    """What the model is given, its length and its digest are the spoken text's; none is as sent."""
    call = check(validator, input="It is 5 km.", text_normalization="spoken_en")
    plain = check(validator, input="It is 5 km.", text_normalization="none")
    spoken = "It is five kilometers."

    assert (call.job.input, call.text_normalization) == (spoken, "spoken_en")
    assert call.job.max_frames == (1500 + 120 * len(spoken)) // 80
    assert call.spoken_text_sha256 == "sha256:" + hashlib.sha256(spoken.encode()).hexdigest()
    assert (plain.job.input, plain.text_normalization) == ("It is 5 km.", "none")
    assert plain.fingerprint == check(validator, input="It is 5 km.").fingerprint


def test_bounds_count_what_is_spoken(validator: Validator) -> None:
    """A text that fits as written is refused where it no longer does once it is spelled out."""
    spelled = {"text_normalization": "spoken_en"}

    much = refusal(validator, input="$1 " * 1365, **spelled)
    assert (much.code, much.param) == ("input_too_long", "input")
    long = refusal(validator, input="$1,234 " * 50, **spelled)
    assert (long.code, long.param) == ("input_exceeds_budget", "max_audio_length_ms")
    assert check(validator, input="$1,234 " * 50).job.input == "$1,234 " * 50


def test_an_unknown_normalization_is_refused(validator: Validator) -> None:
    """By its field's name."""
    refused = refusal(validator, text_normalization="spoken_de")

    assert (refused.code, refused.param) == ("unsupported_parameter", "text_normalization")


@pytest.mark.parametrize("text", ["a\x00b", "a\x1b", "a\x7f", "a\x85", "a\ud800", "\udc00"])
def test_control_characters_and_surrogates_are_refused(validator: Validator, text: str) -> None:
    """Every control character but tab, CR and LF, and every unpaired surrogate."""
    assert refusal(validator, input=text).code == "invalid_input_text"


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "\t\r\n", "\u00a0\u2003", "\u200b", "\ufeff \u00ad", "\u202e\u2066\u2069"),
        *("\u115f\u1160", "\u3164", "\uffa0", "\u034f", "\u17b4", "\u180b\u180f", "\ufe0f"),
        *("\u2065", "\ufff0", "\U000e0001", "\U000e0100", "\U000e0fff"),
        *("\u2800 \u2800", "\U00013441", "\U00016fe4", "\U0001d159", "\ufff9\ufffb"),
    ],
)
def test_blank_input_is_refused(validator: Validator, text: str) -> None:
    """What nobody sees is nothing to say: spaces, blanks, formats and what Unicode has ignored."""
    assert refusal(validator, input=text).code == "empty_input"
    assert check(validator, input=f"{text}a").job.input == f"{text}a"


@pytest.mark.parametrize(
    "text", ["?", "\u0301", "\u2801", "\uac00", "\u2422", "\U0001f600", "\ue000"]
)
def test_whatever_is_seen_is_let_in(validator: Validator, text: str) -> None:
    """Signs, marks, Braille with dots, pictures of blanks: the judgment is of sight alone."""
    assert check(validator, input=text).job.input == text


def test_the_ignorable_code_points_are_unicode_s() -> None:
    """As many as the property's own file counts, in order, none twice."""
    assert sum(last - first + 1 for first, last in IGNORABLE) == 4174
    assert sorted(sum(IGNORABLE, ())) == list(sum(IGNORABLE, ()))


def test_a_text_longer_than_the_limit_after_composition_is_refused(validator: Validator) -> None:
    """The limit counts characters before and after normalisation."""
    assert refusal(validator, input="a" * 4097).code == "input_too_long"
    assert refusal(validator, input="\ufb1d" * 2049).code == "input_too_long"


@pytest.mark.parametrize(("length", "code"), [(25, None), (26, "input_exceeds_budget")])
def test_a_text_must_be_speakable_in_its_length(
    validator: Validator, length: int, code: str | None
) -> None:
    """Twenty-five characters a second are the most."""
    values: dict[str, Any] = {"input": "a" * length, "max_audio_length_ms": 1000}

    if code is None:
        assert check(validator, **values).job.max_frames == 12
    else:
        assert refusal(validator, **values).code == code


def test_only_the_tokenizer_says_that_a_text_is_too_long(validator: Validator) -> None:
    """Scripts of many bytes a character pass the door: a tokenizer may know them by the word."""
    for text in ("\u6f22" * 375, "\U0001f600" * 375):
        assert check(validator, input=text).job.input == text


@pytest.mark.parametrize(("room", "code"), [(3, "context_overflow"), (4, None)])
def test_a_prompt_that_leaves_no_room_is_refused_at_once(
    tmp_path: Path, room: int, code: str | None
) -> None:
    """Prompt and the shortest text stay strictly below the window less the frames."""
    artifact = write_artifact(tmp_path / "a", max_seq_len=PROMPT_FRAMES + 250 + room)
    validator = Validator(gateway_settings(), ArtifactRegistry([artifact]), ("wav",))
    values = {"max_audio_length_ms": 20_000}

    if code is None:
        assert check(validator, **values).job.max_frames == 250
    else:
        refused = refusal(validator, **values)
        assert (refused.code, refused.param) == (code, "input")
    assert check(validator, **values, context_policy="none").job.context_policy == "none"


def test_greedy_is_one_candidate_or_no_heat(validator: Validator) -> None:
    """temperature 0 and top_k 1 pass as they are; a huge top_k means all candidates."""
    assert check(validator, psionic_csm={"temperature": -0.0}).job.temperature == 0.0
    assert check(validator, psionic_csm={"top_k": 1}).job.top_k == 1
    assert check(validator, psionic_csm={"top_k": 10**30}).job.top_k == 2048


SHAPING: list[dict[str, Any]] = [
    {"input": "Hello!"},
    {"artifact_id": f"sha256:{'b' * 64}"},
    {"voice": PLAIN_VOICE, "context_policy": "none"},
    {"context_policy": "none"},
    {"max_audio_length_ms": 800},
    {"psionic_csm": {"temperature": 0.8}},
    {"psionic_csm": {"top_k": 49}},
    {"seed": 1},
    {"cancellation_id": "turn"},
    {"text_normalization": "spoken_en"},
]


@pytest.mark.parametrize("values", SHAPING, ids=str)
def test_the_fingerprint_covers_what_shapes_speech(
    validator: Validator, values: dict[str, Any]
) -> None:
    """Another text, artifact, voice, length, sampling, context, seed or turn is another request."""
    assert check(validator, **values).fingerprint != check(validator).fingerprint


@pytest.mark.parametrize(
    "values",
    [
        {"timeout_ms": 500},
        {"stream": True},
        {"voice_turn_budget_ms": 5},
        {"priority": "batch"},
        {"response_format": "pcm"},
        {"model": "csm"},
        {"psionic_csm": {"temperature": 0.9}},
        {"seed": default_seed("generated")},
    ],
    ids=lambda values: "-".join(values),
)
def test_the_fingerprint_leaves_out_transport_and_time(
    validator: Validator, values: dict[str, Any]
) -> None:
    """The same speech asked for in another way, or in more words, is the same request."""
    assert check(validator, **values).fingerprint == check(validator).fingerprint


def test_no_representation_shows_the_text(validator: Validator) -> None:
    """A call that lands in a log or a traceback says nothing of what it is to say."""
    call = check(validator, input="a secret")

    assert "secret" not in repr(call)
    assert "secret" not in repr(replace(call, model="m"))


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["audio", "sse", "wav", "pcm", "none", VOICE, "a" * 129]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=3,
)
OPTIONS = st.dictionaries(
    st.sampled_from(["temperature", "top_k", "max_audio_length_ms", "context_policy", "x"]), VALUES
)
BODIES = st.fixed_dictionaries(
    {"input": st.text(max_size=40) | VALUES},
    optional={
        **{name: VALUES for name in SpeechRequest.model_fields if name != "input"},
        "psionic_csm": OPTIONS,
    },
)


@hypothesis_settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(BODIES)
def test_any_body_is_a_call_or_a_refusal(validator: Validator, body: dict[str, Any]) -> None:
    """Whatever is sent, it is either admissible within every bound or refused by a code."""
    call = judged(validator, body)
    if isinstance(call, SpeechError):
        assert 400 <= call.status < 500 or call.code == "prompt_profile_context_unavailable"
        return
    job = call.job
    assert 1 <= job.max_frames <= 250
    assert 0.0 <= job.temperature <= 2.0
    assert 1 <= job.top_k <= 2048
    assert 0 <= job.seed < 2**53
    assert 1 <= call.timeout_ms <= 30_000
    assert job.to_bytes()


def judged(validator: Validator, body: dict[str, Any]) -> SpeechCall | SpeechError:
    try:
        return validator.check(parse(SpeechRequest, body), "generated")
    except SpeechError as refused:
        return refused
