"""More invariants: failures that the other checks do not notice.

A worker that lives and does nothing, a job that two workers run at once, an answer that
went to the wrong producer: such histories still end well. Each check here was written
because a planted bug survived the other checks.
"""

from collections.abc import Callable, Iterator

from tests.simulation.checks import LATE_SECONDS, LOSSES_MAX, Case, Violation
from tests.simulation.ledger import ALL_NODES, LedgerLine
from tests.simulation.workload import QUICK_RETRY, SOFT_SECONDS, TIGHT_MAX

# Faults that must not cost a worker its jobs.
CLOCKS = {"skew", "clock_step"}
NO_WAKEUPS = {"deaf", "store_deaf"}  # wakeups are hints: polling finds the job
HARMLESS = CLOCKS | NO_WAKEUPS | {"blocking job", "store_full"}
# Faults after which code may run that should have stopped: no message reached it.
STILL = {"pause", "block", "blocking job"}
FORGOTTEN_SECONDS = 25.0
LONELY_SECONDS = 120.0  # for a job that runs alone: the other jobs must end first
WAKEUP_SECONDS = 10.0
LOCKED_SECONDS = 3.0  # after a lock is gone: several rounds over all keys of a world
DEATH_REPORT_SECONDS = 15.0
RESTART_SECONDS = 60.0  # after healing, when every worker is replaced
# For a worker with its code, for a limit, or for a breaker.
MAY_WAIT = {"modern", "limited", "behind"}
NEVER_FAIL = {
    *("plain", "delayed", "keyed", "tight", "cancelled", "modern", "telling"),
    *("snoozing", "blocking"),
}


def quiet(
    case: Case, node: str, since: float, until: float
) -> Iterator[tuple[float, float]]:
    """Yield the periods in which no recorded fault disturbed a process."""
    late = case.knobs.lease_seconds + LATE_SECONDS
    noisy = [
        (one.began, one.ended + late)
        for one in case.ledger.disturbances
        if one.node in (node, ALL_NODES) and one.kind not in CLOCKS | NO_WAKEUPS
    ]
    noisy.append((case.healed_at, case.healed_at + RESTART_SECONDS))
    at = since
    for began, ended in sorted(noisy):
        if began > at:
            yield at, min(began, until)
        at = max(at, ended)
        if at >= until:
            return
    yield at, until


def is_quiet(case: Case, node: str, since: float, until: float) -> bool:
    """Whether no fault disturbed a process in all of this time."""
    return any(a <= since and b >= until for a, b in quiet(case, node, since, until))


def no_rerun_after_a_harmless_fault(case: Case) -> Iterator[Violation]:
    """I7: a wrong clock, a lost wakeup or a blocked loop costs no worker its jobs."""
    late = case.knobs.lease_seconds + LATE_SECONDS
    for n in case.by_job:
        for rescue in case.of(n, "rescued"):
            claim = claim_before(case, n, rescue)
            if claim is None or claim.fields["worker"] != rescue.fields["worker"]:
                continue
            kinds = {
                one.kind
                for one in case.ledger.disturbances
                if one.touches(claim.node, claim.at - late, rescue.at)
                # A worker that ended itself is the failure that this check looks for.
                and not one.kind.startswith("exit ")
            }
            if kinds and kinds <= HARMLESS:
                what = (
                    f"a rescue took it, and there was only: {', '.join(sorted(kinds))}"
                )
                yield Violation("I7", n, what)


def claim_before(case: Case, n: int, entry: LedgerLine) -> LedgerLine | None:
    claims = [claim for claim in case.of(n, "claim") if claim.at <= entry.at]
    return claims[-1] if claims else None


def one_start_per_claim(case: Case) -> Iterator[Violation]:
    """I7: a worker starts a claimed job at most once."""
    for n in case.by_job:
        starts = len(case.of(n, "start"))
        claims = len({claim.fields["claim_no"] for claim in case.of(n, "claim")})
        if starts > claims:
            yield Violation("I7", n, f"{claims} claims, and it began {starts} times")


def one_at_a_time(case: Case) -> Iterator[Violation]:
    """I4: a worker stops a job before another worker may start it."""
    for n in case.by_job:
        starts = case.of(n, "start")
        for effect in case.of(n, "effect"):
            own = [s for s in starts if s.node == effect.node and s.at <= effect.at]
            if not own:
                continue
            began, number = own[-1].at, number_of(case, own[-1])
            # Only newer claims: a process that stood still may start a job it lost.
            others = [
                s for s in starts if s.at < effect.at and number_of(case, s) > number
            ]
            is_still = any(
                one.kind in STILL and one.touches(effect.node, began, effect.at)
                for one in case.ledger.disturbances
            )
            if others and not is_still:
                what = f"{effect.node} went on while {others[0].node} had it"
                yield Violation("I4", n, what)


def number_of(case: Case, start: LedgerLine) -> int:
    """Return the number of the claim by which a process started a job."""
    claims = case.of(start.n or 0, "claim")
    own = [c for c in claims if c.node == start.node and c.at <= start.at]
    return int(own[-1].fields["claim_no"]) if own else 0


def a_repeat_repeats_something(case: Case) -> Iterator[Violation]:
    """I3: the store calls an outcome repeated only if it accepted it before."""
    for n in case.by_job:
        for repeat in case.of(n, "repeat"):
            before = [
                e
                for e in case.of(n, "end")
                if e.fields["claim_no"] == repeat.fields["claim_no"]
                and e.at <= repeat.at
            ]
            if not before and not case.of(n, "rescued", "cancel.invoke"):
                what = f"{repeat.fields['kind']} had landed, says the store: it had not"
                yield Violation("I3", n, what)


def no_claim_is_forgotten(case: Case) -> Iterator[Violation]:
    """I24: a claimed job is started or released, also when the reply was lost."""
    for n in case.by_job:
        for claim in case.of(n, "claim"):
            until = answered_at(case, n, claim)
            is_last = is_last_chance(claim, claim.node)
            most = LONELY_SECONDS if is_last else FORGOTTEN_SECONDS
            for began, ended in quiet(case, claim.node, claim.at, until):
                if ended - began > most:
                    what = f"{claim.node} held it for {until - claim.at:.0f} s, unbegun"
                    yield Violation("I24", n, what)
                    break


def answered_at(case: Case, n: int, claim: LedgerLine) -> float:
    """Return when the first effect of a claim was recorded."""
    for entry in case.by_job[n]:
        if entry.at < claim.at or entry is claim:
            continue
        is_own = entry.what == "start" and entry.node == claim.node
        if is_own or entry.what in ("end", "repeat", "refused", "rescued", "claim"):
            return entry.at
    left = [e.at for e in case.ledger.of("left") if e.at >= claim.at]
    return min([*left, case.world.seconds])


def no_worker_is_deaf(case: Case) -> Iterator[Violation]:
    """I24: an idle and undisturbed worker claims what waits."""
    idle = idle_times(case)
    for n, wish in case.wishes.items():
        stored = [e for e in case.of(n, "stored") if e.fields["fate"] == "new"]
        may_wait = wish.kind in MAY_WAIT or wish.cancel_seconds is not None
        if not stored or wish.delay_seconds or may_wait:
            continue
        claims = case.of(n, "claim")
        until = claims[0].at if claims else case.world.seconds
        for node, since, to in idle:
            for began, ended in quiet(
                case, node, max(since, stored[0].at), min(to, until)
            ):
                if ended - began > WAKEUP_SECONDS:
                    what = f"it waited for {ended - began:.0f} s beside an idle {node}"
                    yield Violation("I24", n, what)
                    return


def idle_times(case: Case) -> list[tuple[str, float, float]]:
    """Return (worker, since, until) while a worker was registered and held no job."""
    case.exercised.add("I24")
    held: dict[str, set[int | None]] = {}
    since: dict[str, float] = {}
    found: list[tuple[str, float, float]] = []

    def changed(node: str, at: float) -> None:
        if node in since and (began := since.pop(node)) < at - WAKEUP_SECONDS:
            found.append((node, began, at))
        if not held.get(node, {0}):
            since[node] = at

    for entry in case.ledger.entries:
        node = entry.node
        if entry.what == "registered":
            held[node] = set()
        elif entry.what == "claim":
            held.setdefault(node, set()).add(entry.n)
        elif entry.what in ("left", "exit") or is_harmful(entry):
            held.pop(node, None)
        elif entry.what in ("end", "repeat", "refused"):
            if entry.fields["kind"] != "alone":
                held.get(node, set()).discard(entry.n)
        else:
            continue
        changed(node, entry.at)
    for node in list(since):
        held.pop(node)
        changed(node, case.world.seconds)
    return found


def is_harmful(entry: LedgerLine) -> bool:
    return entry.what == "fault" and entry.fields["kind"] not in HARMLESS


def an_answer_is_ones_own(case: Case) -> Iterator[Violation]:
    """I6: a producer gets the job that it asked for, or the one that holds its key."""
    for entry in case.ledger.of("enq.ok"):
        n, got = entry.n or 0, entry.fields["job"]
        key = case.wishes[n].key
        if got is None:
            yield Violation(
                "I6", n, "its producer was given a job that was never stored"
            )
        elif got != n and (key is None or case.wishes[got].key != key):
            yield Violation("I6", n, f"its producer was given job {got}")


def locked_means_locked(case: Case) -> Iterator[Violation]:
    """I6: an enqueue fails because of a lock only while there is one, or just after."""
    for entry in case.ledger.of("enq.fail"):
        since = entry.at - LOCKED_SECONDS
        is_explained = any(
            fault.touches(entry.node, since, entry.at)
            for fault in case.ledger.disturbances
        )
        if "locked" in entry.fields and not is_explained:
            yield Violation("I6", entry.n, "no key was locked when it was refused")


def full_means_full(case: Case) -> Iterator[Violation]:
    """A bounded queue refuses a job only when there is no room for it."""
    was_full = False
    for entry in case.ledger.entries:
        if entry.what == "stored" and entry.fields["lane"].endswith(":tight"):
            was_full = was_full or entry.fields["fate"] == "full"
        elif entry.what == "depth" and entry.fields["lane"].endswith(":tight"):
            if was_full and entry.fields["depth"] < TIGHT_MAX:
                yield Violation(
                    "bound", None, f"full with {entry.fields['depth']} jobs"
                )
            was_full = False


def retries_are_spread(case: Case) -> Iterator[Violation]:
    """Jitter: no retry waits exactly the nominal delay."""
    whole = set(QUICK_RETRY.delays or ())
    for n in case.by_job:
        for end in case.of(n, "end"):
            delay = end.fields["delay"]
            case.exercised |= {"jitter"} if end.fields["kind"] == "retry" else set()
            if end.fields["kind"] == "retry" and delay in whole:
                yield Violation(
                    "jitter", n, f"its retry waits {delay} s, like all others"
                )


def only_what_fails_is_retried(case: Case) -> Iterator[Violation]:
    """I8: a job whose code never fails is charged only if its process stood still."""
    for n, wish in case.wishes.items():
        if wish.kind not in NEVER_FAIL or (wish.kind == "tight" and wish.count):
            continue
        for end in case.of(n, "end"):
            claim = claim_before(case, n, end)
            if end.fields["kind"] != "retry" or claim is None:
                continue
            if not case.ledger.stood_still(end.node, claim.at, end.at):
                yield Violation("I8", n, "it was charged, and its code never fails")


def the_last_chance_is_marked(case: Case) -> Iterator[Violation]:
    """I8: a job that lost two workers starts only after it is marked to run alone."""
    for n in case.by_job:
        newest: LedgerLine | None = None
        is_marked = False
        for entry in case.of(n, "claim", "end", "start"):
            if entry.what == "claim":
                is_marked = is_marked and newest is not None and same(newest, entry)
                newest = entry
            elif entry.what == "end":
                is_marked = is_marked or entry.fields["kind"] == "alone"
            elif not is_marked and is_last_chance(newest, entry.node):
                yield Violation("I8", n, "its last chance, and it was not marked")


def is_last_chance(claim: LedgerLine | None, node: str) -> bool:
    """Whether this process claimed a job that lost two workers in a row."""
    if claim is None or claim.node != node:
        return False
    return claim.fields["lost"] >= LOSSES_MAX - 1


def same(first: LedgerLine, second: LedgerLine) -> bool:
    """Whether the second line repeats the same claim."""
    return bool(first.fields["claim_no"] == second.fields["claim_no"])


def a_soft_limit_is_heard(case: Case) -> Iterator[Violation]:
    """I16: a task gets its soft limit in time."""
    for n, wish in case.wishes.items():
        if wish.kind != "endless":
            continue
        for start in case.of(n, "start"):
            until = start.at + SOFT_SECONDS + 0.5
            heard = [w for w in case.of(n, "warned") if start.at < w.at < until]
            ended = [e for e in case.of(n, "end") if start.at < e.at < until]
            if is_quiet(case, start.node, start.at, until) and not (heard or ended):
                yield Violation("I16", n, "it never heard of its soft limit")


def a_paused_queue_gives_nothing(case: Case) -> Iterator[Violation]:
    """No claim comes from a paused queue, from the moment of the pause."""
    paused: set[str] = set()
    issued: set[tuple[int | None, int]] = set()
    for entry in case.ledger.entries:
        if entry.what == "queue":
            is_paused = entry.fields["is_paused"]
            (paused.add if is_paused else paused.discard)(entry.fields["lane"])
        elif entry.what == "claim":
            claim = entry.n, entry.fields["claim_no"]
            case.exercised |= {"paused"} if paused else set()
            if entry.fields["lane"] in paused and claim not in issued:
                yield Violation("paused", entry.n, "its queue was paused")
            issued.add(claim)


def a_death_is_told_once(case: Case) -> Iterator[Violation]:
    """Hooks run at most once per death, and once if the process was undisturbed."""
    for n in case.by_job:
        told = case.of(n, "told")
        case.exercised |= {"hooks"} if told else set()
        if len(told) > 1:
            yield Violation("hooks", n, f"its death was told {len(told)} times")
        for end in case.final_ends(n):
            is_dead = end.fields.get("kind") == "dead" or end.fields.get("state") == 5
            until = end.at + DEATH_REPORT_SECONDS
            if is_dead and not told and is_quiet(case, end.node, end.at, until):
                yield Violation("hooks", n, "it died, and nobody was told")


CHECKS: tuple[Callable[[Case], Iterator[Violation]], ...] = (
    no_rerun_after_a_harmless_fault,
    one_start_per_claim,
    one_at_a_time,
    a_repeat_repeats_something,
    no_claim_is_forgotten,
    no_worker_is_deaf,
    an_answer_is_ones_own,
    locked_means_locked,
    full_means_full,
    retries_are_spread,
    only_what_fails_is_retried,
    the_last_chance_is_marked,
    a_soft_limit_is_heard,
    a_paused_queue_gives_nothing,
    a_death_is_told_once,
)


def judge(case: Case) -> list[Violation]:
    return [violation for check in CHECKS for violation in check(case)]
