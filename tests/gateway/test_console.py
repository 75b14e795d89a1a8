"""The console's page: what it may do, what it holds, and that it comes with the package."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from cli.limits import unknown_words
from gateway.console import SCRIPTS
from shared.settings import GatewaySettings
from tests.gateway.world import World, gateway_settings

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = files("gateway") / "page"


async def policy(world: World) -> dict[str, str]:
    answer = await world.get("/console")
    told = Headers(answer.headers)["content-security-policy"]
    return {rule.split()[0]: rule.partition(" ")[2] for rule in told.split("; ")}


def source(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


async def test_the_page_runs_its_own_script_and_no_other(world: World) -> None:
    """The policy names the very script and style that are in the page, and nothing else runs."""
    page = (await world.get("/console")).body.decode()
    (script,) = re.findall(r"<script[^>]*>(.*?)</script>", page, re.S)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.S)

    rules = await policy(world)

    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == source(script)
    assert rules["style-src"] == source(style)
    assert rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == rules["form-action"] == rules["base-uri"] == "'none'"
    assert rules["require-trusted-types-for"] == "'script'"
    assert rules["trusted-types"] == "'none'"


async def test_the_page_is_one_answer(world: World) -> None:
    """Nothing is loaded from elsewhere, and nothing keeps an old one or guesses its type."""
    answer = await world.get("/console")
    page, headers = answer.body.decode(), Headers(answer.headers)

    assert answer.status == 200
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["cache-control"] == "no-cache"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert re.findall(r"(?:https?:)?//[a-z][\w.-]*\.[a-z]+/?|@import|url\(", page) == []
    assert re.findall(r"<(?:link|img|script|iframe)[^>]*(?:src|href)=\"(?!data:,)", page) == []


async def test_nothing_in_the_page_makes_markup_of_text(world: World) -> None:
    """No sink for markup or code, no handler or style in an attribute, no store for a key."""
    page = (await world.get("/console")).body.decode()

    sinks = r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|DOMParser"
    stores = r"localStorage|sessionStorage|indexedDB|document\.cookie"
    assert re.findall(sinks, page) == []
    assert re.findall(stores, page) == []
    assert re.findall(r"<[a-z][^>]*\s(?:on\w+|style)=", page) == []


def test_the_text_that_is_there_is_one_that_the_demo_knows() -> None:
    """Who presses Speak without typing hears words, and so does who types `make speak`."""
    page = (PAGE / "console.html").read_text(encoding="utf-8")
    make = (ROOT / "Makefile").read_text(encoding="utf-8")
    (typed,) = re.findall(r'<textarea id="text"[^>]*>([^<]+)</textarea>', page)
    (spoken,) = re.findall(r"^TEXT \?= (.+)$", make, re.M)
    demo = files("shared") / "governance" / "spoken_demo" / "manifest.json"
    limits = json.loads(demo.read_text(encoding="utf-8"))["speech_limits"]

    assert unknown_words(f"{typed} {spoken}", limits["vocabulary"]) == ()


def test_the_page_s_files_come_with_the_package() -> None:
    """They lie in a package that is shipped whole, and each of them is in the page."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]

    assert "gateway" in wheel["packages"]
    assert "exclude" not in wheel
    names = {each.name for each in PAGE.iterdir()}
    assert names == {"console.html", "console.css", *SCRIPTS}


class TestWithKeys:
    """A deployment with keys: the page is for everybody, what it shows is not."""

    @pytest.fixture
    def settings(self) -> GatewaySettings:
        return gateway_settings({"PSIONIC_CSM_API_KEYS": "the-key-of-one-caller"})

    async def test_the_page_is_public_and_its_data_is_not(self, world: World) -> None:
        """Nobody needs a key for the page; without one it has nothing to show but readiness."""
        page = await world.get("/console")
        data = [
            await world.get(path)
            for path in (
                "/psionic/csm/load",
                "/psionic/csm/worker/metadata",
                "/psionic/csm/evidence/r1",
                "/console/",
                "/console/console.js",
            )
        ]

        assert page.status == 200
        assert b"the-key-of-one-caller" not in page.body
        assert [answer.code for answer in data] == ["unauthorized"] * 5
