"""`durio enqueue`: arguments from a command line, options, and what it answers."""

import json
from typing import Any

import pytest

from durio.cli.enqueue import parse_arguments
from durio.errors import UsageError
from tests.unit.cli.terminal import SHOP, Terminal


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", ([], {})),
        (" ", ([], {})),
        ('{"a": 1}', ([], {"a": 1})),
        ("[1, [2]]", ([1, [2]], {})),
        ("{}", ([], {})),
    ],
)
def test_object_is_keywords_and_array_positionals(text: str, wanted: Any) -> None:
    assert parse_arguments(text, "durio enqueue resize") == wanted


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{path: 1}", "not JSON"),
        ('{"a": ', "not JSON"),
        ("'x'", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("3", "JSON int"),
        ("null", "JSON NoneType"),
        ('"x"', "JSON str"),
        ('["caf\udce9"]', "not valid UTF-8"),
    ],
)
def test_bad_arguments_are_told(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        parse_arguments(text, "durio enqueue resize")
    assert caught.value.cure


def test_enqueue_answers_with_the_job(shop: Terminal) -> None:
    answer = shop.json("enqueue", "refuse", "--app", "shop")
    assert answer == {
        "id": answer["id"],
        "task": "shop.refuse",
        "queue": "mail",
        "store": f"sqlite:///{shop.folder}/jobs.db",
        "created": True,
        "same_args": True,
        "replaced": False,
    }


def test_name_and_store_without_code(terminal: Terminal) -> None:
    place = ("--name", "other", "--store", "sqlite:///o.db")
    result = terminal.run("enqueue", "work", "[1]", *place)
    assert result.exit_code == 0
    assert result.stdout.startswith("enqueued  ")
    assert "other.work  queue default" in result.stdout
    assert "warning:" in result.stderr
    assert terminal.json("jobs", "ls", *place)["jobs"][0]["task"] == "other.work"


def test_name_from_the_environment(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURIO_NAME", "named")
    monkeypatch.setenv("DURIO_URL", "sqlite:///o.db")
    assert terminal.json("enqueue", "work")["task"] == "named.work"
    assert terminal.json("enqueue", "far.work")["task"] == "far.work"


def test_arguments_from_standard_input(shop: Terminal) -> None:
    result = shop.run("enqueue", "resize", "-", "--app", "shop", stdin=b'{"path": "x"}')
    assert result.exit_code == 0
    bad = shop.run("enqueue", "resize", "-", "--app", "shop", stdin=b'["\xff"]')
    assert bad.exit_code == 2
    assert "not valid UTF-8" in bad.stderr


def test_options_are_stored_with_the_job(shop: Terminal) -> None:
    job = shop.json(
        *("enqueue", "resize", '["a.png"]', "--app", "shop", "--delay", "5m"),
        *("--key", "k:1", "--priority", "9", "--queue", "high", "--meta", '{"t": 7}'),
    )["id"]
    shown = shop.json("jobs", "show", job, "--app", "shop")
    assert (shown["queue"], shown["priority"], shown["state"]) == (
        "high",
        9,
        "scheduled",
    )
    assert (shown["meta"], shown["key"]) == ({"t": 7}, "k:1")
    assert shown["kwargs"] | dict(enumerate(shown["args"])) in (
        {"path": "a.png"},
        {0: "a.png"},
    )


def test_same_key_gives_the_same_job(shop: Terminal) -> None:
    asked = ("enqueue", "resize", '["a"]', "--app", "shop", "--key", "k")
    first, again = shop.json(*asked), shop.json(*asked)
    assert (again["id"], again["created"]) == (first["id"], False)
    assert shop.ok(*asked).startswith(f"exists  {first['id']}")
    other = ("enqueue", "resize", '["b"]', "--app", "shop", "--key", "k")
    assert shop.error(*other, code=2)["code"] == "key_conflict"


def test_absolute_time(shop: Terminal) -> None:
    asked = ("enqueue", "resize", '["a"]', "--app", "shop", "--at")
    job = shop.json(*asked, "2090-01-31T09:00:00Z")["id"]
    shown = shop.json("jobs", "show", job, "--app", "shop")
    assert shown["run_at"] == "2090-01-31T09:00:00Z"
    error = shop.error(*asked, "2090-01-31", code=2)
    assert error["what"] == "--at: '2090-01-31' has no time zone"
    assert error["cure"] == "Write 2030-01-31T09:00:00Z, or +01:00 in place of Z."


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--at", "2090-01-31T09:00:00"], "usage"),  # naive
        (["--at", "tomorrow"], "usage"),
        (["--delay", "-5"], "invalid_option"),
        (["--delay", "soon"], "invalid_option"),
        (["--delay", "5m", "--at", "2090-01-31T09:00:00Z"], "invalid_option"),
        (["--priority", "10"], "invalid_option"),
        (["--priority", "high"], "usage"),
        (["--key", ""], "invalid_name"),
        (["--key", "caf\udce9"], "invalid_name"),
        (["--queue", "a b"], "invalid_name"),
        (["--meta", "[1]"], "invalid_option"),
        (["--meta", "{"], "usage"),
        (["--meta", json.dumps({"x": "y" * 20_000})], "invalid_option"),
        (["--timeout", "3s"], "usage"),
        (["--wait", "--timeout", "never"], "invalid_option"),
        (["--store", "sqlit:///x.db"], "invalid_url"),
        (["--store", "sqlite://x.db"], "invalid_url"),
    ],
)
def test_bad_options_are_refused_and_store_nothing(
    shop: Terminal, options: list[str], code: str
) -> None:
    asked = ("enqueue", "resize", '["a"]', "--app", "shop")
    assert shop.error(*asked, *options, code=2)["code"] == code
    listed = shop.run("jobs", "ls", "--store", "sqlite:///jobs.db")
    assert listed.exit_code == 3 or listed.stdout == "no jobs\n"


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["rezise", '["a"]'], "unknown_task"),
        (["re size"], "invalid_name"),
        (["resize"], "invalid_arguments"),
        (["resize", '{"path": 3}'], "invalid_arguments"),
        (["resize", '{"path": "a", "hight": 3}'], "invalid_arguments"),
        (["resize", '{"path": "a\\u0000b"}'], "not_serializable"),
        (["resize", '{"path": "\\ud800"}'], "not_serializable"),
        (["resize", '{"path": "a", "width": NaN}'], "not_serializable"),
        (["caf\udce9"], "invalid_name"),
    ],
)
def test_wrong_names_and_arguments(shop: Terminal, args: list[str], code: str) -> None:
    error = shop.error("enqueue", *args, "--app", "shop", code=2)
    assert error["code"] == code
    assert error["cure"]


@pytest.mark.parametrize(
    ("text", "example"),
    [
        ("ann", """resize '["ann"]'"""),
        ("42", "resize '[42]'"),
        ('"ann"', """resize '["ann"]'"""),
        ("{path: ann}", """resize '{"name": "value"}'"""),
        ("x" * 100, """resize '{"name": "value"}'"""),
    ],
)
def test_arguments_that_are_not_json_get_an_example(
    shop: Terminal, text: str, example: str
) -> None:
    error = shop.error("enqueue", "resize", text, "--app", "shop", code=2)
    assert error["cure"] == (
        f"Write JSON, in quotes for the shell: durio enqueue {example}"
    )


def test_name_of_a_module_is_not_taken_for_an_app(shop: Terminal) -> None:
    """`tasks.resize` would make a second App, and its job would never run."""
    shown = shop.error("enqueue", "tasks.resize", '["a"]', "--app", "shop", code=2)
    assert shown["code"] == "unknown_task"
    assert shown["what"] == (
        "task 'tasks.resize' is of an App 'tasks', which has never used this store"
    )
    assert shown["cure"].startswith("Apps: shop. Did you mean 'shop.resize'?\n")
    assert "--store URL --name tasks" in shown["cure"]
    store = ("--store", "sqlite:///jobs.db")
    assert shop.json("jobs", "ls", *store, "--all-apps")["jobs"] == []
    shop.json("enqueue", "resize", '["a"]', *store, "--name", "tasks")
    answer = shop.json("enqueue", "tasks.resize", '["a"]', "--app", "shop")
    assert answer["task"] == "tasks.resize"  # the store has this App now


def test_payload_over_the_bound(shop: Terminal) -> None:
    payload = json.dumps({"path": "x" * 1_100_000}).encode()
    result = shop.run("enqueue", "resize", "-", "--app", "shop", stdin=payload)
    assert result.exit_code == 2
    assert "[payload_too_large]" in result.stderr


def test_nobody_works_within_the_timeout(shop: Terminal) -> None:
    asked = (
        "enqueue",
        "resize",
        '["a"]',
        "--app",
        "shop",
        "--wait",
        "--timeout",
        "1ms",
    )
    answer = shop.json(*asked, code=7)
    assert (answer["state"], answer["error"]["code"]) == ("ready", "timeout")
    assert answer["id"] in answer["error"]["what"]
    result = shop.run(*asked)
    assert result.exit_code == 7
    assert '(state: ready; no worker serves queue "default") [timeout]' in result.stderr
    assert "Start a worker if none serves the queue." in result.stderr


STORE = ("--store", "sqlite:///jobs.db", "--name", "shop")


@pytest.mark.proves("M37")
def test_a_full_queue_says_when_to_try_again(
    shop: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.write("bounded.py", SHOP + '\napp.queue("mail", maxsize=1)\n')
    monkeypatch.setenv("DURIO_QUEUE__FULL_SECONDS", "0.05")
    shop.ok("enqueue", "refuse", "--app", "bounded")
    told = shop.error("enqueue", "refuse", "--app", "bounded", code=75)
    assert (told["code"], told["depth"], told["limit"]) == ("queue_full", 1, 1)
    assert told["retry_after"] >= 1
    # The bound is the store's: who knows only the name is held to it too.
    by_name = shop.run("enqueue", "refuse", "--queue", "mail", *STORE)
    assert by_name.exit_code == 75
    assert "Try again in" in by_name.stderr
