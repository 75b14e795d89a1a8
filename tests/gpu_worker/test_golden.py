"""A changed number anywhere in the tiny model is noticed; ``golden`` says how to mean it."""

from __future__ import annotations

import pytest

from gpu_worker.model.checkpoint import load_checkpoint
from shared.governance.artifacts import Artifact
from tests.gpu_worker.golden import (
    FRAMES,
    HEADS,
    MARGIN,
    PATH,
    compute,
    differences,
    golden_prompt,
    read,
)

WEIGHTS = "sha256:e798882c92dd86446f38f0194bd0d549a3a878de0ad9333fef3b60c16906cdf9"
MIMI = "sha256:9d3cee857ef6f294436a8513abe1edf8b5a9e69b845b4513ac15959634de8548"


def test_numbers_are_the_golden_ones(tiny_artifact: Artifact) -> None:
    """Hidden states, logits, codes and samples are those in the file."""
    found = compute(tiny_artifact)

    assert differences(read(), found) == []


def test_weights_are_the_golden_ones(tiny_artifact: Artifact) -> None:
    """The weights behind them are the same bytes on every machine."""
    files = tiny_artifact.manifest.files

    assert files["model.safetensors"].sha256 == WEIGHTS
    assert files["mimi.safetensors"].sha256 == MIMI


def test_the_file_is_small_and_its_codes_are_safe() -> None:
    """Under 100 kB, whole, and with no code that another machine's rounding could turn."""
    golden = read()

    assert PATH.stat().st_size < 100_000
    assert golden["codes"].shape == (FRAMES, 32)
    assert golden["logits"].shape == (len(HEADS), 2051)
    assert float(golden["margins"].min()) >= MARGIN
    assert int(golden["pcm"].int().abs().max()) > 1000


def test_one_changed_weight_is_noticed(tiny_artifact: Artifact) -> None:
    """One number of any tensor, changed by an eighth of its tensor's largest."""
    golden, checkpoint = read(), load_checkpoint(tiny_artifact)
    prompt = golden_prompt(checkpoint.config.bos_id, checkpoint.config.eos_id)
    code = int(golden["codes"][0, 31]) + 31 * 2051
    used = {"text_embeddings.weight": int(prompt.tokens[1, 32]), "audio_embeddings.weight": code}
    unnoticed = []

    for name, tensor in checkpoint.state.items():
        changed = tensor.clone()
        row = changed[used[name]] if name in used else changed.view(-1)
        row[len(row) // 2] += tensor.abs().max() / 8
        if not differences(golden, compute(tiny_artifact, checkpoint.state | {name: changed})):
            unnoticed.append(name)

    assert unnoticed == []


@pytest.mark.parametrize("name", ["hidden", "logits", "sums", "codes", "pcm", "sampled"])
def test_one_changed_number_is_noticed(name: str) -> None:
    """The comparison itself looks at every number of every tensor."""
    golden = read()
    for place in range(0, golden[name].numel(), 1 + golden[name].numel() // 50):
        found = {key: tensor.clone() for key, tensor in golden.items()}
        found[name].view(-1)[place] += 0.01 if found[name].is_floating_point() else 2
        assert differences(*((found, golden) if name == "sampled" else (golden, found))) == [name]
