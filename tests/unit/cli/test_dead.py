"""`durio dead`: looking through dead letters, and deciding what becomes of them."""

import asyncio
import json
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from durio import App
from durio.model.failure import Failure, encode_failure
from durio.model.ids import id_text, uuid7
from durio.model.job import DEAD, StoredJob
from durio.ports.control import AuditNote
from tests.unit.cli.terminal import Terminal

pytestmark = pytest.mark.slow  # real processes, servers or seconds

PLACE = ("--app", "shop")
STORE = ("--store", "sqlite:///jobs.db")
UNKNOWN = "0198c2f4-7a31-7c1e-8b8e-2f6d0c1b9a55"
HOUR = 3600.0
Ended = Callable[..., str]
Bury = Callable[..., list[str]]
counter = iter(range(10**6))


def letter(
    task: str, queue: str, error: str, age: float, now: float, **changes: Any
) -> StoredJob:
    """A dead letter as a store has it."""
    failure = Failure(
        type="Timeout" if "timeout" in error.lower() else "ValueError",
        message=error,
        traceback="Traceback ...",
        attempt=3,
        at=now - age,
        worker="host/1",
        logs=("a line",),
    )
    record = StoredJob(
        id=uuid7(1_763_000_000_000 + next(counter), 0, 0),
        lane=f"shop:{queue}",
        rank=4,
        state=DEAD,
        task=task if "." in task else f"shop.{task}",
        payload=b'[[],{"path":"a","width":7}]',
        retried=2,
        losses=0,
        lost=0,
        snoozed=1,
        claim_no=3,
        worker=None,
        opts=b'{"meta":{"t":1}}',
        errors=b"[%s]" % encode_failure(failure),
        progress=None,
        cancel_asked=False,
        created_at=now - age - 10,
        run_at=None,
        started_at=now - age - 1,
        finished_at=now - age,
        result=None,
        result_until=None,
        reason="exhausted",
        key=None,
    )
    return record._replace(**changes)


@pytest.fixture
def bury(shop: Terminal) -> Bury:
    """Dead letters without a worker: so many, of a task, a queue, an error, an age."""

    def put(
        jobs: int = 1,
        task: str = "resize",
        queue: str = "default",
        error: str = "no such file",
        age: float = 60.0,
        **changes: Any,
    ) -> list[str]:
        now = time.time()  # noqa: TID251 - as old as the test says
        records = [letter(task, queue, error, age, now, **changes) for _ in range(jobs)]

        async def ask() -> None:
            async with App(f"sqlite:///{shop.folder}/jobs.db", name="shop") as app:
                assert (
                    await (await app.store()).restore(records, AuditNote(who="test"))
                    == jobs
                )

        asyncio.run(ask())
        return [id_text(record.id) for record in records]

    return put


def listed(shop: Terminal, *options: str) -> list[str]:
    return [job["id"] for job in shop.json("dead", "ls", *PLACE, *options)["jobs"]]


def state(shop: Terminal, job: str) -> str:
    return shop.json("jobs", "show", job, *PLACE)["state"]


# --- ls, show


@pytest.mark.proves("L16", "M85")
def test_list_is_narrowed_by_every_filter(shop: Terminal, bury: Bury) -> None:
    (old,) = bury(error="Timeout of the bank", age=3 * HOUR)
    (new,) = bury(error="no such file", age=60)
    (mail,) = bury(task="refuse", queue="mail", reason="permanent", age=90)
    assert listed(shop) == [mail, new, old]
    assert listed(shop, "--task", "refuse") == [mail]
    assert listed(shop, "--task", "shop.resize") == [new, old]
    assert listed(shop, "--queue", "mail") == [mail]
    assert listed(shop, "--error", "timeout") == [old]
    assert listed(shop, "--error", "VALUEERROR") == [mail, new]
    assert listed(shop, "--reason", "permanent") == [mail]
    assert listed(shop, "--older", "1h") == [old]
    assert listed(shop, "--newer", "1h") == [mail, new]
    assert listed(shop, "--older", "30m", "--newer", "1d", "--task", "resize") == [old]
    none = shop.ok("dead", "ls", *PLACE, "--task", "resize", "--older", "2d")
    assert none == "no dead letters of task resize, older than 2d\n"


def test_list_tells_what_a_review_needs(shop: Terminal, bury: Bury) -> None:
    (job,) = bury(error="no such file", age=2 * HOUR)
    (row,) = shop.json("dead", "ls", *PLACE)["jobs"]
    assert (row["id"], row["task"], row["queue"]) == (job, "shop.resize", "default")
    assert (row["args"], row["kwargs"]) == ([], {"path": "a", "width": 7})
    assert (row["error"], row["retried"], row["attempt"]) == ("no such file", 2, 3)
    shown = shop.ok("dead", "ls", *PLACE)
    assert shown.startswith("id ")
    for part in ("exhausted", "ValueError: no such file", "3 of 3", "2 h"):
        assert part in shown


def test_list_goes_on_at_the_cursor(shop: Terminal, bury: Bury) -> None:
    jobs = bury(3)[::-1]
    page = shop.json("dead", "ls", *PLACE, "--limit", "2")
    assert [job["id"] for job in page["jobs"]] == jobs[:2]
    assert listed(shop, "--cursor", page["cursor"]) == jobs[2:]
    shown = shop.ok("dead", "ls", *PLACE, "--limit", "2")
    assert shown.endswith(f"more: --cursor {page['cursor']}\n")


@pytest.mark.parametrize(
    "options",
    [
        ["--reason", "tired"],
        ["--older", "yesterday"],
        ["--older", "2h", "--newer", "1h"],
        ["--error", ""],
        ["--error", "caf\udce9"],
        ["--queue", "a b"],
        ["--limit", "0"],
    ],
)
def test_bad_filters_are_usage_errors(
    shop: Terminal, bury: Bury, options: list[str]
) -> None:
    bury()
    assert shop.error("dead", "ls", *PLACE, *options, code=2)["what"]
    error = shop.error("dead", "discard", *PLACE, *options, "--yes", code=2)
    assert error["what"]
    assert len(listed(shop)) == 1


def test_show_is_for_dead_letters(shop: Terminal, bury: Bury) -> None:
    (job,) = bury()
    fields = shop.json("dead", "show", job, *PLACE)
    assert (fields["meta"], fields["reason"]) == ({"t": 1}, "exhausted")
    assert fields["attempts"][0]["logs"] == ["a line"]
    shown = shop.ok("dead", "show", job, *PLACE)
    for part in ("ValueError: no such file", "Traceback ...", "a line", '"width":7'):
        assert part in shown
    other = shop.json("enqueue", "resize", '["a"]', *PLACE)["id"]
    error = shop.error("dead", "show", other, *PLACE, code=2)
    assert error["code"] == "wrong_state"
    assert error["cure"] == f"See it with: durio jobs show {other} --app shop"
    assert shop.error("dead", "show", UNKNOWN, *PLACE, code=1)


# --- retry and discard by id


@pytest.mark.proves("M85")
def test_named_ones_are_answered_for_each(shop: Terminal, bury: Bury) -> None:
    first, second = bury(2)
    answers = shop.json("dead", "retry", first, UNKNOWN, UNKNOWN[:9], *PLACE, code=1)[
        "jobs"
    ]
    assert [row["ok"] for row in answers] == [True, False, False]
    assert (state(shop, first), state(shop, second)) == ("ready", "dead")
    again = shop.run("dead", "retry", first, *PLACE)
    assert again.exit_code == 1
    assert "unchanged: " in again.stdout

    answers = shop.json("dead", "discard", first, second, *PLACE, "--yes", code=1)
    told = {row["id"]: row for row in answers["jobs"]}
    assert (told[first]["ok"], told[first]["error"]["code"]) == (False, "wrong_state")
    assert (told[second]["before"], told[second]["state"]) == ("dead", None)
    error = shop.error("dead", "show", second, *PLACE, code=1)
    assert error["code"] == "job_not_found"
    assert state(shop, first) == "ready"


def test_discard_is_always_confirmed(shop: Terminal, bury: Bury) -> None:
    (job,) = bury()
    error = shop.error("dead", "discard", job, *PLACE, code=2)
    assert (error["code"], state(shop, job)) == ("not_confirmed", "dead")
    assert error["what"].startswith("1 dead letter will be deleted for good")
    assert shop.ok("dead", "discard", job, *PLACE, "--yes") == f"{job}  dead -> gone\n"


def test_dry_run_of_named_ones_only_counts(shop: Terminal, bury: Bury) -> None:
    jobs = bury(2)
    for verb in ("retry", "discard"):
        answer = shop.json("dead", verb, *jobs, UNKNOWN, *PLACE, "--dry-run")
        assert answer == {"counted": 2, "done": 0, "held": 0, "dry_run": True}
    assert len(listed(shop)) == 2


# --- many


@pytest.mark.proves("M85", "L16")
def test_many_are_counted_exactly_then_done(shop: Terminal, bury: Bury) -> None:
    bury(3, error="Timeout", age=2 * HOUR)
    (young,) = bury(1, error="Timeout", age=10)
    (other,) = bury(1, task="refuse", queue="mail", age=2 * HOUR)
    chosen = ("--task", "resize", "--error", "timeout", "--older", "1h", *PLACE)
    dry = shop.ok("dead", "retry", *chosen, "--dry-run")
    assert dry == "3 dead letters of task resize, error ~timeout, older than 1h\n"
    assert len(listed(shop)) == 5
    error = shop.error("dead", "retry", *chosen, code=2)
    assert error["what"].startswith(f"{dry.strip()} will run again: ")
    assert len(listed(shop)) == 5
    assert shop.ok("dead", "retry", *chosen, "--yes") == f"{dry.strip()} run again\n"
    assert listed(shop) == [other, young]
    answer = shop.json("dead", "retry", *chosen, "--yes")
    none = {"counted": 0, "done": 0, "held": 0, "alone": 0, "dry_run": False}
    assert answer == none


def test_more_than_a_step(shop: Terminal, bury: Bury) -> None:
    bury(1201)
    answer = shop.json("dead", "retry", "--all", "--limit", "601", "--yes", *PLACE)
    some = {"counted": 1201, "done": 601, "held": 0, "alone": 0, "dry_run": False}
    assert answer == some
    answer = shop.json("dead", "discard", "--all", "--yes", *PLACE)
    assert answer == {"counted": 600, "done": 600, "held": 0, "dry_run": False}
    lines = shop.json("audit", "ls", *PLACE)["audit"]
    told = [(line["verb"], line["jobs"]) for line in lines if line["who"] != "test"]
    assert told == [("discard", 600), ("retry", 601)]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ([], "no dead letters are chosen"),
        (["--limit", "5"], "no dead letters are chosen"),
        ([UNKNOWN, "--task", "resize"], "ids and filters are both given"),
        ([UNKNOWN, "--all"], "ids and filters are both given"),
        (["--all", "--task", "resize"], "--all and filters are both given"),
    ],
)
@pytest.mark.parametrize("verb", ["retry", "discard"])
def test_one_way_to_say_which(
    shop: Terminal, bury: Bury, verb: str, options: list[str], what: str
) -> None:
    bury()
    error = shop.error("dead", verb, *options, *PLACE, "--yes", code=2)
    assert (error["what"], len(listed(shop))) == (what, 1)


@pytest.mark.usefixtures("person")
def test_person_is_asked(shop: Terminal, bury: Bury) -> None:
    bury(2)
    refused = shop.run("dead", "retry", "--all", *PLACE, stdin=b"\n")
    assert refused.exit_code == 1
    assert "2 dead letters will run again." in refused.stderr
    assert refused.stderr.splitlines()[-1] == "nothing was changed"
    assert len(listed(shop)) == 2
    agreed = shop.run("dead", "retry", "--all", *PLACE, stdin=b"y\n")
    assert (agreed.exit_code, agreed.stdout) == (0, "2 dead letters run again\n")


def test_without_a_name_the_only_app_is_meant_and_named(
    shop: Terminal, bury: Bury
) -> None:
    bury(1)
    shown = shop.ok("dead", "retry", "--all", "--dry-run", *STORE)
    assert shown == "1 dead letter in App shop\n"
    bury(1, lane="other:default", task="other.work")
    assert len(shop.json("dead", "ls", *STORE, "--all-apps")["jobs"]) == 2
    error = shop.error("dead", "retry", "--all", "--yes", *STORE, code=2)
    assert error["code"] == "several_apps"
    chosen = ("dead", "retry", "--all", "--yes", *STORE, "--name", "other")
    assert shop.json(*chosen)["done"] == 1


# --- other arguments


@pytest.mark.proves("M85")
def test_other_arguments_are_checked_by_the_code(shop: Terminal, bury: Bury) -> None:
    (job,) = bury()
    retry = ("dead", "retry", job, *PLACE, "--args")
    for bad in ('{"pat": "b"}', '{"path": 7}', "[1, 2, 3]", "{", "7", "{}"):
        error = shop.error(*retry, bad, code=2)
        assert error["what"]
        assert state(shop, job) == "dead"
    dry = shop.ok(*retry, '{"path": "b"}', "--dry-run")
    assert dry == f'{job}  would run with [[],{{"path":"b"}}]\n'
    assert state(shop, job) == "dead"
    assert shop.ok(*retry, '{"path": "b"}') == f"{job}  dead -> ready\n"
    shown = shop.json("jobs", "show", job, *PLACE)
    # All of them are replaced: the width is the default again.
    assert (shown["args"], shown["kwargs"]) == ([], {"path": "b"})
    assert shop.json("audit", "ls", *PLACE)["audit"][0]["verb"] == "retry_edited"


def test_arguments_of_several_calls_are_shown_and_not_edited(
    shop: Terminal, bury: Bury
) -> None:
    calls = [[["a"], {}], [[], {"path": "b"}]]
    (job,) = bury(payload=json.dumps(calls).encode(), opts=b'{"is_chunk":true}')
    shown = shop.json("jobs", "show", job, *PLACE)
    assert (shown["args"], shown["kwargs"]) == (calls, {})
    for edit in (("--args", '{"path": "b"}'), ("--args", "[]", "--unchecked")):
        error = shop.error("dead", "retry", job, *PLACE, *edit, code=2)
        assert "makes several calls" in error["what"]
    assert state(shop, job) == "dead"


def test_other_arguments_are_checked_by_what_workers_say(
    shop: Terminal, bury: Bury, ended: Ended
) -> None:
    ended("resize", '["a"]')
    (job,) = bury()
    retry = ("dead", "retry", job, *STORE, "--args")
    error = shop.error(*retry, '{"path": "b", "wide": 1}', code=2)
    assert error["code"] == "invalid_arguments"
    assert "Did you mean" in error["cure"]
    assert shop.ok(*retry, '["b", 3]') == f"{job}  dead -> ready\n"
    shown = shop.json("jobs", "show", job, *PLACE)
    assert shown["kwargs"] == {"path": "b", "width": 3}


def test_other_arguments_that_nobody_can_check(shop: Terminal, bury: Bury) -> None:
    (job,) = bury()
    retry = ("dead", "retry", job, *STORE, "--args", '{"any": 1}')
    error = shop.error(*retry, code=2)
    assert "--unchecked" in error["cure"]
    assert state(shop, job) == "dead"
    assert shop.ok(*retry, "--unchecked") == f"{job}  dead -> ready\n"
    assert shop.json("jobs", "show", job, *PLACE)["kwargs"] == {"any": 1}


def test_other_arguments_are_for_one_job(shop: Terminal, bury: Bury) -> None:
    first, second = bury(2)
    args = ("--args", '{"path": "b"}')
    for wrong in (
        (first, second, *args),
        ("--all", *args),
        (first, *args, "--edit"),
        (first, "--unchecked"),
        (first, "--edit"),  # no terminal
    ):
        assert shop.error("dead", "retry", *wrong, *PLACE, "--yes", code=2)["what"]
    assert listed(shop) == [second, first]
    shop.ok("dead", "retry", second, *PLACE)
    error = shop.error("dead", "retry", second, *args, *PLACE, code=2)
    assert error["code"] == "wrong_state"
    error = shop.error("dead", "retry", first, "--args", "b", *PLACE, code=2)
    assert error["cure"].endswith(f"""durio dead retry {first} --args '["b"]'""")
    huge = json.dumps({"path": "x" * 1024 * 1024})
    error = shop.error("dead", "retry", first, "--args", huge, *PLACE, code=2)
    assert error["code"] == "payload_too_large"


@pytest.mark.usefixtures("person")
def test_arguments_are_edited(
    shop: Terminal, bury: Bury, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = bury()
    answers = ["{", '{"path": 7}', '{"path": "b"}']
    seen: list[str] = []

    def editor(text: str, **_: Any) -> str:
        seen.append(text)
        return answers.pop(0)

    monkeypatch.setattr("click.edit", editor)
    result = shop.run("dead", "retry", job, "--edit", *PLACE, stdin=b"y\ny\n")
    assert (result.exit_code, result.stdout) == (0, f"{job}  dead -> ready\n")
    assert json.loads(seen[0]) == {"path": "a", "width": 7}
    assert seen[1:] == ["{", '{"path": 7}'], "nothing that was typed is lost"
    assert "[invalid_arguments]" in result.stderr
    assert shop.json("jobs", "show", job, *PLACE)["kwargs"] == {"path": "b"}


@pytest.mark.usefixtures("person")
@pytest.mark.parametrize("written", [None, "the same", "{"])
def test_editing_can_be_given_up(
    shop: Terminal, bury: Bury, monkeypatch: pytest.MonkeyPatch, written: str | None
) -> None:
    (job,) = bury()
    same = written == "the same"
    monkeypatch.setattr("click.edit", lambda text, **_: text if same else written)
    result = shop.run("dead", "retry", job, "--edit", *PLACE, stdin=b"n\n")
    assert (result.exit_code, state(shop, job)) == (1, "dead")
    assert "nothing was changed" in result.stderr


@pytest.mark.usefixtures("person")
def test_an_editor_that_fails(
    shop: Terminal, bury: Bury, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = bury()
    monkeypatch.setenv("EDITOR", "/no/such/editor")
    error = shop.error("dead", "retry", job, "--edit", *PLACE, code=2)
    assert "editor failed" in error["what"]
    assert "--args" in error["cure"]


@pytest.mark.usefixtures("person")
def test_positionals_are_edited_beside_keywords(
    shop: Terminal, bury: Bury, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = bury(payload=b'[["a"],{"width":7}]')
    answers = ['{"args": ["b"]}', '{"args": ["b"], "kwargs": {"width": 8}}']
    monkeypatch.setattr("click.edit", lambda _, **__: answers.pop(0))
    result = shop.run("dead", "retry", job, "--edit", *PLACE, stdin=b"y\n")
    assert result.exit_code == 0
    shown = shop.json("jobs", "show", job, *PLACE)
    assert shown["kwargs"] == {"path": "b", "width": 8}


# --- export, import


def test_export_can_be_imported_elsewhere(shop: Terminal, bury: Bury) -> None:
    jobs = bury(3) + bury(1, payload=b"no json", opts=b'{"a"\n:', errors=None)
    before = {job: shop.json("jobs", "show", job, *PLACE) for job in jobs}
    assert shop.ok("dead", "export", "-o", "out.jsonl", *PLACE) == (
        "4 dead letters in out.jsonl\n"
    )
    lines = (shop.folder / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == jobs[::-1]
    assert shop.ok("dead", "export", *PLACE).splitlines() == lines

    other = ("--store", "sqlite:///other.db", "--name", "shop")
    shop.ok("migrate", *other)
    answer = shop.json("dead", "import", "out.jsonl", *other)
    assert answer == {"letters": 4, "imported": 4, "skipped": 0}
    for job, fields in before.items():
        there = shop.json("jobs", "show", job, *other)
        assert {**there, "max_attempts": None} == {**fields, "max_attempts": None}
    again = shop.ok("dead", "import", "out.jsonl", *other)
    assert again == "no dead letters imported, 4 skipped\n"
    assert shop.json("audit", "ls", *other)["audit"][-1]["jobs"] == 4


def test_export_of_some_and_to_nowhere(shop: Terminal, bury: Bury) -> None:
    bury(2)
    bury(1, task="refuse", queue="mail")
    some = shop.ok("dead", "export", "--queue", "mail", *PLACE).splitlines()
    assert [json.loads(line)["task"] for line in some] == ["shop.refuse"]
    told = shop.json("dead", "export", "-o", "new.jsonl", *PLACE)
    assert told == {"letters": 3, "file": "new.jsonl"}
    for args in (["-o", "new.jsonl"], ["-o", "none/x.jsonl"], []):
        assert shop.error("dead", "export", *args, *PLACE, code=2)["what"]
    assert len((shop.folder / "new.jsonl").read_text().splitlines()) == 3


def test_import_reads_standard_input(shop: Terminal, bury: Bury) -> None:
    bury(2)
    text = shop.ok("dead", "export", *PLACE).encode()
    shop.ok("dead", "discard", "--all", "--yes", *PLACE)
    result = shop.run("dead", "import", "-", *PLACE, stdin=text + b"\n\n")
    assert result.stdout == "2 dead letters imported, 0 skipped\n"
    assert len(listed(shop)) == 2


def test_import_reads_a_pipe(shop: Terminal, bury: Bury) -> None:
    """As the shell makes it: durio dead import <(zcat old.jsonl.gz)."""
    bury(2)
    text = shop.ok("dead", "export", *PLACE).encode()
    shop.ok("dead", "discard", "--all", "--yes", *PLACE)
    read, write = os.pipe()
    os.write(write, text)
    os.close(write)
    answer = shop.json("dead", "import", f"/dev/fd/{read}", *PLACE)
    os.close(read)
    assert answer == {"letters": 2, "imported": 2, "skipped": 0}


@pytest.mark.parametrize(
    "change",
    [
        {"durio": 2},
        {"id": "7"},
        {"namespace": "Shop"},
        {"task": "a b"},
        {"queue": None},
        {"priority": 10},
        {"payload": {}},
        {"payload": None},
        {"payload": {"base64": "?"}},
        {"payload": {"base64": 7}},
        {"payload": [[], {"path": "x" * 1024 * 1024}]},
        {"options": {"retry": {"retries": -1}}},
        {"errors": [{"kind": 1}]},
        {"retried": -1},
        {"claim_no": 2**40},
        {"created_at": "2030-01-01T00:00:00"},
        {"finished_at": 7},
        {"reason": "x" * 1000},
        {"reason": "a\n"},
        {"task": "other.work"},
        {"key": "xy"},
        {"key": ""},
        {"other": 1},
        "not json",
        "[]",
        "\udce9",
    ],
)
def test_bad_line_is_named_and_nothing_is_written(
    shop: Terminal, bury: Bury, change: Any
) -> None:
    bury(2)
    first, second = shop.ok("dead", "export", *PLACE).splitlines()
    shop.ok("dead", "discard", "--all", "--yes", *PLACE)
    bad = change
    if isinstance(change, dict):
        bad = json.dumps({**json.loads(second), **change})
    text = f"{first}\n\n{bad}\n".encode(errors="surrogateescape")
    (shop.folder / "in.jsonl").write_bytes(text)
    error = shop.error("dead", "import", "in.jsonl", *PLACE, code=2)
    assert (error["code"], error["what"][:7]) == ("bad_letter", "line 3:")
    assert listed(shop) == []


def test_import_of_no_file(shop: Terminal, bury: Bury) -> None:
    bury()
    for name in ("none.jsonl", "."):
        error = shop.error("dead", "import", name, *PLACE, code=2)
        assert error["what"].startswith(f"{name} cannot be read: ")


# --- totals


@pytest.mark.proves("M86")
def test_totals_only_grow(shop: Terminal, ended: Ended) -> None:
    assert ended("resize", '["a"]')
    assert shop.ok("dead", "totals", *PLACE) == "no job of App shop ever died\n"
    jobs = [ended("refuse") for _ in range(2)]
    labels = {"queue": "mail", "task": "shop.refuse", "error_type": "Permanent"}
    wanted = {"jobs_dead_lettered_total": [{"labels": labels, "value": 2}]}
    assert shop.json("dead", "totals", *PLACE) == wanted
    shop.ok("dead", "discard", *jobs, "--yes", *PLACE)
    assert shop.json("dead", "totals", *PLACE) == wanted
    shown = shop.ok("dead", "totals", *PLACE)
    assert shown.splitlines()[1:] == ["mail   shop.refuse  Permanent  2", "2 in all"]


# --- several Apps in one store


def bank_letter(bury: Bury) -> str:
    (job,) = bury(lane="bank:default", task="bank.pay")
    return job


@pytest.mark.parametrize("verb", ["retry", "discard"])
def test_acts_by_id_are_for_the_app_that_is_named(
    shop: Terminal, bury: Bury, verb: str
) -> None:
    (ours,), theirs = bury(1), bank_letter(bury)
    both = (ours, theirs)
    yes = ("--yes",) if verb == "discard" else ()
    dry = shop.json("dead", verb, *both, "--dry-run", *PLACE)
    assert dry["counted"] == 1
    rows = shop.json("dead", verb, *both, *yes, *PLACE, code=1)["jobs"]
    assert [row["ok"] for row in rows] == [True, False]
    assert rows[1]["error"]["code"] == "wrong_app"
    assert "of App bank, not of shop" in rows[1]["error"]["what"]
    assert shop.json("jobs", "show", theirs, *STORE)["state"] == "dead"


def test_edited_retries_are_for_the_app_that_is_named(
    shop: Terminal, bury: Bury
) -> None:
    args = ("--args", "[]", "--unchecked")
    theirs = bank_letter(bury)
    error = shop.error("dead", "retry", theirs, *args, *PLACE, code=2)
    assert error["code"] == "wrong_app"
    shop.ok("dead", "retry", theirs, *args, *STORE)


def test_an_act_on_jobs_of_two_apps_is_written_down_for_each(
    shop: Terminal, bury: Bury
) -> None:
    (ours,), theirs = bury(1), bank_letter(bury)
    shop.run("dead", "retry", theirs, ours, UNKNOWN, *STORE)
    for name, job in (("bank", theirs), ("shop", ours)):
        lines = shop.json("audit", "ls", "--name", name, *STORE)["audit"]
        told = [(line["verb"], line["target"], line["jobs"]) for line in lines]
        assert told[0] == ("retry", job, 1)


def test_letters_of_another_app_than_the_one_named_are_not_imported(
    shop: Terminal, bury: Bury
) -> None:
    bury(1)
    bank_letter(bury)
    lines = [
        shop.ok("dead", "export", *STORE, "--name", name) for name in ("bank", "shop")
    ]
    shop.write("all.jsonl", "".join(lines))
    other = ("--store", "sqlite:///other.db")
    shop.ok("migrate", *other)
    error = shop.error("dead", "import", "all.jsonl", "--name", "shop", *other, code=2)
    assert "of App bank, not of shop" in error["what"]
    assert shop.json("dead", "import", "all.jsonl", *other)["imported"] == 2
    assert shop.json("dead", "import", "all.jsonl", *other)["skipped"] == 2
    for name in ("bank", "shop"):
        lines = shop.json("audit", "ls", "--name", name, *other)["audit"]
        assert [(line["verb"], line["jobs"]) for line in lines] == [("restore", 1)]


def test_totals_without_a_name_are_of_every_app(shop: Terminal, ended: Ended) -> None:
    ended("refuse")
    assert "shop.refuse" in shop.ok("dead", "totals", *STORE)
    assert shop.ok("dead", "totals", "--name", "bank", *STORE).startswith("no job of")
