"""A whole deployment on one machine: Redis, scheduler, workers and gateway as real processes.

    with Signals() as signals, Stack(plan, log, signals) as stack:
        with signals.raising():
            stack.wait_until_ready(...)

Everything that a stack starts or writes is gone when the block is left, however it is left.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

from cli import redis_server, remedies
from cli.exits import NOT_STARTED, CommandFailed
from cli.logs import LogStream
from cli.redis_server import LOOPBACK, OwnRedis
from cli.signals import Signals
from cli.stack_plan import StackPlan, stack_environment, stages
from cli.supervisor import Supervisor
from shared.messages import READY
from shared.settings import GatewaySettings, WorkerSettings
from shared.variables import read_namespace, read_redis_url, redis_variable

if TYPE_CHECKING:
    from cli.client import GatewayClient

POLL_S: Final = 0.1
"""Between two looks at a gateway that does not answer yet."""
LOOK_S: Final = 1.0
"""Between two looks at one that does, unless another process says something."""
NO_GATEWAY: Final = "waiting for the gateway"
KILLED: Final = "the kernel kills what takes too much memory; dmesg or the container says so"
WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})


class Stack:
    """The running processes of one plan. A context manager for the main thread."""

    def __init__(
        self,
        plan: StackPlan,
        log: LogStream,
        signals: Signals,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.plan = plan
        self.log = log
        self._signals = signals
        self._given = environment
        self._directory: Path | None = None
        self._supervisor: Supervisor | None = None
        self.namespace = ""
        self.redis_url = ""
        self.urls: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        """Starts the processes. Raises :class:`CommandFailed` for what is known to be wrong."""
        grace_s = _checked_drain_s(self._given)
        port = self._take_port()
        ports = (port, *(redis_server.free_port() for _ in range(1, self.plan.gateways)))
        self.urls = tuple(f"http://{_reachable(self.plan.host)}:{each}" for each in ports)
        own = self._choose_redis()
        self.namespace = self._choose_namespace()
        environment = stack_environment(
            self.plan,
            self._given,
            redis_url=self.redis_url,
            namespace=self.namespace,
            port=port,
        )
        self._directory = Path(tempfile.mkdtemp(prefix="psionic-csm-"))
        in_order = list(stages(self.plan, own, environment, ports, self._directory, grace_s))
        self._supervisor = Supervisor(in_order, self.log)
        self._supervisor.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._supervisor is not None
        self._signals.hurry = self._supervisor.kill
        self._supervisor.stop()
        self._supervisor.join()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        if self.plan.private and not self.owns_redis:
            redis_server.remove_namespace(self.redis_url, self.namespace)

    @property
    def url(self) -> str:
        """Where the first gateway listens."""
        return self.urls[0]

    @property
    def owns_redis(self) -> bool:
        return read_redis_url(self._given) is None

    @property
    def supervisor(self) -> Supervisor:
        assert self._supervisor is not None
        return self._supervisor

    def wait_until_ready(
        self, client: GatewayClient, *, timeout_s: float, notify: Callable[[str], None]
    ) -> None:
        """Returns once the gateway serves and every worker has said ready or why not.

        Raises :class:`CommandFailed` if a process can't start, if no worker can serve, or after
        ``timeout_s``. ``notify`` hears each state of affairs once.
        """
        heard, lines, deadline = "", 0, time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.supervisor.failed.is_set():
                raise self._start_failed()
            news, settled = self._progress(client)
            if settled and client.is_ready():
                self.supervisor.ready()
                return
            if news != heard:
                heard = news
                notify(news)
            pause_s = POLL_S if news == NO_GATEWAY else LOOK_S
            lines = self.log.wait_for_news(lines, besides="gateway", timeout_s=pause_s)
        raise CommandFailed(NOT_STARTED, f"not ready after {timeout_s:.0f} s: {heard}")

    def _progress(self, client: GatewayClient) -> tuple[str, bool]:
        """How the start stands in words, and whether every worker has settled."""
        try:
            workers = client.metadata().get("workers", [])
        except CommandFailed as failed:
            if failed.code not in (None, "queue_unavailable"):
                raise
            return NO_GATEWAY, False
        refusals = [worker["refusal"] for worker in workers if worker.get("refusal")]
        ready = sum(worker.get("state") == READY for worker in workers)
        if len(refusals) >= self.plan.workers and not ready:
            raise unavailable(refusals[0], self.plan.artifact)
        if len(workers) < self.plan.workers:
            return "starting the workers", False
        settled = ready + len(refusals) >= self.plan.workers
        return "loading the model", settled

    def _start_failed(self) -> CommandFailed:
        failure = self.supervisor.failure
        assert failure is not None
        return CommandFailed(
            NOT_STARTED,
            f"{failure.name} can't start ({failure.why})",
            details=failure.output,
            hint=KILLED if failure.why == signal.SIGKILL.name else None,
        )

    def _take_port(self) -> int:
        if self.plan.port == 0:
            return redis_server.free_port()
        family = socket.AF_INET6 if ":" in self.plan.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((self.plan.host, self.plan.port))
                listener.listen()
            except (OSError, TypeError, ValueError) as error:  # of a name that can't be encoded
                why = error.strerror if isinstance(error, OSError) else "no such host"
                raise CommandFailed(
                    NOT_STARTED,
                    f"can't listen on {self.plan.host} port {self.plan.port}: {why}",
                    hint="choose another port with --port; --port 0 takes any free one",
                ) from error
        return self.plan.port

    def _choose_redis(self) -> OwnRedis | None:
        named = read_redis_url(self._given)
        if named is None:
            binary = redis_server.find_binary(self._given)
            own = OwnRedis(binary, redis_server.free_port(), self.plan.redis_options)
            self.redis_url = own.url
            return own
        why = redis_server.refusal(named)
        if why is not None:
            raise CommandFailed(
                NOT_STARTED,
                f"the Redis at {redis_server.shown(named)} can't be used: {why}",
                hint=f"start it, or unset {redis_variable(self._given)} to let the stack bring its "
                "own",
            )
        self.redis_url = named
        return None

    def _choose_namespace(self) -> str:
        return f"speak-{uuid4().hex[:12]}" if self.plan.private else read_namespace(self._given)


def unavailable(refusal: Mapping[str, Any], artifact: Path) -> CommandFailed:
    """Why the workers can't serve, as one of them states it, and what to do about it."""
    code = str(refusal.get("code", "runtime_unavailable"))
    return CommandFailed(
        NOT_STARTED,
        str(refusal.get("reason", "no reason given")),
        code=code,
        hint=remedies.of_worker(code, str(artifact)),
    )


def _reachable(host: str) -> str:
    if host in WILDCARDS:
        return LOOPBACK
    return f"[{host}]" if ":" in host else host


def _checked_drain_s(environment: Mapping[str, str]) -> float:
    """The drain grace in seconds, after every setting has been read once: a bad one stops here."""
    gateway = GatewaySettings.from_env(environment)
    worker = WorkerSettings.from_env(environment)
    return max(gateway.drain_grace_ms, worker.drain_grace_ms) / 1000
