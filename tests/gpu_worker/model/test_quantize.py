"""int8 weights: the product, and the artifact that is not its parent."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gpu_worker.backend import CPU
from gpu_worker.generation import Frame, Generation
from gpu_worker.loading import Loaded, load
from gpu_worker.model.checkpoint import load_config, load_state
from gpu_worker.model.layouts import SCALE, is_matrix
from gpu_worker.model.products import Int8, multiplies_int8
from gpu_worker.model.quantize import quantize_artifact, quantized
from gpu_worker.model.weights import BadFile, read_safetensors, write_safetensors
from shared.errors import SpeechError
from shared.governance.artifacts import Artifact, ArtifactRegistry, load_artifact
from shared.governance.locations import spoken_demo_dir
from shared.governance.manifests import Role
from shared.messages import CONTEXT_PROMPT
from shared.settings import WorkerSettings
from tests.gpu_worker.rebound import rebind
from tests.gpu_worker.tiny import Log, run

pytestmark = pytest.mark.usefixtures("in_inference_mode")

DTYPES = [torch.float32, torch.bfloat16]
here = pytest.mark.skipif(not multiplies_int8(torch.device("cpu")), reason="no int8 product here")


@pytest.fixture(scope="module")
def child(tiny_artifact: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    target = tmp_path_factory.mktemp("int8") / "artifact"
    return quantize_artifact(tiny_artifact.directory, target)


def test_weights_keep_seven_bits_and_a_sign() -> None:
    """Each output's largest weight becomes 127; what is lost is at most half a step."""
    weight = torch.randn(5, 64) * torch.tensor([1e-6, 0.1, 1.0, 50.0, 0.0]).unsqueeze(1)

    whole, scale = quantized(weight)

    assert whole.dtype == torch.int8
    assert whole.int().abs().amax(dim=1).tolist() == [127, 127, 127, 127, 0]
    assert bool(((whole * scale.unsqueeze(1) - weight).abs() <= 0.5001 * scale.unsqueeze(1)).all())


def test_heads_are_scaled_by_output() -> None:
    """A stack of heads [heads, in, out] has a scale for each output of each head."""
    heads = torch.randn(3, 16, 5)

    whole, scale = quantized(heads)

    assert scale.shape == (3, 5)
    alone, its_scale = quantized(heads[1].T)
    assert torch.equal(whole[1], alone.T)
    assert torch.equal(scale[1], its_scale)


@here
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 3, 32])
def test_the_product_is_the_matrix_s(dtype: torch.dtype, rows: int) -> None:
    """Within two percent of the unquantized product's norm."""
    weight, given = torch.randn(96, 200), torch.randn(rows, 200).to(dtype)

    found = Int8(*quantized(weight))(given)

    expected = given.float() @ weight.T
    assert found.dtype == dtype
    assert (found.float() - expected).norm() < 0.02 * expected.norm()


@here
@pytest.mark.parametrize("other", [0.0, 1e-20, 1e6, float("nan"), float("inf")])
def test_a_row_does_not_know_the_others(other: float) -> None:
    """Whatever its neighbours hold, a row's bits are the same; one that is not finite stays so."""
    product = Int8(*quantized(torch.randn(96, 200)))
    given = torch.randn(4, 200)
    straight = product(given)

    disturbed = given.clone()
    disturbed[[0, 2, 3]] = torch.randn(3, 200)
    disturbed[2, 7:] = other
    found = product(disturbed)

    assert torch.equal(found[1], straight[1])
    assert bool(found[2].isfinite().all()) == (other < 1e30)
    assert found[[0, 3]].isfinite().all()


def test_the_child_is_another_artifact(child: Artifact, tiny_artifact: Artifact) -> None:
    """Own id, own digests, the parent's name, its voices, and none of its evidence."""
    parent = tiny_artifact

    assert child.manifest.parent_artifact_id == parent.artifact_id
    assert parent.manifest.parent_artifact_id is None
    assert child.artifact_id != parent.artifact_id
    assert child.digest != parent.digest
    assert child.manifest.quantization != parent.manifest.quantization
    assert child.voices.default.profile_id == parent.voices.default.profile_id
    assert set(child.manifest.evidence.model_dump().values()) == {None}
    assert child.manifest.llama_tokenizer_digest == parent.manifest.llama_tokenizer_digest


def test_the_child_does_not_answer_to_its_parent_s_id(
    child: Artifact, tiny_artifact: Artifact
) -> None:
    """A registry that has only the child refuses the parent's id and digest."""
    registry = ArtifactRegistry([child])

    for name in (tiny_artifact.artifact_id, tiny_artifact.digest):
        with pytest.raises(SpeechError) as caught:
            registry.resolve(name)
        assert caught.value.code == "artifact_unavailable"


def test_every_matrix_is_int8_and_nothing_else(child: Artifact) -> None:
    """What a step multiplies by is quantized; tables and norms keep the parent's bytes."""
    state = load_state(child, load_config(child), dtype=torch.bfloat16)

    scales = {name for name in state if name.endswith(SCALE)}
    whole = {name for name, each in state.items() if each.dtype == torch.int8}
    assert whole == {name for name in state.keys() - scales if is_matrix(name)}
    assert scales == {name + SCALE for name in whole}
    assert all(state[name].dtype == torch.float32 for name in scales)


def speech(loaded: Loaded, artifact: Artifact) -> Log:
    voice = artifact.voices.default
    request = Generation(
        key="a",
        text="Hello there.",
        speaker=voice.speaker,
        voice_profile_id=voice.profile_id,
        context_policy=CONTEXT_PROMPT,
        max_frames=6,
        temperature=0.9,
        top_k=50,
        seed=2,
    )
    others = [replace(request, key=key, seed=ord(key), text=key * 9) for key in "bcd"]
    with loaded.mode():
        alone = run(loaded.engine, [request])
        company = run(loaded.engine, [*others, request])
    assert company.pcm("a") == alone.pcm("a")
    return alone


@here
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_child_speaks(child: Artifact, tiny_artifact: Artifact, dtype: str) -> None:
    """A worker loads it and speaks other codes than the parent's, the same in any company."""
    settings = WorkerSettings.from_env({"PSIONIC_CSM_DTYPE": dtype})

    small, large = (load(settings, each.directory, CPU) for each in (child, tiny_artifact))

    frames = [event for event in speech(small, child).events if isinstance(event, Frame)]
    assert len(frames) == 6
    assert [each.codes for each in frames] != speech(large, tiny_artifact).codes("a")
    assert small.memory_required_bytes < large.memory_required_bytes


def test_without_an_int8_product_weights_are_widened(
    child: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where int8 can't be multiplied, dense matrices of the same values are loaded."""
    config = load_config(child)
    whole = load_state(child, config)
    monkeypatch.setattr("gpu_worker.model.checkpoint.multiplies_int8", lambda _: False)

    wide = load_state(child, config)

    for name in ("backbone.layers.0.mlp.w2.weight", "codebook0_head.weight"):
        assert torch.equal(wide[name], whole[name] * whole[name + SCALE].unsqueeze(1))
    head = whole["audio_head"][3] * whole["audio_head" + SCALE][3]
    assert torch.equal(wide["audio_head"][3], head)
    assert not any(name.endswith(SCALE) for name in wide)


def test_half_quantized_weights_are_refused(child: Artifact, tmp_path: Path) -> None:
    """A file in which one matrix is dense, or lacks its scales, is no artifact's."""
    directory = shutil.copytree(child.directory, tmp_path / "artifact")
    name, entry = child.manifest.one("csm_model")
    tensors = read_safetensors(directory / name, entry.sha256)
    for changed in (
        tensors | {"projection.weight": torch.zeros(16, 32)},
        {key: each for key, each in tensors.items() if key != "projection.weight" + SCALE},
    ):
        write_safetensors(tmp_path / "w", changed)
        broken = rebind(directory, {name: (tmp_path / "w").read_bytes()})
        with pytest.raises(SpeechError) as caught:
            load_state(broken, load_config(broken))
        assert caught.value.code == "csm_runtime_load_failed"


def test_what_is_not_quantized(child: Artifact, tiny_artifact: Artifact, tmp_path: Path) -> None:
    """No other bits, no second time, and nothing over what is there; nothing is left behind."""
    with pytest.raises(ValueError, match="8 bits"):
        quantize_artifact(tiny_artifact.directory, tmp_path / "a", bits=4)
    with pytest.raises(SpeechError, match="already"):
        quantize_artifact(child.directory, tmp_path / "b")
    (tmp_path / "c").mkdir()
    with pytest.raises(FileExistsError):
        quantize_artifact(tiny_artifact.directory, tmp_path / "c")

    broken = shutil.copytree(tiny_artifact.directory, tmp_path / "broken")
    manifest = json.loads((broken / "manifest.json").read_text())
    name = next(n for n, f in manifest["files"].items() if f["role"] == "csm_model")
    (broken / name).unlink()
    with pytest.raises(SpeechError):
        quantize_artifact(broken, tmp_path / "d")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["broken", "c"]


@pytest.mark.parametrize("role", ["csm_config", "llama_tokenizer", "mimi_weight", "voice_prompt"])
def test_no_file_is_copied_that_is_not_the_manifest_s(
    tiny_artifact: Artifact, tmp_path: Path, role: Role
) -> None:
    """A damaged file next to good weights makes no artifact, which could only fail at its load."""
    source = shutil.copytree(tiny_artifact.directory, tmp_path / "source")
    name, _ = tiny_artifact.manifest.one(role)
    data = (source / name).read_bytes()
    (source / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))

    with pytest.raises(BadFile, match=name):
        quantize_artifact(source, tmp_path / "target")
    assert [each.name for each in tmp_path.iterdir()] == ["source"]


def test_a_file_comes_from_the_snapshot_that_has_it(
    tiny_artifact: Artifact, tmp_path: Path
) -> None:
    """Of a hub cache with an older revision the manifest's own file is taken."""
    source = shutil.copytree(tiny_artifact.directory, tmp_path / "source")
    (source / "tokenizer.json").unlink()
    right = (tiny_artifact.directory / "tokenizer.json").read_bytes()
    for revision, data in (("a", b"{}"), ("b", right)):
        snapshot = tmp_path / "hub/models--psionic-demo--tokenizer-tiny/snapshots" / revision
        snapshot.mkdir(parents=True)
        (snapshot / "tokenizer.json").write_bytes(data)

    child = quantize_artifact(source, tmp_path / "target", hub_roots=[tmp_path / "hub"])

    assert (child.directory / "tokenizer.json").read_bytes() == right


def test_another_voice_s_prompt_stands_in_for_none(tmp_path: Path) -> None:
    """Of several voices each has its own prompt, or there is no new artifact."""
    source = shutil.copytree(spoken_demo_dir(), tmp_path / "source")
    manifest = load_artifact(source).manifest
    *_, last = (name for name, file in manifest.files.items() if file.role == "voice_prompt")
    (source / last).unlink()

    with pytest.raises(SpeechError, match=last):
        quantize_artifact(source, tmp_path / "target")
