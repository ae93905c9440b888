"""The invariants, judged offline from the ledger and a dump of the store.

The numbers are those of the table on the reliability page. Each check is a function
that yields violations; it shares no code with the engine. A check marks an invariant as
`exercised` when it finds something to check: an invariant that no world exercises has
not been shown to hold.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

import msgspec

from durio.model.job import STATE_BY_CODE, StoredJob
from tests.simulation.ledger import PLAN_JOBS_FIRST, Ledger, LedgerLine
from tests.simulation.workload import HARD_SECONDS, TIGHT_MAX, Wish
from tests.simulation.world import World

FINAL_KINDS = {"done": "done", "dead": "dead", "cancel": "cancelled"}
LOSSES_MAX = 3
RETRIES_MAX = 3
FIRST_FINAL = 4  # state numbers from here on are final
# A fault can show this much later: a lease that it kept from being renewed ends first.
LATE_SECONDS = 10.0
ENDLESS_SECONDS = 5.0  # the hard limit of an "endless" job
GRACE_SECONDS = 2.0
STOP_SECONDS = 10.0  # the grace that a stopping worker gives its jobs
# Limit after all faults have healed: leases end, retries and parked jobs come due.
LAST_SECONDS = 1800.0


class Violation(NamedTuple):
    invariant: str
    n: int | None
    what: str

    def __str__(self) -> str:
        about = "" if self.n is None else f" (job {self.n})"
        return f"{self.invariant}: {self.what}{about}"


class CheckedKnobs(Protocol):
    """The settings of a world that the checks use."""

    @property
    def lease_seconds(self) -> float:
        """The lease of every worker."""
        ...

    @property
    def heartbeat_seconds(self) -> float:
        """The time between two renewals of a lease."""
        ...

    @property
    def keep_seconds(self) -> float:
        """How long the store keeps a done job."""
        ...

    @property
    def is_calm(self) -> bool:
        """Whether the world has no faults."""
        ...


class Case:
    """Everything that the checks read."""

    def __init__(
        self,
        ledger: Ledger,
        wishes: Sequence[Wish],
        records: Sequence[StoredJob],
        world: World,
        knobs: CheckedKnobs,
        healed_at: float,
    ) -> None:
        self.ledger = ledger
        self.world = world
        self.knobs = knobs
        self.healed_at = healed_at
        self.wishes = {wish.n: wish for wish in wishes}
        self.records: dict[int, list[StoredJob]] = defaultdict(list)
        self.all_records = records  # with those of plans: see plan_checks.py
        for record in records:
            if (n := ledger.number(record)) < PLAN_JOBS_FIRST:
                self.records[n].append(record)
        self.lines: dict[int, list[LedgerLine]] = defaultdict(list)
        for entry in ledger.entries:
            if entry.n is not None:
                self.lines[entry.n].append(entry)
        self.by_job = {n: e for n, e in self.lines.items() if n < PLAN_JOBS_FIRST}
        self.exercised: set[str] = set()

    def of(self, n: int, *whats: str) -> list[LedgerLine]:
        """Ledger lines of these kinds about one job."""
        return [entry for entry in self.lines[n] if entry.what in whats]

    def final_ends(self, n: int) -> list[LedgerLine]:
        """Accepted outcomes and rescues that made the job final."""
        ends = [e for e in self.of(n, "end") if e.fields["kind"] in FINAL_KINDS]
        return ends + [
            e for e in self.of(n, "rescued") if e.fields["state"] >= FIRST_FINAL
        ]

    def state(self, n: int) -> str | None:
        """Return the final state, from the store, or from the ledger if the job was pruned."""
        if self.records[n]:
            return STATE_BY_CODE[self.records[n][0].state].value
        for end in self.final_ends(n)[-1:]:
            if end.what == "rescued":
                code: int = end.fields["state"]
                return STATE_BY_CODE[code].value
            return FINAL_KINDS[end.fields["kind"]]
        # The release of a job carries out its requested cancel, whose reply may be lost. A
        # worker that leaves releases without an outcome: the ledger has no line for it.
        return "cancelled" if self.of(n, "cancel.invoke") else None

    def is_new(self, n: int) -> bool:
        """Whether the store accepted it as a new job."""
        return any(e.fields["fate"] == "new" for e in self.of(n, "stored"))

    def is_touched(self, node: str, since: float, until: float) -> bool:
        """Whether a recorded fault can explain what this process did in that time."""
        since -= self.knobs.lease_seconds + LATE_SECONDS
        return any(d.touches(node, since, until) for d in self.ledger.disturbances)


Check = Callable[[Case], Iterator[Violation]]


def no_acknowledged_job_is_lost(case: Case) -> Iterator[Violation]:
    """I1: an acknowledged job is in the store, or was."""
    for entry in case.ledger.of("enq.ok"):
        n = entry.n or 0
        case.exercised.add("I1")
        if entry.fields["created"] and case.state(n) is None:
            yield Violation("I1", n, "it was acknowledged, and is not in the store")


def every_job_reaches_its_end(case: Case) -> Iterator[Violation]:
    """I2 and I24: every job becomes final by itself, soon after all has healed."""
    for n, records in case.records.items():
        for record in records:
            case.exercised.add("I2")
            state = STATE_BY_CODE[record.state]
            if not state.is_final:
                yield Violation("I2", n, f"it is {state} long after everything healed")
    for n in case.by_job:
        for end in case.final_ends(n)[:1]:
            if end.at > case.healed_at + LAST_SECONDS:
                late = end.at - case.healed_at
                yield Violation("I24", n, f"it ended {late:.0f} s after all had healed")


def one_final_end(case: Case) -> Iterator[Violation]:
    """I3: at most one accepted final outcome."""
    for n in case.by_job:
        ends = case.final_ends(n)
        case.exercised |= {"I3"} if ends else set()
        if len(ends) > 1:
            yield Violation("I3", n, f"it ended {len(ends)} times")


def nothing_from_a_fenced_owner(case: Case) -> Iterator[Violation]:
    """I4: an accepted outcome carries the highest claim number issued before it."""
    for n in case.by_job:
        highest = 0
        if case.of(n, "refused"):
            case.exercised.add("I4")
        for entry in case.of(n, "claim", "end"):
            number = entry.fields["claim_no"]
            if entry.what == "claim":
                highest = max(highest, number)
            elif number != highest:
                what = f"an end of claim {number} was accepted after claim {highest}"
                yield Violation("I4", n, what)


def done_means_that_it_ran(case: Case) -> Iterator[Violation]:
    """I5 and I21: a done job has an effect before its end, and its own result."""
    for n in case.by_job:
        if case.state(n) != "done":
            continue
        case.exercised.add("I5")
        ends = [e for e in case.final_ends(n) if e.fields.get("kind") == "done"]
        if not case.of(n, "effect"):
            yield Violation("I5", n, "it is done, and has done nothing")
        elif ends and ends[0].at < case.of(n, "effect")[0].at:
            yield Violation("I5", n, "it was done before it had done anything")
        for record in case.records[n]:
            case.exercised |= {"I21"} if record.result is not None else set()
            if record.result is not None and msgspec.json.decode(record.result) != n:
                yield Violation("I21", n, f"its result is {record.result!r}")


def no_phantom_and_no_double(case: Case) -> Iterator[Violation]:
    """I6: an enqueue of unknown result is stored at most once; a refused one never."""
    for n, records in case.records.items():
        if n not in case.wishes:
            yield Violation("I6", n, "nobody asked for it")
        if len(records) > 1:
            yield Violation("I6", n, f"it is there {len(records)} times")
    for n in case.by_job:
        new = [e for e in case.of(n, "stored") if e.fields["fate"] == "new"]
        case.exercised |= {"I6"} if case.of(n, "enq.info") else set()
        if len(new) > 1:
            yield Violation("I6", n, f"it was stored {len(new)} times")
        if new and case.of(n, "enq.fail"):
            yield Violation("I6", n, "its producer was told that it was not stored")


def every_rerun_is_explained(case: Case) -> Iterator[Violation]:
    """I7: by an accepted outcome of the run before, or by a recorded fault."""
    for n in case.by_job:
        first_of: dict[int, LedgerLine] = {}
        for claim in case.of(n, "claim"):  # repeated after a lost reply: the same one
            first_of.setdefault(claim.fields["claim_no"], claim)
        for first, second in pairwise(first_of.values()):
            case.exercised.add("I7")
            said = [
                e.fields["kind"]
                for e in case.of(n, "end")
                if e.fields["claim_no"] == first.fields["claim_no"]
            ]
            if any(kind != "alone" for kind in said):
                continue
            if not case.is_touched(first.node, first.at, second.at):
                what = f"claim {second.fields['claim_no']} has no reason"
                yield Violation("I7", n, what)
        if case.knobs.is_calm and len(case.of(n, "start")) > 1 + restart_outcomes(
            case, n
        ):
            yield Violation("I7", n, "it ran again in a world where nothing went wrong")


def restart_outcomes(case: Case, n: int) -> int:
    """Return how many accepted outcomes make the job start again."""
    return sum(
        e.fields["kind"] in ("retry", "snooze", "release") for e in case.of(n, "end")
    )


def it_ends_as_it_must(case: Case) -> Iterator[Violation]:
    """I8: retries and losses stay within bounds, and the end fits the job's code."""
    for n in case.by_job:
        state = case.state(n)
        if state is None or n not in case.wishes:
            continue
        case.exercised.add("I8")
        reasons = [record.reason for record in case.records[n]]
        if state == "dead" and "worker_lost" in reasons:
            yield from dead_by_loss(case, n)
        elif (
            state in FINAL_KINDS.values()
            and state not in case.wishes[n].ends
            and not (state == "dead" and lost_attempt_to_pause(case, n))
        ):
            yield Violation("I8", n, f"a job of kind {case.wishes[n].kind} is {state}")
        for record in case.records[n]:
            retries = sum(e.fields["kind"] == "retry" for e in case.of(n, "end"))
            if record.retried > RETRIES_MAX or record.retried != retries:
                what = f"{record.retried} retries, and {retries} failures were accepted"
                yield Violation("I8", n, what)
            if state == "dead" and not record.reason:
                yield Violation("I8", n, "it is dead without a reason")
            if record.losses > len(case.of(n, "rescued")) + endings(case, n, "lost"):
                yield Violation("I8", n, f"{record.losses} losses, and fewer rescues")


def lost_attempt_to_pause(case: Case, n: int) -> bool:
    """Whether a job that fails may be dead: a pause in an attempt cost it one more."""
    first, ends = case.of(n, "start")[:1], case.of(n, "end")
    spans = [(end.node, start.at, end.at) for start in first for end in ends]
    return case.wishes[n].count > 0 and any(case.ledger.stood_still(*s) for s in spans)


def endings(case: Case, n: int, kind: str) -> int:
    """Return how many accepted outcomes have this kind."""
    return sum(e.fields["kind"] == kind for e in case.of(n, "end"))


def dead_by_loss(case: Case, n: int) -> Iterator[Violation]:
    """Dead by loss: only after the third loss in a row, and only when it ran alone."""
    losses = case.records[n][0].losses
    alone = endings(case, n, "alone")
    if losses < LOSSES_MAX - 1 or not alone:
        yield Violation("I8", n, f"worker_lost after {losses} losses, {alone} alone")
    if case.wishes[n].kind != "poison" and not case.ledger.disturbances:
        yield Violation("I8", n, "worker_lost, and nothing was ever disturbed")


def one_active_job_per_key(case: Case) -> Iterator[Violation]:
    """I9: the next job of a key is new only when the one before is final."""
    holders: dict[str, int] = {}
    for entry in case.ledger.of("stored"):
        n = entry.n or 0
        key = case.wishes[n].key if n in case.wishes else None
        fate = entry.fields["fate"]
        is_repeat = fate == "existing" and entry.fields["answered_by"] == n
        if key is None or is_repeat:
            continue  # a repeat after a lost reply is always answered by the job itself
        case.exercised.add("I9")
        holder = holders.get(key)
        ended = [] if holder is None else case.final_ends(holder)
        is_active = holder is not None and not (ended and ended[0].at <= entry.at)
        if entry.fields["fate"] == "new":
            if is_active:
                yield Violation("I9", n, f"new, and job {holder} holds its key")
            holders[key] = n
        elif (
            entry.fields["fate"] == "existing" and holder is not None and not is_active
        ):
            yield Violation("I9", n, f"existing, and job {holder} is over")


def a_hard_limit_is_hard(case: Case) -> Iterator[Violation]:
    """I16: a task ends at its hard limit unless a fault disturbed its process."""
    for n, wish in case.wishes.items():
        limit = ENDLESS_SECONDS if wish.kind == "endless" else HARD_SECONDS
        for start in case.of(n, "start"):
            ends = [e for e in case.of(n, "end", "rescued") if e.at >= start.at]
            until = ends[0].at if ends else start.at
            if case.is_touched(start.node, start.at, until):
                continue
            case.exercised |= {"I16"} if wish.kind == "endless" else set()
            if until - start.at > limit + GRACE_SECONDS:
                yield Violation("I16", n, f"it ran for {until - start.at:.1f} s")


def a_cancelled_job_stays_cancelled(case: Case) -> Iterator[Violation]:
    """I20: a cancelled job never starts again, and stays cancelled."""
    for n in case.by_job:
        for cancel in case.of(n, "cancel.ok"):
            if cancel.fields["state"] != "cancelled":
                continue
            case.exercised.add("I20")
            if any(start.at > cancel.at for start in case.of(n, "start")):
                yield Violation("I20", n, "it began after it was cancelled")
            if case.state(n) != "cancelled":
                yield Violation("I20", n, f"it was cancelled, and is {case.state(n)}")


def nothing_appears_or_vanishes(case: Case) -> Iterator[Violation]:
    """I22: the store holds what was stored, less what retention deleted."""
    stored = {n for n in case.by_job if case.is_new(n)}
    for n in stored:
        case.exercised.add("I22")
        if not case.records[n] and case.state(n) not in ("done", "cancelled"):
            yield Violation("I22", n, "it was stored, never ended well, and is gone")
    for n in case.records:
        if case.records[n] and n not in stored:
            yield Violation("I22", n, "it is there, and was never stored")


def a_bound_is_a_bound(case: Case) -> Iterator[Violation]:
    """A bounded queue: new jobs never enter beyond it; retries and rescues may."""
    was_new = False
    for entry in case.ledger.entries:
        if entry.what == "stored" and entry.fields["lane"].endswith(":tight"):
            was_new = was_new or entry.fields["fate"] == "new"
            case.exercised |= {"bound"} if entry.fields["fate"] == "full" else set()
        elif entry.what == "depth" and entry.fields["lane"].endswith(":tight"):
            if was_new and entry.fields["depth"] > TIGHT_MAX:
                yield Violation(
                    "bound", None, f"a new job made {entry.fields['depth']}"
                )
            was_new = False


def nothing_goes_wrong_unnoticed(case: Case) -> Iterator[Violation]:
    """No callback and no task may end in an exception that no code handles."""
    case.exercised.add("errors")
    for node, context in (*case.world.errors, *case.world.unretrieved_errors()):
        error = context.get("exception")
        yield Violation("errors", None, f"{node}: {context.get('message')} {error!r}")


CHECKS: tuple[Check, ...] = (
    no_acknowledged_job_is_lost,
    every_job_reaches_its_end,
    one_final_end,
    nothing_from_a_fenced_owner,
    done_means_that_it_ran,
    no_phantom_and_no_double,
    every_rerun_is_explained,
    it_ends_as_it_must,
    one_active_job_per_key,
    a_hard_limit_is_hard,
    a_cancelled_job_stays_cancelled,
    nothing_appears_or_vanishes,
    a_bound_is_a_bound,
    nothing_goes_wrong_unnoticed,
)


def judge(case: Case) -> list[Violation]:
    return [violation for check in CHECKS for violation in check(case)]
