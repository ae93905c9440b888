"""Faults of processes: stopped, signalled, supervised, poisoned, blocked."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress

from durio.model.job import DONE
from tests.e2e.chaos import jobs
from tests.e2e.chaos.cell import Fault
from tests.e2e.chaos.field import Field, until
from tests.e2e.chaos.judge import POISON, Wanted
from tests.e2e.chaos.kill_faults import SAME_HOST, SAME_HOST_SECONDS, SLOWLY, ask_for
from tests.e2e.child_jobs import is_alive
from tests.e2e.memory_group import WHAT, make_group
from tests.e2e.workers import Process

LEASE_SECONDS = 2.0
BY_LEASE = Wanted(recovery_seconds=LEASE_SECONDS + SAME_HOST_SECONDS)
PAUSE_SECONDS = (1.2 * LEASE_SECONDS, 2.5 * LEASE_SECONDS)
QUICK = {
    "lease_seconds": LEASE_SECONDS,
    "heartbeat_seconds": 0.5,
    "rescue_seconds": 0.5,
    "leader_seconds": 1,
}


# --- stopped


def pause_past_lease(field: Field) -> None:
    """Stop a worker outside a transaction: the writers' lock is held meanwhile."""
    victim = field.victim()
    with field.disturbed("pause-past-lease", victim.pid):
        with field.writer_lock():
            victim.stop()
        field.sleep(*PAUSE_SECONDS)
        victim.go_on()


def pause_anywhere(field: Field) -> None:
    """Stop a worker anywhere, perhaps inside a transaction: then all others wait."""
    victim = field.victim()
    with field.disturbed("pause-anywhere", victim.pid):
        victim.stop()
        field.sleep(*PAUSE_SECONDS)
        victim.go_on()


def pause_all(field: Field) -> None:
    """Stop all workers at once, as a frozen container or a sleeping laptop would."""
    field.victim()
    victims = field.workers
    with field.disturbed("pause-all", *field.worker_pids()):
        for victim in victims:
            victim.send(signal.SIGSTOP)
        field.sleep(*PAUSE_SECONDS)
        for victim in victims:
            victim.go_on()


def stop_inside_transaction(field: Field) -> None:
    """Stop a writer inside a transaction: it blocks all others, but no job is lost."""
    with field.disturbed("stop-in-transaction"):
        stopper = field.run("tests.e2e.stopper")
        until(stopper.is_stopped, 30, "a writer stands still")
        field.sleep(*PAUSE_SECONDS)
        stopper.go_on()
        stopper.ended()


# --- signalled


def sigterm_storm(field: Field) -> None:
    """Send SIGTERM to several workers, once each: running jobs may end, none runs twice."""
    field.victim()
    victims = field.rng.sample(field.workers, k=field.rng.randint(1, 3))
    for victim in victims:
        signal_started(field, victim, signal.SIGTERM, cuts=False)
    for victim in victims:
        assert victim.ended() == 0, victim.log[-2000:]


def sigterm_twice(field: Field) -> None:
    victim = field.victim()
    signal_started(field, victim, signal.SIGTERM, cuts=True)
    field.sleep(0.0, 0.1)
    with suppress(ProcessLookupError):
        victim.send(signal.SIGTERM)
    assert victim.ended() in {0, 143}, victim.log[-2000:]


def sigint(field: Field) -> None:
    victim = field.victim()
    signal_started(field, victim, signal.SIGINT, cuts=False)
    assert victim.ended() == 0, victim.log[-2000:]


def signal_started(
    field: Field, victim: Process, which: signal.Signals, *, cuts: bool
) -> None:
    field.started(victim)
    field.signal(victim, which, cuts=cuts)


def rolling_restart(field: Field) -> None:
    """Replace one worker after the other, the new one first, as a deploy does."""
    field.victim()
    for old in list(field.workers):
        fresh = field.begin_worker()
        field.started(fresh)
        field.workers.append(fresh)
        signal_started(field, old, signal.SIGTERM, cuts=False)
        assert old.ended() == 0, old.log[-2000:]
        field.workers.remove(old)


# --- under a supervisor


def lay_supervisor(field: Field) -> None:
    def start(field: Field) -> Process:
        return field.begin_worker("--processes", str(field.state["processes"]))

    field.state["processes"] = field.size
    field.size = 1
    field.is_supervised = True
    field.start_one = start


def reload_supervisor(field: Field) -> None:
    """Send SIGHUP: every worker is replaced, and running jobs may end."""
    supervisor = field.workers[0]
    before = set(supervisor.children())
    field.signal(supervisor, signal.SIGHUP, cuts=False)
    until(lambda: not before & set(supervisor.children()), 60, "all are replaced")


def kill_supervised(field: Field) -> None:
    supervisor = field.workers[0]
    # On a busy machine a worker that was killed before may not be replaced yet.
    until(supervisor.children, 60, "a worker is there")
    # The oldest one is spared: without a steady worker ten deaths are a crash loop.
    oldest, *younger = sorted(supervisor.children())
    victim = field.rng.choice(younger or [oldest])
    field.record.begin("supervised-kill", [victim], lasting=True)
    with suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)


def kill_supervisor(field: Field) -> None:
    """Kill the supervisor: its workers notice it, drain, and leave."""
    supervisor = field.workers[0]
    pids = supervisor.children()
    field.record.begin("supervisor-kill", pids, lasting=True)
    supervisor.kill()
    field.mend()
    until(lambda: not any(map(is_alive, pids)), 60, "the orphans are gone")


# --- children


def lay_children(field: Field) -> None:
    del field.extra[jobs.CHILDLESS]
    field.settings["worker"]["children"] = 1


def kill_child(field: Field) -> None:
    """Run jobs in children, and kill -9 a child that works."""
    for _ in range(4):
        field.ask("in_a_child", 0.5)

    def working() -> list[int]:
        workers = set(field.worker_pids())
        starts = field.lines_of("start")
        seen = {line["pid"] for line in starts if line["parent"] in workers}
        return sorted(filter(is_alive, seen))

    victim = field.rng.choice(until(working, 30, "a child works"))
    field.record.begin("child-kill", [victim], lasting=True)
    with suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)


# --- poison, blocked loops, memory


def poison(how: str) -> Callable[[Field], None]:
    """Return a strike by a job that kills three workers and becomes dead."""

    def strike(field: Field) -> None:
        field.ask("poison", how)
        until(lambda: is_dead_by_crash(field), 60, "the poison is convicted")

    return strike


def is_dead_by_crash(field: Field) -> bool:
    """Whether no such job is left; replaces the workers that it has killed."""
    field.mend()
    sql = "select count(*) from job where task = ? and state < ?"
    return field.select(sql, POISON, DONE)[0][0] == 0


def lacks_memory_group() -> str:
    group = make_group()
    if group is None:
        return WHAT
    group.rmdir()
    return ""


def lay_memory_group(field: Field) -> None:
    field.state["group"] = group = make_group()
    field.extra[jobs.GROUP] = str(group)


def remove_memory_group(field: Field) -> None:
    group = field.state.pop("group", None)
    if group is not None:
        until(
            lambda: not (group / "cgroup.procs").read_text(), 30, "the group is empty"
        )
        group.rmdir()


def block_within_limit(field: Field) -> None:
    """Block longer than a lease, shorter than the hard limit: the job must not run again."""
    with field.disturbed("blocked-within-limit"):
        field.ask("block_within_limit", 2 * LEASE_SECONDS)
        field.sleep(2 * LEASE_SECONDS, 3 * LEASE_SECONDS)


PROCESS_FAULTS = [
    Fault(
        "pause-past-lease",
        "SIGSTOP of a worker past its lease",
        pause_past_lease,
        settings=QUICK,
        wanted=BY_LEASE,
    ),
    Fault(
        "pause-anywhere",
        "SIGSTOP wherever it is, also inside a transaction",
        pause_anywhere,
        settings=QUICK,
    ),
    Fault(
        "pause-all", "SIGSTOP of all workers past the lease", pause_all, settings=QUICK
    ),
    Fault(
        "stop-in-transaction",
        "a process stopped inside a transaction: no re-run",
        stop_inside_transaction,
        settings=QUICK,
    ),
    Fault("sigterm-storm", "SIGTERM of several workers: no re-run", sigterm_storm),
    Fault("sigterm-twice", "a second SIGTERM: what runs is given back", sigterm_twice),
    Fault("sigint", "SIGINT: no re-run", sigint),
    Fault("rolling-restart", "new workers, then SIGTERM: no re-run", rolling_restart),
    Fault(
        "supervisor-hup",
        "SIGHUP of a supervisor: no re-run",
        reload_supervisor,
        lay=lay_supervisor,
        pause=SLOWLY,
    ),
    Fault(
        "supervised-kill",
        "kill -9 of a supervised worker",
        kill_supervised,
        lay=lay_supervisor,
        pause=SLOWLY,
        wanted=SAME_HOST,
    ),
    Fault(
        "supervisor-kill",
        "kill -9 of a supervisor",
        kill_supervisor,
        lay=lay_supervisor,
        pause=SLOWLY,
    ),
    Fault(
        "child-kill", "kill -9 of a task's child process", kill_child, lay=lay_children
    ),
    Fault("poison-exit", "a job that ends its worker by os._exit", poison("exit")),
    Fault(
        "poison-segfault", "a job that ends its worker by SIGSEGV", poison("segfault")
    ),
    Fault(
        "memory-limit",
        "a job above the memory limit of a control group",
        poison("memory"),
        lay=lay_memory_group,
        heal=remove_memory_group,
        missing=lacks_memory_group,
    ),
    Fault(
        "blocked-loop",
        "a task blocks the loop past its hard limit",
        ask_for("block_once"),
        pause=SLOWLY,
        wanted=Wanted(recovery_seconds=jobs.LIMIT_SECONDS + SAME_HOST_SECONDS),
    ),
    Fault(
        "blocked-within-limit",
        "a task blocks the loop for two leases: no re-run",
        block_within_limit,
        settings=QUICK,
    ),
    Fault(
        "gil-held",
        "C code in a child holds the interpreter past the hard limit",
        ask_for("hold_gil_once"),
        lay=lay_children,
        pause=SLOWLY,
    ),
]
