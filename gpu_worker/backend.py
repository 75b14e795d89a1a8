"""Which device was asked for, and what to call what serves. Free of torch until one is opened.

The backend that is asked for is the backend that serves, or the worker is unavailable and says
why. A CPU stands in for an accelerator only where the explicit switch allows it, and then its
reason is published wherever the backend is.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from shared.errors import SpeechError
from shared.messages import NOT_ACCELERATED

if TYPE_CHECKING:
    import torch

UNSUPPORTED_ENGINE: Final = "unsupported_backend"
_SHAPE: Final = re.compile(r"(cpu)|(cuda|mps|metal)(?::([0-9]{1,3}))?")


@dataclass(frozen=True, slots=True)
class Backend:
    """``label`` is ``cpu``, ``cuda`` or ``mps``; ``ordinal`` the number of its device."""

    label: str
    ordinal: int = 0

    @property
    def execution_engine(self) -> str:
        return f"torch_csm_{self.label}"

    @property
    def residency(self) -> str:
        """What ``residency`` says once the model is warm."""
        return f"warm_{self.label}"

    @property
    def accelerated(self) -> str:
        """What ``accelerated_backend`` says."""
        return NOT_ACCELERATED if self.label == "cpu" else self.label


CPU: Final = Backend("cpu")


def parse_backend(text: str) -> Backend:
    """``cpu``, ``cuda[:N]``, ``mps[:N]`` or its alias ``metal``; blank means ``cpu``.

    Raises SpeechError("unsupported_backend").
    """
    match = _SHAPE.fullmatch(text.strip().lower() or "cpu")
    if match is None:
        raise SpeechError("unsupported_backend", "the backend is not cpu, cuda[:N] or mps[:N]")
    name = match[1] or match[2]
    return Backend("mps" if name == "metal" else name, int(match[3] or 0))


def open_device(backend: Backend) -> torch.device:
    """The device of ``backend``, proven to run; on CUDA it becomes this thread's current one.

    Raises SpeechError("accelerator_unavailable").
    """
    import torch

    if backend.label == "cpu":
        return torch.device("cpu")
    if backend.label == "cuda":
        # Read when cuBLAS starts: without it the order of sums may differ between two runs.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    else:
        count = 1 if torch.backends.mps.is_available() else 0
    if backend.ordinal >= count:
        raise SpeechError(
            "accelerator_unavailable",
            f"{backend.label}:{backend.ordinal} was asked for; torch sees {count} such devices",
        )
    device = torch.device(backend.label, backend.ordinal)
    try:
        if backend.label == "cuda":
            # Torch's own capture synchronizes whatever device is current, and pinned memory has its
            # context.
            torch.cuda.set_device(device)
        torch.zeros(1, device=device).cpu()
    except RuntimeError as error:
        raise SpeechError(
            "accelerator_unavailable", f"{device} does not run: {type(error).__name__}"
        ) from error
    return device
