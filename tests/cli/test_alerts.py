"""The alert rules: valid, about metrics that exist, tried on histories, each with a runbook."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.metrics import GatewayMetrics
from gpu_worker.metrics import WorkerMetrics
from scheduler.load import LoadSnapshot, QueueLoad
from scheduler.metrics import families
from tests.cli.test_docs import ROOT, quoted, read
from tests.cli.test_docs import rows as table_rows
from tests.exposition import promtool, samples

DEPLOY = ROOT / "deploy"


def document(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))


def rules() -> dict[str, dict[str, Any]]:
    return {
        rule["alert"]: rule for group in document("alerts.yml")["groups"] for rule in group["rules"]
    }


def headings(page: str) -> set[str]:
    """Anchors as GitHub makes them."""
    lines = [line.lstrip("# ") for line in page.splitlines() if line.startswith("#")]
    return {re.sub(r"[^a-z0-9 -]", "", line.lower()).replace(" ", "-") for line in lines}


def test_promtool_accepts_the_rules() -> None:
    """The file is one that Prometheus loads."""
    assert f"{len(rules())} rules found" in promtool("check", "rules", "alerts.yml", within=DEPLOY)


def test_each_alert_goes_off_when_it_should() -> None:
    """Each history of the test file gives exactly the alerts that it names, a quiet one none."""
    assert "SUCCESS" in promtool("test", "rules", "alerts.test.yml", within=DEPLOY)

    tried = {
        case["alertname"]
        for test in document("alerts.test.yml")["tests"]
        for case in test.get("alert_rule_test", [])
    }
    assert tried == rules().keys()


@pytest.mark.parametrize("name", ["alerts.yml", "alerts.test.yml", "dashboard.json"])
def test_alerts_are_about_metrics_that_exist(name: str) -> None:
    """No rule, and no history, speaks of a series or a bucket that no process tells."""
    queue = LoadSnapshot({"q": QueueLoad("q", ended_by={"stop": 1})})
    gateway = GatewayMetrics(("/",))
    gateway.first(0.1, streamed=True)
    told = samples(gateway.registry.exposition(families(queue)))
    told |= samples(WorkerMetrics().registry.exposition())
    text = (DEPLOY / name).read_text(encoding="utf-8")

    assert set(re.findall(r"psionic_csm_\w+", text)) <= {key[0] for key in told}
    buckets = re.findall(r'(psionic_csm_\w+_bucket)\{[^}]*le=\\?"([^"\\]+)', text)
    assert {(name, le) for name, le in buckets} <= {(key[0], key[-1]) for key in told}
    assert buckets


def test_the_dashboard_asks_what_prometheus_understands(tmp_path: Path) -> None:
    """Every query of every panel is one that Prometheus takes, and no two panels lie on another."""
    panels = document("dashboard.json")["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    recorded = [
        {"record": f"panel:{number}", "expr": expression.replace("$__rate_interval", "1m")}
        for number, expression in enumerate(asked)
    ]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))

    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(asked) > 20
    assert len(taken) == len(set(taken))
    assert f"{len(asked)} rules found" in promtool("check", "rules", str(file))


def test_the_dashboard_shows_what_alerts_are_about() -> None:
    """Whoever is woken sees the series of each alert on one page."""
    text = (DEPLOY / "dashboard.json").read_text(encoding="utf-8")

    for name, rule in rules().items():
        for metric in set(re.findall(r"psionic_csm_\w+", rule["expr"])):
            assert re.sub("_(bucket|count)$", "", metric) in text, name


def test_each_alert_leads_to_its_runbook() -> None:
    """Whoever is woken finds a section that says what to do, by its link or by the alert's name."""
    page = read("operating.md")
    anchors = headings(page)
    listed = {
        quoted(name)[0]: (severity, re.findall(r"\(#([^)]+)\)", section)[0])
        for name, severity, section in (row for row in table_rows(page) if len(row) == 3)
        if name.startswith("`PsionicCsm")
    }

    linked = {}
    for name, rule in rules().items():
        file, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert file == "docs/operating.md", name
        assert anchor in anchors, name
        linked[name] = (rule["labels"]["severity"], anchor)
    assert listed == linked


def test_the_scrape_configuration_fits_the_containers() -> None:
    """promtool accepts it, its alerts are ours, and it names the services and ports of the compose
    file."""
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    config = document("prometheus.yml")
    named = {
        (name, str(found["port"]))
        for job in config["scrape_configs"]
        for found in job["dns_sd_configs"]
        for name in found["names"]
    }

    def port(name: str, variable: str) -> tuple[str, str]:
        return name, compose["services"][name]["environment"][variable]

    assert named == {
        port("gateway", "PSIONIC_CSM_PORT"),
        *(
            port(name, "PSIONIC_CSM_METRICS_PORT")
            for name in ("scheduler", "worker", "worker-cuda")
        ),
    }
    assert config["rule_files"] == ["alerts.yml"]
    assert "SUCCESS" in promtool("check", "config", "prometheus.yml", within=DEPLOY)
