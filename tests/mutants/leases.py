"""Bugs about leases: which worker may hold a job, for how long, and who rescues it."""

from tests.mutants.planting import Mutant, Patch, Promises, Seeds, Tests

UPKEEP = "stores/sqlite/upkeep.py"
HEARTBEAT = "worker/heartbeat.py"
RENEW = "await self._store.renew(me, self._lease_seconds, vitals)"
# The common wall clock is set: five minutes fast and four minutes slow, by turns.
CLOCK_IS_SET = tuple(
    (30.0 * n, "clock_step", "*", 0.0, n % 2 or 0.1) for n in range(1, 9)
)
# The clocks of all workers become four minutes slow, one after another.
CLOCKS_ARE_WRONG = tuple(
    (20.0 * n, "skew", f"worker-{n % 4}", 0.0, 0.1) for n in range(1, 5)
)

PLANTED = (
    Mutant(
        "lease_by_the_wall_clock",
        "The store measures leases with a clock that people and time servers set.",
        (
            Patch(
                "stores/sqlite/write_session.py",
                "monotonic_seconds=self.clock.monotonic()",
                "monotonic_seconds=self.clock.now()",
            ),
            Patch(
                UPKEEP,
                "asked = context.clock.monotonic()",
                "asked = context.clock.now()",
            ),
        ),
        (Seeds(20, {"lease_seconds": 30.0, "concurrency": 10}, CLOCK_IS_SET),),
    ),
    Mutant(
        "lease_by_the_workers_clock",
        "The worker's own wall clock decides how long a lease lasts.",
        (
            Patch(
                HEARTBEAT,
                "        self._store = store\n",
                "        self._store = store\n"
                "        self._ahead = clock.now() - clock.monotonic()\n",
            ),
            Patch(
                HEARTBEAT,
                RENEW,
                RENEW.replace(
                    "_lease_seconds,",
                    "_lease_seconds + self._clock.now() - self._clock.monotonic()"
                    " - self._ahead,",
                ),
            ),
        ),
        (Seeds(faults=CLOCKS_ARE_WRONG),),
    ),
    Mutant(
        "stale_judge",
        "A worker that could not renew treats others that could not as dead.",
        (
            Patch(
                "worker/worker_config.py",
                "return is_settled and self.is_fresh(now, interval_seconds)",
                "return True",
            ),
        ),
        (Tests("tests/unit/app/test_rescue.py"),),
    ),
    Mutant(
        "lease_not_renewed",
        "The heartbeat runs, and renews nothing.",
        (
            Patch(
                HEARTBEAT,
                "            await self.renew()\n            took_seconds",
                "            took_seconds",
            ),
        ),
        (Seeds(),),
    ),
    Mutant(
        "renewal_brings_back_the_dead",
        "A worker that was rescued is alive again as soon as it renews.",
        (
            Patch(
                "stores/sqlite/lease.py",
                "        return Renewed(alive=False, cancels=[])",
                "        tx.db.rows(\n"
                "            'insert into worker (id, namespace, info, boot, expires_at, has_bell, has_life)'\n"
                "            \" select ?1, coalesce((select namespace from worker), ''), '{}', ?2, ?3, 0, 0\",\n"
                "            (worker, tx.boot, tx.monotonic_seconds + lease_seconds),\n"
                "        )\n"
                "        return Renewed(alive=True, cancels=[])",
            ),
        ),
        (Promises("lease.a_rescued_worker_never_comes_back"),),
    ),
    Mutant(
        "renewal_in_the_middle_of_a_rescue",
        "A worker that has lost some of its jobs to a rescuer may renew.",
        (
            Patch(
                "stores/sqlite/sql/lease.sql",
                "where id = :worker and not rescued and boot = :boot",
                "where id = :worker and boot = :boot",
            ),
        ),
        (Promises("lease.a_half_rescued_worker"),),
    ),
    Mutant(
        "rescue_by_age",
        "A worker that holds a job for more than eight seconds is treated as dead.",
        (
            Patch(
                UPKEEP,
                "    return [worker for (worker,) in rows]",
                "    old = 'select distinct worker from job'\n"
                "    old += ' where state = 3 and started_at < ?1'\n"
                "    rows += tx.db.rows(old, (tx.now - 8.0,))\n"
                "    return sorted({worker for (worker,) in rows})",
            ),
        ),
        (Seeds(),),
    ),
    Mutant(
        "rescue_without_margin",
        "A lease counts as over two seconds before its end.",
        (
            Patch(
                "stores/sqlite/sql/upkeep.sql",
                "expires_at <= :monotonic_seconds",
                "expires_at - 2 <= :monotonic_seconds",
            ),
        ),
        (Promises("lease."), Promises("upkeep."), Seeds()),
    ),
    Mutant(
        "claim_without_a_lease",
        "A worker whose lease is over gets jobs.",
        (
            Patch(
                "stores/sqlite/exchange.py",
                "    if want <= 0 or not (found := tx.db.rows(HAS_VALID_LEASE, lease)):",
                "    found = tx.db.rows(HAS_VALID_LEASE, lease) or [(0, None)]\n"
                "    if want <= 0:",
            ),
        ),
        (Promises("exchange.a_worker_whose_lease_is_over_claims_nothing"),),
    ),
    Mutant(
        "full_disk_ends_the_lease",
        "A worker gives its jobs up when its lease ends on a full disk.",
        (
            Patch(
                HEARTBEAT,
                "        return behind_seconds > self._lease_seconds - fresh_seconds",
                "        return True or behind_seconds > fresh_seconds",
            ),
        ),
        (Tests("tests/unit/worker/test_lost_replies.py"),),
    ),
    Mutant(
        "worker_does_not_fence_itself",
        "A worker that cannot renew works on, though others may have its jobs.",
        (
            Patch(
                HEARTBEAT,
                "        if is_contested and await self._try(me, self._margin_seconds / 2)"
                " is not None:\n            self._on_lost(me)",
                "        return",
            ),
        ),
        (Seeds(knobs={"lease_seconds": 6.0, "fault_every": 4.0}),),
    ),
    Mutant(
        "fenced_worker_runs_on",
        "A worker that lost its lease registers again and lets its old jobs run.",
        (Patch("worker/lease_events.py", "        self._slots.drop_all()\n", ""),),
        (Seeds(),),
    ),
    Mutant(
        "heartbeat_on_the_workers_loop",
        "The loop that a job may block renews the lease.",
        (
            Patch(
                "worker/worker.py",
                '        self.side_loop.start(guard("heartbeat", heartbeat.run, heartbeat.give_up))\n',
                "        self._beat = self._loop.create_task(heartbeat.run())\n",
            ),
        ),
        (Seeds(),),
    ),
    Mutant(
        "woken_worker_claims_without_a_lease",
        "On PostgreSQL an idle worker whose lease has expired claims jobs.",
        (
            Patch(
                "stores/postgres/sql/exchange.sql",
                "      where w.id = :worker::int4 and not w.rescued and w.expires_at > coalesce(\n"
                "        :lease_now::float8, extract(epoch from clock_timestamp())::float8\n"
                "      )\n    )\n  order by",
                "      where w.id = :worker::int4\n"
                "        and :lease_now::float8 is distinct from -1\n"
                "    )\n  order by",
            ),
        ),
        (Tests("tests/conformance/test_postgres.py"),),
    ),
    Mutant(
        "woken_worker_claims_from_a_paused_queue",
        "On PostgreSQL an idle worker claims from a paused queue.",
        (
            Patch(
                "stores/postgres/sql/exchange.sql",
                "where q.name = :lane::text and q.paused)",
                "where q.name = :lane::text and q.paused and false)",
            ),
        ),
        (Tests("tests/conformance/test_postgres.py"),),
    ),
    Mutant(
        "woken_worker_keeps_waiting_keys",
        "On PostgreSQL a claim of an idle worker does not free a key that holds while waiting.",
        (
            Patch(
                "stores/postgres/sql/exchange.sql",
                "  where u.key = any(array(select ukey from claimed where umode = 0))\n",
                "  where false and u.key = any(array(select ukey from claimed where umode = 0))\n",
            ),
        ),
        (Tests("tests/unit/stores/test_postgres_idle_claim.py"),),
    ),
    Mutant(
        "suspended_worker_starts_its_claims",
        "A worker that was suspended starts jobs that another one may have.",
        (Patch("worker/slots.py", "if buffer and self.lease.is_over:", "if False:"),),
        (Tests("tests/unit/worker/test_suspended.py"),),
    ),
    Mutant(
        "suspended_worker_runs_a_job_alone",
        "A worker that was suspended runs the job that was to run alone.",
        (
            Patch(
                "worker/slots.py",
                "        elif self.lease.is_over:\n",
                "        elif False:\n",
            ),
        ),
        (Tests("tests/unit/worker/test_suspended.py"),),
    ),
)
