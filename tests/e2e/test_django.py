"""`options(tx=django.db.connection)`: a job with the rows of Django's transaction."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.servers.postgres import PASSWORD, PostgresServer

PROGRAM = "tests.e2e.django_program"
NO_TRANSACTION = "Django's connection has no open transaction in this thread"
CURE = "Enqueue inside `with transaction.atomic():`, or leave tx out."


def check(url: str, database: dict[str, Any]) -> None:
    command = [sys.executable, "-m", PROGRAM, url, json.dumps(database)]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    for where in ("outside", "other thread", "closed"):
        assert told[where].startswith(NO_TRANSACTION), where
        assert told[where].endswith(CURE), where
    assert told["rows"] == [3]
    assert told["undone"] == [True, True]
    assert told["results"] == [3, 4]


def test_with_django_on_sqlite(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(file)}
    check(f"sqlite:///{file}?driver=stdlib", database)


def test_with_django_on_postgresql(postgres: PostgresServer) -> None:
    url = postgres.url(password=PASSWORD)
    parts = urlsplit(url)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.lstrip("/"),
        "USER": parts.username,
        "PASSWORD": PASSWORD,
        "HOST": parts.hostname,
        "PORT": parts.port,
    }
    check(url, database)
