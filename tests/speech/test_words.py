"""Were these the words? Through gateway, queue and worker, heard by pocketsphinx."""

from __future__ import annotations

import pytest

from demo_voice.corpus import kept
from demo_voice.hearing import Listeners
from demo_voice.words import words_of
from shared.governance.voices import DEFAULT_PROFILE_ID
from shared.wav import FRAME_MS, FRAME_SAMPLES
from tests.speech.ears import FEW, LINES, Speaker, check_understood

pytestmark = [pytest.mark.speech, pytest.mark.timeout(600)]
SLOW = "openagents/demo_slow_v1"
SHORTER = 0.85


def test_a_fixed_list_is_understood(speaker: Speaker, ears: Listeners) -> None:
    """At the default settings, and every answer stops by itself, on an end frame."""
    replies = [speaker.reply(line, seed=number) for number, line in enumerate(LINES)]

    check_understood(ears, LINES, [speaker.wave(reply) for reply in replies])
    ends = {
        (reply.headers["x-psionic-csm-finish-reason"], reply.headers["x-psionic-csm-hit-eos"])
        for reply in replies
    }
    assert ends == {("stop", "true")}


def test_the_prompt_is_not_spoken(speaker: Speaker, ears: Listeners) -> None:
    """The words of the voice's prompt are heard in no answer that does not ask for them."""
    prompt = "ready"
    lines = [line for line in LINES if prompt not in words_of(line)]

    for number, line in enumerate(lines):
        assert prompt not in ears["bigram"].hear(speaker.say(line, seed=number)), line


def test_a_profile_s_prompt_steers(speaker: Speaker, ears: Listeners) -> None:
    """The same texts take longer in the slow voice, and are understood in both.

    It is the less practised one.
    """
    even = [speaker.say(line, voice_profile_id=DEFAULT_PROFILE_ID) for line in FEW]
    slow = [speaker.say(line, voice_profile_id=SLOW) for line in FEW]

    check_understood(ears, FEW, even)
    check_understood(ears, FEW, slow, room=0.15)
    assert sum(map(len, even)) < SHORTER * sum(map(len, slow))


def test_pauses_do_not_end_an_answer(speaker: Speaker) -> None:
    """A text of several sentences takes as long as they take one by one, without their silences."""
    parts = ("Yes, it is ready.", "The meeting is on Monday.", "Thank you, Maria.")

    alone = sum(len(speaker.say(part)) - 2 * FRAME_SAMPLES for part in parts)

    assert len(speaker.say(" ".join(parts))) > SHORTER * alone


def test_a_length_limit_cuts_nothing_before_it(speaker: Speaker) -> None:
    """A cut answer is the undisturbed one up to its limit; one that fits is not cut at all."""
    line = kept("benchmark")[1]
    whole = speaker.say(line)
    roomy = speaker.reply(line, max_audio_length_ms=len(whole) // 24 + 800)
    fits = len(whole) // FRAME_SAMPLES * 3 // 4
    tight = speaker.reply(line, max_audio_length_ms=fits * FRAME_MS)

    assert (speaker.wave(roomy) == whole).all()
    assert roomy.headers["x-psionic-csm-finish-reason"] == "stop"
    assert (speaker.wave(tight) == whole[: fits * FRAME_SAMPLES]).all()
    assert tight.headers["x-psionic-csm-finish-reason"] == "length"
