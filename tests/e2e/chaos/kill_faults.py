"""Faults by kill -9 of processes: at random and at named points."""

from collections.abc import Callable
from functools import partial

from tests.e2e.chaos.cell import Fault, nothing
from tests.e2e.chaos.field import Field
from tests.e2e.chaos.judge import Wanted
from tests.e2e.workers import Process

SAME_HOST_SECONDS = 5.0  # until a killed worker's jobs run in another process
SAME_HOST = Wanted(recovery_seconds=SAME_HOST_SECONDS)
DOOMED = 2  # of four workers
TIMES_MAX = 12
SLOWLY = (1.0, 2.5)


def kill_one(field: Field) -> None:
    field.gather()
    field.kill(field.victim(), "kill-random")


def kill_all(field: Field) -> None:
    field.gather()
    field.record.begin("kill-all", field.worker_pids(), lasting=True)
    for worker in field.workers:
        worker.kill()


def kill_producer(field: Field) -> None:
    field.mend_producers()
    victim = field.rng.choice(field.producers)
    field.record.begin("kill-producer", [], lasting=True)
    victim.kill()
    field.mend_producers()


def lay_doomed_producers(field: Field) -> None:
    """Make all producers die before or after the commit of an enqueue."""

    def options() -> list[str]:
        if field.state.get("healed"):
            return []
        point = field.rng.choice(["uncommitted", "committed"])
        return [point, str(field.rng.randint(2, TIMES_MAX))]

    field.producer_options = options


def spare_producers(field: Field) -> None:
    field.state["healed"] = True


def lay_doomed(field: Field, *, point: str) -> None:
    """Make half of the workers die at this point, and their replacements too."""
    doomed: list[Process] = []

    def start(field: Field) -> Process:
        doomed[:] = [one for one in doomed if one.exit_code is None]
        if len(doomed) >= DOOMED or field.state.get("healed"):
            return field.begin_worker()
        times = str(field.rng.randint(1, TIMES_MAX))
        doomed.append(field.run("tests.e2e.chaos.runner", point, times))
        return doomed[-1]

    field.start_one = start
    field.state["doomed"] = doomed


def end_doomed(field: Field) -> None:
    field.state["healed"] = True
    for one in field.state["doomed"]:
        if one.exit_code is None:
            field.kill(one, "kill-random")


def doomed(point: str, what: str) -> Fault:
    return Fault(
        f"kill-{point}",
        f"kill -9 of a worker: {what}",
        nothing,  # the workers strike themselves
        lay=partial(lay_doomed, point=point),
        heal=end_doomed,
        wanted=SAME_HOST,
    )


def ask_for(task: str, *args: object) -> Callable[[Field], None]:
    """Return a strike that is a job; other workers must be there to take over."""

    def strike(field: Field) -> None:
        field.gather()
        field.ask(task, *args)

    return strike


KILL_FAULTS = [
    Fault("kill-random", "kill -9 of a worker", kill_one, wanted=SAME_HOST),
    Fault("kill-all", "kill -9 of all workers at once", kill_all, pause=SLOWLY),
    Fault("kill-producer", "kill -9 of a producer", kill_producer),
    Fault(
        "kill-enqueue",
        "kill -9 of producers: before and after an enqueue commits",
        Field.mend_producers,
        lay=lay_doomed_producers,
        heal=spare_producers,
    ),
    doomed("claimed", "it has claimed, nothing has started"),
    Fault(
        "kill-mid-task",
        "kill -9 of a worker: in the middle of a task",
        ask_for("die_once"),
        wanted=SAME_HOST,
    ),
    doomed("unsent", "effects are made, the outcomes on their way"),
    doomed("uncommitted", "the finish is written, not committed"),
    doomed("committed", "the finish is committed, its answer not delivered"),
    doomed("torn", "half of a commit is in the log"),
    doomed("unsynced", "a commit is in the log, not synced"),
    Fault(
        "fork-then-kill",
        "a task forks without exec, then kill -9",
        ask_for("fork_and_die"),
        wanted=SAME_HOST,
    ),
]
