"""A real PgBouncer in front of a test server, from Debian."""

import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlencode

from tests.servers import process
from tests.servers.postgres import OWNER, PASSWORD, PostgresServer


def program() -> str | None:
    """Return the path of the program; None: not installed."""
    return shutil.which(
        "pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin"
    )


class PgBouncer:
    """A pooler with its own folder, port and log."""

    def __init__(
        self, server: PostgresServer, *, mode: str = "transaction", **more: str
    ):
        self.server = server
        self.folder = process.own_folder("bouncer")
        self.log = self.folder / "bouncer.log"
        self.port = process.free_port()
        self.settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": str(self.port),
            "unix_socket_dir": str(self.folder),
            "auth_type": "plain",
            "auth_file": str(self.folder / "users.txt"),
            "pool_mode": mode,
            "default_pool_size": "4",
            "max_client_conn": "100",
            **more,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.destroy()
            raise
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.destroy()

    def start(self) -> None:
        """Start, and wait until it accepts connections."""
        found = program()
        assert found is not None, "pgbouncer is not installed"
        self.write("users.txt", f'"{OWNER}" "{PASSWORD}"\n')
        lines = [f"{name} = {value}" for name, value in self.settings.items()]
        there = f"* = host={self.server.folder} port={self.server.port}"
        settings = self.write(
            "bouncer.ini", "\n".join(["[databases]", there, "[pgbouncer]", *lines, ""])
        )
        self._process = process.start([found, str(settings)], self.log, self.folder)
        process.until(self.is_ready, self._process, self.log)

    def write(self, name: str, text: str) -> Path:
        """Write a configuration file to its folder."""
        path = self.folder / name
        path.write_text(text)
        process.give(path)
        return path

    def is_ready(self) -> bool:
        """Whether it accepts connections."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def stop(self) -> None:
        running, self._process = self._process, None
        if running is not None:
            process.end(running, signal.SIGTERM, self.log)

    def destroy(self) -> None:
        """Stop it and delete its folder."""
        running, self._process = self._process, None
        if running is not None:
            process.kill(running)
        process.remove(self.folder)

    def url(self, database: str = "postgres", **options: str) -> str:
        """Return a URL with a password, over TCP."""
        query = f"?{urlencode(options)}" if options else ""
        who = f"{OWNER}:{quote(PASSWORD, safe='')}"
        return f"postgresql://{who}@127.0.0.1:{self.port}/{database}{query}"
