"""How a script is put together."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from scheduler.scripts import source

SCRIPTS = sorted(
    each.name.removesuffix(".lua")
    for each in (files("scheduler") / "lua").iterdir()
    if each.name not in ("common.lua", "__pycache__")
)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_has_all_that_it_uses_and_no_more(name: str) -> None:
    """Every definition in front of it is used below, and none of the common ones is missing."""
    text = source(name)
    common = (files("scheduler") / "lua" / "common.lua").read_text(encoding="utf-8")
    of_all = set(re.findall(r"^local (?:function )?(\w+)", common, re.MULTILINE))

    defined = re.findall(r"^local (?:function )?(\w+)", text, re.MULTILINE)
    called = set(re.findall(r"(?<![.:\w])(\w+)\(", text))

    assert of_all & called <= set(defined)
    for each in of_all & set(defined):
        assert len(re.findall(rf"\b{each}\b", text)) > 1


def test_a_short_script_is_short() -> None:
    """What renews leases knows nothing of ends."""
    assert "end_job" not in source("renew")
    assert "end_job" in source("end")
