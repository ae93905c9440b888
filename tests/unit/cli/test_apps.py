"""Loading an App: what is found, and what is said when it is not."""

import pytest

from durio.cli.load_app import load_app
from durio.cli.main import AppImportFailed
from tests.unit.cli.terminal import Terminal


def refused(path: str) -> AppImportFailed:
    with pytest.raises(AppImportFailed) as caught:
        load_app(path)
    return caught.value


@pytest.mark.proves("M22")
@pytest.mark.parametrize("path", ["shop:app", "shop"])
@pytest.mark.usefixtures("shop")
def test_app_by_module_and_name(path: str) -> None:
    app = load_app(path)
    assert app.name == "shop"
    assert "shop.resize" in app.registry.handlers


def test_app_by_factory_and_in_an_object(terminal: Terminal) -> None:
    terminal.write(
        "made.py",
        "from durio import App\n"
        "def make(): return App(name='made')\n"
        "class Box: app = App(name='boxed')\n",
    )
    assert load_app("made:make").name == "made"
    assert load_app("made:Box.app").name == "boxed"


@pytest.mark.usefixtures("shop")
def test_store_beats_the_url_in_code() -> None:
    assert load_app("shop:app").url == "sqlite:///jobs.db"
    assert load_app("shop:app", "sqlite:///other.db").url == "sqlite:///other.db"


def test_imports_of_the_app_are_loaded(terminal: Terminal) -> None:
    terminal.write(
        "front.py", "from durio import App\napp = App(imports=('front_tasks',))\n"
    )
    terminal.write(
        "front_tasks.py", "from front import app\n@app.task\nasync def one(): ...\n"
    )
    assert "app.one" in load_app("front").registry.handlers


@pytest.mark.usefixtures("shop")
def test_unknown_module_has_a_suggestion() -> None:
    error = refused("shpo:app")
    assert error.what == "there is no module 'shpo'"
    assert "Did you mean 'shop'?" in error.cure
    assert not error.traceback_text


@pytest.mark.usefixtures("shop")
def test_unknown_attribute_names_the_apps_that_there_are() -> None:
    error = refused("shop:ap")
    assert "has no 'ap'" in error.what
    assert "shop:app" in error.cure


def test_module_without_an_app(terminal: Terminal) -> None:
    terminal.write("bare.py", "application = 3\n")
    assert "Did you mean 'application'?" in refused("bare:applicatoin").cure
    assert "is a int, not an App" in refused("bare:application").what


@pytest.mark.filterwarnings("error::RuntimeWarning")  # a coroutine never awaited
def test_a_task_is_not_an_app(terminal: Terminal) -> None:
    terminal.write(
        "mail.py",
        "from durio import App\napp = App(name='mail')\n"
        "@app.task\nasync def send() -> None: ...\n",
    )
    error = refused("mail:send")
    assert error.what == "mail:send is a Task, not an App"
    assert error.cure == "Its Apps: mail:app."


@pytest.mark.parametrize("path", ["shop.py:app", "./shop.py:app", "shop.py"])
@pytest.mark.usefixtures("shop")
def test_a_file_is_not_a_module(path: str) -> None:
    assert refused(path).cure == "Give a module, not a file: shop:app"


@pytest.mark.parametrize(
    "path", ["", ":", ":app", "a b:c", "shop:", "shop:a-b", "a..b"]
)
@pytest.mark.usefixtures("shop")
def test_text_that_names_nothing(path: str) -> None:
    if path == "shop:":  # the name may be left out
        assert load_app(path).name == "shop"
    else:
        assert "names no App" in refused(path).what


def test_users_error_is_shown_with_their_lines_only(terminal: Terminal) -> None:
    terminal.write("broken.py", "import json\n\ndef f():\n    1 / 0\n\nf()\n")
    error = refused("broken")
    assert "ZeroDivisionError" in error.what
    assert 'broken.py", line 6' in error.traceback_text
    assert 'broken.py", line 4' in error.traceback_text
    assert "durio/cli" not in error.traceback_text
    assert "importlib" not in error.traceback_text


def test_module_that_misses_another(terminal: Terminal) -> None:
    terminal.write("misses.py", "import no_such_library\n")
    error = refused("misses")
    assert "no_such_library" in error.what
    assert 'misses.py", line 1' in error.traceback_text


def test_syntax_error(terminal: Terminal) -> None:
    terminal.write("syntax.py", "def f(:\n")
    assert 'syntax.py", line 1' in refused("syntax").traceback_text


def test_module_that_exits(terminal: Terminal) -> None:
    terminal.write("exits.py", "import sys\nsys.exit(0)\n")
    assert "__main__" in refused("exits").cure


def test_mistake_in_a_declaration_keeps_its_cure(terminal: Terminal) -> None:
    terminal.write(
        "wrong.py",
        "from durio import App\napp = App()\n@app.task(prioriti=3)\ndef f(): ...\n",
    )
    error = refused("wrong")
    assert "[invalid_option]" in error.what
    assert "Did you mean 'priority'?" in error.cure
    assert 'wrong.py", line 3' in error.traceback_text


def test_factories_that_make_no_app(terminal: Terminal) -> None:
    terminal.write(
        "made.py",
        "def nothing(): ...\ndef needs(one): ...\ndef fails(): raise OSError\n",
    )
    assert "gave a NoneType, not an App" in refused("made:nothing").what
    assert "TypeError" in refused("made:needs").what
    assert 'made.py", line 3' in refused("made:fails").traceback_text


def test_traceback_is_printed_above_the_error(terminal: Terminal) -> None:
    terminal.write("broken.py", "1 / 0\n")
    result = terminal.run("worker", "broken")
    assert result.exit_code == 4
    assert result.stderr.index("Traceback") < result.stderr.index("error: broken")
    assert terminal.error("worker", "broken", code=4)["traceback"]
