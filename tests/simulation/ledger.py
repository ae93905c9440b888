"""What happened in a simulated world, recorded from outside: the only input of checks.

Two sources write here. Tasks and producers record what they do (`start`, `effect`,
`enq.ok` ...). The recorder at the store records what was executed (`claim`, `end`,
`refused` ...): it sees calls and answers, not tables. A disturbance is written before it
begins, because its victim may not live to report it.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from durio.model.breaker import load_breaker
from durio.model.effects import Effects
from durio.model.ids import id_bytes, id_text
from durio.model.job import RUNNING, Claim, NewJob, StoredJob
from durio.model.outcome import Outcome, OutcomeKind, RescuedJob
from durio.model.plan_payload import plan_place_of
from durio.ports.commit import Committed
from durio.ports.enqueue import Enqueued
from durio.ports.exchange import Exchanged
from durio.ports.store import Store
from durio.ports.upkeep import Rescued
from tests.job_counts import count_jobs
from tests.simulation.gate_recorder import (
    LOOK_EVERY,
    WRITES,
    taken_places,
    wrong_gates,
)
from tests.simulation.schedule_recorder import ScheduleRecorder
from tests.simulation.world import Node, World

T = TypeVar("T")

ALL_NODES = "*"
OVER = {"end", "repeat", "refused"}
PLAN_JOBS_FIRST = 100_000  # numbers of jobs of plans and schedules begin here
PLANS = "plan:"  # begin of the kind of records that plans have
BREAKERS = "breaker:"


class LedgerLine(NamedTuple):
    at: float
    node: str
    what: str
    n: int | None  # the job, by the number in its arguments
    fields: Mapping[str, Any]

    def __str__(self) -> str:
        about = "" if self.n is None else f" job {self.n}"
        told = " ".join(f"{name}={value}" for name, value in self.fields.items())
        return f"{self.at:12.3f}  {self.node:<10} {self.what}{about} {told}".rstrip()


# A loop that stands still for less than a hard limit costs its jobs nothing. A pause by
# SIGSTOP always counts: the process cannot measure it, and its time limits went on.
EXCUSED_SECONDS = 15.0
PAUSE_COUNTS = 1000.0


class Disturbance(NamedTuple):
    """A fault, and when its node may behave oddly; ALL_NODES is a node too."""

    kind: str
    node: str
    began: float
    ended: float

    def touches(self, node: str, since: float, until: float) -> bool:
        """Whether it can explain what that process did in this time."""
        is_about = self.node in (node, ALL_NODES)
        return is_about and self.began <= until and self.ended >= since


class Ledger:
    """An append-only list of lines, and a hash of all of them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.entries: list[LedgerLine] = []
        self.disturbances: list[Disturbance] = []
        self.calls: Counter[str] = Counter()
        self.number_of: dict[bytes, int] = {}
        self.leaves: dict[str, Any] = {}  # how each leaf of a plan behaves, by its name
        self.job_of_leaf: dict[str, str] = {}  # id of its job
        self.broken: Sequence[tuple[float, float]] = ()  # when the service fails
        self.starts: Counter[int] = Counter()
        self.running_jobs: defaultdict[str, set[int]] = defaultdict(
            set
        )  # node -> numbers of the jobs that it runs
        self._hash = hashlib.sha256()

    def stood_still(self, node: str, since: float, until: float) -> bool:
        """Whether a pause, or code outside a job, may have cost a process's jobs an attempt."""
        seconds = sum(
            one.ended - one.began + (PAUSE_COUNTS if one.kind == "pause" else 0.0)
            for one in self.disturbances
            if one.kind in ("pause", "block") and one.touches(node, since, until)
        )
        return seconds >= EXCUSED_SECONDS

    def note(self, node: str, what: str, n: int | None = None, **fields: Any) -> None:
        entry = LedgerLine(round(self.world.seconds, 6), node, what, n, fields)
        self.entries.append(entry)
        if n is None:
            if what == "registered":
                self.running_jobs[node].clear()
        elif what == "start":
            self.starts[n] += 1
            self.running_jobs[node].add(n)
        elif what in OVER:
            self.running_jobs[node].discard(n)
        self._hash.update(f"{entry}\n".encode())

    def disturb(self, kind: str, node: str, seconds: float) -> None:
        """Record a fault that begins now."""
        began = self.world.seconds
        self.disturbances.append(Disturbance(kind, node, began, began + seconds))
        self.note(node, "fault", kind=kind, seconds=round(seconds, 3))

    @property
    def digest(self) -> str:
        """Equal for histories that are equal byte for byte."""
        steps = f"{self.world.steps} {sorted(self.calls.items())}"
        whole = self._hash.copy()
        whole.update(steps.encode())
        return whole.hexdigest()

    def of(self, what: str) -> list[LedgerLine]:
        return [entry for entry in self.entries if entry.what == what]

    def about(self, n: int) -> list[LedgerLine]:
        return [entry for entry in self.entries if entry.n == n]

    def new_number(self, job_id: bytes) -> int:
        """Number a job that no producer has numbered: of a plan, or of a schedule."""
        n = self.number_of[job_id] = PLAN_JOBS_FIRST + len(self.number_of)
        return n

    def number(self, job: StoredJob) -> int:
        """Return the number of a job that is in the store."""
        known = self.number_of.get(job.id)
        return number_in(job.payload) if known is None else known


class CallRecorder:
    """Records at the store what was executed, and what the store answered."""

    def __init__(self, store: Store, ledger: Ledger) -> None:
        self.store = store
        self.ledger = ledger
        # Kind and name of a record -> the number of its plan, and what was noted last.
        self.plans: dict[tuple[str, str], tuple[int, dict[str, Any]]] = {}
        self.schedules = ScheduleRecorder(ledger)
        self._writes = 0

    def executed(
        self, node: Node, method: str, args: tuple[Any, ...], answer: Any
    ) -> None:
        """Record a call that the store has executed."""
        self.ledger.calls[method] += 1
        self._writes += method in WRITES
        self._look_sometimes(node, method)
        match method:
            case "enqueue":
                self._stored(node, args[0], answer)
            case "exchange":
                self._ended(node, args[1], answer)
                self._claimed(node, args[0], answer.claims)
            case "rescue":
                self._rescued(node, answer)
            case "register":
                self.ledger.note(node.name, "registered", worker=answer)
            case "leave":
                self.ledger.note(node.name, "left", worker=args[0])
            case "commit":
                self._committed(node, args[0], answer)
            case "due_records":
                self.schedules.read(node, args[0], answer)
            case "act":
                self._note_plans(node)
            case _:
                pass

    def _look_sometimes(self, node: Node, method: str) -> None:
        if method in WRITES and self._writes % LOOK_EVERY == 0:
            self.look_at_gates(node.name)

    def look_at_gates(self, node: str, *, is_over: bool = False) -> None:
        """Note what is wrong with the gates; at the end also places that are taken."""
        wrong = wrong_gates(self.store)
        wrong += taken_places(self.store) if is_over else []
        if wrong or is_over:
            self.ledger.note(node, "gates", wrong=wrong)

    def _stored(
        self, node: Node, jobs: Sequence[NewJob], answers: Sequence[Enqueued]
    ) -> None:
        for job, answer in zip(jobs, answers, strict=True):
            n = number_in(job.payload)
            self.ledger.number_of[job.id] = n
            fate = "full" if answer.full else "new" if answer.created else "existing"
            if answer.replaced:
                fate = "replaced"
            if answer.conflict:
                fate = "conflict"
            by = self._n(answer.id)
            lane = job.lane
            self.ledger.note(
                node.name, "stored", n, fate=fate, answered_by=by, lane=lane
            )
        for lane in sorted({job.lane for job in jobs}):
            depth = waiting_in(self.store, lane)
            self.ledger.note(node.name, "depth", lane=lane, depth=depth)

    def _claimed(self, node: Node, worker: int, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self.ledger.note(
                node.name,
                "claim",
                self._n(claim.id),
                claim_no=claim.claim_no,
                lane=claim.lane,
                worker=worker,
                retried=claim.retried,
                losses=claim.losses,
                lost=claim.lost,
            )

    def _ended(
        self, node: Node, outcomes: Sequence[Outcome], answer: Exchanged
    ) -> None:
        cancelled = set(answer.cancelled)
        refused: defaultdict[tuple[bytes, int], list[bool]] = defaultdict(list)
        for one in answer.rejected:
            refused[one.id, one.claim_no].append(one.already_stored)
        left = Counter((outcome.id, outcome.claim_no) for outcome in outcomes)
        for outcome in sorted(outcomes, key=is_no_success):
            key = outcome.id, outcome.claim_no
            # Of several outcomes of one claim the store takes `done`, or else the first.
            landed = refused[key].pop(0) if left[key] <= len(refused[key]) else None
            left[key] -= 1
            if outcome.kind == OutcomeKind.PROGRESS:
                if landed is None:
                    self._progress(node, outcome)
                continue
            kind = OutcomeKind(outcome.kind).name.lower()
            what = "end" if landed is None else "repeat" if landed else "refused"
            if what == "end" and outcome.id in cancelled:
                kind = "cancel"
            self.ledger.note(
                node.name,
                what,
                self._n(outcome.id),
                claim_no=outcome.claim_no,
                kind=kind,
                reason=outcome.reason,
                delay=outcome.delay_seconds,
            )
            if what == "end" and outcome.effects is not None:
                self._note_jobs(node, outcome.effects)
                self._note_plans(node)

    def _progress(self, node: Node, outcome: Outcome) -> None:
        told = msgspec.json.decode(outcome.progress or b"{}")
        n, number = self._n(outcome.id), outcome.claim_no
        self.ledger.note(node.name, "progress", n, claim_no=number, done=told["done"])

    def _rescued(self, node: Node, answer: Rescued) -> None:
        for left in answer.left:
            self._left(node, left)

    def _left(self, node: Node, left: RescuedJob) -> None:
        self.ledger.note(
            node.name,
            "rescued",
            self._n(left.id),
            state=left.state,
            reason=left.reason,
            worker=left.worker,
        )

    def _committed(self, node: Node, effects: Effects, answer: Committed) -> None:
        if answer.conflict is None:
            self.schedules.committed(node, effects, answer)
            self._note_jobs(node, effects)
            self._note_breakers(node, effects)
        self._note_plans(node)

    def _note_breakers(self, node: Node, effects: Effects) -> None:
        for put in effects.puts:
            if not put.kind.startswith(BREAKERS) or put.body is None:
                continue
            breaker = load_breaker(put.body)
            assert breaker is not None
            numbers = self.ledger.number_of
            probes = [numbers[id_bytes(job)] for job in breaker.probes]
            state, period = breaker.state, breaker.period
            self.ledger.note(
                node.name, "breaker", state=state, period=period, probes=probes
            )

    def _note_jobs(self, node: Node, effects: Effects) -> None:
        """Note the jobs of plans, and the handlers of a failure."""
        number_of: dict[str, int] = {}  # id of a plan -> its number
        for job in effects.jobs:
            if job.id in self.ledger.number_of:
                continue
            name, place = last_argument(job.payload), plan_place_of(job.opts)
            plan_id = "" if place is None else place.plan
            if name:
                number_of[plan_id] = int(name.partition(".")[0])
            n = self.ledger.new_number(job.id)
            self.ledger.job_of_leaf[name] = id_text(job.id)
            self.ledger.note(
                node.name,
                "node",
                n,
                plan=number_of[plan_id],
                task=job.task,
                name=name,
                id=plan_id,
                number=None if place is None else place.node,
            )
        for put in effects.puts:
            if put.kind.startswith(PLANS) and put.name in number_of:
                self.plans.setdefault((put.kind, put.name), (number_of[put.name], {}))

    def _note_plans(self, node: Node) -> None:
        """Note each plan whose record has changed: `inner` is in the place of a job."""
        for (kind, name), (plan, before) in self.plans.items():
            for record in at_once(self.store.records(kind, [name])):
                body = msgspec.json.decode(record.body)
                now = {
                    "state": body.get("state", "running"),
                    "resumed": body.get("resumed", 0),
                    "failure": body.get("failure"),
                    "id": name,
                }
                if now != before:
                    self.plans[kind, name] = plan, now
                    what = "inner" if "replaces" in body else "plan"
                    self.ledger.note(node.name, what, plan, **now)

    def _n(self, job_id: bytes) -> int | None:
        return self.ledger.number_of.get(job_id)


def is_no_success(outcome: Outcome) -> bool:
    return outcome.kind != OutcomeKind.DONE


def number_in(payload: bytes) -> int:
    """Return the number that a producer gave this job: every task has a parameter `n`."""
    _args, kwargs = msgspec.json.decode(payload)
    return int(kwargs.get("item", kwargs)["n"])  # the item of a batch task


def last_argument(payload: bytes) -> str:
    """Return the name that a job of a plan has; the join of a group has none."""
    args, _kwargs = msgspec.json.decode(payload)
    return str(args[-1]) if args else ""


def waiting_in(store: Store, lane: str) -> int:
    """Return how many jobs of this lane are ready, scheduled or blocked now."""
    states = at_once(count_jobs(store, lane.partition(":")[0])).get(lane, {})
    return sum(number for state, number in states.items() if state < RUNNING)


def at_once(asking: Coroutine[Any, Any, T]) -> T:
    """Return the result of a store in memory, which never waits."""
    try:
        asking.send(None)
    except StopIteration as answered:
        answer: T = answered.value
        return answer
    raise RuntimeError("a store in memory answers at once")
