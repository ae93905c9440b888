"""`durio users` and `durio tokens`: who may use the dashboard."""

import re

from tests.unit.cli.terminal import Terminal

STORE = ("--store", "sqlite:///jobs.db", "--name", "shop")
PASSWORD = "correct horse"  # noqa: S105 - of a user that no store keeps
WITH_PASSWORD = "--password-stdin"  # noqa: S105 - a flag


def add(terminal: Terminal, name: str, role: str, *more: str) -> None:
    result = terminal.run(
        *("users", "add", name, "--role", role, WITH_PASSWORD, *more, *STORE),
        stdin=f"{PASSWORD}\n".encode(),
    )
    assert result.exit_code == 0, result.output
    assert result.stdout == f"added {name} as {role}\n"


def verbs(terminal: Terminal) -> list[tuple[str, str]]:
    lines = terminal.json("audit", "ls", *STORE)["audit"]
    return [(line["verb"], line["target"]) for line in reversed(lines)]


# --- users


def test_users_are_added_changed_listed_and_removed(terminal: Terminal) -> None:
    assert "durio users add NAME" in terminal.ok("users", "ls", *STORE)
    add(terminal, "ann", "admin")
    add(terminal, "bob@example.com", "viewer", "--queue", "mail", "--payloads")
    ann, bob = terminal.json("users", "ls", *STORE)["users"]
    assert (ann["role"], ann["queues"], ann["payloads"]) == ("admin", None, True)
    assert (bob["role"], bob["queues"], bob["payloads"]) == ("viewer", ["mail"], True)
    assert bob["last_login_at"] is None
    shown = terminal.ok("users", "role", "bob@example.com", "operator", *STORE)
    assert shown == "bob@example.com is operator now\n"
    _, bob = terminal.json("users", "ls", *STORE)["users"]
    assert (bob["role"], bob["queues"]) == ("operator", None)
    terminal.ok("users", "rm", "ann", "--yes", *STORE)
    assert terminal.ok("users", "ls", *STORE).count("\n") == 2
    assert verbs(terminal) == [
        ("add user", "user ann"),
        ("add user", "user bob@example.com"),
        ("make operator", "user bob@example.com"),
        ("remove user", "user ann"),
    ]


def test_a_password_can_be_made(terminal: Terminal) -> None:
    made = terminal.json("users", "add", "ci", "--role", "viewer", "--generate", *STORE)
    assert re.fullmatch("[0-9a-f]{24}", made["password"])
    again = terminal.json("users", "passwd", "ci", "--generate", *STORE)
    assert again["password"] != made["password"]
    shown = terminal.ok("users", "passwd", "ci", "--generate", *STORE)
    assert "password: " in shown


def test_a_password_comes_from_a_terminal_or_standard_input(terminal: Terminal) -> None:
    asked = terminal.error("users", "add", "ann", "--role", "admin", *STORE, code=2)
    assert "--password-stdin" in asked["cure"]
    for text in (b"short\n", b"", b"x" * 1025, b"caf\xe9 au lait caf\xe9\n"):
        result = terminal.run(
            *("users", "add", "ann", "--role", "admin", WITH_PASSWORD, *STORE),
            stdin=text,
        )
        assert result.exit_code == 2, text
    both = ("--generate", WITH_PASSWORD)
    terminal.error("users", "add", "ann", "--role", "admin", *both, *STORE, code=2)
    assert not terminal.json("users", "ls", *STORE)["users"]


def test_users_that_cannot_be(terminal: Terminal) -> None:
    add(terminal, "ann", "admin")
    wrong = ("--role", "admin", "--generate", *STORE)
    assert terminal.error("users", "add", "ann", *wrong, code=1)["code"] == (
        "user_conflict"
    )
    for name in ("", "a b", "x" * 129, "\x1b[31m", "a\u202eb"):
        error = terminal.error("users", "add", name, *wrong, code=2)
        assert error["code"] == "invalid_name"
    for command in (["passwd", "bob", "--generate"], ["role", "bob", "admin"]):
        error = terminal.error("users", *command, *STORE, code=1)
        assert error["code"] == "user_not_found"
    assert terminal.run("users", "role", "ann", "root", *STORE).exit_code == 2
    assert terminal.error("users", "rm", "ann", *STORE, code=2)["code"] == (
        "not_confirmed"
    )


def test_the_default_store_is_not_created(terminal: Terminal) -> None:
    error = terminal.error("users", "add", "a", "--role", "admin", "--generate", code=3)
    assert error["code"] == "store_unavailable"


# --- tokens


def test_tokens_are_created_listed_and_revoked(terminal: Terminal) -> None:
    assert "durio tokens create" in terminal.ok("tokens", "ls", *STORE)
    made = terminal.json("tokens", "create", "ci", "--role", "operator", *STORE)
    assert re.fullmatch(rf"durio_{made['id']}_[\w-]{{43}}", made["token"])
    limits = ("--purpose", "enqueue", "--task", "send", "--task", "email:*")
    result = terminal.run(
        "tokens", "create", "web", *limits, "--queue", "mail", "--expires", "2h", *STORE
    )
    assert result.stdout.startswith("durio_")
    assert "not shown again" in result.stderr
    tokens = {each["name"]: each for each in rows(terminal)}
    assert tokens["ci"]["role"] == "operator"
    web = tokens["web"]
    assert (web["role"], web["purposes"], web["queues"]) == (
        None,
        ["enqueue"],
        ["mail"],
    )
    assert web["tasks"] == ["shop.send", "shop.email:*"]
    assert web["expires_at"] > web["created_at"]
    assert made["token"].rpartition("_")[2] not in terminal.ok("tokens", "ls", *STORE)
    terminal.ok("tokens", "revoke", made["id"], "--yes", *STORE)
    assert [each["name"] for each in rows(terminal)] == ["web"]
    gone = terminal.error("tokens", "revoke", made["id"], "--yes", *STORE, code=1)
    assert gone["code"] == "token_not_found"
    assert verbs(terminal) == [
        ("create token", f"token {made['id']} ci"),
        ("create token", f"token {web['id']} web"),
        ("revoke token", f"token {made['id']}"),
    ]


def rows(terminal: Terminal) -> list[dict[str, object]]:
    return terminal.json("tokens", "ls", *STORE)["tokens"]


def test_tokens_that_cannot_be(terminal: Terminal) -> None:
    for flags in ((), ("--role", "admin", "--expires", "0s"), ("--expires", "soon")):
        error = terminal.error("tokens", "create", "ci", *flags, *STORE, code=2)
        assert error["code"] == "invalid_option"
    named = ("--role", "admin", *STORE)
    for name in ("", "x" * 129, "\x1b[31m"):
        assert terminal.error("tokens", "create", name, *named, code=2)["code"] == (
            "invalid_name"
        )
    assert not rows(terminal)
