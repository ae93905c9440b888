"""The plans of a simulated world: random small ones, and what is done to them.

A leaf is a call of `sim.leaf`, and a handler one of `sim.handler`; the last argument of each
is a name that is unique in the world. How a leaf behaves is looked up by that name.
"""

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from durio import App, Cancel, Context, Permanent
from durio.client.plan_enqueue import store_plan
from durio.errors import DurioError, StoreError, WrongState
from durio.keys import while_active, window
from durio.model.ids import id_bytes, id_text
from durio.plans import Plan, PlanFailure, PlanJob, Signature, chain, group
from tests.plans.reference import AnyLink, Behaviour, leaf_value, leaves_of
from tests.simulation.ledger import Ledger
from tests.simulation.world import Node

LEAF, HANDLER = "sim.leaf", "sim.handler"
PLANS_MIN, PLANS_MAX = 2, 5
LEVELS_MAX, WIDTH_MAX = 3, 3
LEAVES_MAX = 9
ALWAYS = 1000  # deaths
REPLACED_MAX = 2  # plans in the places of leaves of plans in the places of leaves
REPLACED_SHARE, ADDS_SHARE = 0.15, 0.2  # of the leaves
KEYS = 2  # that plans share; each is held while its plan is active
ACTIVE_SHARE, WINDOW_SHARE = 0.25, 0.15  # of the plans
WINDOW_SECONDS = 3600.0
REPEATS = 3  # of the enqueue of a plan with a window
RETRIES_MAX, RETRY_PAUSE_SECONDS = 8, 4.0  # of a request that comes too early
# How a leaf behaves: weight, failed attempts, deaths, cancels.
LEAVES = {
    "done": (14, 0, 0, 0),
    "flaky": (4, 2, 0, 0),
    "dead once": (3, 0, 1, 0),
    "flaky, dead once": (1, 1, 1, 0),
    "dead": (1, 0, ALWAYS, 0),
    "cancelled once": (1, 0, 0, 1),
}
# What is done to a plan after its enqueue: weight, requests in this order.
ACTS = {
    "nothing": (8, ()),
    "retry": (6, ("retry",)),
    "retry twice": (2, ("retry", "retry")),
    "cancel": (3, ("cancel",)),
    "cancel, retry": (3, ("cancel", "retry")),
    "retry a job": (3, ("retry_job",)),
    "cancel a job": (2, ("cancel_job", "retry")),
}


@dataclass(frozen=True, slots=True)
class Leaf:
    """How a leaf behaves, by the number of its starts: it fails, then it is done."""

    seconds: float
    failures: int = 0  # attempts that are retried
    deaths: int = 0  # attempts that end it as dead
    cancels: int = 0  # attempts that end it as cancelled
    inside: dict[str, Any] | None = None  # the document of the plan in its place
    added: tuple[str, ...] = ()  # names of the leaves that it adds to its group

    @property
    def behaviour(self) -> Behaviour:
        """What it does when it is done, for the reference interpreter."""
        inside = None if self.inside is None else Plan[Any].from_dict(self.inside)
        return Behaviour(replaced_by=inside, added=tuple(map(leaf_named, self.added)))


def leaf_named(name: str, *, is_immutable: bool = False) -> Signature[..., Any]:
    return Signature[..., Any](LEAF, (name,), {}, is_immutable=is_immutable)


@dataclass(frozen=True, slots=True)
class PlanAct:
    """A request about a plan."""

    what: str  # cancel, retry, cancel_job or retry_job
    after_seconds: float
    leaf: str = ""  # of cancel_job: the name of its leaf


@dataclass(frozen=True, slots=True)
class PlanWish:
    """A plan that a producer will ask for."""

    document: dict[str, Any]
    leaves: dict[str, Leaf]
    acts: tuple[PlanAct, ...] = ()
    key: str = ""  # held while it is active
    has_window: bool = False  # it has a key of its own, and is enqueued several times

    @property
    def plan(self) -> Plan[Any]:
        return Plan[Any].from_dict(self.document)

    @property
    def keyed_plan(self) -> Plan[Any]:
        if self.has_window:
            key = next(iter(self.leaves))
            return self.plan.options(key=key, unique=window(WINDOW_SECONDS))
        if self.key:
            return self.plan.options(key=self.key, unique=while_active)
        return self.plan


def draw_plan(chance: Random, n: int) -> PlanWish:
    """Draw a plan for the wish with this number."""
    while True:
        plan = PlanDrawing(chance, n).plan(LEVELS_MAX)
        names = list(leaves_of(plan))
        if 1 <= len(names) <= LEAVES_MAX:
            break
    drawing, leaves = PlanDrawing(chance, n, 100), dict[str, Leaf]()
    draw_leaves(drawing, plan, leaves)
    way = chance.random()
    key = f"plan-{chance.randrange(KEYS)}" if way < ACTIVE_SHARE else ""
    has_window = ACTIVE_SHARE <= way < ACTIVE_SHARE + WINDOW_SHARE
    weights = [weight for weight, _ in ACTS.values()]
    _, requests = ACTS[chance.choices(list(ACTS), weights)[0]]
    acts = [
        PlanAct(what, chance.expovariate(1 / 8), chance.choice(names))
        for what in requests
    ]
    return PlanWish(plan.to_dict(), leaves, tuple(acts), key, has_window)


def draw_leaves(
    drawing: "PlanDrawing",
    link: AnyLink,
    leaves: dict[str, Leaf],
    depth: int = REPLACED_MAX,
    *,
    in_group: bool = False,
) -> None:
    """Draw the leaves of a plan, of plans in their places, and those that they add."""
    if isinstance(link, Plan):
        in_group |= link.kind == "group"
        members: tuple[Any, ...] = link.members
        for member in members:
            draw_leaves(drawing, member, leaves, depth, in_group=in_group)
        return
    chance, name = drawing.chance, link.args[-1]
    leaf = leaves[name] = draw_leaf(chance)
    if depth and chance.random() < REPLACED_SHARE:
        inside = drawing.plan(1)
        draw_leaves(drawing, inside, leaves, depth - 1)
        leaf = replace(leaf, inside=inside.to_dict())
    if in_group and chance.random() < ADDS_SHARE:
        added = tuple(drawing.name("n") for _ in range(chance.randint(1, 2)))
        leaf = replace(leaf, added=added)
        for each in added:
            draw_leaves(drawing, leaf_named(each), leaves, depth)
    leaves[name] = leaf


def draw_leaf(chance: Random) -> Leaf:
    weights = [weight for weight, *_ in LEAVES.values()]
    _, failures, deaths, cancels = LEAVES[chance.choices(list(LEAVES), weights)[0]]
    return Leaf(min(chance.expovariate(1 / 2), 8.0), failures, deaths, cancels)


class PlanDrawing:
    """Draws the parts of one plan, and counts them."""

    def __init__(self, chance: Random, n: int, count: int = 0) -> None:
        self.chance = chance
        self.prefix = f"{n}."
        self.count = count

    def plan(self, levels: int) -> Plan[Any]:
        is_chain = self.chance.random() < 0.5
        width = self.chance.randint(1, WIDTH_MAX)
        members: list[Any] = [self.link(levels - 1) for _ in range(width)]
        if is_chain:
            return self.handled(chain(members))
        rule = self.chance.choice(["plain", "plain", "collect", "cancel_rest"])
        if rule == "collect":
            return group(members, on_error="collect")
        return self.handled(group(members, cancel_rest=rule == "cancel_rest"))

    def link(self, levels: int) -> AnyLink:
        if levels > 0 and self.chance.random() < 0.4:
            return self.plan(levels)
        is_immutable = self.chance.random() < 0.2
        name = self.name("n")
        return self.handled(leaf_named(name, is_immutable=is_immutable))

    def handled(self, link: Any) -> Any:
        for _ in range(self.chance.choice([0, 0, 1])):
            link = link.on_error(Signature[..., Any](HANDLER, (self.name("h"),), {}))
        return link

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{self.prefix}{kind}{self.count}"


@dataclass
class PlanTasks:
    """The tasks of plans, in one process; each writes to the ledger."""

    node: Node
    ledger: Ledger

    async def leaf(self, *values: Any) -> Any:
        ctx = Context.current()
        n = self.ledger.number_of[id_bytes(ctx.job_id)]
        leaf = self.ledger.leaves[values[-1]]
        self.ledger.note(self.node.name, "start", n, attempt=ctx.attempt)
        starts = self.ledger.starts[n]
        await self.node.clock.sleep(leaf.seconds)
        if starts <= leaf.failures:
            raise ValueError(f"start {starts} of {values[-1]} fails")
        if starts <= leaf.failures + leaf.deaths:
            raise Permanent(f"{values[-1]} is dead")
        if starts <= leaf.failures + leaf.deaths + leaf.cancels:
            raise Cancel
        change = leaf.behaviour
        if change.added:
            ctx.add(*change.added)
        if change.replaced_by is not None:
            self.ledger.note(self.node.name, "effect", n)
            return ctx.replace(change.replaced_by)
        value = leaf_value(*values)
        self.ledger.note(self.node.name, "effect", n, value=value)
        return value

    async def handler(self, failure: PlanFailure, name: str) -> None:
        n = self.ledger.number_of[id_bytes(Context.current().job_id)]
        self.ledger.note(self.node.name, "start", n, of=failure.text, name=name)


@dataclass
class PlanProducer:
    """Enqueues plans, cancels them and retries them."""

    app: App
    node: Node
    ledger: Ledger

    def note(self, what: str, n: int, **fields: Any) -> None:
        self.ledger.note(self.node.name, what, n, **fields)

    async def ask(self, n: int, wish: PlanWish) -> None:
        """Enqueue a plan and note the result or the error; then do what was drawn."""
        stored: tuple[bytes, bool] | None = None
        for _ in range(REPEATS if wish.has_window else 1):
            stored = await self.enqueue(n, wish) or stored
        if stored is None or not (stored[1] or wish.has_window):
            return  # it is not known, or another plan has the key
        handle: PlanJob[Any] = PlanJob(self.app, stored[0])
        for act in wish.acts:
            await self.node.clock.sleep(act.after_seconds)
            await self.act(n, act, handle)

    async def enqueue(self, n: int, wish: PlanWish) -> tuple[bytes, bool] | None:
        """Enqueue a plan once; return its id and whether it is new, None after an error."""
        self.note("plan.invoke", n)
        try:
            plan_id, is_new, _ = await store_plan(self.app, wish.keyed_plan, (), {})
        except StoreError as error:
            what = "plan.info" if error.unknown else "plan.fail"
            self.note(what, n, error=error.code)
            return None
        self.note("plan.ok", n, is_new=is_new, id=id_text(plan_id))
        return plan_id, is_new

    async def act(self, n: int, act: PlanAct, handle: PlanJob[Any]) -> None:
        """Do it; repeat it when it comes too early or the store does not answer."""
        for _ in range(RETRIES_MAX):
            self.note(f"plan.{act.what}", n)
            try:
                if await self.do(act, handle):
                    self.note("plan.acted", n, act=act.what)
                    return
            except WrongState as error:
                self.note("plan.refused", n, state=str(getattr(error, "state", None)))
            except DurioError as error:
                self.note("plan.failed", n, error=error.code)
            await self.node.clock.sleep(RETRY_PAUSE_SECONDS)

    async def do(self, act: PlanAct, handle: PlanJob[Any]) -> bool:
        """Return False if there is nothing to do yet."""
        match act.what:
            case "cancel":
                await handle.cancel()
            case "retry":
                await handle.retry()
            case "cancel_job":
                job = await self.app.job(self.job_id(act.leaf))
                await job.cancel()
            case _:
                return await self.retry_dead(handle)
        return True

    async def retry_dead(self, handle: PlanJob[Any]) -> bool:
        """Retry the first job of a failed plan, if it is dead."""
        status = await handle.status()
        if status.failed_node is None:
            return False
        job = await self.app.job(status.failed_node)
        if (await job.status()).state.value != "dead":
            return False
        await job.retry()
        return True

    def job_id(self, leaf: str) -> str:
        return self.ledger.job_of_leaf[leaf]
