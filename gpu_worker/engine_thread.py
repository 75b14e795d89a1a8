"""The engine's own thread, and the two queues between it and the worker's: commands, and events.

An exception on that thread is not survived: ``poll`` raises :class:`EngineFault` once what was
emitted before has been handed over, and the worker hands its jobs back and ends. So it does when
the thread is stuck (``gpu_worker.watchdog``).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from queue import Empty, Queue, SimpleQueue

from gpu_worker.generation import Event, Generation

Command = Generation | str
"""A text to speak, or the key of one to stop."""


class EngineFault(Exception):
    """The engine's thread died or is stuck. Its lanes are lost; the process has to end."""


class EngineThread(ABC):
    """Runs ``_main`` on a thread of its own. Public methods may be called from any thread."""

    def __init__(self) -> None:
        self.rounds = 0
        """How often it has come round to take commands: moves on while it has anything to do."""
        self._commands: SimpleQueue[Command | None] = SimpleQueue()
        # No SimpleQueue: up to Python 3.12 its get() waits for ever where a signal's handler
        # outlasts the timeout, and the thread that hears signals waits on this one.
        self._events: Queue[list[Event] | None] = Queue()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

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
        try:
            events = self._events.get(timeout=max(timeout_s, 0.0))
        except Empty:
            return []
        if events is None:
            self._events.put(None)
            raise EngineFault(type(self._fault).__name__) from self._fault
        return events

    def close(self, timeout_s: float) -> bool:
        """End the engine's thread, leaving what it does; waits for it at most ``timeout_s``.

        False: it still runs.
        """
        self._commands.put(None)
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @abstractmethod
    def _main(self) -> None:
        """What the thread does, until ``_take_commands`` says None. Whatever it raises is fatal."""

    def _take_commands(self, *, wait: bool) -> list[Command] | None:
        """All that has been asked for since, at least one with ``wait``. None: it is to end."""
        self.rounds += 1
        taken: list[Command] = []
        while (wait and not taken) or not self._commands.empty():
            command = self._commands.get()
            if command is None:
                return None
            taken.append(command)
        return taken

    def _emit(self, events: list[Event]) -> None:
        self._events.put(events)

    def _run(self) -> None:
        try:
            self._main()
        except BaseException as error:  # noqa: BLE001 - every cause is fatal and is handed over
            self._fault = error
            self._events.put(None)
