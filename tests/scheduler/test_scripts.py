"""How a script is put together."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from scheduler.scripts import source

LUA = Path(str(files("scheduler"))) / "lua"
SCRIPTS = sorted(each.stem for each in LUA.glob("*.lua"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_has_all_that_it_uses_and_no_more(name: str) -> None:
    """Every definition in front of it is used below, and none of the common ones is missing."""
    text = source(name)
    common = "".join(each.read_text(encoding="utf-8") for each in LUA.glob("common/*.lua"))
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
