"""A store that is away, or whose schema is ahead: problems with a cure, and it recovers."""

import asyncio
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from durio import App
from durio.web import User
from tests.web.browser import browser, dashboard

ADMIN = User("ann", "admin")
HEALTH = ("/livez", "/startupz", "/readyz", "/healthz")


def test_a_store_that_is_away_comes_back(tmp_path: Path):
    async def main() -> None:
        folder = tmp_path / "later"
        app = App(f"sqlite:///{folder}/jobs.db", name="shop")
        async with browser(dashboard(app, ADMIN)) as client:
            answer = await client.get("/admin/me")
            assert answer.status_code == 503
            assert answer.json()["code"] == "store_unavailable"
            assert (await client.get("/")).status_code == 200
            found = [(await client.get(path)).status_code for path in HEALTH]
            assert found == [200, 503, 503, 503]
            folder.mkdir()
            assert (await client.get("/admin/me")).status_code == 200
            found = [(await client.get(path)).status_code for path in HEALTH]
            assert found == [200, 200, 200, 503]  # there is no worker
        await app.close()

    asyncio.run(main())


def test_a_schema_that_is_ahead_is_refused_with_a_cure(tmp_path: Path):
    async def main() -> None:
        url = f"sqlite:///{tmp_path}/jobs.db"
        async with App(url, name="shop") as app:
            await app.named("send").enqueue()
        with closing(apsw.Connection(f"{tmp_path}/jobs.db")) as db:
            db.execute("insert into migration values (9999, '9999_later', 'x', 0)")
        app = App(url, name="shop")
        async with browser(dashboard(app, ADMIN)) as client:
            answer = await client.get("/admin/jobs")
            assert (answer.status_code, answer.json()["code"]) == (
                503,
                "schema_mismatch",
            )
            assert "Upgrade durio" in answer.json()["cure"]
            assert (await client.get("/startupz")).status_code == 503
        await app.close()

    asyncio.run(main())


@pytest.mark.parametrize("path", HEALTH)
def test_health_answers_in_time_whatever_the_store_does(
    path: str, monkeypatch: pytest.MonkeyPatch
):
    """A store that never answers is not waited for."""

    async def main() -> None:
        app = App("sqlite:///:memory:", name="shop")

        async def never() -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr("durio.web.health.ANSWER_SECONDS_MAX", 0.05)
        monkeypatch.setattr(app, "store", never)
        async with browser(dashboard(app)) as client:
            answer = await client.get(path)
            assert answer.status_code == (200 if path == "/livez" else 503)
            assert answer.text in ("ok", "failed")

    asyncio.run(main())
