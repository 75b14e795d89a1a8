"""One command for a machine with CUDA: every check, one JSON report.

    python -m benchmarks.gpu_check --report gpu-report.json

Exits 0 when every bound holds, 1 when one is broken, 3 where there is no such device. With
``--device cpu --size tiny`` the same functions run anywhere: that shows that they run, not that a
GPU is right or fast.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.gpu.invariance import invariance, second_process
from benchmarks.gpu.pace import pace
from benchmarks.gpu.parity import parity
from benchmarks.gpu.residence import residence
from benchmarks.gpu.stepping import capture, flat_memory, no_sync
from benchmarks.gpu.target import Bounds, Check, Target, target_on
from benchmarks.machine import version_of
from benchmarks.material import material
from gpu_worker.backend import open_device, parse_backend
from shared.errors import SpeechError
from shared.variables import read_cache_dir

PASSED: Final = 0
BROKEN: Final = 1
NO_DEVICE: Final = 3
SCHEMA: Final = "psionic.csm.gpu_check.v1"
PACKAGES: Final = ("torch", "moshi", "tokenizers", "safetensors", "numpy", "nvidia-ml-py")


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    options = parser().parse_args(given)
    if options.device != "cpu" and not torch.cuda.is_available():
        print("no CUDA device")
        return NO_DEVICE
    try:
        open_device(parse_backend(options.device))
    except SpeechError as error:
        print(error.message)
        return NO_DEVICE
    if options.device == "cpu":
        torch.set_num_threads(1)  # their number belongs to a CPU's determinism class
    target = _target(options)
    if options.probe:
        print(second_process(target))
        return PASSED
    began = time.monotonic()
    checks = []
    for check in run(target, given):
        checks.append(check)
        print(line(check), flush=True)
    report = document(target, checks, time.monotonic() - began)
    if options.report:
        Path(options.report).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return PASSED if report["passed"] else BROKEN


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m benchmarks.gpu_check", description=__doc__)
    found.add_argument("--report", help="write the JSON report to this file")
    found.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu")
    found.add_argument("--size", default="full", choices=("full", "demo", "tiny"))
    found.add_argument("--lanes", type=int, nargs="+", default=[1, 8, 32, 64])
    found.add_argument("--chunk", type=int, default=32, help="positions of a prefill chunk")
    found.add_argument("--frames", type=int, default=125, help="frames of a measurement")
    for name, value in asdict(Bounds()).items():
        flag = f"--bound-{name.replace('_', '-')}"
        found.add_argument(flag, type=type(value), default=value, help=f"default {value:g}")
    found.add_argument("--probe", action="store_true", help=argparse.SUPPRESS)
    return found


def run(target: Target, arguments: list[str]) -> Iterator[Check]:
    """Every check in turn. One that dies is broken, and the others still tell something."""
    checks: dict[str, Callable[[], Check | list[Check]]] = {
        "residence": lambda: residence(target, target.artifact.directory),
        "no wait inside a step": lambda: no_sync(target),
        "recorded steps": lambda: capture(target),
        "memory while lanes come and go": lambda: flat_memory(target),
        "invariance": lambda: invariance(target, arguments),
        "pace": lambda: pace(target),
        "parity": lambda: parity(target),
    }
    for name, check in checks.items():
        try:
            found = check()
        except Exception as error:  # noqa: BLE001 - whatever it is, the report has to say it
            reason = f"{type(error).__name__}: {error}"
            found = Check(name, "runs to its end", False, {}, reason)
        yield from found if isinstance(found, list) else [found]


def line(check: Check) -> str:
    verdict = {True: "ok    ", False: "BROKEN", None: "-     "}[check.passed]
    return f"{verdict}  {check.name}: {check.bound}" + (
        f" ({check.reason})" if check.reason else ""
    )


def document(target: Target, checks: list[Check], seconds: float) -> dict[str, Any]:
    """The report. ``passed`` is for the device that is named in it and nothing else."""
    return {
        "schema": SCHEMA,
        "device": _device(target),
        "artifact_id": target.artifact.artifact_id,
        "dtype": "bfloat16",
        "lanes": list(target.lanes),
        "chunk": target.chunk,
        "frames": target.frames,
        "bounds": asdict(target.bounds),
        "versions": {"python": platform.python_version()}
        | {package: version_of(package) for package in PACKAGES},
        "seconds": seconds,
        "checks": [asdict(check) for check in checks],
        "passed": all(check.passed is not False for check in checks),
    }


def _device(target: Target) -> dict[str, Any]:
    if not target.is_cuda:
        return {"type": "cpu", "note": "a rehearsal: it proves nothing about a GPU"}
    properties = torch.cuda.get_device_properties(target.device)
    return {
        "type": "cuda",
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "capability": f"{properties.major}.{properties.minor}",
        "cuda": torch.version.cuda,
    }


def _target(options: argparse.Namespace) -> Target:
    bounds = Bounds(**{name: getattr(options, f"bound_{name}") for name in asdict(Bounds())})
    artifact, _ = material(options.size, read_cache_dir(os.environ))
    return target_on(
        options.device, artifact, tuple(options.lanes), options.chunk, options.frames, bounds
    )


if __name__ == "__main__":
    sys.exit(main())
