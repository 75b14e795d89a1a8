"""Container files and set-up, as far as they can be checked without an engine to run them."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cli.alive import run as check_alive
from cli.exits import CommandFailed
from cli.redis_server import free_port
from gateway.__main__ import LAST_WORDS_S
from gpu_worker.worker import CLOSE_S
from scheduler.carrier import Carrier
from scheduler.queue import WorkQueue
from shared.settings import QueueSettings
from tests.conftest import RedisServer

ROOT = Path(__file__).resolve().parent.parent.parent
DOCKERFILES = ("Dockerfile.gateway", "Dockerfile.worker")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(
        (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    )
    return document


def test_services_run_modules_that_exist(compose: dict[str, Any]) -> None:
    """Each service of ours starts a module with a main program, or our command."""
    started = {
        name: service["command"]
        for name, service in compose["services"].items()
        if service["image"].startswith("psionic-csm-")
    }

    assert {"gateway", "scheduler", "worker"} <= set(started)
    for command in started.values():
        if command[0] == "python":
            assert command[1] == "-m"
            assert (ROOT / command[2] / "__main__.py").exists()
        else:
            assert command[0] == "psionic-csm"


def test_services_are_given_only_settings_that_are_read(compose: dict[str, Any]) -> None:
    """A variable that no process reads is a mistake that nobody would notice."""
    source = "".join(
        path.read_text(encoding="utf-8")
        for package in ("shared", "gateway", "gpu_worker", "scheduler")
        for path in (ROOT / package).rglob("*.py")
    )
    given = {
        name for service in compose["services"].values() for name in service.get("environment", {})
    }

    assert {name for name in given if f'"{name}"' not in source} == set()


def test_redis_keeps_jobs_over_a_restart(compose: dict[str, Any]) -> None:
    """The append-only file is on, nothing is evicted, and the data outlives the container."""
    redis = compose["services"]["redis"]
    options = dict(zip(redis["command"][1::2], redis["command"][2::2], strict=True))

    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"
    assert options["--maxmemory"]
    assert redis["volumes"] == ["redis:/data"]


@pytest.mark.redis
def test_a_real_redis_takes_the_options(compose: dict[str, Any], redis_server: RedisServer) -> None:
    """The command line of the container starts a server, and means what it says."""
    command = [
        re.sub(r"\$\{\w+:-(.*)\}", r"\1", each) for each in compose["services"]["redis"]["command"]
    ]
    redis_server.stop()
    redis_server.start(*command[1:])

    with redis_server.client() as client:
        said = {
            name: client.config_get(name)[name]
            for name in ("appendonly", "maxmemory-policy", "maxmemory", "save")
        }
    assert said == {
        "appendonly": "yes",
        "maxmemory-policy": "noeviction",
        "maxmemory": str(1 << 30),
        "save": "",
    }


def ours(compose: dict[str, Any]) -> dict[str, Any]:
    return {
        name: service
        for name, service in compose["services"].items()
        if service["image"].startswith("psionic-csm-")
    }


def test_every_container_has_few_rights(compose: dict[str, Any]) -> None:
    """Nothing is written but volumes and a little memory, and no right can be had."""
    for name, service in compose["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
    assert compose["services"]["redis"]["user"] == "redis"
    assert compose["networks"]["inside"]["internal"] is True
    assert [name for name, each in compose["services"].items() if "ports" in each] == ["gateway"]
    assert [name for name, each in compose["services"].items() if "edge" in each["networks"]] == [
        "gateway"
    ]
    for name in ("gateway", "worker", "worker-cuda"):
        assert all(each.endswith(":ro") for each in compose["services"][name]["volumes"]), name


def default(value: str) -> str:
    """What a value of the compose file is where the environment says nothing."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)


def test_no_container_can_fill_its_host(compose: dict[str, Any]) -> None:
    """Memory, processes and logs of each have a bound, and Redis's leaves room for its copy."""
    for name, service in compose["services"].items():
        assert re.fullmatch(r"\d+[gm]", default(service["mem_limit"])), name
        assert service["pids_limit"], name
        assert {"max-size", "max-file"} <= service["logging"]["options"].keys(), name
    redis = compose["services"]["redis"]
    options = dict(zip(redis["command"][1::2], redis["command"][2::2], strict=True))
    assert default(options["--maxmemory"]) == "1gb"
    assert default(redis["mem_limit"]) == "2g"


def test_a_gateway_s_memory_holds_all_that_it_may_be_asked(compose: dict[str, Any]) -> None:
    """With every connection a stream of flac, it stays below its limit, wherever it runs."""
    gateway = compose["services"]["gateway"]
    connections = int(default(gateway["environment"]["PSIONIC_CSM_MAX_CONNECTIONS"]))

    needed_mib = 150 + 64 + connections * 7.5
    assert needed_mib < 1024 * int(default(gateway["mem_limit"]).removesuffix("g"))


def test_images_are_named_with_the_version(compose: dict[str, Any]) -> None:
    """An image is that of this version unless another is named, and Redis's has a version too."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]

    for service in ours(compose).values():
        assert default(service["image"]).endswith(f":{version}")
    assert re.fullmatch(r"redis:\d+\.\d+-alpine", default(compose["services"]["redis"]["image"]))


def test_images_install_what_was_tried() -> None:
    """Each package that the service asks for is pinned, within the range that it allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked = [project["dependencies"], *(extras[name] for name in ("worker", "formats", "otel"))]
    text = (ROOT / "deploy" / "constraints.txt").read_text(encoding="utf-8")
    pinned = dict(line.split("==") for line in text.splitlines() if "==" in line)

    for line in (line for lines in asked for line in lines):
        wanted = Requirement(line)
        assert wanted.specifier.contains(pinned[canonicalize_name(wanted.name)]), line
    for name in DOCKERFILES:
        dockerfile = (ROOT / "deploy" / name).read_text(encoding="utf-8")
        assert "--constraint deploy/constraints.txt" in dockerfile


def test_containers_may_take_longer_to_stop_than_a_drain(compose: dict[str, Any]) -> None:
    """Whoever is stopped finishes what fits its grace, says goodbye, and only then is killed."""
    for name, service in ours(compose).items():
        grace = int(service["environment"]["PSIONIC_CSM_DRAIN_GRACE_MS"]) / 1000
        stop = int(service["stop_grace_period"].removesuffix("s"))
        assert stop >= grace + max(CLOSE_S, 2 * LAST_WORDS_S) + 2, name


def test_every_image_can_be_built_here(compose: dict[str, Any]) -> None:
    """No image is looked for in a registry that has none of ours."""
    for service in ours(compose).values():
        assert (ROOT / service["build"]["dockerfile"]).exists()


def test_every_long_running_service_is_probed(compose: dict[str, Any]) -> None:
    """Each has a health check of its own or of its image, and a probe's port is one that is set."""
    for name, service in compose["services"].items():
        if name == "demo":
            continue
        image = service["image"].removeprefix("psionic-csm-").partition(":")[0]
        file = ROOT / "deploy" / f"Dockerfile.{image}"
        of_image = file.exists() and "HEALTHCHECK" in file.read_text(encoding="utf-8")
        assert "healthcheck" in service or of_image, name
    scheduler = compose["services"]["scheduler"]
    port = scheduler["environment"]["PSIONIC_CSM_METRICS_PORT"]
    assert f"127.0.0.1:{port}/health/live" in scheduler["healthcheck"]["test"][-1]


def test_the_gpu_is_behind_a_profile(compose: dict[str, Any]) -> None:
    """Without the profile no GPU is asked for; with it the worker must serve CUDA or refuse."""
    services = compose["services"]
    reserving = {
        name: service["deploy"]["resources"]["reservations"]["devices"]
        for name, service in services.items()
        if "deploy" in service
    }

    assert reserving == {"worker-cuda": [{"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}]}
    assert services["worker-cuda"]["profiles"] == ["cuda"]
    assert services["worker-cuda"]["environment"]["PSIONIC_CSM_BACKEND"] == "cuda"


@pytest.mark.parametrize("name", DOCKERFILES)
def test_images_run_as_somebody_and_copy_what_exists(name: str) -> None:
    """No image runs as root, and every file that is copied from here is there."""
    text = (ROOT / "deploy" / name).read_text(encoding="utf-8")
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)

    assert text.rindex("\nUSER 10001:10001") > text.rindex("\nFROM")
    assert "HEALTHCHECK" in text
    assert all((ROOT / path).exists() for line in copied for path in line.split())


def test_only_the_worker_s_image_has_torch() -> None:
    """The gateway's image installs encoders and spans and no more."""
    gateway, worker = ((ROOT / "deploy" / name).read_text(encoding="utf-8") for name in DOCKERFILES)

    assert re.search(r"pip install .* '\.\[formats,otel\]'$", gateway, re.MULTILINE)
    assert "'.[worker,otel]'" in worker


@pytest.mark.redis
def test_the_probe_finds_the_host_s_worker(redis_server: RedisServer) -> None:
    """A heartbeat of this host passes, one of another host or none at all does not."""
    settings = QueueSettings.from_env({"REDIS_URL": redis_server.url})
    with pytest.raises(CommandFailed):
        check_alive(settings, "here")
    with redis_server.client() as client:
        carrier = Carrier(client, settings.namespace, "q")
        queue = WorkQueue(client, settings, carrier, "q", "w")
        queue.heartbeat({"host": "here"}, lanes=0)

    check_alive(settings, "here")
    with pytest.raises(CommandFailed):
        check_alive(settings, "there")


def test_the_probe_blames_no_worker_for_an_absent_redis() -> None:
    """While Redis is away the probe passes: restarting workers would not help."""
    check_alive(QueueSettings.from_env({"REDIS_URL": f"redis://127.0.0.1:{free_port()}/0"}))


# The set-up: make and deploy/environment.py.

make = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """A stand-in for a ready environment, whose Python prints what it is asked to run."""
    directory = tmp_path / "venv"
    (directory / "bin").mkdir(parents=True)
    python = directory / "bin" / "python"
    python.write_text('#!/bin/sh\nfor each in "$@"; do printf "%s\\n" "<$each>"; done\n')
    python.chmod(0o755)
    for stamp in (".ready-speak", ".ready-dev"):
        (directory / stamp).touch()
    return directory


def run_make(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@make
@pytest.mark.parametrize(
    "text", ["Hello.", 'It\'s $5, "net"', "a `b` $(c) \\ ; & | > #", "--url", "$HOME $$"]
)
def test_make_passes_a_text_as_typed(venv: Path, text: str) -> None:
    """What is between the quotes at the prompt is what the command gets."""
    done = run_make("speak", f"VENV={venv}", f"TEXT={text}", "OUT=my file.wav")

    assert done.stdout.splitlines() == [
        *("<-m>", "<cli>", "<speak>", "<--output>", "<my file.wav>", "<-->", f"<{text}>")
    ]


@make
def test_make_speaks_something_by_default(venv: Path) -> None:
    """Without a text there is one, and the file is speech.wav."""
    said = run_make("speak", f"VENV={venv}").stdout.splitlines()

    assert "<speech.wav>" in said
    assert len(said[-1]) > 10


@make
def test_a_failed_set_up_leaves_no_stamp(tmp_path: Path) -> None:
    """When set-up fails, make says so, and the next run tries again."""
    venv = tmp_path / "venv"
    python = tmp_path / "python3"
    python.write_text('#!/bin/sh\ncase "$1" in -c) exit 0;; esac\necho "no luck" >&2; exit 1\n')
    python.chmod(0o755)
    venv.mkdir()

    done = run_make("speak", f"VENV={venv}", f"PYTHON={python}")

    assert done.returncode != 0
    assert "no luck" in done.stderr
    assert list(venv.iterdir()) == []


@make
def test_no_python_at_all_says_which_is_needed(tmp_path: Path) -> None:
    """A machine whose Python is too old, or that has none, is told what to install."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("sh", "touch"):
        (tools / tool).symlink_to(shutil.which(tool) or tool)
    program = shutil.which("make") or "make"
    done = subprocess.run(
        [program, "speak", f"VENV={tmp_path / 'venv'}"],
        cwd=ROOT,
        env={"PATH": str(tools)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode != 0
    assert "Python 3.11, 3.12 or 3.13 is needed" in done.stderr


def environment_module() -> Any:
    spec = importlib.util.spec_from_file_location(
        "deploy_environment", ROOT / "deploy" / "environment.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_environment_that_works_is_kept() -> None:
    """An existing environment with pip and a fitting Python is used as it is."""
    prefix = Path(sys.executable).parent.parent

    assert environment_module().ensure_venv(prefix) == prefix / "bin" / "python"


def test_a_python_without_ensurepip_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian packages venv apart: the failure names the package."""
    module = environment_module()
    monkeypatch.setitem(sys.modules, "ensurepip", None)

    with pytest.raises(module.SetupFailed, match=r"apt install python3\.\d+-venv"):
        module.ensure_venv(tmp_path / "venv")


def test_big_downloads_are_told() -> None:
    """Pip's output becomes a line for what takes long, and none for the rest."""
    progress = environment_module().progress

    big = "  Downloading https://host/torch-2.9.1-cp311-none-any.whl (899.8 MB)"
    assert list(progress(big)) == ["  downloading torch 2.9.1 (899.8 MB)"]
    assert list(progress("  Downloading rq-3.0-py3-none-any.whl (90 kB)")) == []
    assert list(progress("Installing collected packages: a, b, c")) == ["  unpacking 3 packages"]
