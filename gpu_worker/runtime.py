"""The warm model behind one thread: loads, warms, serves, and says at any time how it stands.

The worker's own thread imports no torch; this module does so inside the engine's thread. That
thread is the only one that touches the model. It ends with a refusal (``unavailable``, the process
stays and explains) or with a fault: an exception inside a step is not survived, ``poll`` raises
:class:`EngineFault` and the worker hands its jobs back and ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import structlog

from gpu_worker.backend import CPU, UNSUPPORTED_ENGINE, Backend, parse_backend
from gpu_worker.lanes import Event, Frame, Generation
from gpu_worker.telemetry import Probe, Usage, cpu_usage
from shared.errors import PENDING_PHASES, SpeechError
from shared.messages import LOADING, NOT_ACCELERATED, NOTHING, READY, UNAVAILABLE
from shared.settings import WorkerSettings

if TYPE_CHECKING:
    from gpu_worker.engine import Engine
    from gpu_worker.loading import Loaded

_log = structlog.get_logger(__name__)


class EngineFault(Exception):
    """The engine's thread died inside a step. Its lanes are lost; the process has to end."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a worker can't serve, and what an operator has to do about it."""

    code: str
    reason: str
    pending_phases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RuntimeFacts:
    """How the runtime stands. Before ``ready`` the served side says ``none``."""

    state: str
    refusal: Refusal | None
    requested_backend: str
    backend: str
    execution_engine: str
    residency: str
    accelerated_backend: str
    gpu_model: str
    cpu_fallback_reason: str | None
    loaded_at_unix_ms: int | None
    load_latency_ms: int | None
    tokenizer_loaded: bool
    csm_config_loaded: bool
    csm_model_loaded: bool
    mimi_loaded: bool
    lanes: int
    determinism_class: str
    memory_required_bytes: int | None
    warm_step_ms: float | None = None


def _not_ready(requested: str, state: str) -> RuntimeFacts:
    return RuntimeFacts(
        state=state,
        refusal=None,
        requested_backend=requested,
        backend=NOTHING,
        execution_engine=NOTHING,
        residency=state,
        accelerated_backend=NOT_ACCELERATED,
        gpu_model=NOTHING,
        cpu_fallback_reason=None,
        loaded_at_unix_ms=None,
        load_latency_ms=None,
        tokenizer_loaded=False,
        csm_config_loaded=False,
        csm_model_loaded=False,
        mimi_loaded=False,
        lanes=0,
        determinism_class=NOTHING,
        memory_required_bytes=None,
    )


class Runtime:
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
        self._settings, self._artifact_dir, self._stepped = settings, artifact_dir, stepped
        self._facts = _not_ready(settings.backend.strip() or CPU.label, LOADING)
        self._usage: Probe = cpu_usage
        self._settled = threading.Event()
        self._commands: SimpleQueue[Generation | str | None] = SimpleQueue()
        self._events: SimpleQueue[list[Event] | None] = SimpleQueue()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name="engine", daemon=True)

    @property
    def facts(self) -> RuntimeFacts:
        return self._facts

    def usage(self) -> Usage:
        """Memory and utilization of the device right now."""
        return self._usage()

    def start(self) -> None:
        """Begin to load; returns at once."""
        self._thread.start()

    def wait_loaded(self, timeout_s: float | None = None) -> bool:
        """Whether loading has come to an end, ready or not, within ``timeout_s``."""
        return self._settled.wait(timeout_s)

    def submit(self, generation: Generation) -> None:
        """Start it at the next frame boundary. Only when ready, never more than there are lanes."""
        self._commands.put(generation)

    def stop(self, key: str) -> None:
        """End a row at the next frame boundary; answered by ``Released``, also if unknown."""
        self._commands.put(key)

    def poll(self, timeout_s: float) -> list[Event]:
        """What happened since the last call, oldest first; waits for something to happen.

        Empty after ``timeout_s``. Raises EngineFault once the engine has died and what it emitted
        before has been handed over.
        """
        events = self._next(timeout_s)
        if events is None:
            self._events.put(None)
            raise EngineFault(type(self._fault).__name__) from self._fault
        return events

    def close(self, timeout_s: float) -> None:
        """End the engine's thread, leaving what it does; waits for it at most ``timeout_s``."""
        self._commands.put(None)
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _next(self, timeout_s: float) -> list[Event] | None:
        try:
            return self._events.get(timeout=max(timeout_s, 0.0))
        except Empty:
            return []

    def _main(self) -> None:
        """The engine's thread."""
        try:
            loaded = self._load()
            if loaded is not None:
                with loaded.mode():
                    self._serve(loaded.engine)
        except BaseException as error:  # noqa: BLE001 - every cause is fatal and is handed over
            _log.error("engine_fault", error=type(error).__name__, exc_info=error)
            self._fault = error
            self._facts = replace(
                _not_ready(self._facts.requested_backend, UNAVAILABLE),
                refusal=_refusal(SpeechError("csm_runtime_load_failed", "the engine died")),
            )
            self._events.put(None)
        finally:
            self._settled.set()

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
            # The first import of torch in this process.
            from gpu_worker.loading import load

            loaded = load(self._settings, self._artifact_dir, backend)
        except SpeechError as error:
            _log.warning("runtime_unavailable", code=error.code, reason=error.message)
            facts = _not_ready(requested, UNAVAILABLE)
            if error.code == "unsupported_backend":
                facts = replace(facts, execution_engine=UNSUPPORTED_ENGINE)
            self._facts = replace(facts, refusal=_refusal(error))
            return None
        self._usage = loaded.probe
        self._facts = _ready(requested, loaded, round((time.monotonic() - began) * 1000))
        self._settled.set()
        _log.info("runtime_ready", backend=loaded.backend.label, lanes=loaded.lanes)
        return loaded

    def _serve(self, engine: Engine) -> None:
        while True:
            wait = engine.is_idle
            while wait or not self._commands.empty():
                command = self._commands.get()
                wait = False
                if command is None:
                    return
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
            self._events.put(events)

        began = time.perf_counter()
        engine.tick(emit)
        if any(isinstance(event, Frame) for event in heard):
            self._stepped(time.perf_counter() - began)


def _ready(requested: str, loaded: Loaded, latency_ms: int) -> RuntimeFacts:
    backend: Backend = loaded.backend
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
        loaded_at_unix_ms=time.time_ns() // 1_000_000,
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


def _refusal(error: SpeechError) -> Refusal:
    phases = PENDING_PHASES.get(error.code, PENDING_PHASES["csm_runtime_load_failed"])
    return Refusal(error.code, error.message, phases)
