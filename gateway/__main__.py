"""The gateway process: uvicorn around the application, drained before it stops.

The first SIGTERM, SIGINT or SIGHUP turns away new work and keeps listening, so that probes and
balancers hear it, until every speech request is answered or the grace is over; what is left then is
ended with ``draining``. The second ends the grace at once, a third does not even say goodbye.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from errno import EADDRNOTAVAIL, EAFNOSUPPORT
from functools import partial
from socket import AI_PASSIVE, SOCK_STREAM, AddressFamily, create_server, getaddrinfo, socket
from types import FrameType
from typing import Any, cast

import structlog
import uvicorn

from gateway.app import Gateway, create_gateway
from gateway.open_files import Places, places_for
from gateway.protocol import BoundedHttp
from shared.clock import Countdown
from shared.environment import BAD_SETTING, SettingsError
from shared.errors import SpeechError
from shared.logging import configure_logging
from shared.settings import GatewaySettings
from shared.signals import STOP, say_where_on_request, stop_signals
from shared.variables import ARTIFACTS, PORT

CANT_LISTEN = 3
"""The exit code of a process whose port can't be had; it may be had later."""
KEEP_ALIVE_S = 20
LAST_WORDS_S = 2
"""After the grace, how long answers may take to leave, and then connections to close."""
CUT_S = 3
"""How long it may take to end what is left of those that didn't."""

log = structlog.get_logger()


class CantListen(Exception):
    """The address of a gateway can't be had: another process has it, or this machine hasn't."""


def listening(host: str, port: int) -> list[socket]:
    """A socket for each address of ``host``, but for those that this machine hasn't, as ``::1``
    where IPv6 is off. Raises CantListen when another can't be had, or there is none.
    """
    with ExitStack() as opened:
        try:
            found = getaddrinfo(host, port, type=SOCK_STREAM, flags=AI_PASSIVE)
            addresses = dict.fromkeys((each[0], each[4]) for each in found)
            here = [each for each in addresses if _is_here(*each)] or addresses
            sockets = [
                opened.enter_context(create_server(address, family=family))
                for family, address in here
            ]
        except OSError as error:
            raise CantListen(error.strerror) from error
        opened.pop_all()
        return sockets


def _is_here(family: AddressFamily, address: Any) -> bool:
    """Whether a socket of this machine can have the address, whatever the port."""
    try:
        with socket(family) as tried:
            tried.bind((address[0], 0, *address[2:]))
    except OSError as error:
        return error.errno not in (EADDRNOTAVAIL, EAFNOSUPPORT)
    return True


class Server(uvicorn.Server):
    """A uvicorn server that drains its gateway before it shuts down."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway, drain_grace_ms: int) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._drain_grace_ms = drain_grace_ms
        self._signals = 0
        self._grace: Countdown | None = None
        self._last_words: Countdown | None = None
        self._said_draining = False

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Main thread only. As uvicorn's, but a signal after the end is ignored and does not kill:
        a process that drained exits with 0 however often it was told to.
        """
        for signum in stop_signals():
            signal.signal(signum, self.handle_exit)
        try:
            yield
        finally:
            for signum in STOP:
                signal.signal(signum, signal.SIG_IGN)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called as a signal handler, so it only leaves notes for ``on_tick``."""
        self._signals += 1
        if not self.started or self._signals > 2:
            self.should_exit = True
            self.force_exit = self.started
        elif self._signals == 1:
            self._gateway.drain()
            for connection in list(self.server_state.connections):
                cast(BoundedHttp, connection).take_no_more()
            self._grace = Countdown(self._drain_grace_ms)
        else:
            self._grace = Countdown(0)

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Raises CantListen, before anything of the gateway has begun."""
        await super().startup(listening(self.config.host, self.config.port))
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        log.info("gateway_listening", url=f"http://{shown}:{port}", port=port)

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """As uvicorn's, to which a client that takes nothing would be an error of ours."""
        cut = asyncio.get_running_loop().call_later(LAST_WORDS_S, self._let_go)
        try:
            await super().shutdown(sockets)
        finally:
            cut.cancel()

    def _let_go(self) -> None:
        left = list(self.server_state.connections)
        if left:
            log.warning("connections_cut", count=len(left))
        for connection in left:
            cast(BoundedHttp, connection).let_go()

    async def on_tick(self, counter: int) -> bool:
        if self._grace is not None and self._drained(self._grace):
            return True
        return await super().on_tick(counter)

    def _drained(self, grace: Countdown) -> bool:
        """Whether nobody is inside any more, or nobody can be waited for any longer."""
        inside = self._gateway.open_requests.count
        if not self._said_draining:
            self._said_draining = True
            log.info("draining", open_requests=inside)
        if inside == 0:
            return True
        if grace.over and self._last_words is None:
            log.warning("drain_grace_over", open_requests=inside)
            self._gateway.cut_off()
            self._last_words = Countdown(LAST_WORDS_S * 1000)
        return self._last_words is not None and self._last_words.over


def serve(settings: GatewaySettings) -> None:
    """Serve until a signal. Raises CantListen, SpeechError when an artifact can't be read, and
    SettingsError when there may be fewer connections than there should.
    """
    places = places_for(settings.max_connections)
    gateway = create_gateway(settings)
    config = uvicorn.Config(
        gateway.app,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=_protocol(settings, gateway, places),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=LAST_WORDS_S + CUT_S,
    )
    log.info(
        "gateway_starting",
        namespace=settings.queue.namespace,
        tier=settings.tier.name,
        model=settings.model_id,
        formats=gateway.formats,
    )
    Server(config, gateway, settings.drain_grace_ms).run()
    log.info("gateway_stopped")


def _protocol(
    settings: GatewaySettings, gateway: Gateway, places: Places
) -> type[asyncio.Protocol]:
    """What uvicorn makes a connection with, of which it only asks to be called like a class."""
    bounded = partial(
        BoundedHttp,
        send_stall_s=settings.send_stall_ms / 1000,
        is_draining=lambda: gateway.speech.draining,
        has_room=places.has_room,
    )
    return cast(type[asyncio.Protocol], bounded)


def main() -> int:
    """Exit status: 0 after a signal, 2 for settings or artifacts that can't be used, 3 for a port
    that can't be had.
    """
    try:
        settings = GatewaySettings.from_env()
        configure_logging("gateway", settings.log_level)
        say_where_on_request()
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        serve(settings)
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return BAD_SETTING
    except CantListen as error:
        log.error(
            "port_unavailable",
            setting=PORT,
            host=settings.host,
            port=settings.port,
            error=str(error),
        )
        return CANT_LISTEN
    except SpeechError as error:
        print(f"{ARTIFACTS}: {error}", file=sys.stderr)  # noqa: T201
        return BAD_SETTING
    return 0


if __name__ == "__main__":
    sys.exit(main())
