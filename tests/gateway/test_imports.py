"""What the gateway may not carry with it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import gateway.app, gateway.__main__
heavy = {"torch", "moshi", "tokenizers", "safetensors", "numpy", "gpu_worker"}
print(sorted(heavy & {name.partition(".")[0] for name in sys.modules}))
"""


def test_the_gateway_imports_no_torch() -> None:
    """A gateway process loads neither the model's libraries nor the worker's package."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)

    assert done.stdout.decode().strip() == "[]"
