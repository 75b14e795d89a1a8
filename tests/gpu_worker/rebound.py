"""An artifact with other files in it and digests made to fit, as if it had been published so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from shared.digests import file_sha256
from shared.governance.artifacts import Artifact, load_artifact

_VOICE_KEYS = {
    "csm_config": "csm_config_digest",
    "csm_model": "csm_model_digest",
    "llama_tokenizer": "llama_tokenizer_digest",
    "mimi_weight": "mimi_weight_digest",
}


def rebind(directory: Path, files: Mapping[str, bytes]) -> Artifact:
    """Writes ``files`` over those of the artifact in ``directory``, which has the default voice."""
    manifest = json.loads((directory / "manifest.json").read_text())
    voices = json.loads((directory / "voices.json").read_text())
    for name, data in files.items():
        (directory / name).write_bytes(data)
        digest = file_sha256(directory / name)
        manifest["files"][name] |= {"sha256": digest, "bytes": len(data)}
        key = _VOICE_KEYS.get(manifest["files"][name]["role"])
        if key:
            voices["profiles"][0][key] = digest
        if key == "csm_model_digest":
            manifest["artifact_id"] = f"{manifest['model_id']}@{digest}"
    (directory / "voices.json").write_text(json.dumps(voices))
    manifest["files"]["voices.json"] |= {
        "sha256": file_sha256(directory / "voices.json"),
        "bytes": (directory / "voices.json").stat().st_size,
    }
    (directory / "manifest.json").write_text(json.dumps(manifest))
    return load_artifact(directory)
