"""More invariants: processes react to commands and times, in time and not too early.

A producer gets an answer. A worker stops a cancelled job, starts nothing in a paused
queue, claims nothing after a stop and gives running jobs their grace. A delayed job
waits until it is due. And no worker ends itself without a recorded reason.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

from tests.simulation.checks import (
    ENDLESS_SECONDS,
    LATE_SECONDS,
    STOP_SECONDS,
    Case,
    Violation,
)
from tests.simulation.ledger import LedgerLine
from tests.simulation.liveness_checks import (
    CLOCKS,
    NO_WAKEUPS,
    STILL,
    claim_before,
    is_quiet,
)
from tests.simulation.workload import HARD_SECONDS, Wish

EARLY = 1e-3  # rounding error
CANCEL_SECONDS = 1.5  # on top of one heartbeat interval
PAUSE_SECONDS = 0.5  # on top of one heartbeat interval: no job needs to be interrupted
STOPPED_SECONDS = 0.5  # an exchange may be in flight when the signal arrives
STOPS = {"terminate", "deploy"}
LINK_FAULTS = {
    *("cut", "flaky", "slow", "bad_line", "broken"),
    *("store_away", "store_full", "store_slow", "store_broken", "store_reset"),
}
LASTING = {"plain", "delayed", "keyed", "tight", "cancelled", "modern", "telling"}
FINAL_OUTCOME_SECONDS = (
    10.0  # for outcomes and hooks, before the watchdog ends its process
)
SIDE_LOOP_SECONDS = 1.5  # the watchdog sees two blocks with a shorter gap as one
IDLE_BLOCK_SECONDS = 60.0  # limit for a loop that no job blocks
BLOCK_SECONDS = 1.0
LOOK_SECONDS = 0.5  # a watchdog counts from the last answer before the block
EXIT_AWAY, EXIT_BLOCKED, EXIT_TERMINATED = "exit 3", "exit 70", "exit 143"
PROGRESS_SECONDS = 2.0
PRUNE_SECONDS = 60.0  # pruning may be this late: a leader must be elected first
FOREVER_SECONDS = 1e7


# --- time


class Wall:
    """The store's clock in this world, with the steps by which a fault set it."""

    def __init__(self, case: Case) -> None:
        self.set = [(e.at, e.fields["step"]) for e in case.ledger.of("clock")]

    def at(self, at: float) -> float:
        """Return what it showed at this moment of virtual time."""
        return at + [0.0, *(step for since, step in self.set if since <= at)][-1]

    def latest(self, at: float) -> float:
        """Return the latest time that it had shown by then."""
        latest, step = self.at(at), 0.0
        for since, to in self.set:
            if since <= at:
                latest, step = max(latest, since + step), to
        return latest


def never_before_its_time(case: Case) -> Iterator[Violation]:
    """I15: by the store's clock; where that was set, due times moved with it."""
    wall = Wall(case)
    for n, wish in case.wishes.items():
        stored = [e for e in case.of(n, "stored") if e.fields["fate"] == "new"]
        claims = case.of(n, "claim")
        if wish.delay_seconds and stored and claims:
            case.exercised.add("I15")
            due = wall.at(stored[0].at) + wish.delay_seconds
            if wall.latest(claims[0].at) < due - EARLY:
                yield Violation("I15", n, "it was claimed before it was due")


def not_again_before_its_time(case: Case) -> Iterator[Violation]:
    """I15: a retried, snoozed or parked job waits as long as the worker asked."""
    wall = Wall(case)
    for n in case.by_job:
        entries = case.of(n, "claim", "end")
        for place, end in enumerate(entries):
            if end.what == "claim" or not end.fields["delay"]:
                continue
            due = wall.at(end.at) + end.fields["delay"]
            number = end.fields["claim_no"]
            for claim in entries[place + 1 :]:
                if claim.what == "claim" and claim.fields["claim_no"] > number:
                    if wall.latest(claim.at) < due - EARLY:
                        kind, delay = end.fields["kind"], end.fields["delay"]
                        what = (
                            f"it was claimed {claim.at - end.at:.3f} s after a {kind}"
                        )
                        yield Violation("I15", n, f"{what} for {delay:.3f} s")
                    break


def a_snooze_is_as_long_as_asked(case: Case) -> Iterator[Violation]:
    """I15: a snoozed job waits as long as its task asked."""
    for n in case.by_job:
        for end in case.of(n, "end"):
            if end.fields["kind"] != "snooze":
                continue
            asked = [
                e.fields["seconds"]
                for e in case.of(n, "asks")
                if e.node == end.node and e.at <= end.at
            ]
            if asked[-1:] != [end.fields["delay"]]:
                what = (
                    f"it asked for {asked[-1:]} s, and sleeps {end.fields['delay']} s"
                )
                yield Violation("I15", n, what)


def what_is_over_leaves(case: Case) -> Iterator[Violation]:
    """I22: a done job stays for its retention time, and no longer."""
    wall, keep, now = Wall(case), case.knobs.keep_seconds, case.world.seconds
    for n in case.by_job:
        ends = [e for e in case.final_ends(n) if e.fields.get("kind") == "done"]
        if not ends:
            continue
        if not case.records[n] and keep > FOREVER_SECONDS:
            yield Violation("I22", n, "it is done, shall stay, and is gone")
        if case.records[n] and wall.latest(ends[0].at) + keep + PRUNE_SECONDS < now:
            yield Violation("I22", n, f"it is done, and stays for more than {keep} s")


# --- answers


def everybody_is_answered(case: Case) -> Iterator[Violation]:
    """I6, I20: a producer gets an answer to each enqueue and cancel while it lives."""
    for what, told in (("enq", "I6"), ("cancel", "I20")):
        for asked in case.ledger.of(f"{what}.invoke"):
            n = asked.n or 0
            heard = case.of(n, f"{what}.ok", f"{what}.fail", f"{what}.info")
            if not heard and not is_gone(case, asked):
                yield Violation(told, n, f"nobody answered {asked.node}'s {what}")


def is_gone(case: Case, entry: LedgerLine) -> bool:
    """Whether the process that wrote this line is dead, replaced, paused or blocked."""
    node = case.world.nodes[entry.node]
    later = [e for e in case.ledger.of("process") if e.node == entry.node]
    is_replaced = any(e.at >= entry.at for e in later[1:])
    return is_replaced or node.is_dead or node.is_paused or node.main.is_blocked


def a_running_job_hears_its_cancel(case: Case) -> Iterator[Violation]:
    """I20: no worker claims it again, and the worker that runs it stops soon."""
    heartbeat = case.knobs.heartbeat_seconds
    for n in case.by_job:
        for cancel in case.of(n, "cancel.ok"):
            if cancel.fields["state"] != "running":
                continue
            claims = case.of(n, "claim")
            known = {c.fields["claim_no"] for c in claims if c.at <= cancel.at}
            if {c.fields["claim_no"] for c in claims} - known:
                yield Violation("I20", n, "it was claimed after a cancel")
            for effect in case.of(n, "effect"):
                starts = [s for s in case.of(n, "start") if s.at <= effect.at]
                since = max(starts[-1].at, cancel.at)
                if not is_quiet(case, effect.node, since, effect.at):
                    continue
                case.exercised.add("I20")
                if effect.at > since + heartbeat + CANCEL_SECONDS:
                    what = f"it ran on for {effect.at - since:.1f} s after its cancel"
                    yield Violation("I20", n, what)


def progress_grows(case: Case) -> Iterator[Violation]:
    """I21: within a claim progress never goes back; and it is reported at all."""
    for n, wish in case.wishes.items():
        if wish.kind != "telling":
            continue
        told = case.of(n, "progress")
        case.exercised |= {"I21"} if told else set()
        for first, second in pairwise(told):
            is_same = first.fields["claim_no"] == second.fields["claim_no"]
            if is_same and second.fields["done"] < first.fields["done"]:
                yield Violation("I21", n, "its progress went back")
        for end in case.of(n, "end"):
            number, starts = end.fields["claim_no"], case.of(n, "start")
            since = max((s.at for s in starts if s.at <= end.at), default=end.at)
            is_told = any(one.fields["claim_no"] == number for one in told)
            is_long = end.fields["kind"] == "done" and end.at - since > PROGRESS_SECONDS
            if is_long and not is_told and is_quiet(case, end.node, since, end.at):
                yield Violation("I21", n, "it told its progress, and nobody knows")


# --- stops and pauses


def is_only(
    case: Case, node: str, since: float, until: float, allowed: set[str]
) -> bool:
    """Whether only these faults disturbed a process, in this time or just before."""
    since -= case.knobs.lease_seconds + LATE_SECONDS
    return not any(
        one.kind not in allowed | CLOCKS | NO_WAKEUPS
        and one.touches(node, since, until)
        for one in case.ledger.disturbances
    )


def signals_of(case: Case, node: str, until: float) -> tuple[float, list[float]]:
    """Return when the process that lived at `until` began, and when it got stop signals."""
    began, told = 0.0, list[float]()
    for entry in case.ledger.entries:
        if entry.at > until:
            break
        if entry.node == node and entry.what == "process":
            began, told = entry.at, []
        elif entry.node == node and entry.what == "sigterm":
            told.append(entry.at)
    return began, told


def a_stop_lets_jobs_end(case: Case) -> Iterator[Violation]:
    """A stopping worker gives its running jobs their grace."""
    for n, wish in case.wishes.items():
        if wish.kind not in LASTING:
            continue
        for end in case.of(n, "end"):
            claim = claim_before(case, n, end)
            starts = [
                s
                for s in case.of(n, "start")
                if claim and claim.at <= s.at <= end.at and s.node == end.node
            ]
            if not starts:
                continue
            began, told = signals_of(case, end.node, end.at)
            if not told or not began <= starts[0].at <= told[0]:
                continue
            case.exercised.add("drain")
            is_short = starts[0].at + wish.seconds < told[0] + STOP_SECONDS - 0.5
            is_released = end.fields["kind"] == "release" and len(told) == 1
            if (
                is_short
                and is_released
                and is_only(case, end.node, starts[0].at, end.at, STOPS)
            ):
                what = f"it was given back {end.at - told[0]:.1f} s after a stop"
                yield Violation("drain", n, what)


def no_claim_after_a_stop(case: Case) -> Iterator[Violation]:
    """A worker claims nothing new after a stop signal."""
    stopped: dict[str, float] = {}
    issued: set[tuple[int | None, int]] = set()
    for entry in case.ledger.entries:
        if entry.what == "process":
            stopped.pop(entry.node, None)
        elif entry.what == "sigterm":
            stopped.setdefault(entry.node, entry.at)
        elif entry.what == "claim":
            claim = entry.n, entry.fields["claim_no"]
            since = stopped.get(entry.node, entry.at)
            is_late = claim not in issued and entry.at > since + STOPPED_SECONDS
            issued.add(claim)
            if is_late and is_only(case, entry.node, since, entry.at, STOPS):
                what = f"it was claimed {entry.at - since:.1f} s after a stop"
                yield Violation("drain", entry.n, what)


def nothing_starts_in_a_paused_queue(case: Case) -> Iterator[Violation]:
    """A worker releases jobs that it claimed before the pause, after one heartbeat."""
    heartbeat = case.knobs.heartbeat_seconds
    paused: dict[str, float] = {}
    for entry in case.ledger.entries:
        if entry.what == "queue":
            lane = entry.fields["lane"]
            if entry.fields["is_paused"]:
                paused.setdefault(lane, entry.at)
            else:
                paused.pop(lane, None)
        elif entry.what == "start" and paused:
            claim = claim_before(case, entry.n or 0, entry)
            since = paused.get(claim.fields["lane"] if claim else "", entry.at)
            is_late = entry.at > since + heartbeat + PAUSE_SECONDS
            if is_late and is_only(case, entry.node, since, entry.at, {"queue_paused"}):
                what = f"it began {entry.at - since:.1f} s after a pause of its queue"
                yield Violation("paused", entry.n, what)


# --- ends


def nobody_ends_himself_for_nothing(case: Case) -> Iterator[Violation]:
    """I7: a worker ends itself only for a reason: a blocked loop, or no store."""
    for one in case.ledger.disturbances:
        if one.kind == EXIT_AWAY:
            began, _ = signals_of(case, one.node, one.began)
            has_reason = any(
                d.kind in LINK_FAULTS
                and d.touches(one.node, began - LATE_SECONDS, one.began)
                for d in case.ledger.disturbances
            )
        elif one.kind in (EXIT_BLOCKED, EXIT_TERMINATED):
            has_reason = had_to_end(case, one.node, one.began)
        else:
            continue
        if not has_reason:
            what = f"{one.node}: {one.kind} at {one.began:.3f}, and nothing on record"
            yield Violation("I7", None, what)


def nobody_leaves_unasked(case: Case) -> Iterator[Violation]:
    """I7: a worker runs until it gets a stop signal, and nothing in it breaks."""
    for entry in case.ledger.of("exit"):
        if "error" in entry.fields:
            continue  # it never started working: its exit code is checked
        _, told = signals_of(case, entry.node, entry.at)
        if entry.fields["broken"] or not told:
            why = entry.fields["broken"] or "nobody had asked it to stop"
            yield Violation("I7", None, f"{entry.node} left at {entry.at:.3f}: {why}")


def had_to_end(case: Case, node: str, at: float) -> bool:
    """Whether its loop was blocked past every limit, or too long to react to a stop."""
    began, told = signals_of(case, node, at)
    still = last_still_seconds(case, node, began, at) + LOOK_SECONDS
    is_stop_due = len(told) > 1 or any(one <= at - STOP_SECONDS for one in told)
    if is_stop_due and still >= BLOCK_SECONDS:
        return True
    running = [n for n in case.lines if has(case, n, node, began, at)]
    return still >= limit_of([case.wishes.get(n) for n in running])


def limit_of(running: list[Wish | None]) -> float:
    """Return how long a loop may be blocked while a process has these jobs.

    None stands for a job of a plan.
    """
    if any(wish is not None and wish.kind == "endless" for wish in running):
        return ENDLESS_SECONDS
    return HARD_SECONDS if running else IDLE_BLOCK_SECONDS


def has(case: Case, n: int, node: str, since: float, at: float) -> bool:
    """Whether a process had started this job and not yet reported its end.

    A job behind a breaker runs from its claim: it asks the breaker before its task starts.
    """
    wish = case.wishes.get(n)
    begins = ("claim", "start") if wish and wish.kind == "behind" else ("start",)
    starts = [
        e.at for e in case.of(n, *begins) if e.node == node and since <= e.at < at
    ]
    return bool(starts) and not any(
        e.node == node and starts[-1] <= e.at < at - FINAL_OUTCOME_SECONDS
        for e in case.of(n, "end", "refused", "repeat")
    )


def last_still_seconds(case: Case, node: str, since: float, at: float) -> float:
    """Return the length of the last period in which its loop stood still, in seconds."""
    began = ended = since
    for one in sorted(case.ledger.disturbances, key=lambda one: one.began):
        if one.kind in STILL and one.node == node and since <= one.began <= at:
            if one.began > ended + SIDE_LOOP_SECONDS:
                began = one.began
            ended = max(ended, min(one.ended, at))
    return ended - began if ended >= at - FINAL_OUTCOME_SECONDS else 0.0


CHECKS: tuple[Callable[[Case], Iterator[Violation]], ...] = (
    never_before_its_time,
    not_again_before_its_time,
    a_snooze_is_as_long_as_asked,
    what_is_over_leaves,
    everybody_is_answered,
    a_running_job_hears_its_cancel,
    progress_grows,
    a_stop_lets_jobs_end,
    no_claim_after_a_stop,
    nothing_starts_in_a_paused_queue,
    nobody_ends_himself_for_nothing,
    nobody_leaves_unasked,
)


def judge(case: Case) -> list[Violation]:
    return [violation for check in CHECKS for violation in check(case)]
