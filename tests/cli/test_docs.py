"""The documents against the code: what they name exists, and what exists is named."""

from __future__ import annotations

import json
import re
from dataclasses import astuple
from pathlib import Path
from typing import Any, cast

import pytest

from demo_voice.words import VOCABULARY
from gateway.endpoints import Endpoints
from gateway.metrics import GatewayMetrics
from gateway.routes import speech_routes
from gateway.schema import Options, SpeechRequest
from gpu_worker.metrics import WorkerMetrics
from scheduler.load import LoadSnapshot, QueueLoad
from scheduler.metrics import families
from shared.errors import CODES
from shared.settings import (
    GatewaySettings,
    QueueSettings,
    SchedulerSettings,
    WorkerSettings,
    known_names,
)
from shared.tiers import TIERS

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
PACKAGES = ("gateway", "gpu_worker", "scheduler", "shared")
FRONT = ("README.md", "CHANGELOG.md", "demo_voice/README.md")
PAGES = sorted([*(ROOT / name for name in FRONT), *DOCS.rglob("*.md")])


def read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def rows(text: str) -> list[list[str]]:
    """The cells of every line of a Markdown table."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def modules() -> set[str]:
    """Every module of the service that holds something."""
    found = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {str(path.relative_to(ROOT)) for path in found if path.name not in ("__init__.py",)} | {
        str(path.relative_to(ROOT)) for path in (ROOT / "scheduler" / "lua").rglob("*.lua")
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_and_links_lead_somewhere(page: Path) -> None:
    """Every path of the repository that a page names, and every relative link, exists."""
    text = page.read_text(encoding="utf-8")
    paths = re.findall(
        r"`((?:cli|gateway|gpu_worker|scheduler|shared|deploy|docs|tests)/[\w./-]*)`", text
    )
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", text)

    missing = [path for path in paths if not (ROOT / path).exists()]
    missing += [link for link in links if not (page.parent / link).exists()]
    assert missing == []


def test_every_module_of_the_service_is_on_a_request_s_way() -> None:
    """A new module has its line in the architecture, so that the page stays whole."""
    named = set(re.findall(r"`([\w./]+\.(?:py|lua))`", read("architecture.md")))

    missing = modules() - named
    assert not missing, f"give each a line in docs/architecture.md: {sorted(missing)}"


def test_every_setting_is_documented() -> None:
    """The tables hold exactly the variables of the service that the settings read."""
    sources = (ROOT / "shared" / name for name in ("settings.py", "variables.py"))
    spelled = "".join(source.read_text(encoding="utf-8") for source in sources)
    read_by_code = set(re.findall(r'"(PSIONIC_CSM_[A-Z_]+|REDIS_URL|HF_HOME)"', spelled))

    documented = [quoted(cells[0])[0] for cells in documented_settings()]

    assert set(documented) == read_by_code
    assert set(documented) == known_names() - {"HOME", "XDG_CACHE_HOME"}
    assert len(documented) == len(set(documented))


def documented_settings() -> list[list[str]]:
    """The rows of the tables of settings."""
    section = read("operating.md").partition("## Settings")[2]
    return [cells for cells in rows(section) if re.fullmatch(r"`[A-Z][A-Z_]+`", cells[0])]


def test_documented_defaults_are_the_real_ones() -> None:
    """Where a setting has a field of its own name, its documented default is that field's."""
    queue = QueueSettings.from_env({})
    values: dict[str, Any] = {}
    for settings in (
        queue,
        GatewaySettings.from_env({}),
        WorkerSettings.from_env({}),
        SchedulerSettings.from_env({}),
    ):
        values |= {name: getattr(settings, name) for name in settings.__dataclass_fields__}
    checked = 0
    for cells in documented_settings():
        if stated := re.findall(r"`([^`]+)`$", cells[1]):
            value = values.get(quoted(cells[0])[0].removeprefix("PSIONIC_CSM_").lower())
            if isinstance(value, int | str):
                assert stated == [str(value)], cells[0]
                checked += 1
    assert checked > 20


def test_every_setting_says_when_to_change_it() -> None:
    """A row of the settings is whole: default, meaning, and the reason for another value."""
    assert [row[0] for row in documented_settings() if len(row) != 4 or not all(row)] == []


def test_the_tiers_are_the_real_ones() -> None:
    """The table of tiers holds exactly the bounds that the service works by."""
    section = read("operating.md").partition("### Tiers")[2]
    documented = {
        quoted(cells[0])[0]: [int(found) for found in re.findall(r"\d+", " ".join(cells[1:6]))]
        + [cells[6] == "not needed"]
        for cells in rows(section)
        if quoted(cells[0])
    }

    assert documented == {name: list(astuple(tier))[1:] for name, tier in TIERS.items()}


def test_every_code_is_in_the_contract() -> None:
    """The table of codes holds each with its status, type and verdict on retries."""
    documented = {
        code: (int(cells[0]), quoted(cells[1])[0], cells[2] == "yes")
        for cells in rows(read("contract.md"))
        if re.fullmatch(r"\d{3}", cells[0])
        for code in quoted(cells[3])
    }

    assert documented == {
        code: (spec.status, spec.type, spec.retryable) for code, spec in CODES.items()
    }


def test_every_failure_is_in_the_runbook() -> None:
    """Whoever is called for a code that is the service's own finds its cause and what to do."""
    section = read("operating.md").partition("## Runbook")[2].partition("## Adding")[0]

    documented = {code for cells in rows(section) if len(cells) == 3 for code in quoted(cells[0])}

    own = {code for code, spec in CODES.items() if spec.retryable}
    assert own <= documented


def test_every_route_is_in_the_contract() -> None:
    """The table of routes holds exactly those that the gateway serves."""
    anything = cast(Any, lambda _: None)
    endpoints = Endpoints(anything, anything, anything, anything, anything)
    routes = speech_routes(
        anything,
        anything,
        endpoints,
        live=anything,
        ready=anything,
        metrics=anything,
        described=anything,
        console=anything,
    )
    served = {cast(Any, route).path for route in routes}

    documented = {
        found[2]
        for cells in rows(read("contract.md"))
        if (found := re.match(r"`(GET|POST) ([^`]+)`", cells[0]))
    }

    assert documented == served


def test_every_request_field_is_in_the_contract() -> None:
    """The table of fields holds exactly those of the request, and tells which may be nested."""
    text = read("contract.md")
    section = text[text.index("## Request") : text.index("## Answer")]

    documented = [quoted(cells[0])[0] for cells in rows(section) if quoted(cells[0])]

    nested = Options.model_fields.keys() - SpeechRequest.model_fields
    assert set(documented) == {*SpeechRequest.model_fields, *(f"psionic_csm.{n}" for n in nested)}
    place = documented.index("psionic_csm")
    assert set(documented[place - 2 : place]) == Options.model_fields.keys() - nested


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_pages_lead_to_headings(page: Path) -> None:
    """A link to a section, of this page or another, has its heading."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)

    for target, anchor in re.findall(r"\]\((?!https?://)([^)#]*)#([^)]+)\)", text):
        there = (page.parent / target if target else page).read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.+)$", there, re.MULTILINE)
        known = {re.sub(r"[^a-z0-9_ -]", "", each.lower()).replace(" ", "-") for each in headings}
        assert anchor in known, f"{target}#{anchor}"


def test_every_promise_names_tests_that_exist() -> None:
    """Each row of the promises names a test, and each test that the page names is there."""
    page = read("reliability.md")
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    promises = [cells for cells in rows(page) if cells[0] not in ("promise", "---")]

    missing = [
        f"{path}::{name}"
        for path, name in named
        if not re.search(rf"(def|class) {name}\b|^{name} =", (ROOT / path).read_text(), re.M)
    ]
    assert missing == []
    assert [cells[0] for cells in promises if "`tests/" not in cells[2]] == []
    assert len(promises) > 20


def test_every_chaos_test_is_a_promise() -> None:
    """What is shown over real processes is said, so that nobody has to read tests to know it."""
    page = read("reliability.md")
    files = [
        *(ROOT / "tests" / "chaos").glob("test_*.py"),
        *(ROOT / "tests" / "soak").glob("test_*.py"),
    ]
    tests = {
        name for path in files for name in re.findall(r"def (test_\w+)\(", path.read_text("utf-8"))
    }

    missing = sorted(name for name in tests if f"::{name}`" not in page)
    assert not missing, f"give each a place in docs/reliability.md: {missing}"


def test_the_readme_is_one_screen() -> None:
    """Whoever opens the project sees all of its first page."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 70


def test_the_readme_is_honest_about_the_demo() -> None:
    """Nobody may learn from their ears alone how little the demo knows, and how often it errs."""
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())

    assert f"[{len(VOCABULARY)} English words](demo_voice/words.py)" in text
    assert "Other words come out wrong" in text
    assert re.search(r"misheard .* words in a hundred", text)
    assert "has not yet been shown on a GPU" in text
    measured = (ROOT / "demo_voice" / "README.md").read_text(encoding="utf-8")
    voice = next(cells for cells in rows(measured) if cells[0].startswith("default voice"))
    uniform, bigram = (round(float(cell.split()[0])) for cell in voice[1:3])
    assert f"misheard {uniform} words in a hundred, or {bigram} with a language model" in text


def test_figures_of_the_demo_are_those_of_the_shipped_weights() -> None:
    """The page that holds the figures names the artifact that is in the package."""
    manifest = ROOT / "shared" / "governance" / "spoken_demo" / "manifest.json"
    artifact = json.loads(manifest.read_text(encoding="utf-8"))["artifact_id"]
    page = (ROOT / "demo_voice" / "README.md").read_text(encoding="utf-8")

    (named,) = re.findall(r"`(psionic-demo/csm-spoken@sha256:[0-9a-f]+)\.\.\.`", page)
    assert artifact.startswith(named)


def test_every_metric_is_documented() -> None:
    """The tables of metrics hold exactly those that the processes tell, with kind and labels."""
    queue = QueueLoad("q", ended_by={"stop": 1})
    told = [
        *GatewayMetrics(("/",)).registry.families(families(LoadSnapshot({"q": queue}))),
        *WorkerMetrics().registry.families(),
    ]
    counted = {"counter": "_total"}
    known = {
        family.name + counted.get(family.type, ""): family.type
        for family in told
        if not family.name.startswith("process_")
    }

    section = read("operating.md").partition("## Metrics")[2].partition("## Alerts")[0]
    documented = {
        quoted(cells[0])[0]: (cells[1], set(quoted(cells[2])))
        for cells in rows(section)
        if cells[0] != "metric"
    }

    assert {name: kind for name, (kind, _) in documented.items()} == known
    for family in told:
        for sample in family.samples:
            _, labels = documented.get(family.name + counted.get(family.type, ""), ("", None))
            assert labels is None or set(sample.labels) - {"le"} == labels, family.name
