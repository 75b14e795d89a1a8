"""The warm model behind one thread: loads, warms, serves, and says at any time how it stands.

The worker's own thread imports no torch; this module does so inside the engine's thread. That
thread is the only one that touches the model. It ends with a refusal (``unavailable``, the process
stays and explains) or with a fault (``gpu_worker.engine_thread``).
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from gpu_worker.backend import CPU, UNSUPPORTED_ENGINE, parse_backend
from gpu_worker.engine_thread import EngineThread
from gpu_worker.facts import Refusal, RuntimeFacts
from gpu_worker.generation import Event, Frame
from gpu_worker.telemetry import Probe, Usage, cpu_usage
from shared.clock import unix_ms
from shared.errors import SpeechError
from shared.messages import LOADING, READY, UNAVAILABLE
from shared.settings import WorkerSettings

if TYPE_CHECKING:
    from gpu_worker.engine import Engine
    from gpu_worker.loading import Loaded

OPENBLAS_THREADS: Final = "OPENBLAS_NUM_THREADS"

_log = structlog.get_logger(__name__)


class Runtime(EngineThread):
    """One artifact, loaded once. Every method may be called from any thread."""

    def __init__(
        self,
        settings: WorkerSettings,
        artifact_dir: Path,
        stepped: Callable[[float], None] = lambda _: None,
    ) -> None:
        """``stepped`` is told, on the engine's thread, how many seconds each step took that made a
        frame.
        """
        super().__init__()
        self._settings, self._artifact_dir, self._stepped = settings, artifact_dir, stepped
        self._facts = RuntimeFacts.not_ready(settings.backend.strip() or CPU.label, LOADING)
        self._usage: Probe = cpu_usage

    @property
    def facts(self) -> RuntimeFacts:
        return self._facts

    def usage(self) -> Usage:
        """Memory and utilization of the device right now."""
        return self._usage()

    def _main(self) -> None:
        try:
            loaded = self._load()
            if loaded is not None:
                with loaded.mode():
                    self._serve(loaded.engine)
        except BaseException as error:
            _log.error("engine_fault", error=type(error).__name__, exc_info=error)
            died = SpeechError("csm_runtime_load_failed", "the engine died")
            self._facts = _refused(self._facts.requested_backend, died)
            raise

    def _load(self) -> Loaded | None:
        """Load and warm, or settle as unavailable."""
        began = time.monotonic()
        requested = self._facts.requested_backend
        try:
            if not self._settings.runtime_enabled:
                raise SpeechError("runtime_disabled", "PSIONIC_CSM_RUNTIME is off")
            backend = parse_backend(self._settings.backend)
            requested = backend.label
            self._facts = replace(self._facts, requested_backend=requested)
            import_numpy()
            # The first import of torch in this process.
            from gpu_worker.loading import load

            loaded = load(self._settings, self._artifact_dir, backend)
        except SpeechError as error:
            self._refuse(requested, error)
            return None
        # Of torch itself, which takes gigabytes; the last two where a library of CUDA is missing.
        except (ImportError, MemoryError, OSError, ValueError) as error:
            first, *_ = str(error).splitlines() or [""]
            reason = f"loading failed: {type(error).__name__}: {first[:200]}"
            self._refuse(requested, SpeechError("csm_runtime_load_failed", reason))
            return None
        self._usage = loaded.probe
        self._facts = _ready(requested, loaded, round((time.monotonic() - began) * 1000))
        _log.info("runtime_ready", backend=loaded.backend.label, lanes=loaded.lanes)
        return loaded

    def _refuse(self, requested: str, error: SpeechError) -> None:
        _log.warning("runtime_unavailable", code=error.code, reason=error.message)
        self._facts = _refused(requested, error)

    def _serve(self, engine: Engine) -> None:
        while (commands := self._take_commands(wait=engine.is_idle)) is not None:
            for command in commands:
                if isinstance(command, str):
                    engine.stop(command)
                else:
                    engine.submit(command)
            self._tick(engine)

    def _tick(self, engine: Engine) -> None:
        heard: list[Event] = []

        def emit(events: list[Event]) -> None:
            nonlocal heard
            heard = events
            self._emit(events)

        began = time.perf_counter()
        engine.tick(emit)
        if any(isinstance(event, Frame) for event in heard):
            self._stepped(time.perf_counter() - began)


def _refused(requested: str, error: SpeechError) -> RuntimeFacts:
    facts = replace(RuntimeFacts.not_ready(requested, UNAVAILABLE), refusal=Refusal.of(error))
    if error.code == "unsupported_backend":
        return replace(facts, execution_engine=UNSUPPORTED_ENGINE)
    return facts


def _ready(requested: str, loaded: Loaded, latency_ms: int) -> RuntimeFacts:
    backend = loaded.backend
    return RuntimeFacts(
        state=READY,
        refusal=None,
        requested_backend=requested,
        backend=backend.label,
        execution_engine=backend.execution_engine,
        residency=backend.residency,
        accelerated_backend=backend.accelerated,
        gpu_model=loaded.gpu_model,
        cpu_fallback_reason=loaded.cpu_fallback_reason,
        loaded_at_unix_ms=unix_ms(),
        load_latency_ms=latency_ms,
        tokenizer_loaded=True,
        csm_config_loaded=True,
        csm_model_loaded=True,
        mimi_loaded=True,
        lanes=loaded.lanes,
        determinism_class=loaded.determinism_class,
        memory_required_bytes=loaded.memory_required_bytes,
        warm_step_ms=loaded.warm_step_ms,
    )


def import_numpy() -> None:
    """Before torch does, and without the threads of numpy's own OpenBLAS, which nobody asks for a
    product. Where there is no memory for them it sends this process a SIGINT: the worker would take
    it for being told to stop, and exit with 0. A variable that is set stays as it is.
    """
    is_ours = OPENBLAS_THREADS not in os.environ
    os.environ.setdefault(OPENBLAS_THREADS, "1")
    importlib.import_module("numpy")
    if is_ours:
        del os.environ[OPENBLAS_THREADS]  # torch may bring another OpenBLAS
