"""What attempts have spent of their budgets, and how that is settled when they end.

A job takes its estimate at the gate of the budget. The end of the attempt gives back what was
not spent, or takes the rest: with the outcome if the job is done, else after the store has
accepted it. A worker that is killed in between leaves the estimate spent, and so does an
attempt that is lost.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import cast

from durio.model.effects import Effects, joined
from durio.model.errors import StoreError, UsageError
from durio.model.gate import GateChange
from durio.model.limits import is_number
from durio.model.outcome import Outcome, OutcomeKind
from durio.ports.clock import Clock
from durio.ports.commit import ROWS_MAX, Commit
from durio.telemetry.emit import Emit
from durio.worker.inflight import Attempt

WRITE_SECONDS = 1.0
LAST_WRITE_SECONDS = 3.0
# A job that goes straight back to its queue does not pass its gates again.
BACK_AT_ONCE = frozenset({OutcomeKind.RETRY, OutcomeKind.SNOOZE, OutcomeKind.RELEASE})


def settling_changes(attempt: Attempt, outcome: Outcome) -> tuple[GateChange, ...]:
    """Return how the budgets change when this attempt ends so; nothing after a loss."""
    if not attempt.spent or outcome.kind == OutcomeKind.LOST:
        return ()
    keeps_estimate = attempt.claim.lost > 0  # that of the lost attempt stays spent
    if outcome.kind in BACK_AT_ONCE and not outcome.delay_seconds:
        keeps_estimate = True  # the next attempt takes none
    changes: list[GateChange] = []
    for name, spent in sorted(attempt.spent.items()):
        gate, estimate = attempt.budgets[name]
        add = (0.0 if keeps_estimate else estimate) - spent
        changes.append(GateChange(gate, add=add))
    return tuple(changes)


def with_settling(outcome: Outcome, attempt: Attempt) -> Outcome:
    """Return the end of a job that is done, with what settles its budgets."""
    effects = Effects(gates=settling_changes(attempt, outcome))
    if outcome.effects is not None:
        effects = joined(outcome.effects, effects)
    return outcome._replace(effects=effects)


class BudgetSettler:
    """Settles the budgets of attempts whose jobs are not done, about once a second."""

    def __init__(self, store: Commit, clock: Clock, emit: Emit) -> None:
        self._store = store
        self._clock = clock
        self._emit = emit
        self._unwritten: defaultdict[str, float] = defaultdict(float)  # by gate
        self._has_new = asyncio.Event()

    def add(self, changes: Sequence[GateChange]) -> None:
        """Settle these soon."""
        for change in changes:
            self._unwritten[change.name] += change.add
        self._has_new.set()

    async def turn(self) -> float:
        """Wait for something to settle and write it; return the pause before the next turn."""
        await self._has_new.wait()
        self._has_new.clear()
        try:
            await self._write()
        except BaseException:
            self._has_new.set()
            raise
        return WRITE_SECONDS

    async def close(self) -> None:
        """Write the last changes when the worker ends."""
        try:
            async with asyncio.timeout(LAST_WRITE_SECONDS):
                await self._write()
        except (StoreError, TimeoutError) as error:
            text = str(error) or "no answer in time"
            self._emit("store.failed", call="budgets", error=text)

    async def _write(self) -> None:
        while names := sorted(self._unwritten)[:ROWS_MAX]:
            taken = {name: self._unwritten.pop(name) for name in names}
            changes = [GateChange(name, add=add) for name, add in taken.items()]
            try:
                await self._store.commit(Effects(gates=changes))
            except StoreError as error:
                if not error.unknown:  # else it may be written, and must not be twice
                    for name, add in taken.items():
                        self._unwritten[name] += add
                raise


# --- what a task calls


def spend(attempt: Attempt, amount: object, budget: str | None) -> None:
    """Add to what the attempt has spent of a budget; raises UsageError.

    Nothing is counted for a job that passes without a budget which its task declares.
    """
    if not is_number(amount) or not 0 <= cast("float", amount) < math.inf:
        raise UsageError(
            f"ctx.spend cannot take {amount!r:.80}",
            cure="Give what this call has spent, a number of 0 or more.",
        )
    if attempt.is_over:
        return
    names = sorted(attempt.budgets)
    if budget is None and len(names) == 1:
        budget = names[0]
    if budget not in names:
        rule = attempt.handler.gate_rule
        declared = frozenset[str]() if rule is None else rule.budget_names
        if budget in declared or (budget is None and declared and not names):
            return  # this job passes without it: an older job, or its key is missing
        raise no_such_budget(budget, sorted({*names, *declared}))
    if attempt.recorded is not None:
        raise UsageError(
            "this job is done: its ctx.transaction() has committed",
            cure="Call ctx.spend() inside the block.",
        )
    attempt.spent = attempt.spent or {}
    attempt.spent[budget] = attempt.spent.get(budget, 0.0) + cast("float", amount)


def no_such_budget(budget: str | None, names: Sequence[str]) -> UsageError:
    what = f"the budgets {', '.join(names)}" if names else "no budget"
    other = "" if budget is None else f", not {budget!r}"
    return UsageError(
        f"ctx.spend: the task has {what}{other}",
        cure=f"Name one of them: ctx.spend(5, {names[0]!r})."
        if names
        else 'Declare one: limits=[Budget("tokens", 1_000_000)].',
    )
