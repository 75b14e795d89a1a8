"""The tiny model's numbers, kept in ``golden.safetensors`` beside this file.

A change that is meant to change them writes them anew, in a commit that says why:

    python -m tests.gpu_worker.golden --write

Weights are exact on every machine, sums of floats are not: hidden states and logits are compared
within ``FLOATS``, samples within one step, and codes exactly, because the file is only written if
every code's logit leads by ``MARGIN``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from gpu_worker.codec import StreamingMimi
from gpu_worker.model.checkpoint import load_checkpoint
from gpu_worker.model.csm import CsmModel
from gpu_worker.model.demo import build_demo
from gpu_worker.model.weights import parse_safetensors, write_safetensors
from gpu_worker.prompt import Frames, context_segment, join, text_frames
from gpu_worker.sampling import Draw, LaneSampling, candidates_for, noise_table
from gpu_worker.step import FrameStep
from shared.governance.artifacts import Artifact
from tests.gpu_worker.parity import drawn

PATH: Final = Path(__file__).with_name("golden.safetensors")
FLOATS: Final = 1e-5
MARGIN: Final = 1e-3
FRAMES: Final = 3
HEADS: Final = (0, 1, 16, 31)
"""Whose logits are kept whole, for the first frame; all heads' are kept as two signed sums."""


def golden_prompt(bos: int, eos: int) -> Frames:
    """A context segment and a text of two prefill chunks together, from arithmetic alone."""
    codebook, frame = torch.arange(32)[:, None], torch.arange(5)
    codes = (37 * codebook + 101 * frame + 5) % 2048
    said = [bos, *((13 * n + 7) % 200 for n in range(4)), eos]
    text = [bos, *((29 * n + 3) % 200 for n in range(9)), eos]
    return join([context_segment(said, codes), text_frames(text)])


def signs(width: int) -> Tensor:
    """Two rows of plus and minus one: any one logit that changes changes both sums."""
    numbers = torch.arange(width)
    return torch.stack([1 - 2 * (numbers % 2), 1 - 2 * (numbers // 7 % 2)]).float()


def compute(artifact: Artifact, state: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """All golden numbers of the artifact, or of other weights by torchtune's names."""
    checkpoint = load_checkpoint(artifact)
    model = CsmModel(checkpoint.config)
    model.load_state_dict(dict(checkpoint.state if state is None else state), strict=True)
    with torch.inference_mode():
        step = FrameStep(model, StreamingMimi(checkpoint.mimi, 2), 2, 16)
        return _speak(step, golden_prompt(checkpoint.config.bos_id, checkpoint.config.eos_id))


def _speak(step: FrameStep, prompt: Frames) -> dict[str, Tensor]:
    lane, active = 1, torch.tensor([False, True])
    step.join(lane, 0.0, 1, 0, FRAMES)
    for start in range(0, len(prompt), step.chunk):
        rows = slice(start, start + step.chunk)
        step.prefill(lane, prompt.tokens[rows], prompt.mask[rows], start)
    hidden, codes, pcm, logits = [step.hidden[lane].clone()], [], [], []
    for _ in range(FRAMES):
        with drawn() as seen:
            spoken = step.speak(active, 1)
        codes.append(spoken.codes[lane].clone())
        pcm.append(spoken.pcm[lane].clone())
        logits.append(torch.stack([each[lane] for each in seen]))
        step.feed(512)
        hidden.append(step.hidden[lane].clone())
    heads = torch.stack(logits)
    best = heads[..., :2048].topk(2, dim=-1).values
    return {
        "hidden": torch.stack(hidden),
        "logits": heads[0, list(HEADS)],
        "sums": heads @ signs(heads.shape[-1]).T / heads.shape[-1] ** 0.5,
        "codes": torch.stack(codes).to(torch.int16),
        "margins": best[..., 0] - best[..., 1],
        "pcm": torch.stack(pcm),
        "sampled": sampled(heads[0, 0]),
    }


def sampled(logits: Tensor) -> Tensor:
    """64 draws from one head's logits, each with noise of its own."""
    count = 64
    sampling = LaneSampling.allocate(count, 1, 1, torch.device("cpu"))
    for lane in range(count):
        sampling.set_lane(lane, 0.9, 50, lane, 1)
    noise, best = noise_table(77, count, 1), torch.zeros(count, 1)
    draw = Draw(sampling, noise, best, 2048, candidates_for(50, 2048))
    return draw(0, logits.expand(count, -1)).to(torch.int16)


def differences(golden: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> list[str]:
    """What differs by more than other machines may. ``sampled`` is drawn from golden logits."""
    close = {
        name: torch.allclose(found[name], golden[name], rtol=FLOATS, atol=FLOATS)
        for name in ("hidden", "logits", "sums")
    }
    close["codes"] = torch.equal(found["codes"], golden["codes"])
    steps = found["pcm"].int() - golden["pcm"].int()
    close["pcm"] = int(steps.abs().max()) <= 1
    close["sampled"] = torch.equal(sampled(golden["logits"][0]), golden["sampled"])
    return [name for name, same in close.items() if not same]


def read() -> dict[str, Tensor]:
    return parse_safetensors(torch.frombuffer(bytearray(PATH.read_bytes()), dtype=torch.uint8))


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the golden numbers, or write them.")
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        found = compute(build_demo(Path(directory) / "csm-tiny-test", "tiny"))
    least = float(found["margins"].min())
    if write and least < MARGIN:
        sys.stderr.write(f"a code leads by {least:.1e} only: another machine may choose another\n")
        return 1
    if write:
        write_safetensors(PATH, found)
    changed = differences(read(), found)
    sys.stdout.write(f"smallest margin {least:.1e}; changed: {', '.join(changed) or 'nothing'}\n")
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main())
