"""The manifests for Kubernetes, as far as they can be checked without a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.__main__ import LAST_WORDS_S
from gpu_worker.worker import CLOSE_S
from shared.settings import GatewaySettings, SchedulerSettings, WorkerSettings

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT = (ROOT / "deploy" / "kubernetes.yaml").read_text(encoding="utf-8")
OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all(TEXT))
SETTINGS = next(each["data"] for each in OBJECTS if each["kind"] == "ConfigMap")
PODS = {
    each["metadata"]["name"].removeprefix("psionic-csm-"): each["spec"]["template"]
    for each in OBJECTS
    if each["kind"] in ("Deployment", "StatefulSet")
}
OURS = ("scheduler", "gateway", "worker")


def container(name: str) -> dict[str, Any]:
    (found,) = PODS[name]["spec"]["containers"]
    return dict(found)


def environment(name: str) -> dict[str, str]:
    """What a process of a pod finds, the file of keys aside."""
    given = {each["name"]: each["value"] for each in container(name).get("env", [])}
    return {**SETTINGS, **given}


def test_every_pod_has_few_rights() -> None:
    """Nobody is root, writes to the image, gains a right, or has a token of the cluster."""
    assert PODS.keys() == {"redis", *OURS}
    for name, pod in PODS.items():
        assert pod["spec"]["automountServiceAccountToken"] is False, name
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True, name
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        rights = container(name)["securityContext"]
        assert rights["readOnlyRootFilesystem"] is True, name
        assert rights["allowPrivilegeEscalation"] is False, name
        assert rights["capabilities"] == {"drop": ["ALL"]}, name
        assert container(name)["resources"]["limits"]["memory"], name


def test_each_process_can_read_its_settings(tmp_path: Path) -> None:
    """What a pod is given is what its process takes; services add no variables to it."""
    keys = tmp_path / "keys"
    keys.write_text("a-key-of-enough-characters\n")
    mounts = {each["name"]: each["mountPath"] for each in container("gateway")["volumeMounts"]}
    given = environment("gateway")
    assert given["PSIONIC_CSM_API_KEYS"] == f"{mounts['keys']}/keys"

    gateway = GatewaySettings.from_env({**given, "PSIONIC_CSM_API_KEYS": str(keys)})
    worker = WorkerSettings.from_env(environment("worker"))
    scheduler = SchedulerSettings.from_env(environment("scheduler"))

    assert gateway.tier.name == "production"
    assert worker.backend == "cuda"
    assert gateway.queue.redis_url == worker.queue.redis_url == scheduler.queue.redis_url
    assert [pod["spec"]["enableServiceLinks"] for pod in PODS.values()] == [False] * 4


@pytest.mark.parametrize("name", OURS)
def test_pods_may_take_longer_to_stop_than_a_drain(name: str) -> None:
    """Whoever is stopped finishes what fits its grace, after the pause before it."""
    before = container(name).get("lifecycle", {}).get("preStop", {}).get("exec", {})
    pause = int(before.get("command", ["sleep", "0"])[1])
    drain = int(SETTINGS["PSIONIC_CSM_DRAIN_GRACE_MS"]) / 1000

    stop = PODS[name]["spec"]["terminationGracePeriodSeconds"]
    assert stop >= pause + drain + max(CLOSE_S, 2 * LAST_WORDS_S) + 2


@pytest.mark.parametrize("name", OURS)
def test_probes_ask_a_port_that_is_there(name: str) -> None:
    """Liveness and readiness are those of the process, at the port that it is told to open."""
    pod = container(name)
    (port,) = pod["ports"]
    variable = "PSIONIC_CSM_PORT" if name == "gateway" else "PSIONIC_CSM_METRICS_PORT"

    assert str(port["containerPort"]) == environment(name)[variable]
    for probe in ("livenessProbe", "readinessProbe"):
        if probe in pod:
            assert pod[probe]["httpGet"]["port"] == port["name"]
            path = "/health/live" if probe == "livenessProbe" else "/health/ready"
            assert pod[probe]["httpGet"]["path"] == path
    assert "readinessProbe" in container("gateway")


def test_services_and_policies_find_their_pods() -> None:
    """Each selector names the labels of one kind of pod."""
    labels = [pod["metadata"]["labels"] for pod in PODS.values()]
    for each in OBJECTS:
        if each["kind"] == "Service":
            assert each["spec"]["selector"] in labels
        if each["kind"] == "NetworkPolicy":
            assert each["spec"]["podSelector"]["matchLabels"] in labels
    redis = next(each for each in OBJECTS if each["kind"] == "NetworkPolicy")
    assert redis["spec"]["podSelector"]["matchLabels"]["role"] == "redis"


def test_redis_keeps_jobs_over_a_restart() -> None:
    """As in the compose file: append-only, nothing evicted, a limit, data that stays."""
    arguments = container("redis")["args"]
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))

    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"
    assert options["--maxmemory"]
    assert container("redis")["volumeMounts"][0]["mountPath"] == options["--dir"]
