"""Speed: real-time factors, first audio, and how many listeners never wait."""

from __future__ import annotations

import functools
import itertools
import statistics
import time
from dataclasses import asdict
from typing import Any

import torch

from benchmarks import arithmetic, machine, speaking
from benchmarks.gpu.target import Check, Target
from benchmarks.records import Spread
from benchmarks.rig import Rig, frames_of
from benchmarks.timing import timed
from gpu_worker.model.layouts import torchtune_shapes


def pace(target: Target) -> list[Check]:
    """Steps at each number of lanes, then what listeners make of them."""
    with torch.inference_mode():
        bandwidth = _read_bandwidth(target)
        runs = [_steps(target, lanes) for lanes in target.lanes]
        audio = speaking.first_audio(Rig(target.opened, target.most, target.chunk), 5)
        crowded = _first_audio_in_company(target)
    bounds, alone = target.bounds, runs[0]
    streams = max((run["lanes"] for run in runs if run["underruns"] == 0), default=0)
    first = max(audio.plain_s.median, audio.prompted_s.median, crowded)
    return [
        Check(
            name=f"real-time factor of {alone['lanes']} lane",
            bound=f"at most {bounds.rtf:g}",
            passed=alone["rtf"] <= bounds.rtf,
            measured={"runs": runs, "read_bytes_per_s": bandwidth, **_floor(target, bandwidth)},
        ),
        Check(
            name="streams that stay real-time",
            bound=f"at least {bounds.streams}, no frame late",
            passed=streams >= bounds.streams,
            measured={"streams": streams, "most_tried": target.most},
        ),
        Check(
            name="first audio",
            bound=f"at most {bounds.first_audio_s:g} s, idle or all other lanes speaking",
            passed=first <= bounds.first_audio_s,
            measured={"idle": asdict(audio), "in_company_s": crowded},
        ),
        Check(
            name="first audio with the voice's prompt cached",
            bound=f"at most {bounds.prompted_over_plain:g} x that without a prompt",
            passed=audio.prompted_over_plain <= bounds.prompted_over_plain,
            measured={"prompted_over_plain": audio.prompted_over_plain},
        ),
    ]


def _steps(target: Target, lanes: int) -> dict[str, Any]:
    """``target.frames`` steps of all lanes: their times, and the frames that came too late."""
    rig = Rig(target.opened, lanes, target.chunk)
    with rig.filled(lanes):
        arrivals = [time.perf_counter()]
        for _ in range(target.frames):
            rig.speak_on()
            arrivals.append(time.perf_counter())
    steps = [later - earlier for earlier, later in itertools.pairwise(arrivals)]
    return {
        "lanes": lanes,
        "step_s": asdict(Spread.of(steps)),
        "late_step_s": sorted(steps)[int(0.95 * len(steps))],
        "rtf": arithmetic.rtf(statistics.median(steps)),
        "underruns": arithmetic.underruns(arrivals),
        "memory_bytes": _peak_bytes(target),
    }


def _first_audio_in_company(target: Target) -> float:
    """Seconds from submit to samples while all other lanes speak; the median of a few."""
    rig = Rig(target.opened, target.most, target.chunk)
    samples = []
    with rig.filled(rig.lanes - 1):
        for _ in range(5):
            newcomer = rig.generation(prompted=True)
            rig.submit(newcomer)
            samples.append(timed(functools.partial(_until_heard, rig, newcomer.key)))
            rig.engine.stop(newcomer.key)
            rig.tick()
    return statistics.median(samples)


def _until_heard(rig: Rig, key: str) -> None:
    while key not in {frame.key for frame in frames_of(rig.tick())}:
        pass


def _read_bandwidth(target: Target) -> float:
    read = machine.streaming_read(target.device)
    read()
    return machine.STREAM_BYTES / statistics.median(timed(read) for _ in range(5))


def _floor(target: Target, bandwidth: float) -> dict[str, float]:
    config, model = target.opened.checkpoint.config, target.opened.model
    elements = arithmetic.weight_elements_per_frame(torchtune_shapes(config), config.num_codebooks)
    read = elements * model.dtype.itemsize
    return {"weight_bytes_per_frame": read, "floor_s": arithmetic.floor_s(read, bandwidth)}


def _peak_bytes(target: Target) -> int:
    if target.is_cuda:
        return int(torch.cuda.max_memory_allocated(target.device))
    return machine.peak_rss_bytes()
