"""Bugs about gates: places, tickets, and jobs that wait before them."""

from tests.mutants.logs import on_postgres
from tests.mutants.planting import Promises, Tests, one_patch

PLANTED = (
    one_patch(
        "held_places_are_ignored",
        "A job that ends gives back a place at each of its gates, held or not.",
        "stores/sqlite/gates.py",
        "            passing.give_back(held_at(gates, held))\n",
        "            passing.give_back(held_at(gates, 15))\n",
        Promises("places."),
    ),
    one_patch(
        "places_survive_their_jobs",
        "A job that is cancelled while it waits keeps its places.",
        "stores/sqlite/job_actions.py",
        "    leave_gates(tx, ((seq, ties),))\n    keep = retention_of(opts)\n",
        "    keep = retention_of(opts)\n",
        Promises("places."),
    ),
    one_patch(
        "job_left_before_an_open_gate",
        "Jobs that one transaction could not let pass are forgotten.",
        "model/gate.py",
        "    return GateDecision(count, after, due_at(after, costs[count], now))\n",
        "    return GateDecision(count, after, None)\n",
        Promises("gates."),
        Promises("rates."),
    ),
    one_patch(
        "freed_place_is_given_to_nobody",
        "A place that is free again lets nobody pass until somebody arrives.",
        "stores/sqlite/gates.py",
        "            self._freed[name] += 1\n            self.look_at(name)\n",
        "            self._freed[name] += 1\n",
        Promises("gates."),
    ),
    one_patch(
        "tickets_are_ignored",
        "A job that has passed its gates is queued by the time at which it was stored.",
        "stores/sqlite/gates.py",
        "        write_gated(tx, queued, tx.db.value(NEWEST_JOB))\n",
        "        for each in ready:\n            write_gated(tx, ((None, each),), each.seq)\n",
        Promises("fairness."),
        Promises("gates."),
    ),
    one_patch(
        "tokens_of_a_downtime_are_kept",
        "A gate that was not used for long lets more jobs pass than its burst.",
        "model/gate.py",
        "    return gate._replace(tokens=min(gate.burst, tokens), at=now)\n",
        "    return gate._replace(tokens=tokens, at=now)\n",
        Promises("rates."),
    ),
    one_patch(
        "retry_keeps_the_place",
        "A job that is retried later keeps the place of its attempt.",
        "stores/sqlite/exit.py",
        "    give_back(tx, seq, FINAL)\n",
        "    give_back(tx, seq, 0, FINAL)\n",
        Promises("places."),
    ),
    one_patch(
        "postgres_places_are_kept",
        "A place that is given back is never free again.",
        "stores/postgres/migrations/0004_gates.sql",
        "set used = g.used - t.places,",
        "set used = g.used,",
        on_postgres("places.a_place_is_held_as_long_as_asked"),
    ),
    one_patch(
        "postgres_tickets_are_ignored",
        "A job that has passed a gate is queued by the time of its enqueue.",
        "stores/postgres/migrations/0004_gates.sql",
        "(e.prefix || '7fff8' || lpad(to_hex(p.new_ticket), 15, '0'))::uuid, p.claim_no, p.id",
        "p.id, p.claim_no, null",
        on_postgres("fairness.limits_alone_interleave_too"),
    ),
    one_patch(
        "postgres_locked_gate_is_forgotten",
        "Nobody goes on with a gate that a transaction has found locked.",
        "stores/postgres/migrations/0004_gates.sql",
        "    select d.gate as name, d.xid from {schema}.gate_deferred as d\n    where",
        "    select d.gate as name, d.xid from {schema}.gate_deferred as d\n    where false and",
        Tests("tests/e2e/test_postgres_gates.py"),
    ),
)
