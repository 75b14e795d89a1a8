"""Hints name what exists: commands, options, settings."""

from __future__ import annotations

import re
from typing import Any

from cli import remedies
from cli.commands import command
from shared.errors import CODES, PENDING_PHASES
from shared.settings import known_names

ALL = {**remedies.CALLER, **remedies.WORKER}


def options(group: Any) -> set[str]:
    """Every option of a command and of those below it."""
    own = {name for each in group.params for name in each.opts}
    return own.union(*(options(each) for each in getattr(group, "commands", {}).values()))


def test_every_reason_of_a_worker_has_a_remedy() -> None:
    """Whoever meets a worker that can't serve is told what to do, for each cause."""
    assert set(remedies.WORKER) == set(PENDING_PHASES)
    assert set(ALL) <= set(CODES)


def test_remedies_name_settings_commands_and_options_that_exist() -> None:
    """A hint that leads nowhere is worse than none."""
    whole = command()
    for code, text in ALL.items():
        assert set(re.findall(r"PSIONIC_CSM_[A-Z_]+", text)) <= known_names(), code
        assert set(re.findall(r"--[a-z-]+", text)) <= options(whole), code
        for words in re.findall(r"`psionic-csm ([a-z -]+?)(?: \{artifact\})?`", text):
            found = whole
            for word in words.split():
                found = found.commands[word]


def test_a_worker_s_remedy_names_the_artifact() -> None:
    """The command in a hint can be typed as it stands."""
    hint = remedies.of_worker("csm_model_unavailable", "/srv/my csm") or ""

    assert "`psionic-csm artifacts verify '/srv/my csm'`" in hint
    assert remedies.of_worker("queue_full", "x") is None
