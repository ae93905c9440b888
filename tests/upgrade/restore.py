"""Stores as an earlier release left them, put back for a test."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from durio.stores.postgres.translate import GRANTS
from tests.servers.postgres import OWNER, PostgresServer

STORES = Path(__file__).parent / "stores"
LABEL = "2026_11"
ROLE = "worker_before"  # has the rights that a worker needed before the upgrade


@dataclass(frozen=True)
class OldStore:
    """Its URL, the ids of its jobs by name, and what the old command line said of it."""

    url: str
    named: dict[str, str]
    answers: dict[str, Any]

    def __repr__(self) -> str:
        return f"OldStore({self.url!r})"

    def job(self, name: str) -> dict[str, Any]:
        """A job as `jobs show` had it."""
        return self.answers["jobs"][self.named[name]]


def restored_file(folder: Path) -> OldStore:
    path = folder / "shop.db"
    path.write_bytes((STORES / f"{LABEL}_sqlite.db").read_bytes())
    return described("sqlite", f"sqlite:///{path}")


def restored_dump(server: PostgresServer, database: str) -> OldStore:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f'create database "{database}"')
    command = [str(server.programs / "psql"), "--no-psqlrc", "--quiet"]
    command += ["--host", str(server.folder), "--port", str(server.port)]
    command += ["--username", OWNER, "--set", "ON_ERROR_STOP=1"]
    command += ["--dbname", database, "--file", str(STORES / f"{LABEL}_postgres.sql")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    with psycopg.connect(server.url(database), autocommit=True) as connection:
        roles = connection.execute("select 1 from pg_roles where rolname = %s", [ROLE])
        if roles.fetchone() is None:
            connection.execute(f"create role {ROLE}")
        connection.execute(GRANTS.format(name="durio", role=ROLE))
    return described("postgres", server.url(database))


def described(kind: str, url: str) -> OldStore:
    text = (STORES / f"{LABEL}_{kind}.json").read_text(encoding="utf-8")
    content = json.loads(text)
    return OldStore(url, content["named"], content["answers"])
