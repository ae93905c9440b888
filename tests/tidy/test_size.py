"""Files short enough to remember, functions that fit on a screen.

The two caps are alarms, not goals: a file or a function that is really better long goes
on the list below with its reason. The list is checked too: an entry that is not needed
must go.
"""

from tests.tidy.house import (
    MODULES,
    TEST_MODULES,
    Function,
    every_program,
    functions,
    text_of,
)

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60

# path, or path:function -> (its own cap, why splitting would hurt the reader), as in
#   "workflow/eventloop.py": (520, "asyncio wants one class with every loop method"),
ALLOWED: dict[str, tuple[int, str]] = {
    "app/app.py": (510, "one class: all that users call on an App"),
    "cli/queues.py": (
        530,
        "the commands of one group, and the drain that one of them waits for",
    ),
    "cli/worker.py": (440, "one command: its flags, its checks and its start"),
    "model/errors.py": (450, "the list of all errors that users see"),
    "model/options.py": (480, "the table of options, and what is made from it"),
    "stores/postgres/checks.py": (480, "a list of independent checks for the doctor"),
    "stores/postgres/connections.py": (
        700,
        "one connection per loop, its spare, and the pool of them: always read together",
    ),
    "stores/postgres/watermarks.py": (
        480,
        "watermarks and their rescans keep one invariant",
    ),
    "stores/sqlite/checks.py": (420, "a list of independent checks for the doctor"),
    "stores/sqlite/store_files.py": (
        420,
        "every file beside the database, and who may hold which lock",
    ),
    "stores/sqlite/write_session.py": (
        420,
        "a request, the transaction that it sees, and how that begins and ends",
    ),
    "stores/sqlite/writer.py": (460, "the writer thread and what a fork does to it"),
    "worker/slots.py": (470, "one owner of all attempts"),
    "worker/supervisor.py": (420, "one state machine over all processes"),
    "tests/conformance/browse.py": (440, "one capability has one chapter"),
    "tests/conformance/bulk.py": (420, "one capability has one chapter"),
    "tests/conformance/commit.py": (420, "one capability has one chapter"),
    "tests/conformance/exchange.py": (425, "one capability has one chapter"),
    "tests/conformance/on_end.py": (450, "one capability has one chapter"),
    "tests/simulation/workload.py": (430, "every kind of job, and how each must end"),
    "tests/conformance/waits.py": (420, "one capability has one chapter"),
    "tests/simulation/world.py": (
        440,
        "virtual time, the nodes and their loops take turns by one rule",
    ),
    "cli/worker.py:command": (65, "click wants every flag in one signature"),
}


def file_lines(module: str) -> int:
    return text_of(module).count("\n")


def function_lines(function: Function) -> int:
    return (function.end_lineno or 0) - function.lineno + 1


@every_program
def test_file_is_short_enough_to_hold_in_the_head(module: str) -> None:
    most, _ = ALLOWED.get(module, (FILE_LINES_MAX, ""))
    lines = file_lines(module)
    assert lines <= most, f"{module}: {lines} lines; split it by verb, or say why not"


@every_program
def test_function_fits_on_a_screen(module: str) -> None:
    for function in functions(module):
        where = f"{module}:{function.name}"
        most, _ = ALLOWED.get(where, (FUNCTION_LINES_MAX, ""))
        lines = function_lines(function)
        assert lines <= most, f"{where}: {lines} lines; name its parts, or say why not"


def test_allowed_list_has_reasons_and_is_still_needed() -> None:
    for where, (most, why) in ALLOWED.items():
        module, _, name = where.partition(":")
        assert why.strip(), f"{where}: give a reason"
        assert module in {*MODULES, *TEST_MODULES}, (
            f"{where}: gone; take it off the list"
        )
        if name:
            sizes = [function_lines(f) for f in functions(module) if f.name == name]
            cap = FUNCTION_LINES_MAX
        else:
            sizes, cap = [file_lines(module)], FILE_LINES_MAX
        assert sizes, f"{where}: no such function; take it off the list"
        assert max(sizes) > cap, f"{where}: short again; take it off the list"
        assert most >= cap, f"{where}: a cap below the common one is no exception"
