"""`durio doctor` at the terminal: its exit codes, its JSON, and never a traceback."""

import pytest

from durio.cli import doctor, output
from durio.model.finding import warning
from tests.unit.cli.terminal import Terminal

PLACE = ("--app", "shop")


def severities(shown: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    return {check["name"]: check["severity"] for check in shown["checks"]}


@pytest.mark.proves("M214")
def test_errors_end_with_8(shop: Terminal) -> None:
    shop.json("enqueue", "resize", '["a"]', *PLACE)
    shown = shop.json("doctor", *PLACE, code=8)
    assert shown["errors"] == 1
    assert severities(shown)["queues.unserved"] == "error"
    assert severities(shown)["app.import"] == "ok"
    assert set(shown["checks"][0]) == {"name", "severity", "evidence", "fix"}
    assert shown["warnings"] == list(severities(shown).values()).count("warning")


def test_warnings_end_with_0_unless_strict(terminal: Terminal) -> None:
    """A store that is not there yet is a warning, and is not made."""
    shown = terminal.json("doctor")
    assert (shown["errors"], severities(shown)["store.schema"]) == (0, "warning")
    (fix,) = (c["fix"] for c in shown["checks"] if c["name"] == "store.schema")
    assert "--store URL, DURIO_APP or DURIO_URL" in fix
    terminal.json("doctor", "--strict", code=8)
    assert not list(terminal.folder.iterdir())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import nowhere", ["nowhere"]),
        ("1 / 0", ["ZeroDivisionError"]),
        ("x = 1", ["has no 'app'"]),
        ("from durio import App\napp = App()", ["has no tasks"]),
        ("raise SystemExit(3)", ["SystemExit"]),
    ],
)
def test_an_app_that_cannot_be_imported(
    terminal: Terminal, text: str, words: list[str]
) -> None:
    terminal.write("shop.py", text)
    result = terminal.run("doctor", *PLACE)
    assert result.exit_code == 8
    assert "Traceback" not in result.output
    for word in words:
        assert word in result.stdout
    assert "machine" in result.stdout  # the rest is looked at all the same
    about = f"The checks below are about sqlite:///{terminal.folder}/durio.db."
    assert (f"{doctor.FIX_INDENT}{about}\n" in result.stdout) is ("App()" not in text)


def test_a_fix_can_be_pasted(shop: Terminal) -> None:
    shop.json("enqueue", "resize", '["a"]', *PLACE)
    shop.ok("queues", "pause", "default", *PLACE)
    checks = shop.json("doctor", *PLACE, code=8)["checks"]
    (fix,) = (c["fix"] for c in checks if "is paused" in c["evidence"])
    command = fix.partition("durio ")[2].split()
    assert command == ["queues", "resume", "default", *PLACE]
    assert shop.json(*command)["queues"][0]["paused"] is False


def test_plain_lines_with_words(shop: Terminal) -> None:
    shop.json("enqueue", "resize", '["a"]', *PLACE)
    shown = shop.run("doctor", *PLACE).stdout
    assert (
        "  error    unserved         no worker serves default (1 waiting job)" in shown
    )
    assert "             fix: No worker is alive" in shown
    assert "✓" not in shown
    assert shown.splitlines()[-1].startswith("1 error, ")


def test_signs_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "has_colour", lambda: True)
    line = doctor.finding_line(warning("store.fsync", "slow \x1b[31m", "Buy."))
    assert "! warning" in line
    assert "\\x1b" in line
    assert output.is_terminal() is False


def test_a_bad_settings_file_is_a_usage_error(terminal: Terminal) -> None:
    terminal.write("durio.toml", "[worker")
    assert terminal.error("doctor", code=2)["code"] == "invalid_option"


def test_a_url_of_nothing_we_know(terminal: Terminal) -> None:
    shown = terminal.json("doctor", "--store", "mysql://a:b@c/d", code=8)
    assert severities(shown)["store.url"] == "error"
