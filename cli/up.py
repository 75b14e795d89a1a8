"""``psionic-csm up``: a whole stack in the foreground, until Ctrl-C."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cli import redis_server
from cli.artifacts import chosen_or_demo, open_artifact
from cli.client import GatewayClient
from cli.exits import CommandFailed
from cli.logs import OWN, LogStream
from cli.signals import Interrupted, Signals
from cli.stack import Stack
from cli.stack_plan import StackPlan
from shared.messages import READY

START_WAIT_S: Final = 600.0


def run(
    *,
    workers: int,
    lanes: int | None,
    host: str,
    port: int,
    artifact: Path | None,
    api_key: str | None,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Runs until a signal, then returns. Raises :class:`CommandFailed` if the stack can't start."""
    log = LogStream(sys.stdout, colour=sys.stdout.isatty())

    def say(text: str) -> None:
        log.write(OWN, text)

    with Signals() as signals:
        try:
            with signals.raising():
                directory = chosen_or_demo(artifact, say, environment)
        except Interrupted:
            say("stopped")
            return
        plan = StackPlan(directory, workers=workers, lanes=lanes, host=host, port=port)
        with Stack(plan, log, signals, environment) as stack:
            _introduce(stack, say)
            try:
                with signals.raising(), GatewayClient(stack.url, api_key=api_key) as client:
                    _serve(stack, client, say)
            except Interrupted:
                say("stopping: what runs may finish; once more to stop at once")
        say("stopped")


def _serve(stack: Stack, client: GatewayClient, say: Any) -> None:
    """Waits until a signal raises, or raises itself if the stack can't start."""
    try:
        stack.wait_until_ready(client, timeout_s=START_WAIT_S, notify=say)
    except CommandFailed as failed:
        if failed.code is None:
            raise
        # The workers live and explain themselves; so does the gateway, to whoever asks it.
        for line in failed.lines:
            say(line)
        stack.supervisor.ready()
    else:
        _announce(stack, client, say)
    threading.Event().wait()


def _introduce(stack: Stack, say: Any) -> None:
    artifact = open_artifact(stack.plan.artifact)
    whose = "its own" if stack.owns_redis else "as configured"
    say(f"redis      {redis_server.shown(stack.redis_url)} ({whose}), namespace {stack.namespace}")
    say(f"artifact   {artifact.artifact_id}")
    say(f"           {artifact.manifest.description}")


def _announce(stack: Stack, client: GatewayClient, say: Any) -> None:
    workers = client.metadata().get("workers", [])
    served = open_artifact(stack.plan.artifact).artifact_id
    lanes = sum(
        worker.get("lanes") or 0
        for worker in workers
        if worker.get("state") == READY and worker.get("artifact_id") == served
    )
    for worker in workers:
        if refusal := worker.get("refusal"):
            say(f"{worker.get('worker_id')} can't serve: {refusal['code']}: {refusal['reason']}")
    others = len(workers) - stack.plan.workers
    if others > 0:
        say(f"shared     with {others} more workers on this Redis, in namespace {stack.namespace}")
    say(f"ready      {stack.url} with {lanes} lanes; Ctrl-C stops it")
    say(f"try        psionic-csm speak 'Hello.' --url {stack.url}")
