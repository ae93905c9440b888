"""The store under the role that the docs describe: it owns nothing, and keeps its promises.

The statements are those of the page, not a copy of them.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from durio.stores.postgres.location import location_from_url
from tests.conformance import SUITE, Promise, check
from tests.conformance.postgres import ScratchSchema
from tests.conformance.test_postgres import LEFT_OUT
from tests.docs.test_code_blocks import psql
from tests.servers.postgres import PostgresServer

PAGE = Path(__file__).parents[2] / "docs/how-to/postgresql.md"
OWNER, WORKER = ("jobs_owner", "owner-secret"), ("jobs", "secret")
CHAPTERS = frozenset({"enqueue", "exchange", "outcomes", "lease", "upkeep", "control"})
CHAPTERS |= {"records", "commit"}


class Granted(ScratchSchema):
    """Migrated and emptied by the owner, used by the other role."""

    def __init__(self, server: PostgresServer) -> None:
        super().__init__(url_of(server, *OWNER))
        self.owners = self.location
        self.workers = location_from_url(url_of(server, *WORKER))

    def use(self) -> None:
        """Empty it, and become the role that works."""
        self.location = self.owners
        self.clear()
        self.location = replace(self.workers, prepared=True)


def url_of(server: PostgresServer, user: str, password: str) -> str:
    return server.url("shop", user=user, password=password, schema="jobs")


@pytest.fixture(scope="module")
def grounds(postgres: PostgresServer) -> Granted:
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```sql\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (roles,) = [block for block in blocks if f"create role {OWNER[0]} " in block]
    assert psql(postgres, "postgres", "create database shop;")[0] == 0
    code, told = psql(postgres, "shop", roles)
    assert code == 0, told
    return Granted(postgres)


@pytest.mark.parametrize(
    "promise",
    [p for p in SUITE if p.chapter in CHAPTERS and p.name not in LEFT_OUT],
    ids=str,
)
def test_promise(promise: Promise, grounds: Granted) -> None:
    grounds.use()
    check(promise, grounds.subject())
