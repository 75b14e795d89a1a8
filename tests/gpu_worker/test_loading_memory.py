"""What loading costs in memory, measured in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpu_worker.model.config import TransformerConfig
from gpu_worker.model.demo import build_demo
from gpu_worker.model.demo_sizes import SIZES
from shared.governance.artifacts import Artifact

PROBE = """
import json, sys
from pathlib import Path
from gpu_worker.backend import CPU
from gpu_worker.loading import load
from shared.settings import WorkerSettings

def status(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))

def io(field):
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))

small, large, dtype = sys.argv[1:]
settings = WorkerSettings.from_env(
    {"PSIONIC_CSM_LANES": "1", "PSIONIC_CSM_TORCH_THREADS": "1", "PSIONIC_CSM_DTYPE": dtype}
)
load(settings, Path(small), CPU)  # torch's own start-up is no cost of the artifact
base, read = status("VmRSS"), io("rchar")
loaded = load(settings, Path(large), CPU)
print(json.dumps({
    "peak": status("VmHWM") - base,
    "kept": loaded.memory_required_bytes,
    "read": io("rchar") - read,
    "symbolic": "sympy" in sys.modules,
}))
"""


@pytest.fixture(scope="module")
def moderate(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """About 400 MB, with matrices large enough to be laid out anew."""
    recipe = replace(
        SIZES["tiny"],
        model_id="psionic-demo/csm-moderate-test",
        version="csm_moderate_test_v1",
        backbone=TransformerConfig(1024, 6, 16, 4, 64, 4096),
        depth=TransformerConfig(512, 2, 8, 2, 64, 2048),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SIZES, "moderate", recipe)
        return build_demo(tmp_path_factory.mktemp("moderate") / "artifact", "moderate")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_weights_are_read_once_and_never_held_twice(
    moderate: Artifact, tiny_artifact: Artifact, dtype: str
) -> None:
    """Loading peaks below 1.25 times what it keeps, and reads each file a single time.

    Torch's machinery for shapes that are not known, some 70 MB, is not imported on the way.
    """
    arguments = [str(tiny_artifact.directory), str(moderate.directory), dtype]
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    files = sum(entry.bytes or 0 for entry in moderate.manifest.files.values())

    assert found["kept"] > 350e6
    assert found["peak"] < 1.25 * found["kept"]
    assert files <= found["read"] < 1.01 * files
    assert not found["symbolic"]
