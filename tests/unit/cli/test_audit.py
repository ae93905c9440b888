"""`durio audit ls`: what people did, and who they were."""

import getpass
from collections.abc import Callable

import pytest

from durio.host.signals import user_at_host
from tests.unit.cli.terminal import Terminal

PLACE = ("--app", "shop")
Ended = Callable[..., str]


@pytest.mark.proves("M85")
def test_who_did_what_newest_first(shop: Terminal) -> None:
    job = shop.json("enqueue", "resize", '["a"]', *PLACE)["id"]
    assert shop.ok("audit", "ls", *PLACE) == "no changes recorded\n"
    shop.ok("jobs", "cancel", job, *PLACE, "--by", "ann")
    shop.ok("jobs", "retry", job, *PLACE)
    newest, oldest = shop.json("audit", "ls", *PLACE)["audit"]
    assert (oldest["who"], oldest["verb"]) == ("ann via cli", "cancel")
    assert (oldest["target"], oldest["jobs"]) == (job, 1)
    assert newest["who"] == f"{user_at_host()} via cli"
    assert newest["at"] >= oldest["at"]
    assert len(shop.json("audit", "ls", *PLACE, "--limit", "1")["audit"]) == 1
    shown = shop.ok("audit", "ls", *PLACE)
    assert shown.startswith("age ")
    assert "ann via cli" in shown


def test_who_must_be_somebody(shop: Terminal) -> None:
    job = shop.json("enqueue", "resize", '["a"]', *PLACE)["id"]
    assert shop.error("jobs", "cancel", job, *PLACE, "--by", " ", code=2)["what"]
    shop.ok("jobs", "cancel", job, *PLACE, "--by", "caf\udce9\0" + "x" * 500)
    (line,) = shop.json("audit", "ls", *PLACE)["audit"]
    assert line["who"].endswith("... via cli")


def test_machine_without_users(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("no such uid")

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert user_at_host().startswith("uid-")


def test_audit_of_every_app(shop: Terminal) -> None:
    store = ("--store", "sqlite:///jobs.db")
    for place in (PLACE, (*store, "--name", "bank")):
        job = shop.json("enqueue", "resize", '["a"]', *place)["id"]
        shop.ok("jobs", "cancel", job, *place)
    assert len(shop.json("audit", "ls", *store)["audit"]) == 2
    assert len(shop.json("audit", "ls", *PLACE)["audit"]) == 1
