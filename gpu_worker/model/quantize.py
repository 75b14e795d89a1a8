"""int8 weights: an artifact of its own, made from another one.

Every matrix that a step multiplies by becomes int8 with one fp32 scale per output, symmetric, by
the largest value of the output's row. Tables and norms stay as they are. What it runs on is
``gpu_worker.model.products.Int8``.

Another artifact speaks other codes, so it has its own id and names its parent; nothing that was
measured, reviewed or granted for the parent holds for it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from gpu_worker.model.config_json import from_json
from gpu_worker.model.layouts import SCALE, is_matrix, to_torchtune
from gpu_worker.model.weights import BadFile, read_safetensors, write_safetensors
from shared.digests import file_sha256
from shared.errors import SpeechError
from shared.governance.artifacts import MANIFEST_NAME, Artifact, load_artifact
from shared.governance.manifests import artifact_id_of

BITS: Final = 8
LEVELS: Final = 127
LITERAL: Final = "int8_weights_per_output_and_int8_rows_per_position"
UNREVIEWED: Final = {
    "license_review": None,
    "voice_safety_control": None,
    "autopilot_shadow_business_outcome": None,
}


def quantize_artifact(
    source: Path, target: Path, bits: int = BITS, hub_roots: Sequence[Path] = ()
) -> Artifact:
    """A new artifact in ``target`` from the one in ``source``, whole or not at all.

    Files that stay as they are get copied, so the new directory stands alone. Raises ValueError for
    other bits than 8 (4 were measured: at eight lanes no faster than bfloat16), FileExistsError,
    SpeechError for a source that is no artifact, lacks a file or is quantized already, BadFile for
    one with a file that is not its manifest's, OSError when there is no room.
    """
    if bits != BITS:
        raise ValueError("weights can be quantized to 8 bits")
    parent = load_artifact(source)
    if parent.manifest.parent_artifact_id is not None:
        raise SpeechError("artifact_unavailable", f"{parent.artifact_id} is quantized already")
    target = target.absolute()
    if target.exists():
        raise FileExistsError(f"{target} exists")
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        _build(parent, work, hub_roots)
        load_artifact(work)
        work.chmod(0o755)
        work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return load_artifact(target)


def quantized(weight: Tensor) -> tuple[Tensor, Tensor]:
    """[out, in] -> int8 of that shape and fp32 [out]; [heads, in, out] -> int8 and [heads, out]."""
    inputs = 1
    peaks = weight.float().abs().amax(dim=inputs)
    scale = (peaks / LEVELS).clamp_min(torch.finfo(torch.float32).tiny)
    whole = (weight.float() / scale.unsqueeze(inputs)).round_()
    return whole.to(torch.int8), scale


def _build(parent: Artifact, work: Path, hub_roots: Sequence[Path]) -> None:
    config_name, _ = parent.manifest.one("csm_config")
    config = from_json(_found(parent, config_name, hub_roots).read_text("utf-8"))
    weights_name, entry = parent.manifest.one("csm_model")
    found = _found(parent, weights_name, hub_roots)
    try:
        state = to_torchtune(read_safetensors(found, entry.sha256, entry.bytes), config)
    except BadFile as error:
        raise BadFile(f"{weights_name}: {error}") from error
    if any(each.dtype == torch.int8 for each in state.values()):
        raise BadFile(f"{weights_name} is quantized already")
    for name in [name for name in state if is_matrix(name)]:
        state[name], state[name + SCALE] = quantized(state[name])
    write_safetensors(work / weights_name, state)
    for name, file in parent.manifest.files.items():
        if file.role not in ("csm_model", "voices"):
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(_found(parent, name, hub_roots), work / name)
    _write_manifests(parent, work, weights_name)


def _found(artifact: Artifact, name: str, hub_roots: Sequence[Path]) -> Path:
    """The file of that name: of all candidates the first that is the manifest's own."""
    entry = artifact.manifest.files[name]
    paths = [artifact.directory / name]
    if entry.role != "voice_prompt":  # of which there may be several, all beside the manifest
        paths = list(artifact.candidates(entry.role, hub_roots))
    there = [path for path in paths if path.is_file()]
    if not there:
        raise SpeechError("artifact_unavailable", f"{artifact.directory} lacks {name}")
    for path in there:
        if file_sha256(path) == entry.sha256:
            return path
    raise BadFile(f"{name}: its digest is not its manifest's")


def _write_manifests(parent: Artifact, work: Path, weights_name: str) -> None:
    """The parent's documents bound to the new weights: its voices stay, its evidence is gone."""
    digest = file_sha256(work / weights_name)
    voices_name, _ = parent.manifest.one("voices")
    voices = _read_json(parent.directory / voices_name)
    manifest = _read_json(parent.directory / MANIFEST_NAME)
    model_id = f"{parent.manifest.model_id}-int8"
    voices["model_id"] = model_id
    for profile in voices["profiles"]:
        profile["csm_model_digest"] = digest
        profile["compatibility"]["csm_model_id"] = model_id
    _write_json(work / voices_name, voices)
    manifest |= {
        "artifact_id": artifact_id_of(model_id, digest),
        "model_id": model_id,
        "model_version": f"{parent.manifest.model_version}_int8",
        "quantization": LITERAL,
        "parent_artifact_id": parent.artifact_id,
        "evidence": UNREVIEWED,
    }
    for name in (weights_name, voices_name):
        size = (work / name).stat().st_size
        manifest["files"][name] |= {"sha256": file_sha256(work / name), "bytes": size}
    _write_json(work / MANIFEST_NAME, manifest)


def _read_json(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def _write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
