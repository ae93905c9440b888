"""Translate errors of PostgreSQL: what happened at which server, and the cure.

No caller ever sees a driver's exceptions. `unknown` is set only if the write may have
happened: it, or its commit, was sent, and the connection was lost before the answer.
"""

import re
from typing import NamedTuple

from durio.model.errors import (
    PASSES_BY_ITSELF,
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from durio.stores.postgres.driver import DriverError, PostgresLocation


class ErrorMeaning(NamedTuple):
    """The error, text and cure for a SQLSTATE."""

    kind: type[StoreError]
    what: str
    cure: str


MIGRATE = "Run `durio migrate` with a role that owns the schema."
# All rights that a role needs to work with an existing schema.
GRANTS = (
    "grant usage on schema {name} to {role}; grant select, insert, update, delete on "
    "all tables in schema {name} to {role}; grant usage on all sequences in schema "
    "{name} to {role}; grant execute on all functions in schema {name} to {role};"
)
RIGHTS = "Let the schema's owner run: " + GRANTS
PASSWORD = "Check user and password in the URL, in PGPASSWORD or in ~/.pgpass."  # noqa: S105 - a cure
SLOTS = (
    "Raise max_connections, close idle programs, or put PgBouncer in between; a worker "
    "process needs two connections."
)

# By SQLSTATE, or by its class (the first two letters).
MEANINGS: dict[str, ErrorMeaning] = {
    "28P01": ErrorMeaning(StoreUnavailable, "the password was refused", PASSWORD),
    "28000": ErrorMeaning(
        StoreUnavailable,
        "the server refuses this user",
        "Check the user in the URL and the lines of pg_hba.conf; a server may also ask "
        "for `?sslmode=require`.",
    ),
    "3D000": ErrorMeaning(
        StoreUnavailable,
        "there is no such database",
        "Create it (`createdb NAME`), or name another one in the URL.",
    ),
    "53300": ErrorMeaning(
        StoreUnavailable, "the server has no free connections", SLOTS
    ),
    "53100": ErrorMeaning(
        StoreFull,
        "no space left on the server; nothing was written",
        "Free space on the server's disk; then Durio continues.",
    ),
    "53200": ErrorMeaning(
        StoreUnavailable, "the server is out of memory", "Give it more memory."
    ),
    "25006": ErrorMeaning(
        StoreReadOnly,
        "the server accepts no writes: it is a replica, or "
        "default_transaction_read_only is on",
        "Name the primary, or several hosts and `?target_session_attrs=read-write`.",
    ),
    "42501": ErrorMeaning(StoreUnavailable, "this role lacks a privilege", RIGHTS),
    "3F000": ErrorMeaning(SchemaMismatch, "there is no schema {name}", MIGRATE),
    "42P01": ErrorMeaning(
        SchemaMismatch, "a table of the schema {name} is missing", MIGRATE
    ),
    "42703": ErrorMeaning(
        SchemaMismatch, "a column in the schema {name} is missing", MIGRATE
    ),
    "42883": ErrorMeaning(
        SchemaMismatch, "a function in the schema {name} is missing", MIGRATE
    ),
    "57014": ErrorMeaning(
        StoreUnavailable,
        "the server cancelled a statement; nothing was written",
        "Raise statement_timeout for this role, or find out what the statement waits "
        "for: select * from pg_stat_activity where wait_event_type = 'Lock';",
    ),
    "55P03": ErrorMeaning(
        StoreUnavailable,
        "a lock was not free in time; nothing was written",
        "Find the session that holds it: select pid, query from pg_stat_activity;",
    ),
    "57P03": ErrorMeaning(
        StoreUnavailable, "the server does not accept connections now", PASSES_BY_ITSELF
    ),
    "57P01": ErrorMeaning(
        StoreUnavailable, "the server ended this connection", PASSES_BY_ITSELF
    ),
    "57P02": ErrorMeaning(
        StoreUnavailable, "the server restarts after a crash", PASSES_BY_ITSELF
    ),
    "57P05": ErrorMeaning(
        StoreUnavailable,
        "the server ended an idle connection",
        "Switch idle_session_timeout off for this role.",
    ),
    "25P03": ErrorMeaning(
        StoreUnavailable,
        "the server ended an idle transaction",
        "Raise idle_in_transaction_session_timeout for this role.",
    ),
    "26000": ErrorMeaning(
        StoreUnavailable,
        "a pooler in between refuses prepared statements",
        "Add `?prepared=off` to the URL.",
    ),
    "42P05": ErrorMeaning(
        StoreUnavailable,
        "a pooler in between mixes up prepared statements",
        "Add `?prepared=off` to the URL.",
    ),
    "40": ErrorMeaning(
        StoreUnavailable,
        "too many conflicts on the same rows; nothing was written",
        "Try again; see the server's log for the deadlock.",
    ),
    "08": ErrorMeaning(
        StoreUnavailable,
        "the connection failed",
        "Check that the server, and a pooler in between, are up and accept this user.",
    ),
    "53": ErrorMeaning(
        StoreUnavailable,
        "the server lacks a resource or feature",
        "See the server's log.",
    ),
    "XX": ErrorMeaning(
        StoreCorrupt,
        "the server found its own data damaged, or a bug in itself",
        "See the server's log; restore a backup if it reports damage.",
    ),
}
UNREACHABLE = ErrorMeaning(
    StoreUnavailable,
    "the server cannot be reached",
    "Check host, port and network, and that PostgreSQL is running there.",
)
LOST = ErrorMeaning(StoreUnavailable, "the connection was lost", PASSES_BY_ITSELF)
# Errors without a state, or with a state that says less than the text.
MEANINGS_BY_TEXT = (
    (
        re.compile("(?i)statement pooling mode"),
        ErrorMeaning(
            StoreUnavailable,
            "PgBouncer is in statement pooling mode",
            "Set pool_mode = transaction there.",
        ),
    ),
    (
        re.compile("(?i)does not support SSL|rejected SSL|SSL upgrade"),
        ErrorMeaning(
            StoreUnavailable,
            "the server, or a pooler in between, has no SSL",
            "Enable it there, or add `?sslmode=prefer`.",
        ),
    ),
    (
        re.compile(
            "(?i)match the target attribute|session is (not )?read-only"
            "|server is (not )?in hot standby"
        ),
        ErrorMeaning(
            StoreUnavailable,
            "no server matches target_session_attrs",
            "Name the primary, or all hosts of the cluster, in the URL; during a "
            "failover there may be none.",
        ),
    ),
)
# While connecting, these states can only mean a setting in the URL.
REFUSED_SETTING = frozenset({"42704", "22023"})
SETTING = ErrorMeaning(
    StoreUnavailable,
    "the server refuses a setting of the connection",
    "Correct `options` in the URL, or what PGOPTIONS says.",
)
VIOLATION = "23"  # class of constraint violations: the detail shows the whole row


def translated(
    error: DriverError, location: PostgresLocation, *, unknown: bool = False
) -> StoreError:
    """Return the StoreError for a failure of PostgreSQL."""
    meaning = meaning_of(error)
    has_data = error.state.startswith(
        VIOLATION
    )  # the row of a job, which must not appear in logs
    text = (
        f"{error.text}; {error.detail}" if error.detail and not has_data else error.text
    )
    if meaning is None:
        return StoreError(
            f"{location.shown}: {error.state} {text}",
            cure="This is unexpected: report it.",
            unknown=unknown,
            state=error.state,
        )
    names = {"name": location.schema, "role": "ROLE"}
    what = meaning.what.format(**names)
    return meaning.kind(
        f"{location.shown}: {what} ({text})",
        cure=meaning.cure.format(**names),
        unknown=unknown,
        state=error.state,
    )


def meaning_of(error: DriverError) -> ErrorMeaning | None:
    """Look up the state, then its class; without a state the connection failed."""
    for pattern, meaning in MEANINGS_BY_TEXT:
        if error.lost and pattern.search(error.text):
            return meaning
    if not error.was_open and error.state in REFUSED_SETTING:
        return SETTING
    is_connection_error = error.lost and error.state[:2] in ("", "08")
    if is_connection_error and error.was_open:
        return LOST
    if is_connection_error and not error.state:
        return UNREACHABLE
    return MEANINGS.get(error.state) or MEANINGS.get(error.state[:2])
