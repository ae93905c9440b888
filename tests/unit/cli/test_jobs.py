"""`durio jobs`, `durio workers` and `durio migrate` on a store in a folder."""

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from durio.cli import output
from durio.cli.table import Column
from tests.unit.cli.terminal import Terminal

UNKNOWN = "0198c2f4-7a31-7c1e-8b8e-2f6d0c1b9a55"
PLACE = ("--app", "shop")
Ended = Callable[..., str]


def test_list_is_newest_first_and_narrowed(shop: Terminal) -> None:
    first = shop.json("enqueue", "resize", '["a"]', *PLACE)["id"]
    second = shop.json("enqueue", "refuse", *PLACE, "--delay", "1h")["id"]

    def listed(*options: str) -> list[str]:
        return [job["id"] for job in shop.json("jobs", "ls", *PLACE, *options)["jobs"]]

    assert listed() == [second, first]
    assert listed("--state", "ready") == [first]
    assert listed("--state", "ready", "--state", "scheduled") == [second, first]
    assert listed("--queue", "mail") == [second]
    assert listed("--task", "resize") == [first]
    assert listed("--task", "shop.resize") == [first]
    assert listed("--state", "dead") == []
    assert shop.ok("jobs", "ls", *PLACE, "--state", "dead") == (
        "no jobs with state dead\n"
    )


def test_list_goes_on_at_the_cursor(shop: Terminal) -> None:
    jobs = [shop.json("enqueue", "resize", '["a"]', *PLACE)["id"] for _ in range(3)]
    page = shop.json("jobs", "ls", *PLACE, "--limit", "2")
    assert [job["id"] for job in page["jobs"]] == [jobs[2], jobs[1]]
    rest = shop.json("jobs", "ls", *PLACE, "--cursor", page["cursor"])
    assert ([job["id"] for job in rest["jobs"]], rest["cursor"]) == ([jobs[0]], None)
    shown = shop.ok("jobs", "ls", *PLACE, "--limit", "2")
    assert shown.endswith(f"more: --cursor {page['cursor']}\n")


def test_every_app_is_listed_on_request(shop: Terminal) -> None:
    store = ("--store", "sqlite:///jobs.db")
    shop.json("enqueue", "resize", '["a"]', *PLACE)
    shop.json("enqueue", "other.work", *store)
    assert len(shop.json("jobs", "ls", *store, "--all-apps")["jobs"]) == 2
    assert len(shop.json("jobs", "ls", *store, "--name", "shop")["jobs"]) == 1


@pytest.mark.parametrize(
    "options",
    [["--cursor", "x"], ["--limit", "0"], ["--state", "lost"], ["--queue", "a b"]],
)
def test_bad_questions_are_usage_errors(shop: Terminal, options: list[str]) -> None:
    shop.json("enqueue", "resize", '["a"]', *PLACE)
    assert shop.error("jobs", "ls", *PLACE, *options, code=2)["what"]


def test_asking_makes_no_store(terminal: Terminal) -> None:
    for args in (["jobs", "ls"], ["jobs", "show", UNKNOWN], ["workers", "ls"]):
        assert terminal.error(*args, code=3)["code"] == "store_unavailable"
    assert not list(terminal.folder.iterdir())


def test_file_that_is_no_database(terminal: Terminal) -> None:
    terminal.write("durio.db", "no database at all, but long enough to look like" * 40)
    assert terminal.error("jobs", "ls", code=3)["code"] == "store_corrupt"
    assert terminal.error("migrate", "--check", code=3)["code"] == "store_corrupt"


@pytest.mark.proves("M81", "M82")
def test_dead_record_is_whole(shop: Terminal, ended: Ended) -> None:
    job = ended("refuse", '{"text": "no such order"}', "--meta", '{"t": 1}')
    record = shop.json("jobs", "show", job, *PLACE)
    assert (record["job"], record["error"]) == (job, "no such order")
    assert (record["error_type"], record["source_queue"]) == ("Permanent", "mail")
    assert record["failed_at"] == record["finished_at"]
    original = record["original"]
    assert original == {"args": record["args"], "kwargs": record["kwargs"]}
    assert "no such order" in str(original)
    assert (record["state"], record["reason"]) == ("dead", "permanent")
    assert "shop.py" in record["traceback"]
    (attempt,) = record["attempts"]
    assert attempt["type"] == "Permanent"
    assert attempt["worker"] == record["worker"]
    assert record["meta"] == {"t": 1}


def test_job_is_shown_to_people(shop: Terminal, ended: Ended) -> None:
    shown = shop.ok(
        "jobs", "show", ended("refuse", '{"text": "\\u001b[31mred"}'), *PLACE
    )
    assert "state       dead" in shown
    assert "attempt 1 failed" in shown
    assert "Traceback" in shown
    assert "\x1b" not in shown
    assert "\\x1b[31mred" in shown


def test_done_job_has_its_result(shop: Terminal, ended: Ended) -> None:
    job = ended("resize", '["a.png"]')
    shown = shop.json("jobs", "show", job, *PLACE)
    assert (shown["state"], shown["result"]) == ("done", "a.png.webp")
    assert shown["max_attempts"] == 3
    assert "original" not in shown
    assert '"a.png.webp"' in shop.ok("jobs", "show", job, *PLACE)
    place = ("--store", "sqlite:///jobs.db")
    assert shop.json("jobs", "show", job, *place)["max_attempts"] == 3  # published


def test_progress_and_an_empty_result_are_shown(terminal: Terminal) -> None:
    terminal.write(
        "small.py",
        "from durio import App, Context\n"
        "app = App('sqlite:///jobs.db', name='small')\n"
        "@app.task\n"
        "async def count(ctx: Context) -> int:\n"
        "    await ctx.progress(2, 4, message='counting', state='adding')\n"
        "    return 0\n",
    )
    job = terminal.json("enqueue", "count", "--app", "small")["id"]
    terminal.ok("worker", "small", "--burst", "--log-level", "error")
    shown = terminal.ok("jobs", "show", job, "--app", "small").splitlines()
    assert "  progress    2 of 4  adding  counting" in shown
    assert any(line.startswith("  states      adding 20") for line in shown)
    assert "  result      0" in shown


def test_job_of_a_task_that_no_worker_has(shop: Terminal, ended: Ended) -> None:
    store = ("--store", "sqlite:///jobs.db")
    job = shop.json("enqueue", "later", *store, "--name", "shop")["id"]
    assert "task_unknown" not in codes(shop, job)  # no worker was there yet
    ended("resize", '["a"]')
    command = shop.ok("jobs", "show", job, *store).splitlines()[-1]
    assert command.startswith(f"why it waits: durio why {job} --store sqlite:///")
    assert codes(shop, job)[0] == "task_unknown"
    shown = shop.ok(*command.partition("durio ")[2].split())
    assert "no worker has ever had the task shop.later\n" in shown
    assert "If it was renamed: durio jobs rename." in shown


def codes(shop: Terminal, job: str) -> list[str]:
    found = shop.json("why", job, "--store", "sqlite:///jobs.db")
    return [reason["code"] for reason in found["reasons"]]


def test_lists_show_the_first_line_of_an_error(shop: Terminal) -> None:
    shop.json("enqueue", "refuse", '["broken\\nsecond"]', *PLACE)
    shop.ok("worker", "shop", "--burst", "--log-level", "error")
    assert shop.ok("jobs", "ls", *PLACE).endswith("  Permanent: broken\n")
    assert shop.json("jobs", "ls", *PLACE)["jobs"][0]["error"] == "broken\nsecond"


def test_wait_finds_a_job_that_is_done_already(shop: Terminal, ended: Ended) -> None:
    asked = ("resize", '["a.png"]', "--key", "k")
    job = ended(*asked)
    shown = shop.ok("enqueue", *asked, *PLACE, "--wait")
    assert shown.startswith('done  "a.png.webp"   1 attempt, ')
    answer = shop.json("enqueue", *asked, *PLACE, "--wait")
    assert (answer["id"], answer["state"]) == (job, "done")
    assert (answer["result"], answer["attempts"]) == ("a.png.webp", 1)
    assert answer["error"] is None


def test_unknown_job(shop: Terminal) -> None:
    shop.json("enqueue", "resize", '["a"]', *PLACE)
    for name in (UNKNOWN, UNKNOWN[:20]):
        error = shop.error("jobs", "show", name, *PLACE, code=1)
        assert error["code"] == "job_not_found"


def test_retry_and_cancel_answer_for_each(shop: Terminal, ended: Ended) -> None:
    dead, done = ended("refuse"), ended("resize", '["a"]')
    part = UNKNOWN[:12]
    answers = shop.json("jobs", "retry", dead, done, part, UNKNOWN, *PLACE, code=1)
    told = {answer["id"]: answer for answer in answers["jobs"]}
    assert list(told) == [dead, done, part, UNKNOWN]
    assert (told[dead]["ok"], told[dead]["before"]) == (True, "dead")
    assert told[dead]["state"] == "ready"
    assert told[done]["error"]["code"] == "wrong_state"
    assert told[part]["error"]["code"] == "job_not_found"
    assert told[UNKNOWN]["error"]["code"] == "job_not_found"

    assert shop.ok("jobs", "cancel", dead, *PLACE) == f"{dead}  ready -> cancelled\n"
    assert shop.ok("jobs", "cancel", dead, *PLACE)  # it is: nothing to complain about
    result = shop.run("jobs", "cancel", done, *PLACE)
    assert result.exit_code == 1
    assert "unchanged: " in result.stdout
    assert shop.ok("jobs", "retry", dead, *PLACE) == f"{dead}  cancelled -> ready\n"


def test_key_that_another_job_has_by_now(shop: Terminal) -> None:
    asked = ("enqueue", "resize", '["a"]', *PLACE, "--key", "k")
    first = shop.json(*asked)["id"]
    shop.ok("jobs", "cancel", first, *PLACE)
    second = shop.json(*asked)["id"]
    (row,) = shop.json("jobs", "retry", first, *PLACE, code=1)["jobs"]
    assert (row["state"], row["error"]["code"]) == ("cancelled", "wrong_state")
    assert "idempotency key" in row["error"]["what"]
    shop.ok("jobs", "cancel", second, *PLACE)
    shop.ok("jobs", "retry", first, *PLACE)


def test_no_workers(shop: Terminal) -> None:
    shop.json("enqueue", "resize", '["a"]', *PLACE)
    assert shop.json("workers", "ls", *PLACE) == {"workers": []}
    assert shop.ok("workers", "ls", *PLACE) == "no workers\n"


# --- migrate


def test_migrate_makes_the_schema_and_check_only_looks(terminal: Terminal) -> None:
    store = ("--store", "sqlite:///durio.db")
    missing = terminal.json("migrate", "--check", *store, code=5)
    assert (missing["up_to_date"], missing["applied"]) == (False, [])
    assert missing["error"]["code"] == "schema_mismatch"
    path = f"sqlite:///{terminal.folder}/durio.db"
    assert missing["error"]["cure"] == f"Run: durio migrate --store {path}"
    assert terminal.run("migrate", "--check", *store).exit_code == 5
    assert not list(terminal.folder.iterdir())

    shown = terminal.ok("migrate", *store)
    assert shown.startswith(f"{path}: applied 0001_jobs")
    there = terminal.json("migrate", "--check")
    assert (there["up_to_date"], there["waiting"]) == (True, [])
    assert there["applied"] == missing["waiting"]
    assert "up to date" in terminal.ok("migrate")


def test_migrate_prints_sql(terminal: Terminal) -> None:
    text = terminal.ok("migrate", "--sql")
    assert "-- 0001_jobs.sql" in text
    assert "create table job" in text
    assert "create table job" in terminal.json("migrate", "--sql")["sql"]
    assert terminal.error("migrate", "--sql", "--check", code=2)["what"]
    assert not list(terminal.folder.iterdir())


def test_password_of_a_store_is_not_shown(terminal: Terminal) -> None:
    error = terminal.error("jobs", "ls", "--store", "mysql://u:secret@h/x", code=2)
    assert "secret" not in str(error)


# --- tables


def on_screen(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_list_on_a_terminal_fits_and_colours_only_states(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_screen(monkeypatch, 60)
    columns = [Column("state"), Column("dead"), Column("error", 1, least=10)]
    output.show_table(columns, [["dead", "dead", "x" * 100]], "none")
    head, row = capsys.readouterr().out.splitlines()
    assert head == "state  dead  error"
    assert row == f"\x1b[31mdead \x1b[0m  dead  {'x' * 46}…"


def test_no_color_keeps_the_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_screen(monkeypatch, 60)
    monkeypatch.setenv("NO_COLOR", "1")
    columns = [Column("state"), Column("error", 1, least=10)]
    output.show_table(columns, [["dead", "x" * 100]], "none")
    assert capsys.readouterr().out.splitlines()[1] == f"dead   {'x' * 52}…"


def test_plain_list_is_aligned_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    columns = [Column("a"), Column("bb", 1, least=1)]
    output.show_table(columns, [["long", None], ["x\ny", 3]], "none")
    assert capsys.readouterr().out == "a     bb\nlong  -\nx y   3\n"
    output.show_table(columns, [["a", "y" * 500]], "none")
    assert "y" * 500 in capsys.readouterr().out


def test_pipes_and_no_color_mean_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen:
        def isatty(self) -> bool:
            return True

    assert not output.has_colour()
    monkeypatch.setattr("sys.stdout", Screen())
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert output.has_colour()
    monkeypatch.setenv("NO_COLOR", "1")
    assert output.is_terminal()
    assert not output.has_colour()


def test_unwritable_folder(terminal: Terminal, tmp_path: Path) -> None:
    missing = tmp_path / "none"
    error = terminal.error("migrate", "--store", f"sqlite:///{missing}/x.db", code=3)
    assert error["code"] == "store_unavailable"


def test_looking_makes_nothing_in_a_file_of_another_program(
    terminal: Terminal, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs.db"
    db = apsw.Connection(str(theirs))
    db.execute("create table t (x)")
    db.close()
    before = theirs.read_bytes()
    error = terminal.error("jobs", "ls", "--store", f"sqlite:///{theirs}", code=3)
    assert "without a Durio store" in error["what"]
    assert theirs.read_bytes() == before


def test_tables_of_another_program_are_not_taken_for_ours(
    terminal: Terminal, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs.db"
    db = apsw.Connection(str(theirs))
    db.execute("create table job (x)")
    db.close()
    error = terminal.error("migrate", "--store", f"sqlite:///{theirs}", code=5)
    assert (error["code"], error["cure"]) == ("schema_mismatch", "Name another file.")
    assert ": job" in error["what"]
