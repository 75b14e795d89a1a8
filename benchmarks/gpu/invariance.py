"""One request gives the same codes and samples in any company, lane and process."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from typing import Final

import torch

from benchmarks.gpu.target import Check, Target
from benchmarks.load_probe import ROOT
from benchmarks.rig import Rig, frames_of
from gpu_worker.generation import Generation

KEY: Final = "probe"


def probe_digest(rig: Rig, lane: int, neighbours: int, frames: int) -> str:
    """Codes and samples of the request in ``lane``, with so many others speaking.

    Lanes are given out from the first on, so ``lane`` others come before it; those beyond
    ``neighbours`` fall silent again before it begins.
    """
    before = [rig.generation() for _ in range(lane)]
    for each in before:
        rig.submit(each)
    probe = replace(rig.generation(max_frames=frames, prompted=True), key=KEY, seed=17)
    rig.submit(probe)
    for each in before[neighbours:]:
        rig.engine.stop(each.key)
    for _ in range(neighbours - lane):
        rig.submit(rig.generation())
    return _digest(rig, probe)


def _digest(rig: Rig, probe: Generation) -> str:
    whole, spoken = hashlib.sha256(), 0
    while spoken < probe.max_frames:
        for frame in frames_of(rig.tick()):
            if frame.key == KEY:
                whole.update(frame.codes + frame.pcm)
                spoken += 1
    rig.clear()
    return whole.hexdigest()


def invariance(target: Target, arguments: list[str]) -> Check:
    """Alone, half full, full; in each lane; and in a process that is started with ``arguments``."""
    lanes, frames = target.most, max(2, target.frames // 8)
    with torch.inference_mode():
        rig = Rig(target.opened, lanes, target.chunk)
        alone = probe_digest(rig, 0, 0, frames)
        company = {
            f"{count} others": probe_digest(rig, 0, count, frames)
            for count in sorted({lanes // 2, lanes - 1})
        }
        places = {
            f"lane {lane}": probe_digest(rig, lane, lanes // 2, frames) for lane in range(1, lanes)
        }
    elsewhere = {"another process": _in_another_process(arguments)}
    digests = company | places | elsewhere
    others = sorted(name for name, digest in digests.items() if digest != alone)
    return Check(
        name=f"invariance at {lanes} lanes",
        bound="codes and samples bitwise the same in any company, lane and process",
        passed=not others,
        measured={"digest": alone, "runs": 1 + len(digests), "runs_that_differ": others},
    )


def second_process(target: Target) -> str:
    """What the other process prints."""
    with torch.inference_mode():
        rig = Rig(target.opened, target.most, target.chunk)
        return probe_digest(rig, 0, 0, max(2, target.frames // 8))


def _in_another_process(arguments: list[str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_check", "--probe", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.split() if done.returncode == 0 else []
    return lines[-1] if lines else f"failed with {done.returncode}: {done.stderr[-300:]}"
