"""Bugs about enqueues: keys, repeats, and answers that go to the wrong caller."""

from tests.mutants.planting import Mutant, Patch, Promises, Seeds

ENQUEUE = "stores/sqlite/enqueue.py"
ASK = "client/reliable_write.py"
CALLS = "client/calls.py"
WAITING = "client/waiting_list.py"
# About one call in four of a producer has no answer, or never arrives.
REPLIES_GET_LOST = ((5.0, "flaky", "producer-0", 300.0, 0.9),)
# Open transactions hold keys that the producers need: at first for moments, then longer
# than a call may wait.
KEYS_ARE_LOCKED = tuple(
    (5.0 + 40 * turn, "locked", f"producer-{n}", seconds, 0.5)
    for turn, seconds in enumerate((0.3, 10.0, 38.0, 38.0))
    for n in range(2)
)

PLANTED = (
    Mutant(
        "key_check_outside_the_transaction",
        "The holder of a key is looked up first; another transaction writes the job.",
        (
            Patch(
                ENQUEUE,
                "        return await self.context.writer.write(\n"
                "            lambda tx: enqueue_jobs(tx, jobs, calls), rows=len(jobs)\n"
                "        )",
                "        import asyncio\n"
                "        sql = 'select 1 from uniq where key = ?1'\n"
                "        asked = [j.key.key for j in jobs if j.key is not None]\n"
                "        held = await self.context.reader.read(\n"
                "            lambda db: {k for k in asked if db.rows(sql, (k,))}\n"
                "        )\n"
                "        await asyncio.sleep(0)\n"
                "        return await self.context.writer.write(\n"
                "            lambda tx: enqueue_jobs(\n"
                "                tx,\n"
                "                [\n"
                "                    j\n"
                "                    if j.key is None or j.key.key in held\n"
                "                    else j._replace(key=None)\n"
                "                    for j in jobs\n"
                "                ],\n"
                "                calls,\n"
                "            ),\n"
                "            rows=len(jobs),\n"
                "        )",
            ),
        ),
        (Promises("keys.concurrent_enqueues_of_one_key_give_one_id"),),
    ),
    Mutant(
        "key_kept_after_death_by_loss",
        "A job that dies with its worker keeps its key for ever.",
        (
            Patch(
                "stores/sqlite/exit.py",
                "free_key_at_end(tx, outcome.id, state, key, mode, gone=gone)",
                "free_key_at_end(tx, outcome.id, state, None if outcome.kind == OutcomeKind.LOST else key, mode, gone=gone)",
            ),
            # That alone is harmless: a finished holder does not hold. Here it does.
            Patch(
                "stores/sqlite/keys.py",
                "state=None if code is None else STATE_BY_CODE[code],",
                "state=None if code is None else STATE_BY_CODE[3 if code == 5 else code],",
            ),
        ),
        (Promises("freed_keys.key_freed_on_every_way_out"),),
    ),
    Mutant(
        "key_freed_by_a_predecessor",
        "A job that ends frees a key that its successor already owns.",
        (
            Patch(
                "stores/sqlite/sql/keys.sql",
                "delete from uniq where key = :key and id = :job_id",
                "delete from uniq where key = :key and :job_id is not null",
            ),
        ),
        (Promises("keys.a_successor_takes_the_key_and_keeps_it"),),
    ),
    Mutant(
        "repeat_looks_at_live_jobs_only",
        "An enqueue that is repeated after its job was done makes the job again.",
        (
            Patch(
                "stores/sqlite/sql/enqueue.sql",
                ":key_mode, :now\n)\non conflict (id) do nothing",
                ":key_mode, :now\n)\n"
                "on conflict (id) do update set state = excluded.state\n"
                "where job.state >= 4",
            ),
        ),
        (Promises("enqueue.repeat_of_a_finished_enqueue"),),
    ),
    Mutant(
        "repeat_with_a_new_id",
        "An enqueue whose reply was lost is repeated with another id.",
        (
            Patch(
                ASK,
                "                repeated = True\n",
                "                repeated = True\n"
                "                jobs = [\n"
                "                    j._replace(id=self._clock.new_id()) for j in jobs\n"
                "                ]\n",
            ),
        ),
        (Seeds(20, {}, REPLIES_GET_LOST),),
    ),
    Mutant(
        "combiner_gives_the_first_answer_to_all",
        "All enqueues of one batch get the answer of the first.",
        (
            Patch(
                CALLS,
                "answers[start : start + len(call.jobs)]",
                "answers[: len(call.jobs)]",
            ),
        ),
        (Seeds(),),
    ),
    Mutant(
        "locked_taken_for_stored",
        "A call that the store did not write, because its key is locked, gets a handle.",
        (
            Patch(
                CALLS,
                "            if locked is None:\n",
                "            if locked is None or apart:\n",
            ),
        ),
        (Seeds(20, {"is_calm": False, "jobs": 160}, KEYS_ARE_LOCKED),),
    ),
    Mutant(
        "waiting_call_forgotten",
        "A call whose key is still locked when it is tried leaves the waiting list.",
        (
            Patch(
                WAITING,
                "        calls = [*(call for call, _ in refused), *queue.calls]\n",
                "        calls = [*queue.calls]\n",
            ),
        ),
        (Seeds(20, {"is_calm": False, "jobs": 160}, KEYS_ARE_LOCKED),),
    ),
    Mutant(
        "writer_swaps_answers",
        "Two calls in one transaction get each other's answers.",
        (
            Patch(
                "stores/sqlite/write_session.py",
                "            operation.future.set_result(operation.value)",
                "            operation.future.set_result(requests[0].value)",
            ),
        ),
        (Promises("enqueue.concurrent_enqueues_are_all_kept", "file"),),
    ),
)
