"""The alert rules: valid, about metrics that exist, tried on histories, each with a runbook."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from gateway.metrics import GatewayMetrics
from gpu_worker.metrics import WorkerMetrics
from scheduler.load import LoadSnapshot, QueueLoad
from scheduler.metrics import families
from tests.cli.test_docs import ROOT, read
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


@pytest.mark.parametrize("name", ["alerts.yml", "alerts.test.yml"])
def test_alerts_are_about_metrics_that_exist(name: str) -> None:
    """No rule, and no history, speaks of a series or a bucket that no process tells."""
    queue = LoadSnapshot({"q": QueueLoad("q", ended_by={"stop": 1})})
    gateway = GatewayMetrics(("/",))
    gateway.first(0.1, streamed=True)
    told = samples(gateway.registry.exposition(families(queue)))
    told |= samples(WorkerMetrics().registry.exposition())
    text = (DEPLOY / name).read_text(encoding="utf-8")

    assert set(re.findall(r"psionic_csm_\w+", text)) <= {key[0] for key in told}
    buckets = re.findall(r'(psionic_csm_\w+_bucket)\{[^}]*le="([^"]+)"', text)
    assert {(name, le) for name, le in buckets} <= {(key[0], key[-1]) for key in told}
    assert buckets


def test_each_alert_leads_to_its_runbook() -> None:
    """Whoever is woken finds a section that says what to do."""
    anchors = headings(read("operating.md"))

    for name, rule in rules().items():
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert page == "docs/operating.md", name
        assert anchor in anchors, name


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
