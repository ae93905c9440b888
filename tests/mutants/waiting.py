"""Bugs about jobs that wait: when and in which order they are claimed."""

from tests.mutants.planting import Mutant, Patch, Promises, Seeds

# Wakeups get lost most of the time; nothing else fails.
NO_WAKEUPS = tuple(
    (float(at), "store_deaf", "*", 50.0, 0.5) for at in range(10, 300, 60)
)


def ordered(by: str) -> tuple[Patch, ...]:
    """Return patches that make every query for ready jobs use this order."""
    looked = "where name = :lane and paused)\n{}"
    claimed = "select seq from job where state = 2 and queue = :lane {}"
    usual = "order by rank, seq limit"
    return tuple(
        Patch("stores/sqlite/sql/exchange.sql", text.format(usual), text.format(by))
        for text in (looked, claimed)
    )


PLANTED = (
    Mutant(
        "promote_early",
        "A job that is due in two seconds is due now.",
        (
            Patch(
                "stores/sqlite/exchange.py",
                "        if due is not None and due <= tx.now:\n"
                "            enter_tied(tx, tx.db.rows(PROMOTE_LANE, (lane, tx.now, ",
                "        if due is not None and due <= tx.now + 2:\n"
                "            enter_tied(tx, tx.db.rows(PROMOTE_LANE, (lane, tx.now + 2, ",
            ),
        ),
        (Seeds(),),
    ),
    Mutant(
        "priorities_reversed",
        "The least urgent job goes first.",
        ordered("order by rank desc, seq limit"),
        (Promises("exchange.order_is_priority"),),
    ),
    Mutant(
        "last_in_first_out",
        "The newest job of a queue goes first.",
        ordered("order by rank, seq desc limit"),
        (Promises("exchange.order_is_priority"),),
    ),
    Mutant(
        "large_claims_in_any_order",
        "A claim of many jobs starts them from the last to the first.",
        (
            Patch(
                "stores/sqlite/exchange.py",
                "[unpack(fields) for fields in rows]",
                "[unpack(fields) for fields in rows[::-1]]",
            ),
        ),
        (Promises("many_jobs."),),
    ),
    Mutant(
        "keys_kept_by_large_claims",
        "A claim of many jobs does not free the keys that hold only while jobs wait.",
        (
            Patch(
                "stores/sqlite/exchange.py",
                "    if keyed:\n        return None\n",
                "    del keyed\n",
            ),
        ),
        (Promises("keys."), Promises("freed_keys."), Seeds()),
    ),
    Mutant(
        "a_death_appends_nothing",
        "A job that dies by a rescue appends no entries to its logs.",
        (
            Patch(
                "stores/sqlite/exit.py",
                "        if ties is not None:\n",
                "        if ties is not None and outcome.kind != OutcomeKind.LOST:\n",
            ),
        ),
        (Promises("on_end."),),
    ),
    Mutant(
        "once_is_ignored",
        "A log takes two entries of one tag although one is wanted.",
        (
            Patch(
                "model/ties.py",
                'return f"m{end.tag}" if end.once else None',
                "return None",
            ),
        ),
        (Promises("on_end."),),
    ),
    Mutant(
        "quiet_is_ignored",
        "A job that is cancelled quietly appends its entries all the same.",
        (
            Patch(
                "stores/sqlite/job_actions.py",
                "    if ties is not None and not action.is_quiet:\n",
                "    if ties is not None:\n",
            ),
        ),
        (Promises("on_end."),),
    ),
    Mutant(
        "waiters_of_a_later_log_are_forgotten",
        "When one log has many waiters, those of the next log are not marked.",
        (
            Patch(
                "stores/sqlite/logs.py",
                "            if log.encode() >= first_left.encode():",
                "            if log == first_left:",
            ),
        ),
        (Promises("waits."),),
    ),
    Mutant(
        "delay_counts_from_the_enqueue",
        "The delay of a job that waits begins before its wait ends.",
        (
            Patch(
                "stores/sqlite/enqueue.py",
                "(job.id, *job.wait, job.delay_seconds, job.lane)",
                "(job.id, *job.wait, 0.0, job.lane)",
            ),
        ),
        (Promises("waits."),),
    ),
    Mutant(
        "doorbell_trusted_as_truth",
        "A worker looks for jobs only after a wakeup, and a wakeup may be lost.",
        (
            Patch(
                "worker/wakeup.py",
                "            self._on_wake(wake)",
                "            if wake.woken:\n                self._on_wake(wake)",
            ),
        ),
        (Seeds(20, {"concurrency": 10, "jobs": 60}, NO_WAKEUPS),),
    ),
    Mutant(
        "deaf_after_an_error",
        "The claim loop ends at the first error of the store, and the worker lives on.",
        (
            Patch(
                "worker/claim.py",
                "        await self._clock.sleep(pause * (0.5 + self._clock.random() / 2))",
                "        await self._loop.create_future()",
            ),
        ),
        (Seeds(),),
    ),
    Mutant(
        "parked_job_buried_at_once",
        "A job whose task this worker does not know is dead, though others know it.",
        (
            Patch(
                "worker/unrunnable.py",
                "    if age >= unknown_seconds:",
                "    if age >= 0.0:",
            ),
        ),
        (Seeds(),),
    ),
)
