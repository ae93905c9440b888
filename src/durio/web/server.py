"""Run a dashboard with uvicorn, in one process; streams end before the server stops."""

import contextlib
import socket
from collections.abc import Generator
from typing import final

import uvicorn

from durio.model.errors import OperatingError
from durio.web.application import DashboardApplication

GRACE_SECONDS = 5
BACKLOG = 256
PORT_MAX = 65_535


class AddressInUse(OperatingError):
    """The address of the dashboard cannot be listened on."""

    code = "address_in_use"


@final
class DashboardServer(uvicorn.Server):
    """A server that its caller stops, with `stop`; it handles no signals."""

    def __init__(self, application: DashboardApplication) -> None:
        self.application = application
        super().__init__(
            uvicorn.Config(
                application,
                interface="asgi3",
                lifespan="off",
                ws="none",
                log_config=None,
                log_level="warning",
                access_log=False,
                proxy_headers=False,  # the guard reads them, from trusted proxies
                server_header=False,
                backlog=BACKLOG,
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals to the caller."""
        yield

    def stop(self, *, at_once: bool = False) -> None:
        """End streams, answer what was asked, and return from `serve`."""
        self.should_exit = True
        self.force_exit = at_once

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End streams first: the server waits for open answers."""
        self.application.site.end_streams()
        await super().shutdown(sockets)


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; raises AddressInUse."""
    try:
        found = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            made.listen(BACKLOG)
        except OSError:
            made.close()
            raise
    except OSError as error:
        raise AddressInUse(
            f"the dashboard cannot listen on {host} port {port}: "
            f"{error.strerror or error}",
            cure=f"Another program may use it. Choose another port: --port {port + 1}",
        ) from None
    return made
